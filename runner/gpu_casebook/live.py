"""The console on a terminal, drawn by rich."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console as Rich
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from gpu_casebook.console import Task, one_line


class LiveConsole:
    """A terminal: spinner, bar, elapsed time and time left."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._rich = Rich(file=file, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        self._rich.print(text, markup=False)

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=self._rich, transient=True) as progress:
            task = progress.add_task(title)

            def note(text: str) -> None:
                room = max(20, self._rich.width - len(title) - 20)
                progress.update(task, description=f"{title}: {one_line(text, room)}")

            yield note

    @contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._rich, transient=True) as progress:
            bar = progress.add_task(title, total=total)

            class _Task:
                def advance(self, text: str) -> None:
                    progress.console.print(f"  {text}", markup=False)
                    progress.advance(bar)

            yield _Task()
