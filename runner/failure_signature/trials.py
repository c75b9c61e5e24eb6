"""What is known of a trial once it has been read and judged. Pure data, part of the evidence document."""

from enum import StrEnum

from pydantic import Field

from failure_signature.document import Frozen, Moment, Seconds
from failure_signature.kinds import Variant
from failure_signature.reading.findings import Finding, Summary, Tool
from failure_signature.result import ProcessStack


class Outcome(StrEnum):
    AS_EXPECTED = "as-expected"
    OTHERWISE = "otherwise"
    INFRA = "infra"


class Verdict(StrEnum):
    CONFIRMED = "confirmed"
    NOT_REPRODUCED = "not-reproduced"
    WRONG_FAILURE = "wrong-failure"
    FIX_FAILS = "fix-fails"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


class Observation(Frozen):
    """What can be read off a trial's end and output, whatever was declared.

    `exception` is the qualified type of the exception that ended the process and `message` its text, both from its
    traceback on stderr; `causes` are the other exceptions of its chain as "Type: text", the oldest first.
    `cuda_error` is a runtime API name such as cudaErrorIllegalAddress. `figures` are the `name=value` lines of
    stdout, `digests` the `name=sha256:ab12...` lines, `series` the `name[step]=value` lines as (step, value) in the
    order of the steps, at most 500 of each; a name printed twice with different values is in `contradicted` only.
    """

    exit_status: int | None = None
    signal: str | None = None
    timed_out: bool = False
    hung: bool = False
    """The engine ended it, because nothing of it moved any more `hung_after_s` seconds after its start."""
    hung_after_s: Seconds | None = None
    slow: bool = False
    """It was seen to make progress until the time limit ended it."""
    stacks: list[ProcessStack] = Field(default_factory=list)
    """Of all its processes, taken before the engine ended it, where it was watched."""
    out_of_memory: bool = False
    exception: str | None = None
    message: str | None = None
    causes: list[str] = Field(default_factory=list)
    cuda_error: str | None = None
    figures: dict[str, float] = Field(default_factory=dict)
    digests: dict[str, str] = Field(default_factory=dict)
    series: dict[str, list[tuple[int, float]]] = Field(default_factory=dict)
    contradicted: list[str] = Field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Return whether the process ended in any other way than exit status 0, or not by itself."""
        return self.hung or self.timed_out or self.out_of_memory or self.exit_status != 0


class Xid(Frozen):
    """One fault that the NVIDIA driver wrote to the kernel log: its number, the rest of the line, and whose it was."""

    number: int
    pci: str
    pid: int | None = None
    process: str | None = None
    text: str


class SanitizerReport(Frozen):
    """What one run under compute-sanitizer gave, alike findings together. `missing` says why there is no report.

    Without a `summary` the tool did not come to its end, and that it found nothing says nothing. `declared` is the
    position in `findings` of the one that the expectation names. `version` is the tool's own word for it. `cached`:
    with PyTorch's caching allocator, as the script captures CUDA graphs; then one tensor's end is another's beginning.
    """

    tool: Tool
    version: str | None = None
    findings: list[Finding] = Field(default_factory=list)
    summary: Summary | None = None
    declared: int | None = None
    missing: str | None = None
    cached: bool = False


class Trial(Frozen):
    """One fresh process of one variant. `mismatches` says, line by line, what differs from the expectation."""

    variant: Variant
    number: int
    outcome: Outcome
    mismatches: list[str] = Field(default_factory=list)
    infra: str | None = None
    growth: float | None = None
    """Of the series whose growth the expectation bounds, per step after warm-up."""
    observation: Observation
    started: Moment | None = None
    duration_s: Seconds
    stdout: str
    stderr: str
    sanitizer: SanitizerReport | None = None
    """Only of a trial under compute-sanitizer, which is judged by what the tool found."""
    zygote: str | None = None
    """Only in older evidence: how a process was started that was not fresh, but forked from another one."""
    xids: list[Xid] = Field(default_factory=list)
    """What the kernel log got during the trial, about its GPUs; empty too where nobody may read that log."""

    @property
    def origin(self) -> str | None:
        """Only of older evidence: how a process was started that was not fresh."""
        return self.zygote

    @property
    def forked(self) -> bool:
        return bool(self.origin and self.origin.startswith("forked"))

    @property
    def instrument(self) -> Tool | None:
        """The tool of compute-sanitizer that it ran under."""
        return self.sanitizer.tool if self.sanitizer else None


class Rate(Frozen):
    """k of n trials as expected, with the 95 % Wilson interval. `infra` trials are counted apart, not in n.

    Where outputs must differ, k counts those that differ from the commonest one; where they must not, those like it.
    """

    k: int
    n: int
    infra: int = 0
    low: float
    high: float


class Demand(Frozen, extra="ignore"):  # older evidence says how many clean trials were allowed, too
    """What was asked of the trials of a failure that does not come every time, or of outputs that differ."""

    rate: str | None = None
    """The declared bound."""
    differs: list[str] = Field(default_factory=list)
    """Names of digests."""
    alpha: float
    most: int
    """Trials that repro could have."""
    clean: int | None = None
    """Trials of fixed that followed from `alpha` and the lower end of repro's interval; None where repro decided."""
