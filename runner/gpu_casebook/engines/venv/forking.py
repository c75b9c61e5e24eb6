"""Trials that are forked from a process which has already imported what the script imports first.

The runner's side of `gpu_casebook.guest.zygote`. The zygote is the trial of a supervisor of its own, so that all it ever
starts is ended with it, and it lives in one scratch directory. What the imports left in that directory is kept aside:
each trial finds a fresh copy at the same place, as imports may have noted the place.
"""

import ast
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from gpu_casebook.engines import scratch
from gpu_casebook.guest import supervisor, zygote

PLACES = ("case", "home", "tmp")
"""What a trial finds in its scratch directory."""

_LIFE_S = 7 * 86400.0
_UNBOUNDED = 2**62
"""Each trial's own supervisor keeps its limits. Were they kept here too, a trial beyond them might take all along."""
_MESSAGE = 1 << 20
_PATIENCE_S = 60.0
_DRAIN_S = 5.0


class Unfit(Exception):  # noqa: N818 no error: the trials are fresh processes then
    """Why trials can't be forked, as the end of a sentence."""


class Supervising(Protocol):
    """What follows one trial: a process that `launch` started, or one that a zygote forked."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...
    def wait(self) -> int: ...


def launch(*files: int) -> "subprocess.Popen[bytes]":
    """A supervisor that waits for its orders, with these files open."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(supervisor.__file__))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=files,
        start_new_session=True,  # a Ctrl-C at the terminal is the runner's
    )


def tell(process: Supervising, orders: Mapping[str, Any]) -> None:
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        process.stdin.flush()


class Import(NamedTuple):
    """As `__import__` takes it: `names` are those of a from-import."""

    module: str
    names: Sequence[str] = ()


def imports(source: bytes, own: Iterable[str]) -> list[Import]:
    """What a script imports before it does anything else; `own` are the files that it comes with.

    Ends at the first statement that may do something (sets a variable of the environment, say), or imports one of the
    case's own modules: what is imported after that may depend on it.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return []
    theirs = {Path(name).parts[0].removesuffix(".py") for name in own}
    found: list[Import] = []
    for statement in body:
        some = _imports(statement)
        if some is None or any(one.module.partition(".")[0] in theirs for one in some):
            break
        found += some
    return found


def _imports(statement: ast.stmt) -> list[Import] | None:
    """None where the statement may do something else."""
    match statement:
        case ast.Import(names=names):
            return [Import(alias.name) for alias in names]
        case ast.ImportFrom(module="__future__"):
            return []
        case ast.ImportFrom(module=str(module), names=names, level=0):
            return [Import(module, [alias.name for alias in names])]
        case ast.Try(body=body, orelse=[], finalbody=[]):  # the handlers are not for the zygote: it stops there
            each = [_imports(inner) for inner in body]
            return None if None in each else [one for some in each for one in some or []]
        case ast.Expr(value=ast.Constant()) | ast.Assign(targets=[ast.Name()], value=ast.Constant()):
            return []
        case _:
            return None


class ZygoteProcess:
    """One script in one environment, ready to be forked. Made by `zygotes`; raises Unfit where that does not work."""

    def __init__(self, directory: Path, orders: Mapping[str, Any], wanted: Sequence[Import]) -> None:
        self.directory = directory
        self.wanted = wanted
        self._memory_bytes = orders["memory_bytes"]
        self._gone = 0
        self._lay_out()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            (self._out, out), (self._err, err) = os.pipe(), os.pipe()
            self._process = launch(out, err, theirs.fileno())
            os.close(out)
            os.close(err)
            tell(self._process, self._orders(orders, out, err, theirs.fileno()))

    def _lay_out(self) -> None:
        place = self.directory / "zygote"
        place.mkdir()
        shutil.copyfile(zygote.__file__, place / "sitecustomize.py")
        shutil.copyfile(supervisor.__file__, place / "casebook_supervisor.py")

    def _orders(self, orders: Mapping[str, Any], out: int, err: int, control: int) -> dict[str, Any]:
        variables = orders["variables"]
        own = variables.get("PYTHONPATH")
        places = [str(self.directory / "zygote"), *([own] if own else [])]
        return {
            **orders,
            "variables": variables | {"PYTHONPATH": ":".join(places), zygote.SOCKET: str(control)},
            "timeout_s": _LIFE_S,
            "memory_bytes": _UNBOUNDED,
            "processes": _UNBOUNDED,
            "stdout": out,
            "stderr": err,
            "pass_fds": [control],
        }

    def get_ready(self, within_s: float) -> None:
        """Import what is wanted. Raises Unfit."""
        said = [_Reader(stream) for stream in (self._out, self._err)]
        self._control.settimeout(within_s)
        try:
            wanted = {"imports": self.wanted, "memory_bytes": self._memory_bytes}
            self._control.send(json.dumps(wanted).encode())
            answer = self._control.recv(_MESSAGE)
        except TimeoutError:
            raise Unfit("its imports took longer than a trial may") from None
        except OSError:
            answer = b""
        if not answer:
            raise Unfit("its imports ended the process")
        told = json.loads(answer)
        if told["unfit"]:
            raise Unfit(told["unfit"])
        self._imported = told["imported"]
        self.said = [one.all() for one in said]
        try:
            for name in PLACES:
                _copy(self.directory / name, self.directory / "imported" / name)
        except shutil.Error:
            raise Unfit("its imports left a file that can't be copied, such as a socket") from None

    @property
    def story(self) -> str:
        """For the report: how its trials came to be."""
        names = ", ".join(dict.fromkeys(self._imported)) or "nothing"
        shared = "what importing set up, the hash seed and the memory's layout are the same in all"
        return f"forked from a process that had imported {names}; {shared}"

    def refresh(self) -> None:
        """Put the scratch directory back to what it was after the imports."""
        self._gone += 1
        for name in PLACES:
            place, gone = self.directory / name, self.directory / f"gone-{name}-{self._gone}"
            with suppress(FileNotFoundError):  # a trial may take it away
                place.rename(gone)  # that works also where something in it can't be removed
                gone.chmod(0o700)
                scratch.remove(gone)
            _copy(self.directory / "imported" / name, place)

    def fork(self, orders: Mapping[str, Any], out: int, err: int) -> "Forked":
        """Begin a trial; it is followed like any other. Raises Unfit where the zygote is gone."""
        self._control.settimeout(_PATIENCE_S)
        (heard, order), (answer, told) = os.pipe(), os.pipe()
        try:
            socket.send_fds(self._control, [json.dumps(orders).encode()], [out, err, heard, told])
            pid = json.loads(self._control.recv(_MESSAGE) or b"null")["pid"]
        except (OSError, TypeError):
            os.close(order)
            os.close(answer)
            raise Unfit("the process that they are forked from has ended") from None
        finally:
            os.close(heard)
            os.close(told)
        return Forked(pid, os.fdopen(order, "wb"), os.fdopen(answer, "rb"))

    def close(self) -> None:
        """End it, with all that came of it."""
        self._control.close()
        with self._process as process, suppress(BrokenPipeError):
            if process.stdin:
                process.stdin.close()


@contextmanager
def zygotes(directory: Path, orders: Mapping[str, Any], wanted: Sequence[Import], within_s: float) -> Iterator[ZygoteProcess]:
    """A zygote in a scratch directory that is laid out for a trial. Raises Unfit."""
    made = ZygoteProcess(directory, orders, wanted)
    try:
        made.get_ready(within_s)
        yield made
    finally:
        made.close()
        scratch.end_processes(directory)


class Forked:
    """The supervisor of a forked trial."""

    stderr = None

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout

    def wait(self) -> int:
        """It holds its answer open until it ends."""
        self.stdout.read()
        return 0


class _Reader(threading.Thread):
    """All that comes from a stream, which is closed then."""

    def __init__(self, stream: int) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._read = b""
        self.start()

    def run(self) -> None:
        with os.fdopen(self._stream, "rb") as file:
            self._read = file.read()

    def all(self) -> bytes:
        self.join(_DRAIN_S)
        if self.is_alive():
            raise Unfit("its imports left a process that holds its output")
        return self._read


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)


class Nursery:
    """At most one zygote at a time: that of the variant which is being run."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._key: object = None
        self._zygote: ZygoteProcess | None = None
        self._why = ""

    def get(self, key: object, make: Callable[[], AbstractContextManager[ZygoteProcess]]) -> ZygoteProcess:
        """The zygote of this key, which is made if another was there. Raises Unfit, again and again."""
        if key != self._key:
            self.close()
            self._key = key
            try:
                self._zygote = self._stack.enter_context(make())
            except Unfit as why:
                self._why = str(why)
        if self._zygote is None:
            raise Unfit(self._why)
        return self._zygote

    def spoil(self, why: Unfit) -> None:
        """There is no zygote of the current key any more."""
        key = self._key
        self.close()
        self._key, self._why = key, str(why)

    def close(self) -> None:
        self._key, self._zygote = None, None
        self._stack.close()
