"""What a bisection found, and its JSON: reports/bisect/<case>.<package>.json. Pure data.

A search fills its record in, trial by trial, so records and steps can be changed, unlike other documents.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal

from packaging.version import Version
from pydantic import Field

from failure_signature.document import Moment
from failure_signature.kinds import Variant
from failure_signature.trials import Rate
from gpu_casebook.document import Document
from gpu_casebook.evidence import slug


class Call(StrEnum):
    """What a version was called."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


class Question(Document):
    """What was looked for; two runs with equal questions may go on with each other's steps.

    The failure shows in `bad` and not in `good`. If `good` is the newer one, the release that fixed it is looked for.
    """

    case: str
    package: str
    environment: str
    variant: Variant
    good: str
    bad: str
    others: dict[str, str] = Field(default_factory=dict)  # packages held at another version than the case pins
    expect_message: str | None = None
    good_message: str | None = None
    trials: int | None = None
    alpha: float  # the risk of a wrong answer
    engine: str  # it decides what can be installed
    digest: str  # of the case

    @property
    def seeks_fix(self) -> bool:
        """Whether the first fixed release is looked for, not the first bad one."""
        return Version(self.bad) < Version(self.good)


class Step(Document, frozen=False):
    """One version that was tried."""

    version: str
    call: Call | None = None  # None while trials are still to come
    why: str = ""  # how the trial ended that decided, or what kept the version from being installed
    shown: int = 0  # trials that showed the failure
    quiet: int = 0  # trials that did not
    other: int = 0  # trials that failed in another way, or could not tell
    lock: str | None = None  # sha256 of the packages it was tried with
    seconds: float = 0.0
    started: Moment

    @property
    def trials(self) -> int:
        return self.shown + self.quiet + self.other


class Bisection(Document, frozen=False):
    """A search through releases, finished or under way.

    `versions` are those that could be tried, the oldest first and both ends among them; `passed_over` says of the
    others between the ends why they could not. `rate` was measured at the bad end, and `quiet_needed` follows from it.
    `first` has the releases one of which is the first bad one (or the first fixed one); empty while under way.
    `doubt` is the chance that it is none of them, because a version that was called good only kept quiet.
    """

    what = "a bisection"
    remedy = "remove the file, or bisect again"

    schema_version: Literal[1] = 1
    question: Question
    versions: list[str]
    passed_over: dict[str, str] = Field(default_factory=dict)
    signature: list[str] = Field(default_factory=list)
    steps: list[Step] = Field(default_factory=list)
    rate: Rate | None = None
    quiet_needed: int | None = None
    first: list[str] = Field(default_factory=list)
    doubt: float | None = None
    started: Moment
    ended: Moment | None = None
    command: str
    runner: str

    @property
    def calls(self) -> dict[str, Call]:
        return {step.version: step.call for step in self.steps if step.call}

    @property
    def line(self) -> list[str]:
        """The versions from the good end to the bad end."""
        return self.versions[::-1] if self.question.seeks_fix else self.versions

    def called(self, call: Call) -> list[str]:
        """Return the versions that were tried and called so, the oldest first."""
        return sorted((version for version, each in self.calls.items() if each is call), key=Version)

    @property
    def answer(self) -> str | None:
        """Such as "first bad release: 3.2.0" or "first fixed release is one of: 3.2.0, 3.3.0"; None while under way."""
        if not self.first:
            return None
        what = "first fixed release" if self.question.seeks_fix else "first bad release"
        return f"{what}: {self.first[0]}" if len(self.first) == 1 else f"{what} is one of: {', '.join(self.first)}"


def record_path(reports: Path, case: str, package: str) -> Path:
    """Return where the finished bisection of a case over a package lies; its page is beside it, with .md."""
    return reports / "bisect" / f"{slug(case)}.{slug(package)}.json"


def unfinished_path(record: Path) -> Path:
    """Return where a bisection lies until it is finished."""
    return record.with_suffix(".unfinished.json")


def finished(reports: Path, unread: Callable[[str], object], case: str = "*") -> dict[Path, Bisection]:
    """Return all finished ones, with where they lie; `unread` is told which can't be read."""
    paths = sorted((reports / "bisect").glob(f"{case}.*.json"))
    return dict(Bisection.read_all((path for path in paths if not path.name.endswith(".unfinished.json")), unread))


def bisections(reports: Path, case: str) -> Sequence[Bisection]:
    """Return all finished ones of a case that are about the failure and not about its wording."""
    every = [(each, each.question) for each in finished(reports, lambda _: None, slug(case)).values()]
    return [each for each, asked in every if asked.expect_message is None and asked.good_message is None]
