"""The display of a run: a live table on a terminal, one line for each finished job elsewhere."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self, TextIO

from casebook_workbench.corpus.events import Machine, Start
from casebook_workbench.corpus.model import End, Finished, Job, Lost
from casebook_workbench.corpus.schedule import left_s
from failure_signature.text import one_line, plural, seconds
from gpu_casebook.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType

LAST = 5
"""How many results stay in sight."""
_REASON = 160
_NAMED = 3
_REMEMBERED = 100
"""How many of the last durations tell how long a job takes that was never timed."""


@dataclass
class Doing:
    """A job that a worker has."""

    start: Start
    worker: str
    begun: float  # of the driver's clock
    lately: str = ""  # what the worker said last


class RunTable:
    """Progress and time left, what each worker does and for how long, and the last results.

    Use as a context manager. Call `show` whenever something changed, `ended` for each job, and `lost` for each worker
    that went away. In a log there is a line for both; on a terminal such a line stays above the table where the job is
    not confirmed.
    """

    def __init__(self, file: TextIO, total: int, done: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """`done` jobs of the `total` had ended before, such as those that are reused."""
        self.total, self.done = total, done
        self._machines: Sequence[Machine] = ()
        self._waiting: Sequence[Job] = ()
        self._running: Mapping[str, Doing] = {}
        self._ends: Counter[str] = Counter()
        self._took: deque[float] = deque(maxlen=_REMEMBERED)
        self._last: deque[str] = deque(maxlen=LAST)
        self._clock = clock
        self._begun = clock()
        self._console = Console(file)
        self._live = None
        self._signs = self._console.signs("corpus", self._now)
        if self._console.rich:
            from rich.live import Live  # noqa: PLC0415 rich takes a tenth of a second to import

            self._live = Live(
                console=self._console.rich,
                get_renderable=self.drawn,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> Self:
        self._signs.__enter__()
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._signs.__exit__(None, None, None)
        if self._live:
            self._live.stop()

    def show(self, machines: Sequence[Machine], waiting: Sequence[Job], running: Mapping[str, Doing]) -> None:
        """Show these jobs from now on. `running` may change afterwards."""
        self._machines, self._waiting, self._running = machines, waiting, running

    def ended(self, finished: Finished) -> None:
        self.done += 1
        self._ends[outcome(finished)] += 1
        if finished.end is End.RAN:
            self._took.append(finished.duration_s)
        text = line(finished, self.done, self.total)
        if self._live and finished.confirmed:
            self._last.append(text)
        else:
            self._console.say(text)

    def lost(self, job: Job, lost: Lost) -> None:
        """Show that the job's worker is gone; it will be started again, or `ended` says that it is given up."""
        text = f"lost {job.name}: worker {lost.worker} after {lost.after_s:.1f} s: {lost.reason}"
        self._console.say(one_line(text, _REASON))

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._begun

    @property
    def left_s(self) -> float | None:
        """Return the seconds that the run will still take; None if unknown."""
        running = [
            (doing.start.job, 0.0 if doing.start.builds else self._clock() - doing.begun)
            for doing in list(self._running.values())  # which the driver may change meanwhile
        ]
        return left_s(self._waiting, running, self._machines, list(self._took))

    def _now(self) -> str:
        """Return what goes on, as a line for a log."""
        running = sorted(self._running.values(), key=lambda doing: doing.begun)
        waiting = sum("waiting for GPU" in doing.lately for doing in running)
        names = ", ".join(
            f"{doing.start.job.name} {seconds(self._clock() - doing.begun)}" for doing in running[:_NAMED]
        )
        left = "" if self.left_s is None else f", about {seconds(self.left_s)} left"
        of_those = f", {waiting} of them waiting for a GPU" if waiting else ""
        return f"{self.done} of {self.total} done, {len(running)} running{of_those} ({names}){left}"

    def drawn(self) -> "RenderableType":
        """Return the table as it is now. Called by rich's own thread too."""
        from rich.console import Group  # noqa: PLC0415
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        progress, workers = Table.grid(padding=(0, 1)), Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(1, self.total), completed=self.done, width=30)
        left = "?" if self.left_s is None else seconds(self.left_s)
        times = f"{self.done}/{self.total}  {seconds(self.elapsed_s)}, left {left}"
        progress.add_row(Text("corpus"), bar, Text(times))
        for more in ({}, {"overflow": "ellipsis"}, {"justify": "right"}, {"overflow": "ellipsis", "ratio": 1}):
            workers.add_column(no_wrap=True, **more)
        for doing in sorted(self._running.values(), key=lambda doing: (len(doing.worker), doing.worker)):
            gpus = ",".join(map(str, doing.start.gpus))
            what = f"{doing.start.job.name} on GPU {gpus}" if gpus else doing.start.job.name
            lately = one_line(doing.lately, _REASON)
            workers.add_row(*map(Text, (doing.worker, what, seconds(self._clock() - doing.begun), lately)))
        counts = ["  ".join(f"{count} {end}" for end, count in self._ends.most_common())] if self._ends else []
        row = partial(Text, no_wrap=True, overflow="ellipsis")
        return Group(progress, *map(row, counts), workers, *map(row, list(self._last)))


def outcome(finished: Finished) -> str:
    """Return the verdict, or how the job ended without one, in a word or two."""
    verdict = finished.verdict.value if finished.verdict else finished.end.value
    return f"{verdict} (reused)" if finished.end is End.REUSED else verdict


def line(finished: Finished, done: int, total: int) -> str:
    """Return a line such as "[ 12/100] confirmed rwkv6-backward/current (12.3 s, w1)", with the reason of others."""
    number = f"[{done:>{len(str(total))}}/{total}]"
    took = f"{finished.duration_s:.1f} s" + (f", {finished.worker}" if finished.worker else "")
    again = f", after {plural(len(finished.lost), 'lost worker')}" if finished.lost else ""
    text = f"{number} {outcome(finished)} {finished.job.name} ({took}{again})"
    return text if finished.confirmed or not finished.reason else f"{text}: {one_line(finished.reason, _REASON)}"
