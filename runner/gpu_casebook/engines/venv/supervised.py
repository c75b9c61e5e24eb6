"""Trials under a supervisor, `gpu_casebook.guest.supervisor`: starting, following and ending one, and its result."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from failure_signature.result import TrialResult
from gpu_casebook.engines import watching
from gpu_casebook.engines.output import Kept, Neutral, Output
from gpu_casebook.guest import supervisor
from gpu_casebook.guest.loaded import follow
from gpu_casebook.trial import TrialRequest

# How long output may still come after the last process is gone, or can't be killed.
_DRAIN_S = 5.0
# How long a supervisor may take to end all processes of a trial.
_PATIENCE_S = 60.0
# What Python itself may need to start; nothing else of the runner's variables is for the eyes of a trial.
_NEEDED = ("LD_LIBRARY_PATH",)

_started = set[int]()  # supervisors of this process that nobody has waited for: threads may run trials at once
_starting = threading.Lock()
_running = dict["Supervising", object]()  # by whom: several engines may run trials in this process


class Supervising(NamedTuple):
    """The supervisor of one trial, which `launch` started."""

    pid: int
    channel: socket.socket  # brings how the trial ended; closing our half of it is the order to end the trial
    wait: Callable[[], object]

    def end(self) -> None:
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)

    def answer(self, within_s: float) -> bytes:
        """Return what it said until it ended. One that says nothing in this time (the trial stopped it) is killed."""
        said, deadline = b"", time.monotonic() + within_s
        with suppress(ConnectionResetError):
            while True:
                if not select.select([self.channel], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    os.kill(self.pid, signal.SIGKILL)
                    return b""
                piece = self.channel.recv(65536)
                if not piece:
                    break
                said += piece
        return said

    def close(self) -> None:
        """End the trial, if it still runs, and wait until it has ended."""
        self.end()
        self.answer(_PATIENCE_S)
        self.wait()
        _started.discard(self.pid)
        self.channel.close()


def launch(orders: Mapping[str, Any]) -> Supervising:
    """Start a supervisor in a process of its own. The orders name the file descriptors for the trial's output."""
    # Should a trial kill its supervisor, what it started falls to this process, and not to nobody.
    supervisor.prctl(supervisor.PR_SET_CHILD_SUBREAPER, 1)
    ours, theirs = socket.socketpair()
    with theirs, _starting:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _NEEDED if name in os.environ},
            pass_fds=[orders["stdout"], orders["stderr"]],
            start_new_session=True,  # a Ctrl-C at the terminal is the runner's
        )
        _started.add(process.pid)
    with suppress(OSError):
        ours.sendall(json.dumps(orders).encode() + b"\n")
    return Supervising(process.pid, ours, process.wait)


def end_strays(known: Collection[int]) -> None:
    """End what a trial left that killed its supervisor: children that nobody here started, and all below them."""
    roots = set[int]()

    def below() -> list[supervisor.Process]:
        with _starting:  # a supervisor that is not among those started yet would look like a stray
            there = supervisor.descendants(os.getpid())
            ours = {*known, *_started}
        strangers = {one.pid for one in there if one.parent == os.getpid()} - ours
        roots.update(filter(_is_apart, strangers))
        below_roots = [each for root in roots for each in supervisor.descendants(root)]
        return [one for one in there if one.pid in roots] + below_roots

    def reap() -> None:
        for root in roots:
            with suppress(ChildProcessError):
                os.waitpid(root, os.WNOHANG)

    supervisor.end_all(below, reap)


def children() -> set[int]:
    """Return the living children of this process."""
    return {one.pid for one in supervisor.descendants(os.getpid()) if one.parent == os.getpid()}


def _is_apart(pid: int) -> bool:
    """Return whether a process is in another session than this one, as every trial is."""
    try:
        return os.getsid(pid) != os.getsid(0)
    except ProcessLookupError:
        return False


def begin(
    orders: Mapping[str, Any], takes: Sequence[Callable[[Iterator[bytes]], object]]
) -> tuple[Supervising, list[threading.Thread]]:
    """Start a trial. Its stdout and its stderr go to `takes`, read by the threads that are returned."""
    readers, write_ends = [], []
    for take in takes:
        read_end, write_end = os.pipe()
        write_ends.append(write_end)
        readers.append(threading.Thread(target=_read, args=(read_end, take), daemon=True))
        readers[-1].start()
    try:
        return launch({**orders, "stdout": write_ends[0], "stderr": write_ends[1]}), readers
    finally:
        for write_end in write_ends:
            os.close(write_end)


def _read(stream: int, take: Callable[[Iterator[bytes]], object]) -> None:
    with os.fdopen(stream, "rb", buffering=0) as file:
        take(iter(lambda: file.read(65536), b""))


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
        return self.neutral(watching.look(process.pid, spying=spying))

    def neutral(self, text: str) -> str:
        return b"".join(self._neutral.pieces([text.encode()])).decode()


def run(
    orders: Mapping[str, Any],
    output: NeutralOutput,
    request: TrialRequest,
    *,
    engine: object,
    kept: str | None = None,
) -> TrialResult:
    """Run a trial of this engine to its end."""
    takes = [partial(output.take, stream) for stream in (output.stdout, output.stderr)]
    answer, known = b"", children()
    process, readers = begin(orders, takes)
    _running[process] = engine
    seen: list[tuple[str, str]] = []
    over = threading.Event()
    looker = threading.Thread(target=lambda: seen.extend(follow(process.pid, orders["python"], over.wait)), daemon=True)
    if request.loaded:
        looker.start()
    try:
        watched = output.watch(
            lambda spying: output.look(process, spying=spying),
            lambda within_s: bool(select.select([process.channel], [], [], within_s)[0]),
        )
        if watched:
            process.end()
        answer = process.answer(orders["timeout_s"] + _PATIENCE_S)
    finally:
        _running.pop(process, None)
        over.set()
        process.close()
        if not answer:
            end_strays(known)
        for reader in readers:
            reader.join(_DRAIN_S)
    if request.loaded:
        looker.join()
    output.loaded = [(kind, output.neutral(path)) for kind, path in seen]
    return output.supervised(json.loads(answer) if answer else None, watched, kept=kept)


def end_trials(engine: object) -> None:
    """End all trials of this engine that run now."""
    for process, of in list(_running.items()):
        if of is engine:
            process.end()
