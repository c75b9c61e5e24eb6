"""Is a trial that goes on for long making progress, or does it hang? Decides from samples; engines take them.

From `Watch.after_s` on, a sample is taken every second: the stacks of every process, the CPU time each got or waited
for, the lines that were printed. A trial is hung when nothing of that moves for `Watch.still_s`. Why these signals:

- Stacks, of all threads. Code that gets on changes its line sooner or later, but not within one long call into C, and
  a loop that waits and prints stands at the same line whenever one looks. So they do not suffice.
- CPU time, per process. A long call into C burns a core; a process that waits for another does not. Where the
  machine is busy a process may want a core and not get one: the time it waited in the run queue counts as well, since
  it would take a waiting process for working only if more than half of the time were such. Not in a trial with GPUs:
  there a host thread that waits for the device or for another rank spins, and burns a core until the end of days.
  Instead nothing may move for longer, as a host that waits for a long kernel looks the same.
- Waiting for a disk, by the kernel function it sleeps in. Libraries are read page by page, and where the machine is
  short of memory or its disk busy, a process gets neither CPU time nor a new line for long. That ends.
- Output, if it says anything new. Scripts that hang often have a thread that prints where they stand, or that they
  wait, over and over: a line that was there before is no progress.
- A process that comes or goes.

Not looked at: bytes read and written (watchdogs of process groups talk all the time), the GPU's load (a hung NCCL
kernel is a load of 100 %). Waiting without end for something outside, or for a clock, is still, too: whether that is
the bug is what the expectation's regular expression decides.

Asking for stacks has a price: a signal ends some system calls early (poll, sleep), and C code that does not call them
again, as it should, wakes up. So nobody is asked before `Watch.after_s`.
"""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from gpu_casebook.guest import sampler
from gpu_casebook.reading.stacks import command_name, comparable, tidy
from gpu_casebook.trial import ProcessStack, Watch

SITE = Path(sampler.__file__).with_name("watched") / "sitecustomize.py"
SAMPLER = Path(sampler.__file__)

FINAL_S = 45.0
"""How long the last sample, with what py-spy sees, may take."""

_DISK = re.compile("(__)?(folio_wait|wait_on_(page|buffer)|io_schedule|blk_|rq_qos_wait|submit_bio_wait|balance_dirty)")
"""Where Linux sleeps until a page or block is read or written, as /proc/PID/wchan names it."""
_WORKING = 0.1
"""Share of a core: a process that gets more is at work."""
_WANTING = 0.5
"""Share of a core: so is one that gets, or waits in the run queue for, more than this."""


class ProcessSample(NamedTuple):
    """One process in a sample. `stacks` by source; `rank` as its variable RANK says."""

    pid: int
    parent: int
    command: Sequence[str]
    rank: int | None
    waits_in: str
    cpu_s: float
    starved_s: float
    stacks: Mapping[str, str]

    @property
    def stand(self) -> tuple[int, str]:
        return self.pid, comparable(self.stacks.get("faulthandler", ""))


class Sample(NamedTuple):
    """What was seen at one moment; `at` in seconds of the machine's own clock."""

    at: float
    processes: Sequence[ProcessSample]
    printed: tuple[int, ...] = ()


class TrialEnd(Enum):
    ENDED = "the trial ended by itself"
    HUNG = "nothing moved any more"
    SLOW = "the time limit came, and until then something moved"
    UNKNOWN = "the time limit came before anything could be said"


def parse(line: str, printed: tuple[int, ...] = ()) -> Sample | None:
    """Return what the sampler printed; None if that is no sample, or one of no process."""
    try:
        sample = json.loads(line)
        processes = [_process(one) for one in sample["processes"]]
        return Sample(sample["at"], processes, printed) if processes else None
    except (ValueError, KeyError, TypeError):
        return None


def _process(one: Mapping[str, Any]) -> ProcessSample:
    rank = one["rank"]
    return ProcessSample(
        pid=one["pid"],
        parent=one["parent"],
        command=one["command"],
        rank=int(rank) if rank and rank.isdecimal() else None,
        waits_in=one["waits_in"],
        cpu_s=one["cpu_s"],
        starved_s=one["starved_s"],
        stacks=one["stacks"],
    )


def moved(before: Sample, after: Sample, *, spins: bool) -> bool:
    """Whether anything got on between two samples. With `spins`, burning a core may be waiting."""
    if [seen.stand for seen in before.processes] != [seen.stand for seen in after.processes]:
        return True
    if before.printed != after.printed or any(_DISK.match(seen.waits_in) for seen in after.processes):
        return True
    pairs = zip(before.processes, after.processes, strict=True)
    return not spins and any(_works(was, now, after.at - before.at) for was, now in pairs)


def _works(before: ProcessSample, after: ProcessSample, wall_s: float) -> bool:
    got_s = after.cpu_s - before.cpu_s
    wanted_s = got_s + after.starved_s - before.starved_s
    return got_s > _WORKING * wall_s or wanted_s > _WANTING * wall_s


def follow(
    watch: Watch,
    timeout_s: float,
    *,
    take: Callable[[], Sample | None],
    ended: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> TrialEnd:
    """Watch a trial that starts now. `take` gives a sample or None; `ended` waits some seconds for the trial's end."""
    deadline = clock() + timeout_s
    if ended(min(watch.after_s, timeout_s)):
        return TrialEnd.ENDED
    still: Sample | None = None
    progress = False
    while clock() < deadline:
        now = take()
        if now is None or still is None:
            still = now
        elif moved(still, now, spins=watch.spins):
            still, progress = now, True
        elif now.at - still.at >= watch.still_s:
            return TrialEnd.HUNG
        if ended(max(0.0, min(watch.interval_s, deadline - clock()))):
            return TrialEnd.ENDED
    return TrialEnd.SLOW if progress else TrialEnd.UNKNOWN


class Followed(NamedTuple):
    """How a watched trial ended, and where its processes stood before the engine ends it."""

    end: TrialEnd = TrialEnd.ENDED
    stacks: Sequence[ProcessStack] = ()


def watch_trial(
    watch: Watch,
    timeout_s: float,
    *,
    look: Callable[[bool], str],
    printed: Callable[[], tuple[int, ...]],
    ended: Callable[[float], bool],
) -> Followed:
    """Watch a trial that starts now. `look` runs the sampler, with py-spy if told so; `printed` changes with output."""
    end = follow(watch, timeout_s, take=lambda: parse(look(False), printed()), ended=ended)  # noqa: FBT003
    if end is TrialEnd.ENDED:
        return Followed()
    last = parse(look(True)) or parse(look(False))  # noqa: FBT003
    return Followed(end, stacks_of(last))


class Marks(TypedDict):
    """The fields of a `TrialResult` that tell of it."""

    hung: bool
    hung_after_s: float | None
    timed_out: bool
    slow: bool
    stacks: Sequence[ProcessStack]


def marks(watch: Watch | None, followed: Followed, *, ended_by_us: bool, timed_out: bool = False) -> Marks:
    """A trial may have been quicker than the order to end it. `timed_out`: the engine found its time to be over."""
    hung = ended_by_us and followed.end is TrialEnd.HUNG
    over = timed_out or (ended_by_us and followed.end in {TrialEnd.SLOW, TrialEnd.UNKNOWN})
    return Marks(
        hung=hung,
        hung_after_s=watch.after_s if watch and hung else None,
        timed_out=over,
        slow=over and followed.end is TrialEnd.SLOW,
        stacks=followed.stacks if hung or over else (),
    )


def stacks_of(sample: Sample | None) -> list[ProcessStack]:
    """For evidence: processes numbered from 1, the trial's first one, parents before their children."""
    processes = sample.processes if sample else ()
    numbers = {seen.pid: number for number, seen in enumerate(processes, 1)}
    return [
        ProcessStack(
            number=numbers[seen.pid],
            parent=numbers.get(seen.parent),
            rank=seen.rank,
            command=command_name(seen.command),
            source=source,
            text=tidy(source, text),
        )
        for seen in processes
        for source, text in _stacks(seen).items()
    ]


def _stacks(seen: ProcessSample) -> Mapping[Any, str]:
    return seen.stacks or {"kernel": f"no Python in it, or none that answers; waits in {seen.waits_in or 'nothing'}"}


@cache
def py_spy() -> Path | None:
    """Return the program that came with the runner's own packages, or one on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    if beside.is_file():
        return beside
    found = shutil.which("py-spy")
    return Path(found) if found else None


def look(root: int, *, spying: bool) -> str:
    """Sample what runs on this machine below the process `root`; empty if that did not work."""
    spy = py_spy() if spying else None
    order = [sys.executable, "-I", "-S", str(SAMPLER), str(root), *([str(spy)] if spy else [])]
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(order, capture_output=True, text=True, timeout=FINAL_S, check=False).stdout
    return ""
