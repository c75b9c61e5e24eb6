"""The model of case.yaml, and the rules that hold inside one value. Pure.

Rules that look at several values at once: `manifest.rules`. Validation takes a context: `{"images": names}`.
"""

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
)

from failure_signature.expectation import (
    CUDA_ERROR_PATTERN,
    EXCEPTION_PATTERN,
    FIGURE_PATTERN,
    Expectation,
    Model,
    Seconds,
)
from failure_signature.kinds import Area, Failure, Grade
from gpu_casebook import pins
from gpu_casebook.pins import Special, pin
from gpu_casebook.probe_registry import PROBES, all_probes
from gpu_casebook.trial import PYTHON

NAME_PATTERN = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
VARIABLE_PATTERN = "^[A-Za-z_][A-Za-z0-9_]*$"
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

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)")

_TAKEN = {"HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}

TRIALS = 3
"""Trials of each variant unless the manifest says otherwise; no fewer where no rate is measured."""
MOST_TRIALS = 1000
ALPHA = 0.01
CLEAN_TRIALS = 200
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


def _bytes(value: Any) -> int:
    if isinstance(value, str) and _SIZE.fullmatch(value):
        value = int(TypeAdapter(ByteSize).validate_python(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not an amount of memory; write '16GiB', '512MiB' or a number of bytes")  # noqa: TRY004
    return value


def _probe(value: str) -> str:
    if value not in (there := all_probes()):
        raise ValueError(f"{value!r} is none of: {', '.join(there)}")
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
Versions = Annotated[str, AfterValidator(_specifiers)]
Pinned = Annotated[str, AfterValidator(_pinned), WithJsonSchema({"type": "string", "pattern": "[^=]==[^=]"})]
PackageName = Annotated[str, Field(pattern=PACKAGE_PATTERN)]
Trials = Annotated[int, Field(ge=1, le=MOST_TRIALS)]
Alpha = Annotated[float, Field(ge=0.01, le=0.2)]
CleanTrials = Annotated[int, Field(ge=1, le=10_000)]
Bytes = Annotated[
    Annotated[int, Field(ge=2**20, le=2**46)],  # 64 TiB: beyond it, numbers of bytes overflow in engines
    BeforeValidator(_bytes),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 2**20, "pattern": f"^{_SIZE.pattern}$"}),
]


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
