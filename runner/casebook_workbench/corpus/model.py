"""What a run of the corpus is made of, and its JSON. Pure data; times are UTC, durations in seconds."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_serializer, model_validator

from failure_signature.document import Bytes, Moment, Seconds
from failure_signature.kinds import Grade, Variant
from failure_signature.text import one_line
from failure_signature.trials import Outcome, Rate, Verdict
from gpu_casebook.document import Document
from gpu_casebook.evidence import Evidence
from gpu_casebook.run.options import CORPUS, Options

REASON_LIMIT = 400
"""Characters of a reason."""


class JobName(Document):
    """One case in one environment."""

    case: str
    environment: str

    @property
    def name(self) -> str:
        """Return a name such as "rwkv6-backward/current"; the case alone if its manifest is broken."""
        return f"{self.case}/{self.environment}" if self.environment else self.case


class Job(JobName, extra="ignore"):  # older runs also said how many cores a job takes
    """One case in one environment, and what it needs of a machine.

    `shared`: it declares that others which declare it too may have the same GPU meanwhile. `expected_s` is how long it
    took when it last ran with as many trials, or else these trials by the evidence; None where nobody knows.
    `environment_key` tells equal environments (image, lock, Python). `because` says why no evidence could be reused.
    """

    failure: str
    project: str
    grade: Grade
    gpus: int = 0
    shared: bool = False
    compute_capability: str | None = None
    expected_s: Seconds | None = None
    environment_key: str = ""
    because: str = ""


class Settings(Document, extra="ignore"):  # older runs had an option more
    """What holds for all jobs of a run. Paths are absolute."""

    root: str
    reports: str
    engine: str | None = None
    options: Options = Options()
    """In JSON they stand beside the others, those of them that a run of the corpus takes."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "options" in data:
            return data
        others = {name: value for name, value in data.items() if name not in CORPUS}
        return {**others, "options": {name: data[name] for name in CORPUS if name in data}}

    @model_serializer
    def _spread(self) -> dict[str, Any]:
        others = {"root": self.root, "reports": self.reports, "engine": self.engine}
        return others | {name: getattr(self.options, name) for name in CORPUS}


class End(StrEnum):
    """How a job ended. Only RAN and REUSED say anything about the case."""

    RAN = "ran"
    REUSED = "reused"
    SKIPPED = "skipped"
    BROKE = "broke"
    """No verdict, and not for a reason of the case's hardware: manifest, image, engine or machine."""


class Lost(Document):
    """An attempt that came to nothing because its worker went away."""

    worker: str
    reason: str
    after_s: Seconds


class JobResult(Document):
    """How a job ended. `evidence` is a path within the reports directory."""

    end: End | None = None  # None: the run has not come to it
    verdict: Verdict | None = None
    reason: Annotated[str, AfterValidator(partial(one_line, limit=REASON_LIMIT))] = ""
    """For a person. However long it was, it is cut to one line."""
    rates: dict[Variant, Rate] = Field(default_factory=dict)
    device: str = ""
    drifted: bool = False
    infra_trials: int = 0
    evidence: str | None = None
    worker: str = ""
    lost: list[Lost] = Field(default_factory=list)
    duration_s: Seconds = 0.0

    @property
    def confirmed(self) -> bool:
        return self.verdict is Verdict.CONFIRMED


class OnGpu(Document):
    """One trial on GPUs: seconds from the start of its job to the trial's, and how long it took."""

    after_s: Seconds
    duration_s: Seconds


class Finished(JobResult):
    """A job that has ended.

    `built_s` went before `duration_s`, on a worker but on no GPU: its environment was prepared.
    `on_gpus` are those that it was given, by index, and `trials` those on them.
    `stops`: the machine can't go on, as its disk is full or its engine gone. That is no end of the job: it is never
    written to a run's record, and the job is tried again.
    """

    job: Job
    end: End
    started: Moment
    built_s: Seconds = 0.0
    on_gpus: tuple[int, ...] = ()
    trials: list[OnGpu] = Field(default_factory=list)
    stops: bool = False


def facts(evidence: Evidence) -> dict[str, Any]:
    """Return what `Finished` takes from evidence."""
    return {
        "verdict": evidence.verdict,
        "reason": next(iter(evidence.reasons), ""),
        "rates": evidence.rates,
        "device": evidence.device,
        "drifted": bool(evidence.environment.drift),
        "infra_trials": sum(trial.outcome is Outcome.INFRA for trial in evidence.trials),
    }


def ended(job: Job, end: End, reason: str, **more: Any) -> Finished:
    """Return an end without a verdict, as of now."""
    return Finished(job=job, end=end, reason=reason, started=datetime.now(UTC), **more)


class RunFacts(Document):
    """When, where and of what a run is. `id` sorts by time; `ended` is None while it goes on or was killed."""

    schema_version: Literal[1] = 1
    id: str
    started: Moment
    ended: Moment | None = None
    host: str = ""
    runner: str = ""
    command: str = ""
    selection: str = "all"
    workers: list[str] = Field(default_factory=list)
    disk_before_bytes: Bytes | None = None
    disk_after_bytes: Bytes | None = None


class Run(RunFacts):
    """One run of the corpus, whole or so far."""

    what = "the record of a run"
    remedy = "start a new run"

    settings: Settings
    jobs: list[Job] = Field(default_factory=list)
    finished: list[Finished] = Field(default_factory=list)

    @property
    def left(self) -> Sequence[Job]:
        """Return the jobs that have not ended yet, in the order of `jobs`."""
        done = {each.job.name for each in self.finished}
        return [job for job in self.jobs if job.name not in done]
