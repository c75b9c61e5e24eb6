"""How a trial ended, and what is kept of its output: the same for every engine."""

import signal
from typing import NamedTuple

from runner.engines.base import cut_middle


class Kept:
    """The first and the last bytes of a stream, however long the stream is.

    Holds at most four times `bound` bytes and the piece that is being added.
    """

    def __init__(self, bound: int) -> None:
        self.total = 0
        self._bound = bound
        self._data = bytearray()

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        self._data += piece
        if len(self._data) > 4 * self._bound:
            self._shorten()

    def text(self) -> str:
        if self.total > self._bound:
            self._shorten()
        return cut_middle(bytes(self._data), self.total, self._bound)

    def _shorten(self) -> None:
        half = self._bound // 2
        del self._data[half : len(self._data) - half]


class Ending(NamedTuple):
    exit_status: int | None
    signal: str | None


def ending(status: int) -> Ending:
    """Of a process: `status` is its exit status, or less than 0 for the signal that killed it.

    Shells and container engines say 128 + n for signal n.
    """
    number = -status if status < 0 else status - 128
    if number > 0 and number in {known.value for known in signal.Signals}:
        return Ending(None, signal.Signals(number).name)
    return Ending(status, None)
