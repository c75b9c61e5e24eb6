"""What a bisection found, and its JSON: reports/bisect/<case>.<package>.json. Pure data.

Whoever wants the versions known good and bad reads `Bisection.known_good` and `known_bad`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from packaging.version import Version
from pydantic import Field

from gpu_casebook.document import Document
from gpu_casebook.evidence import Rate, Variant, slug


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

    @property
    def of_wording(self) -> bool:
        """Whether good versions may have the failure too, in other words than those looked for."""
        return self.expect_message is not None or self.good_message is not None


class Step(Document):
    """One version that was tried."""

    version: str
    call: Call | None = None  # None while trials are still to come
    why: str = ""  # how the trial ended that decided, or what kept the version from being installed
    shown: int = 0  # trials that showed the failure
    quiet: int = 0  # trials that did not
    other: int = 0  # trials that failed in another way
    lock: str | None = None  # sha256 of the packages it was tried with
    seconds: float = 0.0
    started: datetime

    @property
    def trials(self) -> int:
        return self.shown + self.quiet + self.other


class Bisection(Document):
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
    started: datetime
    ended: datetime | None = None
    command: str
    runner: str

    @property
    def calls(self) -> dict[str, Call]:
        return {step.version: step.call for step in self.steps if step.call}

    @property
    def known_good(self) -> list[str]:
        """Versions tried and found good, the oldest first."""
        return self._called(Call.GOOD)

    @property
    def known_bad(self) -> list[str]:
        """Versions tried and found bad, the oldest first."""
        return self._called(Call.BAD)

    @property
    def skipped(self) -> list[str]:
        return self._called(Call.SKIP)

    def _called(self, wanted: Call) -> list[str]:
        return in_order(version for version, call in self.calls.items() if call is wanted)

    @property
    def answer(self) -> str | None:
        """Such as "first bad release: 3.2.0" or "first fixed release is one of: 3.2.0, 3.3.0"; None while under way."""
        if not self.first:
            return None
        what = "first fixed release" if self.question.seeks_fix else "first bad release"
        return f"{what}: {self.first[0]}" if len(self.first) == 1 else f"{what} is one of: {', '.join(self.first)}"


def in_order(versions: Iterable[str]) -> list[str]:
    return sorted(versions, key=Version)


def record_path(reports: Path, case: str, package: str) -> Path:
    """Where the finished bisection of a case over a package lies; its page is beside it, with .md."""
    return reports / "bisect" / f"{slug(case)}.{slug(package)}.json"


def unfinished_path(reports: Path, case: str, package: str) -> Path:
    """Where one under way lies."""
    return record_path(reports, case, package).with_suffix(".unfinished.json")


def bisections(reports: Path, case: str) -> Sequence[Bisection]:
    """All finished ones of a case that are about the failure and not about its wording. Raises CasebookError."""
    return [each for each in finished(reports, slug(case)).values() if not each.question.of_wording]


def finished(reports: Path, case: str = "*") -> dict[Path, Bisection]:
    """All finished ones, with where they lie. Raises CasebookError."""
    paths = sorted((reports / "bisect").glob(f"{case}.*.json"))
    return {path: Bisection.read(path) for path in paths if not path.name.endswith(".unfinished.json")}
