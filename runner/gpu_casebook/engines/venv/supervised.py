"""Trials under a supervisor, `gpu_casebook.guest.supervisor`: starting, following and ending one, and its result."""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any, NamedTuple

from gpu_casebook.engines import watching
from gpu_casebook.engines.output import Kept, Neutral, Output
from gpu_casebook.engines.watching import Watched
from gpu_casebook.guest import supervisor
from gpu_casebook.trial import TrialRequest, TrialResult

# What a watched trial gets on top of its time, so that its stacks can be taken: the runner keeps the time then.
SPARE_S = 2 * watching.FINAL_S
# How long output may still come after the last process is gone, or can't be killed.
_DRAIN_S = 5.0


class Supervising(NamedTuple):
    """The supervisor of one trial: a process that `launch` started, or one that a zygote forked."""

    pid: int
    stdin: IO[bytes]  # closing it is the order to end the trial
    answer: IO[bytes]  # brings how the trial ended
    wait: Callable[[], object]

    def end(self) -> None:
        with suppress(BrokenPipeError):
            self.stdin.close()

    def close(self) -> None:
        """End the trial, if it still runs, and wait until it has ended."""
        self.end()
        self.wait()
        self.answer.close()


# Starts a trial with these orders, which name the file descriptors for its output.
Start = Callable[[Mapping[str, Any]], Supervising]


def launch(orders: Mapping[str, Any]) -> Supervising:
    """Start a supervisor in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[orders["stdout"], orders["stderr"], *orders.get("pass_fds", ())],
        start_new_session=True,  # a Ctrl-C at the terminal is the runner's
    )
    assert process.stdin
    assert process.stdout
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        process.stdin.flush()
    return Supervising(process.pid, process.stdin, process.stdout, process.wait)


def begin(
    start: Start, orders: Mapping[str, Any], takes: Sequence[Callable[[Iterator[bytes]], object]]
) -> tuple[Supervising, list[threading.Thread]]:
    """Start a trial. Its stdout and its stderr go to `takes`, read by the threads that are returned."""
    readers, write_ends = [], []
    for take in takes:
        read_end, write_end = os.pipe()
        write_ends.append(write_end)
        readers.append(threading.Thread(target=_read, args=(read_end, take), daemon=True))
        readers[-1].start()
    try:
        return start({**orders, "stdout": write_ends[0], "stderr": write_ends[1]}), readers
    finally:
        for write_end in write_ends:
            os.close(write_end)


def _read(stream: int, take: Callable[[Iterator[bytes]], object]) -> None:
    with os.fdopen(stream, "rb", buffering=0) as file:
        take(iter(lambda: file.read(65536), b""))


def drained(readers: Sequence[threading.Thread]) -> bool:
    """Wait for the end of a trial's output, but not for ever; return whether it came."""
    for reader in readers:
        reader.join(_DRAIN_S)
    return not any(reader.is_alive() for reader in readers)


class NeutralOutput(Output):
    """Both streams of a trial, with neutral names."""

    def __init__(self, request: TrialRequest, names: Mapping[str, str]) -> None:
        super().__init__(request)
        self._neutral = Neutral(names)

    def take(self, kept: Kept, pieces: Iterable[bytes]) -> None:
        for piece in self._neutral.pieces(pieces):
            kept.add(piece)

    def look(self, process: Supervising, *, spying: bool) -> str:
        """Sample the trial, as `watching.look` does."""
        seen = watching.look(process.pid, spying=spying).encode()
        return b"".join(self._neutral.pieces([seen])).decode()


def run(
    start: Start, orders: Mapping[str, Any], output: NeutralOutput, request: TrialRequest, *, kept: str | None = None
) -> TrialResult:
    """Run a trial to its end. Raises what `start` raises."""
    takes = [partial(output.take, stream) for stream in (output.stdout, output.stderr)]
    process, readers = begin(start, orders, takes)
    try:
        watched = output.watch(
            lambda spying: output.look(process, spying=spying),
            lambda within_s: bool(select.select([process.answer], [], [], within_s)[0]),
        )
        if watched:
            process.end()
        answer = process.answer.read()
    finally:
        process.close()
        drained(readers)
    ended = json.loads(answer) if answer else {"infra": "the trial could not be run: its supervisor ended: it was killed"}
    return _result(ended, watched, output, request, kept)


def _result(
    ended: Mapping[str, Any], watched: Watched | None, output: Output, request: TrialRequest, kept: str | None
) -> TrialResult:
    reason = ended.get("ended_for")
    if reason == "processes":
        output.stderr.add(f"\n[the trial was ended: more than {request.limits.processes} processes]\n".encode())
    if watched is None or reason not in {"abandoned", "timeout"}:  # the trial may have ended before the order came
        watched = Watched(timed_out=reason == "timeout")
    return output.result(
        ended.get("status"),
        watched,
        duration_s=ended.get("duration_s", 0.0),
        out_of_memory=reason == "memory",
        infra=ended.get("infra"),
        kept=kept,
    )
