"""Between the runner and forked trials in a container. Run as `python -I -S keeper.py COMMAND...`.

COMMAND is the script's; it is started as the zygote (`gpu_casebook.guest.zygote`), which waits where the script's first
line would come next. Orders come from the runner on stdin, and what happens goes to stdout, each a line of JSON:

- {"imports": ..., "memory_bytes": ...}: start the zygote. Answered by what it says, with "left" if its imports left
  what can't be kept for each trial.
- {"trial": the supervisor's orders, "loaded": whether to look at what it loads}: put scratch space back to what it was
  after the imports, and fork a trial. Answered by {"pid": of its supervisor}, then {"ended": what the supervisor says
  or null, "out_of_memory": ..., "loaded": ...}.
- {"end": true}: end the trial that runs.

Output comes in between as {"out": base64} and {"err": base64}. With the end of stdin the runner is gone, or wants no
more: the container ends with this process, and with it all that it holds.

It stands alone beside zygote/ and loaded.py, for Python 3.10 and later, as the zygote is.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import select
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
# What a container's trials may write to; nothing else of it can be written.
PLACES = [os.environ.get("TMPDIR", "/tmp"), os.environ.get("HOME", "/tmp"), "/dev/shm", "/dev/mqueue"]  # noqa: S108
_OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")  # cgroup v2, and v1
_MESSAGE = 1 << 20
_PIECE = 1 << 16
_DRAIN_S = 5.0  # how long output may still come after a trial's last process is gone
_IPC = {"shm": "shmctl", "sem": "semctl", "msg": "msgctl"}
_IPC_RMID = 0


class Saved(NamedTuple):
    """A file, link or directory in scratch space."""

    path: str
    mode: int
    mtime_ns: int
    content: bytes | str | None  # of a file; a link's target; None of a directory


def say(message: dict[str, Any]) -> None:
    line = json.dumps(message).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


class Orders:
    """The runner's orders, line by line."""

    def __init__(self) -> None:
        self._rest = b""

    def next(self) -> dict[str, Any]:
        """Wait for the next order; end with the runner."""
        while b"\n" not in self._rest:
            piece = os.read(0, _PIECE)
            if not piece:
                os._exit(0)
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(json.loads(line))


def save(places: list[str]) -> list[Saved]:
    """Return what is in these directories, parents first. Raises OSError for what is no file, link or directory."""
    found = []
    for place in places:
        for directory, directories, files in os.walk(place):
            for name in directories + files:
                path = os.path.join(directory, name)  # noqa: PTH118
                seen = os.lstat(path)
                content: bytes | str | None = None
                if stat.S_ISLNK(seen.st_mode):
                    content = os.readlink(path)  # noqa: PTH115
                elif stat.S_ISREG(seen.st_mode):
                    content = Path(path).read_bytes()
                elif not stat.S_ISDIR(seen.st_mode):
                    raise OSError
                found.append(Saved(path, stat.S_IMODE(seen.st_mode), seen.st_mtime_ns, content))
    return found


def put_back(saved: list[Saved]) -> None:
    for one in saved:
        if one.content is None:
            os.mkdir(one.path, 0o700)  # noqa: PTH102
        elif isinstance(one.content, str):
            os.symlink(one.content, one.path)  # noqa: PTH211
        else:
            Path(one.path).write_bytes(one.content)
    for one in reversed(saved):
        if not isinstance(one.content, str):
            os.chmod(one.path, one.mode)  # noqa: PTH101
            os.utime(one.path, ns=(one.mtime_ns, one.mtime_ns))


def empty(place: str) -> None:
    """Remove all that is in a directory. Raises OSError where something stays."""
    for name in os.listdir(place) if os.path.isdir(place) else []:  # noqa: PTH112, PTH208
        path = os.path.join(place, name)  # noqa: PTH118
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            with contextlib.suppress(RecursionError):
                shutil.rmtree(path, ignore_errors=True)
            if os.path.lexists(path):  # permissions were taken away, or it is deeper than Python can follow
                for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
                    subprocess.run([*command, "--", path], check=False, stderr=subprocess.DEVNULL)
        else:
            os.unlink(path)  # noqa: PTH108
        if os.path.lexists(path):
            raise OSError(path)


def remove_ipc() -> None:
    """Remove System V shared memory, semaphores and queues: they outlive their processes."""
    for kind, control in _IPC.items():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/sysvipc/{kind}").read_text(encoding="ascii").splitlines()[1:]:
                getattr(ctypes.CDLL(None), control)(int(line.split()[1]), *([0] if kind == "sem" else []), _IPC_RMID, 0)


def oom_kills() -> int | None:
    """Return how many processes of this container the kernel has ended for lack of memory; None if it does not tell."""
    for name in _OOM_COUNTERS:
        with contextlib.suppress(OSError):
            for line in Path(name).read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return None


class Keeper:
    """Holds the zygote, and scratch space as its imports left it."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.orders = Orders()
        self.saved: list[Saved] = []
        self.memory_bytes = 0

    def prepare(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Start the zygote, and return what it says once it has done its imports; nothing if it ends instead."""
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.memory_bytes = wanted["memory_bytes"]
        path = ":".join(filter(None, [str(HERE / "zygote"), os.environ.get("PYTHONPATH")]))
        wanted = dict(wanted, control=theirs.fileno())
        pipes, (out, err) = _pipes()
        with theirs:
            subprocess.Popen(
                self.command,
                env=dict(os.environ, PYTHONPATH=path, CASEBOOK_ZYGOTE=json.dumps(wanted)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        os.close(out)
        os.close(err)
        said = self._follow(pipes, self.control)
        if pipes:
            return {"unfit": "its imports left a process that holds its output"}
        if not said:
            return {}
        with contextlib.suppress(OSError):
            self.saved = save(PLACES)
            return dict(json.loads(said))
        return {"unfit": "its imports left a file that can't be copied, such as a socket"}

    def trial(self, orders: dict[str, Any]) -> None:
        """Run one trial, from before its fork to its end."""
        try:
            for place in PLACES:
                empty(place)
            remove_ipc()
            put_back(self.saved)
        except OSError:
            say({"unfit": "what one of them left can't be removed"})
            return
        before = oom_kills()
        if before is None:  # then the supervisor counts
            orders["trial"].update(memory_bytes=self.memory_bytes, places=PLACES)
        pipes, (out, err) = _pipes()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self.control, [json.dumps(orders["trial"]).encode()], [out, err, theirs.fileno()])
            pid = json.loads(self.control.recv(_MESSAGE))["pid"]
        except (OSError, ValueError):
            say({"unfit": "the process that they are forked from has ended"})
            return
        finally:
            os.close(out)
            os.close(err)
        say({"pid": pid})
        seen: list[Any] = []
        over = threading.Event()
        looker = threading.Thread(target=_look, args=(pid, self.command[0], over, seen), daemon=True)
        if orders["loaded"]:
            looker.start()
        answer = self._follow(pipes, ours)
        ours.close()
        for pipe in pipes:
            os.close(pipe)
        over.set()
        if orders["loaded"]:
            looker.join()
        ended = json.loads(answer) if answer else None
        say({"ended": ended, "out_of_memory": oom_kills() != before, "loaded": seen})

    def _follow(self, pipes: dict[int, str], channel: socket.socket) -> bytes:
        """Pass on output until a message has come, or the other end is closed, and all pipes with it.

        Pipes that come to their end are closed and leave `pipes`. Returns the message.
        """
        message, deadline = b"", 0.0
        waits = channel.type == socket.SOCK_SEQPACKET  # the zygote stays; a supervisor ends after its answer
        talking = True
        while talking or pipes:
            left = None if talking else max(0.0, deadline - time.monotonic())
            watched: list[Any] = [0, *pipes, *([channel] if talking else [])]
            ready = select.select(watched, [], [], left)[0]
            if not ready:
                break
            if 0 in ready and self.orders.next().get("end"):
                with contextlib.suppress(OSError):
                    channel.shutdown(socket.SHUT_WR)
            for pipe in pipes.keys() & set(ready):
                piece = os.read(pipe, _PIECE)
                if piece:
                    say({pipes[pipe]: base64.b64encode(piece).decode()})
                else:
                    os.close(pipe)
                    del pipes[pipe]
            if channel in ready:
                piece = b""
                with contextlib.suppress(ConnectionResetError):
                    piece = channel.recv(_MESSAGE)
                message += piece
                talking = bool(piece) and not waits
                deadline = time.monotonic() + _DRAIN_S
        return message


def _pipes() -> Any:
    """Return what both streams of output are called, by their read ends, and their write ends."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    return {out: "out", err: "err"}, (out_end, err_end)


def _look(pid: int, python: str, over: threading.Event, seen: list[Any]) -> None:
    sys.path.insert(0, str(HERE))
    from loaded import follow  # type: ignore[import-not-found]  # noqa: PLC0415 a copy of ours

    seen.extend(follow(pid, python, over.wait))


def main(command: list[str]) -> None:
    keeper = Keeper(command)
    say(keeper.prepare(keeper.orders.next()))
    while True:
        order = keeper.orders.next()
        if "trial" in order:
            keeper.trial(order)


if __name__ == "__main__":
    main(sys.argv[1:])
