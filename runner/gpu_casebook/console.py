"""What a person sees while the runner works: plain lines, and on a terminal a live display by rich."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TextIO

from failure_signature.text import Lasting, one_line
from gpu_casebook.places import as_command

QUIET_S = 10.0
"""Plain output gets a note at most this often: a CI log wants signs of life, not every download."""
SILENCE_S = 20.0
"""In plain output a line says what goes on whenever there was none for so long."""
NOTE_S = 0.25
"""`tell` gets the notes of a step, such as the lines of a build, at most this often."""


class Console:
    """Plain lines on `file`, or a live display where it is a terminal. Without a file: sys.stdout, in plain lines.

    `tell` gets every plain line as well, and the notes between them.
    """

    def __init__(
        self,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._told = float("-inf")
        self._logged = clock()
        self._file = file
        self.rich = None
        if file is not None and file.isatty():
            from rich.console import Console as Rich  # noqa: PLC0415 rich takes a tenth of a second to import

            self.rich = Rich(file=file, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print one line that stays."""
        text = as_command(text)
        if self.rich:
            self.rich.print(text, markup=False)
        self._log(text)

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """Show a piece of work of unknown length. Yields a function that takes notes on what is being done."""
        begun = last = self._clock()

        def note(text: str) -> None:
            nonlocal last
            if isinstance(text, Lasting):
                self._log(text)
                return
            if self.rich:
                room = max(20, self.rich.width - len(title) - 20)
                update(description=f"{title}: {one_line(text, room)}")
            now = self._clock()
            if now - last >= QUIET_S:
                last = now
                self._log(f"{title}: {one_line(text, 160)} ({now - begun:.0f} s)")
            elif self._tell and now - self._told >= NOTE_S:
                self._told = now
                self._tell(f"{title}: {text}")

        self._log(f"{title} ...")
        with self._progress(title) as update, self.signs(title):
            yield note
        took = self._clock() - begun
        if took >= 1:
            self._log(f"{title}: {took:.1f} s")

    @contextmanager
    def task(
        self, title: str, total: int, now: Callable[[], str] = lambda: "working"
    ) -> Iterator[Callable[[str], None]]:
        """Show a piece of work of `total` parts. Yields a function to call after each one, with its result.

        `now` returns what goes on, for logs.
        """
        done = 0

        def advance(text: str) -> None:
            nonlocal done
            done += 1
            if self.rich:
                self.rich.print(f"  {text}", markup=False)
            update(advance=1)
            self._log(f"{title} {done}/{total}: {text}")

        with self._progress(title, total) as update, self.signs(title, now):
            yield advance

    @contextmanager
    def signs(self, title: str, now: Callable[[], str] = lambda: "working") -> Iterator[None]:
        """In plain output, print what goes on `now` and for how long, whenever nothing was printed for a while."""
        if self.rich:
            yield
            return
        ended, begun = threading.Event(), self._clock()

        def print_signs() -> None:
            while not ended.wait(max(0.01, self._logged + SILENCE_S - self._clock())):
                if self._clock() - self._logged >= SILENCE_S:
                    self._log(f"{title}: {now()} ({self._clock() - begun:.0f} s)")

        thread = threading.Thread(target=print_signs, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _log(self, text: str) -> None:
        self._logged = self._clock()
        if self.rich is None:
            print(text, file=self._file, flush=True)
        if self._tell:
            self._told = self._clock()
            self._tell(text)

    @contextmanager
    def _progress(self, title: str, total: int | None = None) -> Iterator[Callable[..., None]]:
        """Show a bar, or a spinner without a `total`, on a terminal. Yields a function that updates it."""
        if self.rich is None:
            yield lambda **_: None
            return
        from rich import progress as shown  # noqa: PLC0415 rich takes a tenth of a second to import

        description, elapsed = shown.TextColumn("{task.description}", markup=False), shown.TimeElapsedColumn()
        columns: list[shown.ProgressColumn] = [shown.SpinnerColumn(), description, elapsed]
        if total is not None:
            bar, left = shown.BarColumn(bar_width=30), shown.TimeRemainingColumn()
            columns = [description, bar, shown.MofNCompleteColumn(), elapsed, shown.TextColumn("left"), left]
        with shown.Progress(*columns, console=self.rich, transient=True) as progress:
            yield partial(progress.update, progress.add_task(title, total=total))
