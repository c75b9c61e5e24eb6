"""Whether a GPU is fit for a trial, from what was read of it and the kernel log. Pure; `engines.guard` reads.

Nothing is concluded from what a driver does not tell: a reading of None is no fault. Which Xid says what: NVIDIA,
"XID Errors", https://docs.nvidia.com/deploy/xid-errors/.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from failure_signature.text import size
from failure_signature.trials import Xid

SLACK_BYTES = 128 * 2**20
"""Less than any CUDA context takes, so that no left-over process hides below it."""

FATAL_XIDS = {
    48: "uncorrectable memory (ECC) error",
    63: "memory that went bad is replaced at the next reset",
    64: "memory that went bad could not be replaced",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "uncorrectable memory (ECC) error, contained",
    95: "uncorrectable memory (ECC) error, not contained",
}
"""After these only a person can say whether the GPU is good again. 13, 31, 43 and such are a program's own doing."""


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU at one moment. None is what can't be read here."""

    lost: str | None = None  # what the driver says instead of answering
    missing: bool = False  # the driver does not list it
    used_bytes: int | None = None
    processes: frozenset[int] | None = None
    ours: frozenset[int] = frozenset()  # those of `processes` that a trial of Casebook started
    remap_failed: bool | None = None


class Condition(Enum):
    GOOD = "good"
    SHARED = "shared"
    """Others took memory since the run's start, or it can't be known who did: no fault, and worth a line."""
    LEFTOVER = "leftover"
    """A trial's process is still on it: no trial till that is gone."""
    LEAKED = "leaked"
    """Memory is taken, and no process has it: broken, if that stays."""
    BROKEN = "broken"


@dataclass(frozen=True)
class Health:
    """What a GPU is good for, and why, in words that follow "GPU 0: "."""

    condition: Condition
    reason: str = ""

    @property
    def passing(self) -> bool:
        """Whether it may be another in a moment: the driver frees memory some time after a process has ended."""
        return self.condition in {Condition.SHARED, Condition.LEFTOVER, Condition.LEAKED}


def assess(before: GpuState, after: GpuState, xids: Sequence[Xid]) -> Health:
    """Return the health of a GPU on which no trial runs.

    `before` is its state at the run's start, `after` its state now, and `xids` those about it in between.
    """
    if reason := _broken(before, after, xids):
        return Health(Condition.BROKEN, reason)
    if after.ours:
        return Health(Condition.LEFTOVER, f"{_processes(after.ours)} of an earlier trial still on it")
    if before.used_bytes is None or after.used_bytes is None:
        return Health(Condition.GOOD)
    more = after.used_bytes - before.used_bytes
    return Health(Condition.GOOD) if more <= SLACK_BYTES else _taken(more, after.processes)


def last(health: Health) -> Health:
    """Return what `health` amounts to once there was time enough for the memory to come back."""
    return Health(Condition.BROKEN, health.reason) if health.condition is Condition.LEAKED else health


def _broken(before: GpuState, after: GpuState, xids: Sequence[Xid]) -> str | None:
    if after.lost:
        return after.lost
    if after.missing and not before.missing:
        return "the driver does not list it any more"
    if fatal := next((xid for xid in xids if xid.number in FATAL_XIDS), None):
        return f"Xid {fatal.number} in the kernel log: {FATAL_XIDS[fatal.number]}"
    if after.remap_failed and not before.remap_failed:
        return FATAL_XIDS[64]
    return None


def _taken(more: int, processes: frozenset[int] | None) -> Health:
    text = f"{size(more)} more taken than at the start of this run"
    if processes is None:
        return Health(Condition.SHARED, f"{text}, and by whom can't be seen from here")
    if processes:
        return Health(Condition.SHARED, f"{text}, by {_processes(processes)}")
    return Health(Condition.LEAKED, f"{text}, and no process has it")


def _processes(pids: frozenset[int]) -> str:
    return f"process{'es' * (len(pids) > 1)} {', '.join(map(str, sorted(pids)))}"
