"""Who uses which GPU of this host: one run alone, or trials that share its memory. For all users and all engines.

A GPU is divided into slots. A slot is a file, and the process that locks it holds the slot; when a process is killed,
the kernel gives its slots back. A run that is alone on a GPU holds all of its slots. To take slots, a process first
locks the GPU's gate, another file. A waiter keeps the gate and the slots it has. Otherwise a run that needs every slot
could starve behind runs that need one. Processes enter the gate in the order of their tickets, which are files too. The
tickets of the run that began first come first, however many there are. If the order were that of asking, a case with
few long trials would fall behind cases that ask for all of their trials at once.

A program that takes no memory of the GPU, such as one that only asks the driver, needs no slot (`look`). It shares one
more lock, which a run that is alone holds for itself.
"""

import fcntl
import math
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from gpu_casebook.devices import hardware
from gpu_casebook.trial import Note

SLOT_BYTES = 2 * 2**30
"""The least share: a context and a framework's libraries take about 0.5 GiB, and most cases less than 1 GiB beyond."""
_POLL_S = 0.02
"""Between two polls of the first in the queue: a free slot stands empty so long at most. Others poll less often."""
_LONGEST_POLL_S = 0.5


@contextmanager
def hold(
    indices: Sequence[int],
    wait: Note,
    memory: int | None = None,
    pause: Callable[[float], object] = time.sleep,
    since: int | None = None,
) -> Iterator[None]:
    """Hold `memory` bytes of each of these GPUs, or without it all of each, alone; wait for whoever has them.

    `wait` is called with the name of the holder. `pause` is called between two polls, and may raise to give up. `since`
    (ns since the epoch) is when the run began that asks: among all who wait, earlier ones come first.
    """
    with ExitStack() as held:
        for gpu, size in _gpus(indices, wait, pause):
            held.enter_context(gpu.hold(gpu.slots if memory is None else share(memory, size), since))
        yield


@contextmanager
def look(indices: Sequence[int], wait: Note, pause: Callable[[float], object] = time.sleep) -> Iterator[None]:
    """Keep these GPUs from being held alone; wait for whoever holds one so. `wait` and `pause` are as in `hold`."""
    with ExitStack() as held:
        for gpu, _ in _gpus(indices, wait, pause):
            held.enter_context(gpu.look())
        yield


def _gpus(indices: Sequence[int], wait: Note, pause: Callable[[float], object]) -> Iterator[tuple["_Gpu", int]]:
    """Yield the GPUs with their bytes, in one order everywhere, so that two runners never wait for each other."""
    sizes = {gpu.index: (gpu.uuid, gpu.memory_bytes) for gpu in hardware.gpus()}
    for name, size, index in sorted((*sizes.get(index, (f"index-{index}", 0)), index) for index in indices):
        yield _Gpu(name, f"GPU {index}", slots(size), wait, pause), size


def slots(memory_bytes: int) -> int:
    """Return into how many shares a GPU of so much memory is divided: no more than the host has cores to feed it."""
    # Not the cores that this process may use: all processes must divide a GPU alike, or none of them is alone.
    return max(1, min(memory_bytes // SLOT_BYTES, os.cpu_count() or 1))


def share(memory: int, size: int) -> int:
    """Return how many slots so many bytes take of a GPU with `size` bytes."""
    count = slots(size)
    return min(count, max(1, math.ceil(memory * count / max(size, 1))))


@dataclass
class _Gpu:
    name: str
    what: str
    slots: int
    wait: Note
    pause: Callable[[float], object]
    announced: str = ""

    @contextmanager
    def hold(self, need: int, since: int | None = None) -> Iterator[None]:
        """Hold so many slots."""
        with ExitStack() as held:
            files = [held.enter_context(_opened(f"{self.name}.{number}.slot")) for number in range(self.slots)]
            if need == self.slots:  # alone: against those who look, too
                files.append(held.enter_context(_opened(f"{self.name}.looks")))
                need += 1
            with _opened(f"{self.name}.lock") as gate, self._ticket(since) as ticket:
                ours = self._locked(gate, ticket, files, need)
            try:
                for file in ours:
                    _sign(file, f"process {os.getpid()} ({' '.join(sys.argv)[:120]})")
                yield
            finally:
                for file in ours:
                    _sign(file, "")
                _unlock(*ours)

    @contextmanager
    def look(self) -> Iterator[None]:
        """Keep others from having all slots. Many may do so at once, and need not pass the gate: they take no slot."""
        with _opened(f"{self.name}.looks") as looks:
            while not _lock(looks, fcntl.LOCK_SH):
                self._wait_for([looks])
            try:
                yield
            finally:
                _unlock(looks)

    @contextmanager
    def _ticket(self, since: int | None) -> Iterator[Path]:
        """Yield a file that is locked meanwhile. By their names, those of earlier runs come first."""
        now = time.time_ns()
        with _opened(f"{self.name}.{since or now:020d}-{now:020d}-{uuid.uuid4().hex[:8]}.new") as file:
            _lock(file)
            # Only now under its name: whoever sees a ticket that nobody has locked takes it for a killed process's.
            ticket = Path(file.name).rename(Path(file.name).with_suffix(".ticket"))
            try:
                yield ticket
            finally:
                ticket.unlink(missing_ok=True)

    def _ahead(self, ticket: Path) -> int:
        """Return how many tickets were taken before this one; the first is removed if its process was killed."""
        earlier = sorted(each for each in ticket.parent.glob(f"{self.name}.*.ticket") if each < ticket)
        with suppress(OSError), ExitStack() as opened:  # it was given back just now
            if earlier and _lock(opened.enter_context(earlier[0].open(encoding="utf-8"))):
                earlier.pop(0).unlink()
        return len(earlier)

    def _locked(self, gate: IO[str], ticket: Path, files: Sequence[IO[str]], need: int) -> list[IO[str]]:
        """Return so many slots, locked; keep the gate, and what there is of them, until there are as many."""
        ours: list[IO[str]] = []
        entered = False
        try:
            while True:
                ahead = 0 if entered else self._ahead(ticket)
                # The lock decides in the end: two may take their tickets at once, and both find none before theirs.
                entered = entered or (not ahead and _lock(gate))
                if entered:
                    ours += islice(filter(_lock, (file for file in files if file not in ours)), need - len(ours))
                if len(ours) == need:
                    return ours
                self._wait_for([file for file in files if file not in ours], ahead)
        except BaseException:
            _unlock(*ours)
            raise
        finally:
            _unlock(gate)

    def _wait_for(self, files: Sequence[IO[str]], ahead: int = 0) -> None:
        holder = next(filter(None, map(_holder, files)), "another runner")
        if holder != self.announced:
            self.announced = holder
            self.wait(f"waiting for {self.what}: {holder} has it")
        self.pause(min(_LONGEST_POLL_S, _POLL_S * (1 + ahead)))


@contextmanager
def _opened(name: str) -> Iterator[IO[str]]:
    path = hardware.lock_directory() / name
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        with suppress(OSError):  # the file is another user's, who has done so
            path.chmod(0o666)
        yield file


def _lock(file: IO[str], how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(*files: IO[str]) -> None:
    for file in files:  # closing is not enough: a process that was forked meanwhile has the same file open
        fcntl.flock(file, fcntl.LOCK_UN)


def _sign(file: IO[str], text: str) -> None:
    file.truncate(0)
    file.write(text)
    file.flush()


def _holder(file: IO[str]) -> str:
    return Path(file.name).read_text(encoding="utf-8", errors="replace")
