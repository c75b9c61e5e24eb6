"""How one process of a trial ended, before anybody judges it."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from failure_signature.document import Frozen


class ProcessStack(Frozen):
    """Where the threads of one process of a trial stood, from one source; a process may have several of these.

    `number` counts the trial's processes from 1, its first one; `parent` is such a number too. `rank` is what the
    process's variable RANK says. "kernel" is no stack, but the kernel's word for what the process waits in.
    """

    number: int
    parent: int | None = None
    rank: int | None = None
    command: str
    source: Literal["faulthandler", "py-spy", "py-spy native", "kernel"]
    text: str


CASE_DIRECTORY = "/case"
"""What reports call the directory in which a trial finds its scripts, whichever engine ran it."""


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """How one process ended, before anybody judges it.

    Exactly one of `exit_status` and `signal` ("SIGSEGV") is set, unless `infra` says why there is neither.
    An exit status of 128 + n is read as signal n, as shells do. `stdout` and `stderr` are decoded as UTF-8 with
    replacement; where one was longer than its bound the middle is replaced by a line that says how many bytes
    are missing. `timed_out`, `hung` and `out_of_memory` say that the engine ended the trial, with every process of it;
    `slow` that a trial which ran into its time limit made progress; `stacks` where the processes of a watched trial
    stood before the engine ended it. `libraries` are the paths of CUDA libraries that its processes had loaded, and
    `pythons` those of Pythons that ran and are not the environment's, as far as both were seen while it ran.
    """

    stdout: str
    stderr: str
    duration_s: float
    exit_status: int | None = None
    signal: str | None = None
    timed_out: bool = False
    hung: bool = False
    hung_after_s: float | None = None
    slow: bool = False
    stacks: Sequence[ProcessStack] = ()
    out_of_memory: bool = False
    infra: str | None = None
    started: datetime | None = None
    kept: str | None = None
    libraries: Sequence[str] = ()
    pythons: Sequence[str] = ()


def status_and_signal(status: int | None) -> tuple[int | None, str | None]:
    """Return exit status and signal of a process; `status` is None if unknown, negative for the signal that killed it.

    Shells and container engines say 128 + n for signal n.
    """
    if status is not None:
        number = -status if status < 0 else status - 128
        if number > 0 and number in {known.value for known in signal.Signals}:
            return None, signal.Signals(number).name
    return status, None
