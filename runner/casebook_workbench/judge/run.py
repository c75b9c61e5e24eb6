"""Runs a command as a trial is run, and judges it as one of repro would be."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

import psutil

from failure_signature.expectation import Expectation
from failure_signature.judging.signature import Sign, Signature
from failure_signature.result import TrialResult
from failure_signature.text import path_list
from gpu_casebook.engines import watching
from gpu_casebook.engines.output import Kept, supervised_s
from gpu_casebook.engines.venv import supervised
from gpu_casebook.engines.venv.supervised import NeutralOutput
from gpu_casebook.errors import ExitStatus, UsageError
from gpu_casebook.manifest.case import Case
from gpu_casebook.trial import Limits, TrialRequest, Watch

Bisect = Literal["introduced", "fixed"] | None
_PROCESSES = 2**20
_CANNOT_TELL = 125  # git bisect: skip this revision


_STATUS = {
    Sign.SHOWS: ExitStatus.CONFIRMED,
    Sign.ABSENT: ExitStatus.NOT_REPRODUCED,
    Sign.OTHER: ExitStatus.WRONG_FAILURE,
    Sign.UNKNOWN: ExitStatus.INCONCLUSIVE,
}


def exit_status(sign: Sign, bisect: Bisect) -> int:
    """Return the status for this sign; what `git bisect run` takes as old or new depends on what is looked for."""
    if bisect is None:
        return _STATUS[sign]
    shown, absent = (1, 0) if bisect == "introduced" else (0, 1)
    return {Sign.SHOWS: shown, Sign.ABSENT: absent}.get(sign, _CANNOT_TELL)


def judged(
    case: Case, command: Sequence[str], environments: Sequence[str], timeout_s: float, *, echo: bool
) -> tuple[Sign, list[str]]:
    """Run `command` here, with the variables of this process. Return what the run says of the failure, and lines on it.

    The failure may show as in any of these environments, or of all. Every process that the command leaves behind is
    ended. Raises UsageError for a command or an environment that is not there, and for a failure that no single run
    can show.
    """
    failures = case.failures(*environments)
    if shutil.which(command[0]) is None:
        raise UsageError(f"no command {command[0]!r} here")
    return answer(case.id, failures, _run(command, timeout_s, _watch(case, failures), echo=echo))


def answer(case: str, failures: Mapping[str, Expectation], result: TrialResult) -> tuple[Sign, list[str]]:
    """Return what a run says of the failure of a case, which is declared by environment, and lines on it."""
    reading = Signature(*failures.values()).read(result)
    fits = ", ".join(name for name, each in failures.items() if each in reading.shown)
    what = {
        Sign.SHOWS: f"shows the failure of {case}, as in environment {fits}: {reading.summary}",
        Sign.ABSENT: f"ran to its end without the failure of {case}",
        Sign.OTHER: f"failed in another way than {case}: {reading.summary}",
        Sign.UNKNOWN: f"does not tell: {reading.summary}",
    }
    return reading.sign, [what[reading.sign], *(f"  {next(iter(failures))}: {each}" for each in reading.mismatches)]


def _watch(case: Case, failures: Mapping[str, Expectation]) -> Watch | None:
    """Return how to look for a hang, if one of the environments declares one."""
    hangs = ((each.hang, case.environment(name).gpus) for name, each in failures.items())
    return next((Watch.from_second(hang.after, gpus=gpus > 0) for hang, gpus in hangs if hang), None)


class _Echoed(NeutralOutput):
    """Output that is passed on while it comes."""

    def take(self, kept: Kept, pieces: Iterable[bytes]) -> None:
        ours = sys.stdout.buffer if kept is self.stdout else sys.stderr.buffer
        super().take(kept, _passed(pieces, ours))


def _passed(pieces: Iterable[bytes], to: BinaryIO) -> Iterator[bytes]:
    for piece in pieces:
        to.write(piece)
        to.flush()
        yield piece


def _run(command: Sequence[str], timeout_s: float, watch: Watch | None, *, echo: bool) -> TrialResult:
    limits = Limits(timeout_s=timeout_s, memory_bytes=psutil.virtual_memory().total, processes=_PROCESSES)
    request = TrialRequest(files={}, arguments=command, limits=limits, watch=watch)
    output = (_Echoed if echo else NeutralOutput)(request, {})
    with tempfile.TemporaryDirectory(prefix="casebook-judge-") as directory:
        variables = dict(os.environ)
        if watch:  # so that each Python can say where it stands
            site = Path(directory, watching.SITE.name)
            site.write_bytes(watching.SITE.read_bytes())
            variables["PYTHONPATH"] = path_list(directory, variables.get("PYTHONPATH"))
        orders = {
            "command": list(command),
            "python": sys.executable,
            "directory": os.getcwd(),  # noqa: PTH109 as the supervisor takes it
            "variables": variables,
            "timeout_s": supervised_s(request),
            "memory_bytes": limits.memory_bytes,
            "processes": limits.processes,
            "places": [],
        }
        return supervised.run(orders, output, request, engine=None)
