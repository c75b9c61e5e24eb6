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
again, as it should, wakes up. So nobody is asked before `Watch.after_s`. A process that executes byte code at that
moment may even crash, as faulthandler reads half-made frames. So one that runs and uses no GPU is not asked: its CPU
time shows whether it makes progress.
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
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from failure_signature.reading.dumps import command_name, comparable, tidy
from failure_signature.result import ProcessStack
from gpu_casebook.guest import sampler
from gpu_casebook.trial import Watch

SAMPLER = Path(sampler.__file__)
SITE = SAMPLER.with_name("watched") / "sitecustomize.py"

_NO_PYTHON = "no Python in it, or none that answers; waits in {}"
_AT_WORK = "runs on a CPU: its stack was not taken"

FINAL_S = 45.0  # how long the last sample, with what py-spy sees, may take

# Where Linux sleeps until a page or block is read or written, as /proc/PID/wchan names it.
_DISK = re.compile("(__)?(folio_wait|wait_on_(page|buffer)|io_schedule|blk_|rq_qos_wait|submit_bio_wait|balance_dirty)")
# Shares of a core. A process that gets more than the first is at work; so is one that gets, or waits in the run queue
# for, more than the second.
_WORKING = 0.1
_WANTING = 0.5


class ProcessSample(NamedTuple):
    """One process in a sample, as the sampler prints it."""

    pid: int
    parent: int
    command: Sequence[str]
    rank: int | None  # as its variable RANK says
    waits_in: str  # the kernel function it sleeps in
    cpu_s: float
    starved_s: float  # how long it waited for a core
    stacks: Mapping[Any, str]  # by source, such as "faulthandler"
    works: bool = False  # it was running and uses no GPU, so it was not asked for its stacks

    @property
    def position(self) -> tuple[int, str]:
        return self.pid, comparable(self.stacks.get("faulthandler", ""))


class Sample(NamedTuple):
    at: float  # seconds of the machine's own clock
    processes: Sequence[ProcessSample]
    printed: tuple[int, ...] = ()


class Watched(NamedTuple):
    """What is said of a trial that the engine ended: fields of its `TrialResult`."""

    hung: bool = False  # nothing moved any more
    hung_after_s: float | None = None
    timed_out: bool = False
    slow: bool = False  # it was past its time, but until then something moved
    stacks: Sequence[ProcessStack] = ()


def parse(line: str, printed: tuple[int, ...] = ()) -> Sample | None:
    """Return what the sampler printed; None if that is no sample, or one of no process."""
    try:
        sample = json.loads(line)
        processes = [ProcessSample(**one) for one in sample["processes"]]
        return Sample(sample["at"], processes, printed) if processes else None
    except (ValueError, KeyError, TypeError):
        return None


def moved(before: Sample, after: Sample, *, spins: bool) -> bool:
    """Return whether anything got on between two samples. With `spins`, burning a core may be waiting."""
    if [seen.pid for seen in before.processes] != [seen.pid for seen in after.processes]:
        return True
    pairs = list(zip(before.processes, after.processes, strict=True))
    if any(was.position != now.position for was, now in pairs if not was.works and not now.works):
        return True
    if before.printed != after.printed or any(_DISK.match(seen.waits_in) for seen in after.processes):
        return True
    return any(_works(was, now, after.at - before.at) for was, now in pairs if now.works or not spins)


def _works(before: ProcessSample, after: ProcessSample, wall_s: float) -> bool:
    got_s = after.cpu_s - before.cpu_s
    wanted_s = got_s + after.starved_s - before.starved_s
    return got_s > _WORKING * wall_s or wanted_s > _WANTING * wall_s


def _with_stacks_of(still: Sample, now: Sample) -> Sample:
    """Return what has not moved since, with the stacks of what worked then and is asked only now."""
    pairs = zip(still.processes, now.processes, strict=True)
    known = [was._replace(stacks=now.stacks, works=False) if was.works and not now.works else was for was, now in pairs]
    return still._replace(processes=known)


def watch_trial(
    watch: Watch,
    timeout_s: float,
    *,
    look: Callable[[bool], str],
    printed: Callable[[], tuple[int, ...]],
    ended: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Watched | None:
    """Watch a trial that starts now; return what to say of it once the engine has ended it, None if it ended by itself.

    `look` runs the sampler, with py-spy if told so; `printed` changes with the output; `ended` waits some seconds for
    the trial's end.
    """
    deadline = clock() + timeout_s
    if ended(min(watch.after_s, timeout_s)):
        return None
    end = Watched(timed_out=True)
    still: Sample | None = None
    while clock() < deadline:
        now = parse(look(False), printed())  # noqa: FBT003
        if now is None or still is None:
            still = now
        elif moved(still, now, spins=watch.spins):
            still, end = now, Watched(timed_out=True, slow=True)
        elif now.at - still.at >= watch.still_s:
            end = Watched(hung=True, hung_after_s=watch.after_s)
            break
        else:
            still = _with_stacks_of(still, now)
        if ended(max(0.0, min(watch.interval_s, deadline - clock()))):
            return None
    last = parse(look(True)) or parse(look(False))  # noqa: FBT003
    return end._replace(stacks=stacks_of(last))


def stacks_of(sample: Sample | None) -> list[ProcessStack]:
    """Return stacks for evidence: processes numbered from 1, the trial's first one, parents before their children."""
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
        for source, text in (seen.stacks or {"kernel": _unasked(seen)}).items()
    ]


def _unasked(seen: ProcessSample) -> str:
    return _AT_WORK if seen.works else _NO_PYTHON.format(seen.waits_in or "nothing")


@cache
def py_spy() -> str | None:
    """Return the path of the program that came with the runner's own packages, or else of one on PATH."""
    return shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")


def look(root: int, *, spying: bool) -> str:
    """Sample what runs on this machine below the process `root`; return nothing if that did not work."""
    spy = py_spy() if spying else None
    order = [sys.executable, "-I", "-S", str(SAMPLER), str(root), *([spy] if spy else [])]
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(order, capture_output=True, text=True, timeout=FINAL_S, check=False).stdout
    return ""
