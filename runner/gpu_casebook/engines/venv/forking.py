"""Trials that are forked from a process which has already imported what the script imports first.

The runner's side of `gpu_casebook.guest.zygote`. The zygote is the trial of a supervisor of its own, so that all it
starts is ended with it, and it lives in one scratch directory. What the imports left in that directory is kept aside:
each trial finds a fresh copy at the same place, as imports may have noted the place.
"""

import ast
import json
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

from gpu_casebook.engines import scratch, watching
from gpu_casebook.engines.base import path_list
from gpu_casebook.engines.venv import supervised
from gpu_casebook.engines.venv.supervised import Supervising
from gpu_casebook.guest import supervisor, zygote

# Each trial's own supervisor keeps its limits. Were they kept for the zygote too, one trial might end them all.
_LIFE_S = 7 * 86400.0
_UNBOUNDED = 2**62

_MESSAGE = 1 << 20
_PATIENCE_S = 60.0


class Unfit(Exception):  # noqa: N818 no error: the trials are fresh processes then
    """Why trials can't be forked, as the end of a sentence."""


Import = tuple[str, Sequence[str]]  # as `__import__` takes it: a module, and the names of a from-import


def imports(source: bytes, own: Iterable[str]) -> list[Import]:
    """Return what a script imports before it does anything else; `own` are the files that it comes with.

    Ends at the first statement that may do something (sets a variable of the environment, say), or imports one of the
    case's own modules: what is imported after that may depend on it.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return []
    own_modules = {Path(name).parts[0].removesuffix(".py") for name in own}
    found: list[Import] = []
    while body:
        statement, *body = body
        here: list[Import] = []
        match statement:
            case ast.ImportFrom(module="__future__") | ast.Expr(value=ast.Constant()):
                pass
            case ast.Assign(targets=[ast.Name()], value=ast.Constant()):
                pass
            case ast.Import(names=names):
                here = [(alias.name, []) for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                here = [(module, [alias.name for alias in names])]
            case ast.Try(body=inner, orelse=[], finalbody=[]):  # the handlers are not for the zygote: it stops there
                body = inner + body
            case _:
                break
        if any(module.partition(".")[0] in own_modules for module, _ in here):
            break
        found += here
    return found


class Zygote:
    """One script in one environment, ready to be forked; `directory` is laid out for a trial. Its calls raise Unfit."""

    def __init__(self, directory: Path, orders: Mapping[str, Any], wanted: Sequence[Import]) -> None:
        self.directory = directory
        self.printed: tuple[list[bytes], list[bytes]] = ([], [])  # by the imports: stdout and stderr, in pieces
        self._gone = 0
        place = directory / "zygote"
        place.mkdir()
        shutil.copyfile(zygote.__file__, place / "sitecustomize.py")
        shutil.copyfile(supervisor.__file__, place / "casebook_supervisor.py")
        shutil.copyfile(watching.SITE, place / "casebook_sitecustomize.py")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = orders["variables"]
        with theirs:
            control = theirs.fileno()
            path = path_list(str(place), variables.get("PYTHONPATH"))
            prepare = {"control": control, "imports": wanted, "memory_bytes": orders["memory_bytes"]}
            own = {
                **orders,
                "variables": variables | {"PYTHONPATH": path, zygote.WANTED: json.dumps(prepare)},
                "pass_fds": [control],
                "timeout_s": _LIFE_S,
                "memory_bytes": _UNBOUNDED,
                "processes": _UNBOUNDED,
                "places": [],
            }
            self._process, self._readers = supervised.begin(supervised.launch, own, [p.extend for p in self.printed])

    def wait_for_imports(self, timeout_s: float) -> None:
        self._control.settimeout(timeout_s)
        try:
            ready = json.loads(self._control.recv(_MESSAGE))
        except TimeoutError:
            raise Unfit("its imports took longer than a trial may") from None
        except (OSError, ValueError):  # nothing came
            raise Unfit("its imports ended the process") from None
        if ready["unfit"]:
            raise Unfit(ready["unfit"])
        if not supervised.drained(self._readers):
            raise Unfit("its imports left a process that holds its output")
        # For the report: how its trials came to be.
        names = ", ".join(dict.fromkeys(ready["imported"])) or "nothing"
        shared = "what importing set up, the hash seed and the memory's layout are the same in all"
        self.story = f"forked from a process that had imported {names}; {shared}"
        try:
            for name in scratch.PLACES:
                shutil.copytree(self.directory / name, self.directory / "imported" / name, symlinks=True)
        except shutil.Error:
            raise Unfit("its imports left a file that can't be copied, such as a socket") from None

    def refresh(self) -> None:
        """Put the scratch directory back to what it was after the imports."""
        self._gone += 1
        for name in scratch.PLACES:
            place, gone = self.directory / name, self.directory / f"gone-{name}-{self._gone}"
            with suppress(FileNotFoundError):  # a trial may take it away
                place.rename(gone)  # that works also where something in it can't be removed
                gone.chmod(0o700)
                scratch.remove(gone)
            shutil.copytree(self.directory / "imported" / name, place, symlinks=True)

    def fork(self, orders: Mapping[str, Any]) -> Supervising:
        """Begin a trial, as `supervised.launch` does. Raises Unfit where the zygote is gone."""
        self._control.settimeout(_PATIENCE_S)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                files = [orders["stdout"], orders["stderr"], theirs.fileno()]
                socket.send_fds(self._control, [json.dumps(orders).encode()], files)
            pid = json.loads(self._control.recv(_MESSAGE))["pid"]
        except (OSError, ValueError):
            ours.close()
            raise Unfit("the process that they are forked from has ended") from None
        return Supervising(pid, ours)  # it holds its end open until it ends

    def close(self) -> None:
        """End it, with all that came of it."""
        self._control.close()
        self._process.close()
        scratch.end_processes(self.directory)


class Nursery:
    """At most one zygote at a time: that of the variant which is being run."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._key: object = None
        self._found: Zygote | Unfit = Unfit("")

    def get(self, key: object, make: Callable[[], AbstractContextManager[Zygote]]) -> Zygote:
        """Return the zygote of this key, which is made if another was there. Raises Unfit, again and again."""
        if key != self._key:
            self.close()
            self._key = key
            try:
                self._found = self._stack.enter_context(make())
            except Unfit as why:
                self._found = why
        if isinstance(self._found, Unfit):
            raise self._found
        return self._found

    def spoil(self, why: Unfit) -> None:
        """End the zygote of the current key; there will be no other."""
        self._stack.close()
        self._found = why

    def close(self) -> None:
        self._key = None
        self._stack.close()
