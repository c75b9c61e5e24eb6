"""Runs a command as a trial is run, and judges it as one of repro would be."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import psutil

from gpu_casebook.engines import watching
from gpu_casebook.engines.output import Kept, supervised_s
from gpu_casebook.engines.venv import supervised
from gpu_casebook.engines.venv.supervised import NeutralOutput
from gpu_casebook.errors import ExitStatus, UsageError
from gpu_casebook.evidence import Observation, Outcome
from gpu_casebook.judging.description import ending
from gpu_casebook.judging.expectation import Judgement, judge, observe
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.manifest.model import Expectation
from gpu_casebook.text import path_list
from gpu_casebook.trial import Limits, TrialRequest, TrialResult, Watch

Bisect = Literal["introduced", "fixed"] | None
_PROCESSES = 2**20
_CANNOT_TELL = 125  # git bisect: skip this revision


class Meaning(Enum):
    """What one run says."""

    SHOWN = auto()
    ABSENT = auto()
    OTHER = auto()
    UNKNOWN = auto()
    """The machine was to blame, or the run printed nothing of what is measured."""


_STATUS = {
    Meaning.SHOWN: ExitStatus.CONFIRMED,
    Meaning.ABSENT: ExitStatus.NOT_REPRODUCED,
    Meaning.OTHER: ExitStatus.WRONG_FAILURE,
    Meaning.UNKNOWN: ExitStatus.INCONCLUSIVE,
}


class Said(NamedTuple):
    meaning: Meaning
    lines: list[str]


def exit_status(meaning: Meaning, bisect: Bisect) -> int:
    """Return the status for this meaning; what `git bisect run` takes as old or new depends on what is looked for."""
    if bisect is None:
        return _STATUS[meaning]
    shown, absent = (1, 0) if bisect == "introduced" else (0, 1)
    return {Meaning.SHOWN: shown, Meaning.ABSENT: absent}.get(meaning, _CANNOT_TELL)


def judged(
    case: Case, command: Sequence[str], environments: Sequence[str] | None, timeout_s: float, *, echo: bool
) -> Said:
    """Run `command` here, with the variables of this process, and judge it against each signature until one fits.

    Signatures are those of these environments, or of all. Every process that the command leaves behind is ended. Raises
    UsageError for a command or an environment that is not there, and for a failure that no single run can show.
    """
    names = list(environments or case.manifest.environments)
    signatures = {name: case.expectation(name, Variant.REPRO) for name in names}
    single = {name: each for name, each in signatures.items() if not each.differs}
    if not single:
        raise UsageError(f"{case.id}: its failure is a difference between runs, which one run can't show")
    if shutil.which(command[0]) is None:
        raise UsageError(f"no command {command[0]!r} here")
    result = _run(command, timeout_s, _watch(case, single), echo=echo)
    seen = observe(result)
    judgements = {name: judge(_asked(each, seen), result, seen) for name, each in single.items()}
    fits = [name for name, each in judgements.items() if each.outcome is Outcome.AS_EXPECTED]
    if fits:
        figures = {name: value for name, value in seen.figures.items() if name in single[fits[0]].figures}
        how = ending(seen) if seen.failed else ", ".join(f"{name}={value:g}" for name, value in figures.items())
        where = f"as in environment {', '.join(fits)}"
        return Said(Meaning.SHOWN, [f"shows the failure of {case.id}, {where}: {how or 'ran to its end'}"])
    first, judgement = next(iter(judgements.items()))
    meaning = _meaning(seen, judgement, single[first])
    what = {
        Meaning.ABSENT: f"ran to its end without the failure of {case.id}",
        Meaning.OTHER: f"failed in another way than {case.id}: {ending(seen)}",
        Meaning.UNKNOWN: f"does not tell: {judgement.infra or 'what the failure is measured by was not printed'}",
    }
    return Said(meaning, [what[meaning], *(f"  {first}: {each}" for each in judgement.mismatches)])


def _asked(signature: Expectation, seen: Observation) -> Expectation:
    """Return what is asked of a command that is not repro.py: of a failure that ends it, no figure that it lacks."""
    if not signature.must_fail:
        return signature
    return signature.model_copy(update={"figures": {k: v for k, v in signature.figures.items() if k in seen.figures}})


def _meaning(seen: Observation, judgement: Judgement, signature: Expectation) -> Meaning:
    if judgement.outcome is Outcome.INFRA:
        return Meaning.UNKNOWN
    if seen.failed:
        return Meaning.OTHER
    if signature.must_fail:
        return Meaning.ABSENT
    printed = {*seen.figures, *seen.digests, *seen.series}
    measured = {*signature.figures, *signature.same, *([signature.growth.series] if signature.growth else [])}
    return Meaning.ABSENT if measured <= printed else Meaning.UNKNOWN


def _watch(case: Case, signatures: Iterable[str]) -> Watch | None:
    """Return how to look for a hang, if one of the environments declares one."""
    hangs = [(case.expectation(name, Variant.REPRO).hang, case.environment(name).gpus) for name in signatures]
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
