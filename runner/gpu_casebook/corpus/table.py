"""What a person sees of a run: a live table on a terminal, one line for each finished job elsewhere.

Each job is told of with `started` and then `ended`, `built` or `lost`, by the one thread that drives the run.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TextIO

from gpu_casebook.corpus.model import End, Finished, Job, Lost
from gpu_casebook.corpus.order import left_s
from gpu_casebook.corpus.workers import Machine, Start
from gpu_casebook.text import one_line

_REASON = 160
_REMEMBERED = 100
"""Ended jobs whose durations say how long one takes that nobody has timed yet."""


@dataclass
class Doing:
    """What one worker does. `begun` is of the clock that the display was given; `lately` what it said last."""

    start: Start
    begun: float
    lately: str = ""


class State:
    """What is known of a run that goes on; `done` jobs had ended before it began, such as those that are reused."""

    def __init__(self, jobs: Sequence[Job], done: int, clock: Callable[[], float]) -> None:
        self.total = len(jobs) + done
        self.done = done
        self.workers: dict[str, Doing] = {}
        self.ends: Counter[str] = Counter()
        self.machines: Sequence[Machine] = ()
        self._waiting = {job.name: job for job in jobs}
        self._took: deque[float] = deque(maxlen=_REMEMBERED)
        self._clock = clock
        self._begun = clock()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._begun

    @property
    def left_s(self) -> float | None:
        """How long it will go on; None where nobody knows."""
        doings = list(self.workers.values())
        running = [(doing.start.job, 0.0 if doing.start.builds else self.since_s(doing)) for doing in doings]
        return left_s(list(self._waiting.values()), running, self.machines, list(self._took))

    def since_s(self, doing: Doing) -> float:
        return self._clock() - doing.begun

    def started(self, start: Start, worker: str) -> None:
        self._waiting.pop(start.job.name, None)
        self.workers = self.workers | {worker: Doing(start, self._clock())}  # it may be drawn meanwhile

    def said(self, worker: str, text: str) -> None:
        if worker in self.workers:
            self.workers[worker].lately = one_line(text, _REASON)

    def ended(self, finished: Finished) -> None:
        self._left(finished.job)
        self._waiting.pop(finished.job.name, None)
        self.done += 1
        self.ends[outcome(finished)] += 1
        if finished.end is End.RAN:
            self._took.append(finished.duration_s)

    def waits_again(self, job: Job) -> None:
        self._left(job)
        self._waiting[job.name] = job

    def _left(self, job: Job) -> None:
        self.workers = {name: doing for name, doing in self.workers.items() if doing.start.job.name != job.name}


class Display(Protocol):
    """Use as a context manager. `machines` may change while the run goes on; the rest is told of each job."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def say(self, text: str) -> None:
        """One line that stays."""

    def machines(self, machines: Sequence[Machine]) -> None:
        """What there is to run jobs on, from which the time left follows."""

    def started(self, start: Start, worker: str) -> None: ...

    def said(self, worker: str, text: str) -> None:
        """What a worker does now."""

    def ended(self, finished: Finished) -> None: ...

    def built(self, job: Job) -> None:
        """Its environment is there; it will be started again."""

    def lost(self, job: Job, lost: Lost) -> None:
        """Its worker is gone; it will be started again, or `ended` says that it is given up."""


def display(file: TextIO, jobs: Sequence[Job], done: int = 0, clock: Callable[[], float] = time.monotonic) -> "Display":
    """The display that fits where `file` goes. `jobs` are still to be run, and `done` are there without that."""
    state = State(jobs, done, clock)
    if not file.isatty():
        return Lines(file, state)
    from gpu_casebook.corpus.live_table import LiveTable  # noqa: PLC0415 rich takes a tenth of a second to import

    return LiveTable(file, state)


class Lines:
    """For a log: one line for each job that ends or loses its worker."""

    def __init__(self, file: TextIO, state: State) -> None:
        self._file = file
        self._state = state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def say(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    def machines(self, machines: Sequence[Machine]) -> None:
        self._state.machines = machines

    def started(self, start: Start, worker: str) -> None:
        self._state.started(start, worker)

    def said(self, worker: str, text: str) -> None:
        """A log is no place for it; each worker has one of its own."""

    def ended(self, finished: Finished) -> None:
        self._state.ended(finished)
        self.say(line(finished, self._state.done, self._state.total))

    def built(self, job: Job) -> None:
        self._state.waits_again(job)

    def lost(self, job: Job, lost: Lost) -> None:
        self._state.waits_again(job)
        self.say(lost_line(job, lost))


def outcome(finished: Finished) -> str:
    """In a word or two: the verdict, or how it ended without one."""
    verdict = finished.verdict.value if finished.verdict else finished.end.value
    return f"{verdict} (reused)" if finished.end is End.REUSED else verdict


def line(finished: Finished, done: int, total: int) -> str:
    """Such as "[ 12/100] confirmed rwkv6-backward/current (12.3 s, w1)", with the reason unless it is confirmed."""
    number = f"[{done:>{len(str(total))}}/{total}]"
    took = f"{finished.duration_s:.1f} s" + (f", {finished.worker}" if finished.worker else "")
    again = f", after {_counted(len(finished.lost))}" if finished.lost else ""
    told = f"{number} {outcome(finished)} {finished.job.name} ({took}{again})"
    return told if finished.confirmed or not finished.reason else f"{told}: {one_line(finished.reason, _REASON)}"


def lost_line(job: Job, lost: Lost) -> str:
    return one_line(f"lost {job.name}: worker {lost.worker} after {lost.after_s:.1f} s: {lost.reason}", _REASON)


def _counted(workers: int) -> str:
    return "1 lost worker" if workers == 1 else f"{workers} lost workers"


def clock_time(seconds: float | None) -> str:
    """Such as "1:02:03" or "2:03"; "?" where nobody knows."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
