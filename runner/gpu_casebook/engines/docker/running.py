"""A trial's container while it runs: its output, its end, its stacks, and what its processes load."""

import json
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu_casebook.daemon import client as daemon
from gpu_casebook.daemon.client import APIError, Container
from gpu_casebook.engines import watching
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.docker.options import TOOLS, TRIAL_USER
from gpu_casebook.engines.output import Output
from gpu_casebook.engines.watching import Watched
from gpu_casebook.guest import loaded as loaded_guest
from gpu_casebook.trial import TrialRequest


class ContainerOutput(Output):
    """Both streams of a container, read in the background from before its start to its end."""

    def __init__(self, container: Container, request: TrialRequest) -> None:
        super().__init__(request)
        self.ended = threading.Event()
        threading.Thread(target=self._read, args=(daemon.output_of(container),), daemon=True).start()

    def _read(self, pieces: Iterable[daemon.Piece]) -> None:
        try:
            for out, err in pieces:
                self.stdout.add(out or b"")
                self.stderr.add(err or b"")
        except OSError:  # the engine went away; whoever asks it for the container's state finds out
            pass
        finally:
            self.ended.set()


class Looker(threading.Thread):
    """Looks from beside a trial, in its container, at what its processes load, until the container ends."""

    def __init__(self, container: Container, prepared: Prepared) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[str, str]] = []
        code = Path(loaded_guest.__file__).read_text(encoding="utf-8")
        self._container, self._order = container, [prepared.python, "-I", "-S", "-c", code, "1", prepared.python]

    def run(self) -> None:
        # The container may be gone already, or have no room for one more process.
        with suppress(APIError, OSError, ValueError):
            said = daemon.exec_stdout(self._container, self._order, user=TRIAL_USER)
            self.seen = [tuple(json.loads(line)) for line in said.splitlines()]


def state_of(container: Container) -> Mapping[str, Any]:
    container.reload()
    return dict(container.attrs["State"])


def let_run(container: Container, output: ContainerOutput, prepared: Prepared, request: TrialRequest) -> Watched:
    """Wait for the trial's end, or end it where it is over time or hangs."""
    if request.watch is None:
        return Watched(timed_out=not output.ended.wait(request.limits.timeout_s) and _kill(container))
    watched = output.watch(lambda spying: look(container, prepared, spying=spying), output.ended.wait)
    return watched if watched and _kill(container) else Watched()


def look(container: Container, prepared: Prepared, *, spying: bool) -> str:
    """Sample what runs in a container; return nothing if that did not work, as when the trial is just ending."""
    spy = [f"{TOOLS}/py-spy"] if spying else []
    order = [prepared.python, "-I", "-S", f"{TOOLS}/{watching.SAMPLER.name}", "1", *spy]
    # The trial's own rights suffice to look at its processes, by ptrace too, as long as the kernel (yama) does not
    # reserve that for parents.
    with suppress(APIError):
        return daemon.exec_stdout(container, order, user=TRIAL_USER)
    return ""


def watching_tools() -> dict[str, bytes]:
    """Return the files that a watched trial's container needs; py-spy where there is one for the runner's machine."""
    paths = {f"site/{watching.SITE.name}": watching.SITE, watching.SAMPLER.name: watching.SAMPLER}
    if spy := watching.py_spy():
        paths["py-spy"] = Path(spy)
    return {name: path.read_bytes() for name, path in paths.items()}


def _kill(container: Container) -> bool:
    """Kill the container; return whether it was still there."""
    try:
        container.kill()
    except APIError as error:
        if error.status_code in {404, 409}:
            return False
        raise
    return True
