"""Every exit status of a command, and every error that ends one."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import NamedTuple, Self


class ExitStatus(IntEnum):
    OTHER_ERROR = 1
    USAGE = 2
    MANIFEST = 3
    ENGINE = 4
    BUILD = 5
    MACHINE = 6
    # of `case`: the verdicts, by their names
    CONFIRMED = 0
    NOT_REPRODUCED = 10
    WRONG_FAILURE = 11
    FIX_FAILS = 12
    INCONCLUSIVE = 13
    SKIPPED = 14
    # of `case --expect`: it is another verdict
    UNEXPECTED = 15
    # of `corpus`
    SOME_NOT_CONFIRMED = 20
    SOME_BROKE = 21
    # of `bisect`: an end of the range is not what it was said to be
    WRONG_END = 22
    # of `watch`: a state changed, so that a nightly job can tell somebody
    CHANGED = 30
    # after Ctrl-C, as shells have it
    INTERRUPTED = 130

    @classmethod
    def of(cls, verdict: StrEnum) -> Self:
        """Return what `casebook case` exits with for this verdict."""
        return cls[verdict.name]


class Severity(StrEnum):
    """How bad a problem is. Only an error ends a command with an exit status."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Problem(NamedTuple):
    """One mistake in a file, as `path:line: where: what`, with a severity that is not an error before `where`."""

    path: str
    line: int
    where: str
    what: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        severity = "" if self.severity is Severity.ERROR else self.severity
        return ": ".join(filter(None, [f"{self.path}:{self.line}", severity, self.where, self.what]))


class CasebookError(Exception):
    """Ends the command with one clear line and `exit_status`; never a traceback."""

    exit_status: int = ExitStatus.OTHER_ERROR


class UsageError(CasebookError):
    """The command names something that is not there: a case, an environment, an engine, an option."""

    exit_status = ExitStatus.USAGE


class ManifestError(CasebookError):
    """A manifest, lock or script header is wrong. Carries every problem found, not only the first."""

    exit_status = ExitStatus.MANIFEST

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class SkippedError(CasebookError):
    """Of the Python API: no environment of the case can run on this machine; `reasons` has one line for each."""

    exit_status = ExitStatus.SKIPPED

    def __init__(self, case: str, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(f"{case}: skipped: {'; '.join(reasons)}")


class EngineError(CasebookError):
    """The engine is not there, or went away while it was needed."""

    exit_status = ExitStatus.ENGINE


class BuildError(CasebookError):
    """An image or environment could not be built. The message holds the last lines and the full log's path."""

    exit_status = ExitStatus.BUILD


class MachineError(CasebookError):
    """The machine lacks what is asked for: disk, GPU, driver."""

    exit_status = ExitStatus.MACHINE


class UnfitError(MachineError):
    """The environment lacks what the manifest requires, as a vendor's image may: no trial can tell anything."""
