"""What is kept of a trial's output, and the result that comes of it: the same for every engine."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from failure_signature.result import TrialResult, status_and_signal
from gpu_casebook.engines.watching import FINAL_S, Watched, watch_trial
from gpu_casebook.trial import TrialRequest

_DIFFERENT_LINES = 100_000
_OPEN_LINE = 64 * 1024


def cut_middle(data: bytes, total: int, bound: int) -> str:
    """Decode an output stream of `total` bytes of which `data` holds the first and last `bound` // 2.

    `data` is the whole stream if total <= bound.
    """
    if total <= bound:
        return data.decode("utf-8", "replace")
    half = bound // 2
    head, tail = data[:half], data[len(data) - half :]
    mark = f"\n[... {total - 2 * half} bytes cut here ...]\n"
    return head.decode("utf-8", "replace") + mark + tail.decode("utf-8", "replace")


def supervised_s(request: TrialRequest) -> float:
    """Return how long a supervisor lets a trial run; a watched one longer, so that the runner can take its stacks."""
    return request.limits.timeout_s + (2 * FINAL_S if request.watch else 0.0)


class Novelty:
    """How many different lines a stream has brought so far, and how long its unfinished line is."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._lines = 0
        self._open = b""

    @property
    def state(self) -> tuple[int, int]:
        return self._lines, len(self._open)

    def add(self, piece: bytes) -> None:
        *whole, self._open = (self._open + piece).replace(b"\r", b"\n").split(b"\n")
        if len(self._open) > _OPEN_LINE:
            whole.append(self._open)
            self._open = b""
        for line in map(hash, whole):
            self._lines += line not in self._known
            # What comes after so many lines counts as new each time: memory is bounded.
            if len(self._known) < _DIFFERENT_LINES:
                self._known.add(line)


class Kept:
    """The first and the last bytes of a stream, however long the stream is.

    Holds at most four times `bound` bytes and the piece that is being added.
    """

    def __init__(self, bound: int, *, watched: bool = False) -> None:
        self.total = 0
        self._bound = bound
        self._novelty = Novelty() if watched else None  # costs time for each line
        self._data = bytearray()

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        if self._novelty:
            self._novelty.add(piece)
        self._data += piece
        if len(self._data) > 4 * self._bound:
            self._shorten()

    @property
    def printed(self) -> tuple[int, ...]:
        """What changes when the stream brings something new; empty unless it is watched."""
        return self._novelty.state if self._novelty else ()

    def text(self) -> str:
        if self.total > self._bound:
            self._shorten()
        return cut_middle(bytes(self._data), self.total, self._bound)

    def _shorten(self) -> None:
        half = self._bound // 2
        del self._data[half : len(self._data) - half]


class Output:
    """Both streams of a trial. How they are read is the engine's business."""

    def __init__(self, request: TrialRequest) -> None:
        self._request = request
        bound, watched = request.limits.output_bytes, request.watch is not None
        self.stdout, self.stderr = Kept(bound, watched=watched), Kept(bound, watched=watched)
        self.loaded: Sequence[Sequence[str]] = ()
        """What `gpu_casebook.guest.loaded` saw."""

    def watch(self, look: Callable[[bool], str], ended: Callable[[float], bool]) -> Watched | None:
        """Watch the trial as `watching.watch_trial` does, if that was asked for."""
        watch, timeout_s = self._request.watch, self._request.limits.timeout_s
        if watch is None:
            return None
        return watch_trial(watch, timeout_s, look=look, printed=self._printed, ended=ended)

    def _printed(self) -> tuple[int, ...]:
        return self.stdout.printed + self.stderr.printed

    def supervised(
        self, ended: Mapping[str, Any] | None, watched: Watched | None, *, out_of_memory: bool = False, **fields: Any
    ) -> TrialResult:
        """Return how a trial ended by what its supervisor (`gpu_casebook.guest.supervisor`) said, None if nothing.

        `watched` is what was to be said of it when its end was ordered.
        """
        if ended is None:
            ended = {"infra": "the trial could not be run: its supervisor ended: it was killed"}
        reason = ended.get("ended_for")
        if reason == "processes":
            most = self._request.limits.processes
            self.stderr.add(f"\n[the trial was ended: more than {most} processes]\n".encode())
        if watched is None or reason not in {"abandoned", "timeout"}:  # the trial may have ended before the order came
            watched = Watched(timed_out=reason == "timeout")
        return self.result(
            ended.get("status"),
            watched,
            duration_s=ended.get("duration_s", 0.0),
            out_of_memory=out_of_memory or reason == "memory",
            infra=ended.get("infra"),
            **fields,
        )

    def result(self, status: int | None, watched: Watched, **fields: Any) -> TrialResult:
        """Return how the trial ended. `status` is as `ending` takes it; `fields` are the others of `TrialResult`."""
        exit_status, name = status_and_signal(status)
        stdout, stderr = self.stdout.text(), self.stderr.text()
        every = sorted({(kind, path) for kind, path in self.loaded})
        return TrialResult(
            stdout=stdout,
            stderr=stderr,
            exit_status=exit_status,
            signal=name,
            libraries=[path for kind, path in every if kind == "library"],
            pythons=[path for kind, path in every if kind == "python"],
            **watched._asdict(),
            **fields,
        )


class Neutral:
    """Puts neutral names in the place of this machine's own, so that a pasted report holds nothing private."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._neutral = {name.encode(): neutral.encode() for name, neutral in names.items()}
        longest_first = sorted(self._neutral, key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, longest_first)) or rb"(?!)")
        self._longest = len(longest_first[0]) if longest_first else 0

    def pieces(self, stream: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the stream with its names replaced, in other pieces: a name may lie across two of them."""
        held = b""
        for piece in stream:
            ready, held = self._replace(held + piece, sure=self._longest)
            yield ready
        yield self._replace(held, sure=0)[0]

    def _replace(self, data: bytes, *, sure: int) -> tuple[bytes, bytes]:
        """Return what is settled of `data`, and the rest: a name counts if `sure` bytes follow from its start."""
        last = len(data) - sure
        done, parts = 0, []
        for match in self._any.finditer(data):
            if match.start() > last:
                break
            parts += [data[done : match.start()], self._neutral[match[0]]]
            done = match.end()
        end = max(done, last)
        return b"".join([*parts, data[done:end]]), data[end:]
