"""Where the processes of a trial stood, as a page shows it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_casebook.evidence import Trial
from gpu_casebook.reading.stacks import who
from gpu_casebook.text import tail
from gpu_casebook.trial import ProcessStack

PROCESSES_SHOWN = 16
LINES_SHOWN = 60
WIDTH = 200

_SOURCES = {
    "py-spy native": "seen by py-spy, with the frames of C and C++",
    "py-spy": "seen by py-spy",
    "faulthandler": "told by Python's faulthandler",
    "kernel": "told by the kernel",
}
"""The one that says most first."""


@dataclass(frozen=True)
class Stand:
    """One process, the innermost frames of its threads, and who told."""

    who: str
    command: str
    source: str
    text: str


def stands(trial: Trial | None) -> Sequence[Stand]:
    """One for each process, from the source that says most; the trial's first process first."""
    best: dict[int, ProcessStack] = {}
    telling = list(_SOURCES)
    for stack in trial.observation.stacks if trial else ():
        known = best.get(stack.number)
        if known is None or telling.index(stack.source) < telling.index(known.source):
            best[stack.number] = stack
    return [_stand(best[number]) for number in sorted(best)[:PROCESSES_SHOWN]]


def _stand(stack: ProcessStack) -> Stand:
    return Stand(who(stack), stack.command, _SOURCES[stack.source], _head(stack.text))


def _head(text: str) -> str:
    """The innermost frames come first."""
    lines = text.splitlines()
    left_out = len(lines) - LINES_SHOWN
    shown = tail("\n".join(lines[:LINES_SHOWN]), LINES_SHOWN, WIDTH)
    return f"{shown}\n[... {left_out} lines below ...]" if left_out > 0 else shown
