"""Every error that ends a command, each kind with its own exit status.

Verdicts have exit statuses of their own: see `gpu_casebook.evidence.Verdict.exit_status`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


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

    exit_status = 1


class UsageError(CasebookError):
    """The command names something that is not there: a case, an environment, an engine, an option."""

    exit_status = 2


class ManifestError(CasebookError):
    """A manifest, lock or script header is wrong. Carries every problem found, not only the first."""

    exit_status = 3

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class EngineError(CasebookError):
    """The engine is not there, or went away while it was needed."""

    exit_status = 4


class BuildError(CasebookError):
    """An image or environment could not be built. The message holds the last lines and the full log's path."""

    exit_status = 5


class MachineError(CasebookError):
    """The machine lacks what is asked for: disk, GPU, driver."""

    exit_status = 6


INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""
