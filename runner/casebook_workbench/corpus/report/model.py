"""The summary of a run of the corpus, which all its reports are rendered from, and its JSON. Pure data.

Times are UTC, durations in seconds, disk in bytes.
"""

from enum import StrEnum

from pydantic import Field

from casebook_workbench.corpus.model import JobName, JobResult, RunFacts
from failure_signature.kinds import Grade
from failure_signature.trials import Verdict
from gpu_casebook.document import Document


class Standing(StrEnum):
    """How a job counts. Only the first two say something about the case."""

    CONFIRMED = "confirmed"
    FAILING = "not confirmed"
    BROKE = "broke"
    SKIPPED = "skipped"
    LEFT = "not come to"


class Line(JobName, JobResult):
    """One job of the run."""

    failure: str
    project: str
    grade: Grade
    gpus: int = 0
    standing: Standing

    @property
    def result(self) -> str:
        """Return the verdict, or why there is none, in a word or two."""
        return str(self.verdict if self.judged and self.verdict else self.standing)

    @property
    def judged(self) -> bool:
        return self.standing in {Standing.CONFIRMED, Standing.FAILING}


class JobCounts(Document):
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
    verdict changed and so did one of these, it is ELSEWHERE: either may have made the difference.
    """

    NEWLY_FAILING = "newly failing"
    FAILS_OTHERWISE = "fails in another way"
    ELSEWHERE = "another verdict elsewhere"
    UNSEEN = "no verdict this time"
    NEWLY_CONFIRMED = "newly confirmed"
    NEW = "new"
    GONE = "gone"


class JobChange(JobName):
    """How one job differs from earlier runs."""

    shift: Shift
    before: str = ""
    now: str = ""
    where: str = ""  # the device, or what differs besides the verdict
    reason: str = ""
    since: str = ""  # the run that it is compared with


class RunDurations(Document):
    """Where the time of a run went."""

    wall_s: float  # from start to end
    work_s: float  # all jobs that ran, and builds for them
    lost_s: float  # attempts that came to nothing
    gpu_s: float  # the time of jobs with GPUs, once for each GPU
    busy: float | None = None  # share of all workers' time in which they had a job; None where nothing ran
    at_once: float | None = None  # how many jobs were going on, on average


class RunSummary(RunFacts):
    """A run of the corpus as a person, a CI system or a program wants to have it."""

    tally: JobCounts
    by_device: list[JobCounts] = Field(default_factory=list)
    by_environment: list[JobCounts] = Field(default_factory=list)
    compared_with: str | None = None  # the run before this one, if there is one
    changes: list[JobChange] = Field(default_factory=list)
    durations: RunDurations
    unreadable: list[str] = Field(default_factory=list)  # earlier runs that can't be read, and why
    lines: list[Line] = Field(default_factory=list)

    def of(self, standing: Standing) -> list[Line]:
        return [line for line in self.lines if line.standing is standing]

    def shifted(self, shift: Shift) -> list[JobChange]:
        return [change for change in self.changes if change.shift is shift]
