"""What must hold of a trial: the expectation that a manifest declares, and the rules inside one value. Pure."""

import re
import signal as signals
import warnings
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticUseDefault

from failure_signature.bounds import PATTERN as BOUND
from failure_signature.bounds import Bound
from failure_signature.patterns import compiled
from failure_signature.reading import cuda_errors
from failure_signature.reading.findings import Kind, Tool
from failure_signature.text import DURATION, duration

FIGURE_PATTERN = "^[A-Za-z_][A-Za-z0-9_.-]*$"


EXCEPTION_PATTERN = r"^[A-Za-z_]\w*(\.([A-Za-z_]\w*|<locals>))*(\([\w.]+\)|\[[\w., ]+\])?$"


CUDA_ERROR_PATTERN = (
    f"^(cudaError[A-Z][A-Za-z0-9]*|({cuda_errors.LIBRARIES})_STATUS_[A-Z0-9_]+|CUFFT_[A-Z_]+|nccl[A-Za-z]+)$"
)


_RATE = re.compile(r"\s*>=\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*")


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


def _exit_status(value: int) -> int:
    for signal in signals.Signals:
        if value == 128 + signal:
            raise ValueError(f"exit status {value} is how a shell writes a signal; write signal: {signal.name}")
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


Regex = Annotated[str, AfterValidator(_regex)]


Signal = Annotated[str, AfterValidator(_signal)]


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

    What counts as progress is the rule of the engine that ran it.
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
