"""What a reviewer says of a case."""

from enum import StrEnum
from typing import NamedTuple

from gpu_casebook.errors import Problem


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """One remark. An error ends the review with an error, a warning is what a maintainer would complain about."""

    severity: Severity
    problem: Problem

    def __str__(self) -> str:
        path, line, where, what = self.problem
        told = f"{where}: {what}" if where else what
        return f"{path}:{line}: {self.severity}: {told}"


def error(path: str, line: int, what: str, where: str = "") -> Finding:
    return Finding(Severity.ERROR, Problem(path, line, where, what))


def warning(path: str, line: int, what: str, where: str = "") -> Finding:
    return Finding(Severity.WARNING, Problem(path, line, where, what))


def note(path: str, line: int, what: str, where: str = "") -> Finding:
    return Finding(Severity.NOTE, Problem(path, line, where, what))
