"""What there is to tell of a run of the corpus, and its JSON. Everything that is rendered comes from here. Pure data.

Times are UTC, durations in seconds, disk in bytes.
"""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from gpu_casebook.corpus.model import End, Lost
from gpu_casebook.document import Document
from gpu_casebook.evidence import Grade, Rate, Variant, Verdict


class Standing(StrEnum):
    """How a job counts. Only the first two say something about the case."""

    CONFIRMED = "confirmed"
    FAILING = "not confirmed"
    BROKE = "broke"
    SKIPPED = "skipped"
    LEFT = "not come to"


class Line(Document):
    """One job of the run: one case in one environment. `end` is None where the run has not come to it."""

    case: str
    environment: str
    failure: str
    project: str
    grade: Grade
    standing: Standing
    end: End | None = None
    verdict: Verdict | None = None
    reason: str = ""
    rates: dict[Variant, Rate] = Field(default_factory=dict)
    device: str = ""
    drifted: bool = False
    gpus: int = 0
    infra_trials: int = 0
    evidence: str | None = None
    worker: str = ""
    lost: list[Lost] = Field(default_factory=list)
    duration_s: float = 0.0

    @property
    def name(self) -> str:
        """Such as "rwkv6-backward/current"."""
        return f"{self.case}/{self.environment}"

    @property
    def told(self) -> str:
        """The verdict, or why there is none, in a word or two."""
        return str(self.verdict if self.judged and self.verdict else self.standing)

    @property
    def judged(self) -> bool:
        return self.standing in {Standing.CONFIRMED, Standing.FAILING}


class Tally(Document):
    """Jobs counted. `judged` of them have a verdict; reused and drifted ones are among those."""

    name: str = ""
    jobs: int = 0
    judged: int = 0
    confirmed: int = 0
    reused: int = 0
    drifted: int = 0
    broke: int = 0
    skipped: int = 0
    left: int = 0
    verdicts: dict[Verdict, int] = Field(default_factory=dict)


class Shift(StrEnum):
    """What kind of change, in the order in which a person wants to know.

    Two verdicts are compared only where they are about the same: device, lock, image and Python. Where a job's
    verdict changed and so did one of these, it is ELSEWHERE: nobody knows which of the two made the difference.
    """

    NEWLY_FAILING = "newly failing"
    FAILS_OTHERWISE = "fails in another way"
    ELSEWHERE = "another verdict elsewhere"
    UNSEEN = "no verdict this time"
    NEWLY_CONFIRMED = "newly confirmed"
    NEW = "new"
    GONE = "gone"


class Change(Document):
    """One job's change since the run `since`. `where` says what differs besides the verdict."""

    shift: Shift
    case: str
    environment: str
    before: str = ""
    now: str = ""
    where: str = ""
    reason: str = ""
    since: str = ""

    @property
    def name(self) -> str:
        return f"{self.case}/{self.environment}"


class Durations(Document):
    """Seconds: `wall_s` from start to end; `work_s` of all jobs that ran and of builds for them; `gpu_s` for which they
    had GPUs, each counted; `lost_s` of attempts that came to nothing.

    `busy` is the share of all workers' time in which they had a job, `at_once` how many jobs were going on on average;
    both None where nothing ran.
    """

    wall_s: float
    work_s: float
    lost_s: float
    gpu_s: float
    busy: float | None = None
    at_once: float | None = None


class Summary(Document):
    """A run of the corpus as a person, a CI system or a program wants to have it."""

    schema_version: Literal[1] = 1
    id: str
    started: datetime
    ended: datetime | None = None
    host: str = ""
    runner: str = ""
    command: str = ""
    selection: str = "all"
    workers: list[str] = Field(default_factory=list)
    tally: Tally
    by_device: list[Tally] = Field(default_factory=list)
    by_environment: list[Tally] = Field(default_factory=list)
    compared_with: str | None = None
    """The run before this one, None where there is none."""
    changes: list[Change] = Field(default_factory=list)
    durations: Durations
    disk_before_bytes: int | None = None
    disk_after_bytes: int | None = None
    unreadable: list[str] = Field(default_factory=list)
    """Earlier runs that nothing was compared with, each with the reason."""
    lines: list[Line] = Field(default_factory=list)

    def of(self, standing: Standing) -> list[Line]:
        return [line for line in self.lines if line.standing is standing]

    def shifted(self, shift: Shift) -> list[Change]:
        return [change for change in self.changes if change.shift is shift]
