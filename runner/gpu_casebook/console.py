"""What a person sees while the runner works: live on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

QUIET_S = 10.0
"""Plain output gets a note at most this often: a CI log wants signs of life, not every download."""


class Task(Protocol):
    """A counted piece of work."""

    def advance(self, text: str) -> None:
        """One more is done; `text` says what came of it."""


class Console(Protocol):
    def say(self, text: str) -> None:
        """One line that stays."""

    def step(self, title: str) -> AbstractContextManager[Callable[[str], None]]:
        """A piece of work of unknown length; yields a function that takes notes on what is being done."""

    def task(self, title: str, total: int) -> AbstractContextManager[Task]:
        """A piece of work of `total` parts."""


class PlainConsole:
    """Lines for a log: each says what begins, what came of it, and how long it took."""

    def __init__(self, file: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock

    def say(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        begun = last = self._clock()

        def note(text: str) -> None:
            nonlocal last
            now = self._clock()
            if now - last >= QUIET_S:
                last = now
                self.say(f"{title}: {one_line(text, 160)} ({now - begun:.0f} s)")

        self.say(f"{title} ...")
        yield note
        took = self._clock() - begun
        if took >= 1:
            self.say(f"{title}: {took:.1f} s")

    @contextmanager
    def task(self, title: str, total: int) -> Iterator[Task]:
        console = self

        class _Task:
            done = 0

            def advance(self, text: str) -> None:
                self.done += 1
                console.say(f"{title} {self.done}/{total}: {text}")

        yield _Task()


def console(file: TextIO) -> Console:
    """The console that fits where `file` goes."""
    if not file.isatty():
        return PlainConsole(file)
    from gpu_casebook.live import LiveConsole  # noqa: PLC0415 rich takes a tenth of a second to import

    return LiveConsole(file)


def one_line(text: str, room: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= room else line[: room - 1] + "…"
