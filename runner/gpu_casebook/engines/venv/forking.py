"""Forked trials in virtual environments: the runner's side of `gpu_casebook.guest.zygote`.

The zygote is the trial of a supervisor of its own, so that all it starts is ended with it, and it lives in one scratch
directory. What the imports left in that directory is kept aside: each trial finds a fresh copy at the same place, as
imports may have noted the place.
"""

import json
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu_casebook.engines import scratch, watching
from gpu_casebook.engines.forking import ENDED, PATIENCE_S, Import, Unfit, story
from gpu_casebook.engines.venv import supervised
from gpu_casebook.engines.venv.supervised import NeutralOutput, Supervising
from gpu_casebook.guest import supervisor, zygote
from gpu_casebook.text import path_list
from gpu_casebook.trial import TrialRequest, TrialResult

# Each trial's own supervisor keeps its limits. Were they kept for the zygote too, one trial might end them all.
_LIFE_S = 7 * 86400.0
_UNBOUNDED = 2**62

_MESSAGE = 1 << 20


class VenvZygote:
    """A `forking.Zygote`; `directory` is laid out for a trial, with these `orders` for its supervisor.

    `names` are what the output calls the paths of this machine.
    """

    def __init__(
        self,
        engine: object,
        directory: Path,
        orders: Mapping[str, Any],
        names: Mapping[str, str],
        wanted: Sequence[Import],
    ) -> None:
        self.directory, self._engine = directory, engine
        self.printed: tuple[list[bytes], list[bytes]] = ([], [])  # by the imports: stdout and stderr, in pieces
        self._orders, self._names = orders, names
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
        """Raises Unfit."""
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
        self.story = story(ready["imported"])
        try:
            for name in scratch.PLACES:
                shutil.copytree(self.directory / name, self.directory / "imported" / name, symlinks=True)
        except shutil.Error:
            raise Unfit("its imports left a file that can't be copied, such as a socket") from None

    def run(self, request: TrialRequest) -> TrialResult:
        with scratch.disk(self.directory.parent):
            self._refresh()
            output = NeutralOutput(request, self._names)
            for stream, pieces in zip((output.stdout, output.stderr), self.printed, strict=True):
                output.take(stream, pieces)  # a fresh process would have printed it
            return supervised.run(self._fork, self._orders, output, request, engine=self._engine)

    def _refresh(self) -> None:
        """Put the scratch directory back to what it was after the imports."""
        self._gone += 1
        for name in scratch.PLACES:
            place, gone = self.directory / name, self.directory / f"gone-{name}-{self._gone}"
            with suppress(FileNotFoundError):  # a trial may take it away
                place.rename(gone)  # that works also where something in it can't be removed
                gone.chmod(0o700)
                scratch.remove(gone)
            shutil.copytree(self.directory / "imported" / name, place, symlinks=True)

    def _fork(self, orders: Mapping[str, Any]) -> Supervising:
        """Begin a trial, as `supervised.launch` does. Raises Unfit where the zygote is gone."""
        self._control.settimeout(PATIENCE_S)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                files = [orders["stdout"], orders["stderr"], theirs.fileno()]
                socket.send_fds(self._control, [json.dumps(orders).encode()], files)
            pid = json.loads(self._control.recv(_MESSAGE))["pid"]
        except (OSError, ValueError):
            ours.close()
            raise Unfit(ENDED) from None
        return Supervising(pid, ours)  # it holds its end open until it ends

    def close(self) -> None:
        """End it, with all that came of it."""
        self._control.close()
        self._process.close()
        scratch.end_processes(self.directory)
