"""The parent of forked trials: the start of an interpreter, held where a script's first line would come next.

`engines.venv.forking` starts `python script.py` as for any trial, with this file first on PYTHONPATH under the name
sitecustomize. Python imports it at the end of its own start. It imports what the script imports first, and waits for
requests on a socket. For each it forks a supervisor, which forks the trial; there this import simply returns, and the
interpreter goes on to run the script. So command line, `__main__`, tracebacks, exit and signals are Python's own, and
no frame of ours is below the script's.

What a trial then shares with others is what the imports left: their state, the seed of hashes, where in memory things
lie. Generators of random numbers that libraries seed from the system when they are imported are seeded anew, or trials
whose rate is wanted would all draw the same; one that an import seeded on purpose would lose that seed.

It stands alone beside copies of supervisor.py and watched/sitecustomize.py, for Python 3.10 and later; with an older
one it ends without an answer.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import socket
import sys
from typing import Any

WANTED = "CASEBOOK_ZYGOTE"  # the variable that says what to import, and where requests come from
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_MESSAGE = 1 << 20


class TrialBegins(BaseException):
    """Raised in the trial's own process, to leave all our calls."""


class Zygote:
    handlers: dict[signal.Signals, Any]  # of signals, as the imports left them
    files: set[int]  # that the imports left open

    def __init__(self, supervisor: Any, control: socket.socket) -> None:
        self.supervisor = supervisor
        self.control = control

    def prepare(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Import what is wanted. Return what was imported, and why no trial can be forked then, if so."""
        imported = []
        for name, names in wanted["imports"]:
            try:
                __import__(name, None, None, names)
            except BaseException as error:  # noqa: BLE001 whatever it is, the script should be the one to meet it
                if is_not_there(name, error):
                    break
                return {"unfit": f"importing {name} raised {type(error).__name__}"}
            imported.append(name.partition(".")[0])
        gc.collect()
        gc.freeze()  # or the collector, at a trial's end at the latest, copies every page of what was imported
        self.handlers = {number: signal.getsignal(number) for number in _HANDLED}
        self.files = open_files() - {self.control.fileno()}
        redirect_to_null(1, 2)  # whoever reads their other ends comes to the end
        return {"unfit": self.unfit(wanted["memory_bytes"]), "imported": imported}

    def unfit(self, memory_bytes: int) -> str | None:
        """Return why a fork of this process would be no fresh one, if so."""
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > memory_bytes:
            return "its imports take more memory than a trial may"
        if any(os.path.realpath(f"/proc/self/fd/{file}").startswith("/dev/nvidia") for file in self.files):
            return "its imports opened the GPU, which no forked process can use"
        if None in self.handlers.values():
            return "its imports handle signals in C"
        threads = threads_across_fork()
        return f"its imports left {threads} threads running, which a forked process lacks" if threads else None

    def serve(self) -> None:
        """Fork a supervisor for each request until the runner hangs up. Raises TrialBegins in the trials."""
        while True:
            message, files, _, _ = socket.recv_fds(self.control, _MESSAGE, 3)
            if not message:
                os._exit(0)
            pid = os.fork()
            if not pid:
                self.supervise(json.loads(message), files)
            for file in files:
                os.close(file)
            self.control.send(json.dumps({"pid": pid}).encode())
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)  # reap an earlier supervisor

    def supervise(self, orders: dict[str, Any], files: list[int]) -> None:
        """Be the supervisor of one trial, as supervisor.py is. Raises TrialBegins in the trial."""
        orders["stdout"], orders["stderr"], channel = files
        os.setsid()
        os.dup2(channel, 0)
        for file in (channel, self.control.detach()):
            os.close(file)
        self.supervisor.main(orders, self.start)
        os._exit(0)

    def start(self, orders: dict[str, Any]) -> int:
        """Fork the trial's first process and return its pid. Raises TrialBegins in that process."""
        pid = os.fork()
        if pid:
            return pid
        try:
            self.become_trial(orders)
        except BaseException:  # noqa: BLE001 not the trial's fault: without a supervisor the runner knows that
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        raise TrialBegins

    def become_trial(self, orders: dict[str, Any]) -> None:
        """Have all that a process has which has just been started, and nothing else."""
        os.setsid()
        self.supervisor.tie(orders["niceness"])
        if orders.get("ends_first"):  # or for lack of memory the kernel may choose what holds the imports
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:  # noqa: PTH123
                score.write("1000")
        signal.set_wakeup_fd(-1)
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        os.chdir(orders["directory"])
        redirect_to_null(0)
        os.dup2(orders["stdout"], 1)
        os.dup2(orders["stderr"], 2)
        for file in open_files() - self.files - {0, 1, 2, orders["stdout"], orders["stderr"]}:
            os.close(file)
        seed_anew()


def is_not_there(name: str, error: BaseException) -> bool:
    """Return whether nothing of a module was run: the script may handle that."""
    return isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")


def seed_anew() -> None:
    """Do what NumPy and torch do when they are imported; the generator of `random` does it at a fork by itself."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def open_files() -> set[int]:
    """Return the descriptors of open files, without the one that it takes to list them."""
    listed = os.listdir("/proc/self/fd")  # noqa: PTH208
    return {int(file) for file in listed if os.path.lexists(f"/proc/self/fd/{file}")}


def redirect_to_null(*streams: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in streams:
        os.dup2(null, stream)
    os.close(null)


def threads_across_fork() -> int:
    """Return how many threads there are besides this one, once those have ended that libraries end before a fork."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) - 1  # noqa: PTH208


def uncover() -> Any:
    """Load the supervisor from this directory, and remove every trace of the directory."""
    # Copies of ours, which lie beside this file.
    import casebook_sitecustomize  # type: ignore[import-not-found]  # noqa: PLC0415
    import casebook_supervisor  # type: ignore[import-not-found]  # noqa: PLC0415

    del sys.modules["casebook_sitecustomize"], sys.modules["casebook_supervisor"]
    sys.path_importer_cache.pop(os.path.dirname(os.path.abspath(__file__)), None)  # noqa: PTH100, PTH120 as sys.path has it
    rest = os.environ.pop("PYTHONPATH").split(":")[1:]
    if rest:
        os.environ["PYTHONPATH"] = ":".join(rest)
    casebook_sitecustomize.step_aside()
    return casebook_supervisor


def main() -> None:
    """Prepare and fork. Returns in the trials only: the script must not run in the zygote itself."""
    try:
        wanted = json.loads(os.environ.pop(WANTED))
        control = socket.socket(fileno=wanted["control"])
        zygote = Zygote(uncover(), control)
        control.send(json.dumps(zygote.prepare(wanted)).encode())
        zygote.serve()
    except TrialBegins:
        return
    except BaseException:  # noqa: BLE001 the runner sees that nobody answers
        os._exit(1)


if __name__ == "sitecustomize" and WANTED in os.environ:
    main()
