"""Forked trials in a container: the runner's side of `gpu_casebook.guest.keeper`.

Containers are kept for the trials of a variant, as many as run at once. In each the keeper starts the zygote and passes
on the runner's orders, over the container's stdin and stdout: nothing of the engine's machine is needed but its API. A
container's limits are those of a trial.
"""

import base64
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from gpu_casebook.daemon.client import Attached, Container
from gpu_casebook.engines import watching
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.docker.options import TOOLS
from gpu_casebook.engines.docker.running import look, watching_tools
from gpu_casebook.engines.forking import ENDED, PATIENCE_S, Import, Unfit, story
from gpu_casebook.engines.output import Output, supervised_s
from gpu_casebook.guest import keeper, loaded, supervisor, zygote
from gpu_casebook.trial import CASE_DIRECTORY, Limits, TrialRequest, TrialResult

KEEPER = "keeper.py"
_UNBOUNDED = 2**62  # the container has these limits


def tools(request: TrialRequest) -> dict[str, bytes]:
    """Return the files that the container needs besides the script's."""
    places = {
        KEEPER: keeper.__file__,
        "loaded.py": loaded.__file__,
        "zygote/sitecustomize.py": zygote.__file__,
        "zygote/casebook_supervisor.py": supervisor.__file__,
        "zygote/casebook_sitecustomize.py": str(watching.SITE),
    }
    return {name: Path(path).read_bytes() for name, path in places.items()} | (
        watching_tools() if request.watch else {}
    )


def command(python: str, request: TrialRequest) -> list[str]:
    return [python, "-I", "-S", f"{TOOLS}/{KEEPER}", python, *request.arguments]


class ContainerZygote:
    """A `forking.Zygote` in a container that runs `command` and is not yet started."""

    def __init__(self, container: Container, prepared: Prepared) -> None:
        self._attached = Attached(container)
        self._python = prepared.python
        self._look = partial(look, container, prepared)
        self._printed: list[tuple[str, bytes]] = []  # by the imports
        self._take: Callable[[str, bytes], object] = lambda stream, piece: self._printed.append((stream, piece))
        self._said = SimpleQueue[Mapping[str, Any] | None]()
        self._next: Mapping[str, Any] | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        rest = b""
        # If the engine went away, whoever asks it for anything finds out.
        with suppress(OSError, ValueError):
            for piece in self._attached.pieces():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
        self._said.put(None)

    def _hear(self, message: Mapping[str, Any]) -> None:
        streams = message.keys() & {"out", "err"}
        for stream in streams:
            self._take(stream, base64.b64decode(message[stream]))
        if not streams:
            self._said.put(message)

    def _order(self, order: Mapping[str, Any]) -> None:
        with suppress(OSError):  # it is noticed where no answer comes
            self._attached.send(json.dumps(order).encode() + b"\n")

    def _comes(self, within_s: float) -> bool:
        """Wait for the next answer; return whether it is there, or will never be."""
        try:
            self._next = self._said.get(timeout=within_s)
        except Empty:
            return False
        return True

    def _answer(self, within_s: float) -> Mapping[str, Any]:
        """Return what has come of an order; nothing if the keeper has ended. Raises TimeoutError, and Unfit."""
        if not self._comes(within_s):
            raise TimeoutError
        if self._next and self._next.get("unfit"):
            raise Unfit(self._next["unfit"])
        return self._next or {}

    def wait_for_imports(self, wanted: Sequence[Import], limits: Limits) -> None:
        """Raises Unfit."""
        self._order({"imports": wanted, "memory_bytes": limits.memory_bytes})
        try:
            ready = self._answer(limits.timeout_s)
        except TimeoutError:
            raise Unfit("its imports took longer than a trial may") from None
        if not ready:
            raise Unfit("its imports ended the process")
        self.story = f"{story(ready['imported'])}; a container has them in turn, and is cleared in between"

    def run(self, request: TrialRequest) -> TrialResult:
        output, timeout_s = Output(request), supervised_s(request)
        streams = {"out": output.stdout, "err": output.stderr}
        self._take = lambda stream, piece: streams[stream].add(piece)
        for stream, piece in self._printed:
            self._take(stream, piece)  # a fresh process would have printed it
        orders = {
            "python": self._python,
            "directory": CASE_DIRECTORY,
            "timeout_s": timeout_s,
            "memory_bytes": _UNBOUNDED,
            "processes": _UNBOUNDED,
            "places": [],
            "ends_first": True,
        }
        self._order({"trial": orders, "loaded": request.loaded})
        try:
            begun = self._answer(PATIENCE_S)
        except TimeoutError:
            begun = {}
        if not begun:
            raise Unfit(ENDED)
        over = threading.Event()

        def ended(within_s: float) -> bool:
            if not over.is_set() and self._comes(within_s):
                over.set()
            return over.is_set()

        watched = output.watch(lambda spying: self._look(begun["pid"], spying=spying), ended)
        if watched:
            self._order({"end": True})
        end = (self._next if ended(timeout_s + PATIENCE_S) else None) or {}
        output.loaded = end.get("loaded", ())
        return output.supervised(end.get("ended"), watched, out_of_memory=end.get("out_of_memory", False))

    def close(self) -> None:
        self._attached.close()
