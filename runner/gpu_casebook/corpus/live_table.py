"""The table of a run on a terminal, drawn by rich."""

from collections import deque
from collections.abc import Sequence
from typing import Self, TextIO

from rich.console import Console as Rich
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gpu_casebook.corpus.model import Finished, Job, Lost
from gpu_casebook.corpus.table import Doing, State, clock_time, line, lost_line
from gpu_casebook.corpus.workers import Machine, Start

LAST = 5
"""How many results stay in sight."""
_BAR = 30
_PER_SECOND = 4


class LiveTable:
    """Progress and time left, what each worker does and since when, and the last results.

    What is not confirmed, and what lost its worker, stays above the table.
    """

    def __init__(self, file: TextIO, state: State) -> None:
        self._rich = Rich(file=file, highlight=False)
        self._state = state
        self._last: deque[str] = deque(maxlen=LAST)
        self._live = Live(
            console=self._rich,
            get_renderable=self.drawn,
            refresh_per_second=_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.__exit__(None, None, None)

    def say(self, text: str) -> None:
        self._rich.print(Text(text))

    def machines(self, machines: Sequence[Machine]) -> None:
        self._state.machines = machines

    def started(self, start: Start, worker: str) -> None:
        self._state.started(start, worker)

    def said(self, worker: str, text: str) -> None:
        self._state.said(worker, text)

    def ended(self, finished: Finished) -> None:
        self._state.ended(finished)
        told = line(finished, self._state.done, self._state.total)
        if finished.confirmed:
            self._last.append(told)
        else:
            self.say(told)

    def built(self, job: Job) -> None:
        self._state.waits_again(job)

    def lost(self, job: Job, lost: Lost) -> None:
        self._state.waits_again(job)
        self.say(lost_line(job, lost))

    def drawn(self) -> RenderableType:
        """Called by rich's own thread too."""
        counts = [self._counts()] if self._state.ends else []
        return Group(self._progress(), *counts, self._workers(), *map(_row, list(self._last)))

    def _progress(self) -> RenderableType:
        state = self._state
        row = Table.grid(padding=(0, 1))
        told = f"{state.done}/{state.total}  {clock_time(state.elapsed_s)}, left {clock_time(state.left_s)}"
        row.add_row(
            Text("corpus"), ProgressBar(total=max(1, state.total), completed=state.done, width=_BAR), Text(told)
        )
        return row

    def _counts(self) -> RenderableType:
        return _row("  ".join(f"{count} {end}" for end, count in self._state.ends.most_common()))

    def _workers(self) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for name, doing in sorted(self._state.workers.items(), key=lambda item: (len(item[0]), item[0])):
            table.add_row(*map(Text, self._doing(name, doing)))
        return table

    def _doing(self, name: str, doing: Doing) -> Sequence[str]:
        gpus = ",".join(map(str, doing.start.gpus))
        what = f"{doing.start.job.name} on GPU {gpus}" if gpus else doing.start.job.name
        return name, what, clock_time(self._state.since_s(doing)), doing.lately


def _row(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")
