"""How a trial ended, and what is kept of its output: the same for every engine."""

import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gpu_casebook.trial import cut_middle

_DIFFERENT_LINES = 100_000
_OPEN_LINE = 64 * 1024


class Novelty:
    """How many different lines a stream has brought so far."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._beyond = 0
        self._open = b""

    @property
    def state(self) -> tuple[int, int]:
        return len(self._known) + self._beyond, len(self._open)

    def add(self, piece: bytes) -> None:
        *whole, self._open = (self._open + piece).replace(b"\r", b"\n").split(b"\n")
        if len(self._open) > _OPEN_LINE:
            whole.append(self._open)
            self._open = b""
        for line in whole:
            if len(self._known) < _DIFFERENT_LINES:
                self._known.add(hash(line))
            else:
                self._beyond += 1


class Kept:
    """The first and the last bytes of a stream, however long the stream is.

    Holds at most four times `bound` bytes and the piece that is being added. Every piece goes to `novelty` too.
    """

    def __init__(self, bound: int, novelty: Novelty | None = None) -> None:
        self.total = 0
        self._bound = bound
        self._novelty = novelty
        self._data = bytearray()

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        if self._novelty:
            self._novelty.add(piece)
        self._data += piece
        if len(self._data) > 4 * self._bound:
            self._shorten()

    @property
    def said(self) -> tuple[int, ...]:
        """Changes when something new was said; empty without `novelty`."""
        return self._novelty.state if self._novelty else ()

    def text(self) -> str:
        if self.total > self._bound:
            self._shorten()
        return cut_middle(bytes(self._data), self.total, self._bound)

    def _shorten(self) -> None:
        half = self._bound // 2
        del self._data[half : len(self._data) - half]


class Neutral:
    """Puts neutral names in the place of this machine's own, so that a pasted report holds nothing private."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._neutral = {name.encode(): neutral.encode() for name, neutral in names.items()}
        longest_first = sorted(self._neutral, key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, longest_first)) or rb"(?!)")
        self._longest = len(longest_first[0]) if longest_first else 0

    def pieces(self, stream: Iterable[bytes]) -> Iterator[bytes]:
        """The stream's pieces, in other cuts: a name may lie across two of them."""
        held = b""
        for piece in stream:
            ready, held = self._replace(held + piece, sure=self._longest)
            yield ready
        yield self._replace(held, sure=0)[0]

    def _replace(self, data: bytes, *, sure: int) -> tuple[bytes, bytes]:
        """What can be said of `data`, and the rest. A name counts if at least `sure` bytes are there from its start."""
        last = len(data) - sure
        done, parts = 0, []
        for match in self._any.finditer(data):
            if match.start() > last:
                break
            parts += [data[done : match.start()], self._neutral[match[0]]]
            done = match.end()
        end = max(done, last)
        return b"".join([*parts, data[done:end]]), data[end:]


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
