"""The model of case.yaml, and the rules that hold inside one value. Pure.

Rules that look at several values at once: `manifest.rules`. Validation takes a context: `{"images": names}`.
"""

import re
import signal as signals
import warnings
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticUseDefault

from gpu_casebook import pins
from gpu_casebook.kinds import Area, Failure, Grade
from gpu_casebook.manifest.bounds import PATTERN as BOUND
from gpu_casebook.manifest.bounds import Bound
from gpu_casebook.patterns import compiled
from gpu_casebook.pins import Special, pin
from gpu_casebook.probe_registry import PROBES, all_probes
from gpu_casebook.reading import cuda_errors
from gpu_casebook.reading.findings import Kind, Tool
from gpu_casebook.text import DURATION, duration
from gpu_casebook.trial import PYTHON

NAME_PATTERN = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
FIGURE_PATTERN = "^[A-Za-z_][A-Za-z0-9_.-]*$"
VARIABLE_PATTERN = "^[A-Za-z_][A-Za-z0-9_]*$"
EXCEPTION_PATTERN = r"^[A-Za-z_]\w*(\.([A-Za-z_]\w*|<locals>))*(\([\w.]+\)|\[[\w., ]+\])?$"
CUDA_ERROR_PATTERN = (
    f"^(cudaError[A-Z][A-Za-z0-9]*|({cuda_errors.LIBRARIES})_STATUS_[A-Z0-9_]+|CUFFT_[A-Z_]+|nccl[A-Za-z]+)$"
)
PYTHON_PATTERN = r"^3\.([89]|[1-9][0-9])$"
PACKAGE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
LINE_PATTERN = r"^\s*\S(.*\S)?\s*$"
INDEX_LINES = r"(?m)^(?:symptom|area| +capability_from): .*\n"
"""What only reports have of a manifest, where they look for it as text."""
LINK_PATTERN = r"^https?://[^\s/?#]+\S*$"

PATTERN_WORDS = {
    NAME_PATTERN: "must consist of a-z, 0-9 and hyphens, with a letter or digit at both ends",
    FIGURE_PATTERN: "is not a name of a figure, digest or series; it begins with a letter and goes on with letters, "
    "digits and _ . -",
    VARIABLE_PATTERN: "is not a name of an environment variable",
    EXCEPTION_PATTERN: "is not an exception type; write it as the traceback has it, such as torch.OutOfMemoryError",
    CUDA_ERROR_PATTERN: "is not a CUDA error; write its runtime name, such as cudaErrorIllegalAddress, or a "
    "library's status, such as CUBLAS_STATUS_ALLOC_FAILED or ncclInvalidUsage",
    PYTHON_PATTERN: "is not a minor version of Python; write one such as '3.11'",
    PACKAGE_PATTERN: "is not a package's name; its version stands in the requirements",
    LINE_PATTERN: "must be one line of text",
    LINK_PATTERN: "is not a link; write it with https://",
    **pins.PATTERN_WORDS,
}

_RATE = re.compile(r"\s*>=\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)")

_TAKEN = {"HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}

TRIALS = 3
"""Trials of each variant unless the manifest says otherwise; no fewer where no rate is measured."""
MOST_TRIALS = 1000
ALPHA = 0.01
CLEAN_TRIALS = 200
CLEAN = 4
"""The least trials of fixed where no rate is measured. With 3 and 3, a fix that fixes nothing of a failure that comes
in every other run would be confirmed once in 64 times; with 3 and 4 it is 0.84 % at worst."""
DIFFERING = 40
"""The least trials that repro may have where outputs must differ; those that always do take eight."""
EXPECTED = 5
"""How many failures repro's trials must let expect at the declared rate. With fewer, one lucky failure of a rarer kind
confirms a fix that fixes nothing more often than `alpha` allows (tests/test_simulation.py)."""


class Provenance(StrEnum):
    RELEASE = "release"
    RELEASE_WORKAROUND = "release-workaround"
    SOURCES = "sources"
    DISTILLED = "distilled"
    PATTERN = "pattern"


def _bound(value: Any) -> Bound:
    if isinstance(value, Bound):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a bound; write comparisons such as '< 1e-5', in quotes")  # noqa: TRY004
    return Bound.parse(value)


def _seconds(value: Any) -> float:
    if isinstance(value, str) and re.fullmatch(DURATION, value):
        return duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a duration; write '120s', '2m', '1h30m' or a number of seconds")  # noqa: TRY004
    return float(value)


def _bytes(value: Any) -> int:
    if isinstance(value, str) and _SIZE.fullmatch(value):
        value = int(TypeAdapter(ByteSize).validate_python(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not an amount of memory; write '16GiB', '512MiB' or a number of bytes")  # noqa: TRY004
    return value


def _regex(value: str) -> str:
    try:
        # A pattern that draws a warning will mean something else in a later Python.
        with warnings.catch_warnings(action="error"):
            compiled(value)
    except (re.error, Warning, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    except RecursionError:
        raise ValueError("is not a regular expression: nested too deep") from None
    return value


def _signal(value: str) -> str:
    if value not in signals.Signals.__members__:
        raise ValueError(f"no signal is called {value!r}; write a name such as SIGSEGV or SIGABRT")
    return value


def _probe(value: str) -> str:
    if value not in (there := all_probes()):
        raise ValueError(f"{value!r} is none of: {', '.join(there)}")
    return value


def _exit_status(value: int) -> int:
    for signal in signals.Signals:
        if value == 128 + signal:
            raise ValueError(f"exit status {value} is how a shell writes a signal; write signal: {signal.name}")
    return value


def _specifiers(value: str) -> str:
    try:
        SpecifierSet(value)
    except InvalidSpecifier:
        raise ValueError(f"{value!r} is not a range of versions; write one such as '>=7.0,<10.0'") from None
    if not value.strip():
        raise ValueError("an empty range says nothing; leave the key out")
    return value


def _pinned(value: str) -> str:
    pin(value)
    return value


def _known_image(value: str, info: ValidationInfo) -> str:
    images = (info.context or {}).get("images")
    if images is not None and value not in images:
        there = ", ".join(sorted(images)) or "none"
        raise ValueError(f"no image named {value} (there are: {there})")
    return value


def _cuda_error(value: str) -> str:
    if value not in cuda_errors.NAMES and not cuda_errors.is_library_status(value):
        near = get_close_matches(value, cuda_errors.NAMES, n=1)
        raise ValueError(f"{value} is not an error of CUDA" + (f"; did you mean {near[0]}?" if near else ""))
    return value


def _null_is_default(value: Any) -> Any:
    """In an environment's expectations, null drops what the case's own ones say."""
    if value is None:
        raise PydanticUseDefault
    return value


def _least_rate(value: Any) -> Bound:
    if isinstance(value, Bound):
        return value
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < float(match[1]) <= 1:
        raise ValueError(f"{value!r} is not a least rate; write the share of runs, above 0 and up to 1, as '>= 0.3'")
    return Bound.parse(value)


def _variable_name(value: str) -> str:
    if value in _TAKEN or value.startswith("NVIDIA_"):
        raise ValueError(f"{value} is set by the runner, which keeps a trial to its own files and GPUs; leave it out")
    return value


def _variable(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL, which no variable of the environment can")
    return value


def _plain(value: str) -> str:
    if not value.isprintable():
        raise ValueError("holds control characters, or some that hide or turn round text; leave them out")
    return value


VariableName = Annotated[str, Field(pattern=VARIABLE_PATTERN), AfterValidator(_variable_name)]
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=80)]
Line = Annotated[str, Field(pattern=LINE_PATTERN), AfterValidator(_plain)]
Link = Annotated[str, Field(pattern=LINK_PATTERN)]
Regex = Annotated[str, AfterValidator(_regex)]
Signal = Annotated[str, AfterValidator(_signal)]
Versions = Annotated[str, AfterValidator(_specifiers)]
Pinned = Annotated[str, AfterValidator(_pinned), WithJsonSchema({"type": "string", "pattern": "[^=]==[^=]"})]
PackageName = Annotated[str, Field(pattern=PACKAGE_PATTERN)]
FigureName = Annotated[str, Field(pattern=FIGURE_PATTERN)]
BoundField = Annotated[
    Bound, BeforeValidator(_bound), WithJsonSchema({"type": "string", "pattern": BOUND, "examples": ["< 1e-5"]})
]
LeastRate = Annotated[
    Bound,
    BeforeValidator(_least_rate),
    WithJsonSchema({"type": "string", "pattern": f"^{_RATE.pattern}$", "examples": [">= 0.3"]}),
]
Digests = Annotated[
    list[FigureName], BeforeValidator(_null_is_default), Field(json_schema_extra={"type": ["array", "null"]})
]
Seconds = Annotated[
    Annotated[float, Field(gt=0, le=24 * 3600, allow_inf_nan=False)],
    BeforeValidator(_seconds),
    WithJsonSchema({"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": f"^{DURATION}$"}),
]
Trials = Annotated[int, Field(ge=1, le=MOST_TRIALS)]
Alpha = Annotated[float, Field(ge=0.01, le=0.2)]
CleanTrials = Annotated[int, Field(ge=1, le=10_000)]
Bytes = Annotated[
    Annotated[int, Field(ge=2**20, le=2**46)],  # 64 TiB: beyond it, numbers of bytes overflow in engines
    BeforeValidator(_bytes),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 2**20, "pattern": f"^{_SIZE.pattern}$"}),
]


class Model(BaseModel):
    """Base of all manifest parts: immutable, strict, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Growth(Model):
    """A bound on what a series grows by per step."""

    series: FigureName = Field(description="Name in the lines name[step]=value that it prints: device_bytes[3]=123456.")
    per_step: BoundField = Field(
        description="Bound on the growth from one step to the next, in the series' unit: '> 1e6' bytes. It is the "
        "median of the slopes between any two steps (Theil-Sen)."
    )
    warm_up: Annotated[int, Field(ge=0)] = Field(0, description="How many steps at the beginning are left out.")
    steps: Annotated[int, Field(ge=3)] = Field(
        10,
        description="The least number of steps after warm-up. The bound must hold of their later half too, so that a "
        "cache that fills is no leak: take three times the steps that one needs.",
    )


class SanitizerFinding(Model):
    """What one tool of compute-sanitizer finds in repro and not in fixed. What is not named does not matter."""

    tool: Literal[Tool.MEMCHECK, Tool.RACECHECK, Tool.INITCHECK] = Field(
        Tool.MEMCHECK, description="The tool that finds it."
    )
    kind: Annotated[Kind, Field(strict=False)] | None = Field(None, description="Kind of finding: out-of-bounds, race.")
    access: Literal["read", "write", "atomic"] | None = Field(None, description="What the kernel did there.")
    size: Annotated[int, Field(ge=1)] | None = Field(None, description="Bytes: of the access, or of a leak.")
    kernel: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="The kernel's bare name, or a part of the full one with `::`, `<` or `(` in it.",
    )


class Hang(Model):
    """A trial that does not end: its processes run, none of them makes progress, and one is where `stack` says.

    What counts as progress: `gpu_casebook.engines.watching`.
    """

    after: Seconds = Field(description="Time after the start from which on nothing makes progress: '20s'.")
    stack: Regex = Field(
        description="Regular expression (Python's), searched in the name of each function that the main thread of a "
        "process is in; one at least must match: _engine_run_backward, all_gather|all_reduce. A main thread that "
        "sleeps by the clock (time.sleep) hangs nowhere: it wakes up by itself."
    )


class Expectation(Model):
    """Everything that must hold of a trial. What is not named does not matter.

    `exit_status` is implied where neither it, a signal nor a hang is named: 0, unless a failure (exception, signal,
    cuda_error) is declared. `message` is a regular expression, searched in the exception's text where an exception
    is declared, otherwise in both streams.
    """

    exit_status: Annotated[int, Field(ge=0, le=255), AfterValidator(_exit_status)] | None = Field(
        None, description="Exit status of the script. 0 unless a failure (exception, signal, cuda_error) is declared."
    )
    signal: Signal | None = Field(None, description="Signal that ends the script, such as SIGSEGV or SIGABRT.")
    exception: Annotated[str, Field(pattern=EXCEPTION_PATTERN, examples=["torch.OutOfMemoryError"])] | None = Field(
        None,
        description="Type of the exception that ends the script, as the traceback's last line has it: "
        "triton.compiler.errors.CompilationError, ray.exceptions.RayTaskError(RuntimeError), ValueError.",
    )
    message: Regex | None = Field(
        None,
        description="Regular expression (Python's), searched in the exception's text where `exception` is declared, "
        "otherwise in stdout and stderr. In single quotes YAML leaves backslashes alone.",
    )
    cuda_error: Annotated[str, Field(pattern=CUDA_ERROR_PATTERN), AfterValidator(_cuda_error)] | None = Field(
        None,
        description="CUDA error by its runtime name, such as cudaErrorIllegalAddress (a device-side assert is "
        "cudaErrorAssert), however it arrives: exception, abort, printed. Where only a library's status says what is "
        "wrong, that: CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_EXECUTION_FAILED, ncclInvalidUsage.",
    )
    hang: Hang | None = Field(
        None,
        description="For repro: the script does not end, and is where `stack` says: "
        "{after: 20s, stack: _engine_run_backward}. The trial is ended as soon as that is clear.",
    )
    figures: Annotated[dict[FigureName, BoundField], BeforeValidator(_null_is_default)] = Field(
        default_factory=dict,
        description="Bounds on the numbers that the script prints as lines name=value: "
        "{rel_err: '< 1e-5', steps: '>= 3, < 8'}. All must hold; NaN satisfies none.",
        json_schema_extra={"type": ["object", "null"]},
    )

    rate: LeastRate | None = Field(
        None,
        description="For repro, where the failure does not come every time: the least share of runs that show it, "
        "'>= 0.3'. The case's `trials` is then the most for repro; the clean runs that fixed must show follow from the "
        "rate that was measured.",
    )
    growth: Growth | None = Field(None, description="Bound on the growth of a series, such as memory per step.")
    differs: Digests = Field(
        default_factory=list,
        description="For repro: names of digests, printed as lines name=sha256:..., that differ between runs.",
    )
    same: Digests = Field(default_factory=list, description="For fixed: digests that are the same in every run.")

    sanitizer: SanitizerFinding | None = Field(
        None,
        description="For repro: what compute-sanitizer finds there, in a trial of its own besides the ordinary ones: "
        "{tool: memcheck, access: write, size: 4, kernel: kernel_backward}. The same tool must find nothing in fixed.",
    )

    @property
    def must_fail(self) -> bool:
        """Whether it names a way to fail: then a trial that ends with status 0 is not as expected."""
        return bool(self.exception or self.signal or self.cuda_error or self.hang or self.exit_status)

    def figures_unlike(self, other: "Expectation") -> dict[str, Bound]:
        """Return the figures whose bounds differ from those of `other`, with their bounds."""
        return {name: bound for name, bound in self.figures.items() if other.figures.get(name) != bound}

    def overridden_by(self, other: "Expectation") -> "Expectation":
        """Return a copy with every key that `other` sets; a key set to null is dropped."""
        return self.model_copy(update={key: getattr(other, key) for key in other.model_fields_set})


class Overrides(Model):
    """What differs in one environment from the case's own expectations, key by key; null drops a key."""

    repro: Expectation | None = Field(None, description="Keys that replace those of the case's repro.expect.")
    fixed: Expectation | None = Field(None, description="Keys that replace those of the case's fixed.expect.")


class Sources(Model):
    """Files of one commit of an upstream repository."""

    url: pins.Repository = Field(description="The repository: https://HOST/OWNER/NAME.")
    commit: pins.Commit = Field(description="The commit, all 40 digits.")
    files: pins.Files = Field(description="Path in the repository -> sha256. Scripts import them by that path.")


class EnvironmentSpec(Model):
    """A named, pinned set of packages, an image, and the hardware it needs."""

    image: Annotated[str, AfterValidator(_known_image)] = Field(description="A directory in images/, such as cuda13.")
    requirements: list[Pinned] = Field(description="Packages both variants need, each pinned: torch==2.11.0.")
    build: list[PackageName] = Field(
        default_factory=list,
        description="Packages that have no wheel and are built from their source distribution, inside the image and "
        "without a network: [docopt]. What they need, to run and to be built, stands in the requirements too.",
    )
    without_dependencies: list[PackageName] = Field(default_factory=list, description="Installed without dependencies.")
    only_files: list[pins.Staying] = Field(default_factory=list, description="Of those: what stays of their files.")
    sources: list[Sources] = Field(default_factory=list, description="Upstream's own files, for both variants.")
    index: Literal["pytorch-cpu"] | None = Field(None, description="Whence builds such as torch==2.13.0+cpu come.")
    python: Annotated[str, Field(pattern=PYTHON_PATTERN)] = Field(PYTHON, description="Minor version: '3.11'.")
    gpus: Annotated[int, Field(ge=0, le=64)] = Field(0, description="How many GPUs a trial needs.")
    gpu_memory: Bytes | None = Field(
        None, description="What a trial takes of a GPU that it may share, where it is over 2 GiB: '34GiB'."
    )
    alone: bool | None = Field(
        None,
        description="Whether a trial has its GPUs for itself, or where it needs none, the machine. Without it: a hang, "
        "a race, a leak, what is measured (rate, differs, growth), and what needs several GPUs.",
    )
    compute_capability: Versions | None = Field(None, description="Range the case can run on: '>=7.0,<10.0'.")
    capability_from: Line | None = Field(None, description="Who or which runs say so; without it, it is a guess.")
    driver: Versions | None = Field(None, description="Range of NVIDIA driver versions, such as '>=580'.")
    grade: Annotated[Grade, Field(strict=False)] = Field(
        Grade.HARDWARE,
        description="hardware: trials run on the device the bug lives on. "
        "simulated: compile-only, interpreter or bounds model on a CPU.",
    )
    variables: dict[VariableName, Annotated[str, AfterValidator(_variable)]] = Field(
        default_factory=dict, description="Environment variables for the trials, such as TRITON_INTERPRET: '1'."
    )
    expect: Overrides = Field(default_factory=Overrides, description="What differs here from the case's own.")

    @property
    def special(self) -> Special:
        build, alone = (tuple(sorted(map(canonicalize_name, each))) for each in (self.build, self.without_dependencies))
        return Special(build, alone, (self.index,) if self.index else (), tuple(sorted(self.only_files)))


class Upstream(Model):
    """Where the failure was reported, and what became of it."""

    project: Annotated[str, Field(min_length=1)] = Field(description="Upstream project, as owner/name.")
    status: Literal["fixed", "open"] = Field(description="Whether upstream has fixed it.")
    issue: Link | None = Field(None, description="Link to the report.")
    introduced: str | None = Field(None, description="Commit or version that brought the bug.")
    fixed: str | None = Field(None, description="Commit or version that fixed it.")
    links: list[Link] = Field(default_factory=list, description="Further links: pull requests, discussions.")


class VariantSpec(Model):
    """`requirements` and `sources` come on top of the environment's: here they are with the bug, and with the fix."""

    expect: Expectation = Field(description="What every trial of this variant must do.")
    requirements: list[Pinned] = Field(default_factory=list, description="Packages of this variant alone.")
    sources: list[Sources] = Field(default_factory=list, description="Upstream's files for this variant alone.")


class Manifest(Model):
    """case.yaml as written."""

    id: Name = Field(description="The name of the case's directory: a-z, 0-9 and hyphens.")
    title: Line = Field(description="One line: what fails, and when.")
    symptom: Line | None = Field(None, description="What users see, in their words: an error's text, or what is off.")
    area: Annotated[Area, Field(strict=False)] | None = Field(None, description="What breaks: a group of the index.")
    failure: Annotated[Failure, Field(strict=False)] = Field(description="The kind of failure.")
    upstream: Upstream
    provenance: Annotated[Provenance, Field(strict=False)] = Field(
        description="What of the project runs. release: the real package, in a buggy and in a fixed version. "
        "release-workaround: the real package, whose defect fixed.py avoids. sources: upstream's files at a commit. "
        "distilled: our own minimal code with the same defect. pattern: an illustration of a mechanism."
    )
    environments: Annotated[dict[Name, EnvironmentSpec], Field(min_length=1)] = Field(
        description="By name; the first whose hardware is there is used unless --environment names one."
    )
    repro: VariantSpec = Field(description="repro.py: shows the failure.")
    fixed: VariantSpec = Field(description="fixed.py: the same with the fix; must prove that its check ran.")
    because: Line | None = Field(
        None,
        description="Where fixed.py is a work-around: why it is one, and what it changes for that. The page shows it.",
    )
    timeout: Seconds = Field(120.0, description="Time for one trial: '120s', '2m', '1h30m' or seconds.")
    trials: Trials = Field(TRIALS, description="Trials of each variant; where a rate is measured, the most for repro.")
    alpha: Alpha = Field(
        ALPHA,
        description="Where a rate is measured: the risk of accepting a fix that fixes nothing. It is at least 0.01, "
        "because the number of runs rests on a 95 % interval.",
    )
    clean_trials: CleanTrials = Field(
        CLEAN_TRIALS, description="Where a rate is measured: the most trials of fixed that may follow from it."
    )
    memory: Bytes = Field(16 * 2**30, description="Memory for one trial: '16GiB', '512MiB' or bytes.")
    probes: list[Annotated[str, AfterValidator(_probe), WithJsonSchema({"enum": list(PROBES)})]] | None = Field(
        None,
        description="What looks at repro after the verdict, where it runs on a GPU; [] for none. Without it: memcheck, "
        "and racecheck for a race, initcheck for wrong-numbers and non-finite, launch-blocking for a CUDA error.",
    )
