"""Every error that ends a command, each kind with its own exit status.

Verdicts have exit statuses of their own: see `gpu_casebook.evidence.Verdict.exit_status`.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One mistake in a file, as `path:line: where: what`."""

    path: str
    line: int
    where: str
    what: str

    def __str__(self) -> str:
        at = f"{self.path}:{self.line}"
        return f"{at}: {self.where}: {self.what}" if self.where else f"{at}: {self.what}"


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
