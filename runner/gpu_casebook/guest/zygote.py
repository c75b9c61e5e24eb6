"""The parent of forked trials: the start of an interpreter, held where a script's first line would come next.

`engines.venv.forking` starts `python script.py` as for any trial, with this file first on PYTHONPATH under the name
sitecustomize. Python imports it at the end of its own start. It imports what the script imports first, and waits for
requests on a socket. For each it forks a supervisor, which forks the trial; there this import simply returns, and the
interpreter goes on to run the script. So command line, `__main__`, tracebacks, exit and signals are Python's own, and
no frame of ours is below the script's.

What a trial then shares with others is what the imports left: their state, the seed of hashes, where in memory things
lie. Generators of random numbers that libraries seed from the system when they are imported are seeded anew, or trials
whose rate is wanted would all draw the same; one that an import seeded on purpose would lose that seed.

It stands alone beside a copy of supervisor.py, for Python 3.10 and later; an older one ends, and says nothing.
"""

from __future__ import annotations

import array
import gc
import json
import os
import resource
import signal
import socket
import sys
from typing import Any

SOCKET = "CASEBOOK_ZYGOTE"
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_MESSAGE = 1 << 20


class TrialBegins(BaseException):
    """Raised in the trial's own process, to leave all our calls."""


class Zygote:
    def __init__(self, supervisor: Any, control: socket.socket) -> None:
        self.supervisor = supervisor
        self.control = control
        self.handlers = {number: signal.getsignal(number) for number in _HANDLED}
        self.files: set[int] = set()

    def get_ready(self) -> None:
        """Import, and say how that went."""
        self.control.send(json.dumps(self.prepare(json.loads(self.control.recv(_MESSAGE)))).encode())

    def prepare(self, wanted: dict[str, Any]) -> dict[str, Any]:
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
        say_no_more()
        return {"unfit": self.unfit(wanted["memory_bytes"]), "imported": imported}

    def unfit(self, memory_bytes: int) -> str | None:
        """Why a fork of this process would be no fresh one."""
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
            message, files = receive(self.control)
            if not message:
                os._exit(0)
            pid = os.fork()
            if not pid:
                self.supervise(json.loads(message), files)
            for file in files:
                os.close(file)
            self.control.send(json.dumps({"pid": pid}).encode())
            collect()

    def supervise(self, orders: dict[str, Any], files: list[int]) -> None:
        """Be the supervisor of one trial, as supervisor.py would. Raises TrialBegins in the trial."""
        orders["stdout"], orders["stderr"], heard, answer = files
        os.setsid()
        os.dup2(heard, 0)
        os.dup2(answer, 1)
        for file in (heard, answer, self.control.detach()):
            os.close(file)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.supervisor._let_the_runner_decide)  # noqa: SLF001 they are one program
        try:
            ended = self.supervisor.supervise(orders, self.start)
        except Exception as error:  # noqa: BLE001 there is nobody else to tell
            ended = {"failed": f"its supervisor failed: {error!r}"}
        try:
            os.write(1, json.dumps(ended).encode())
        finally:
            os._exit(0)

    def start(self, orders: dict[str, Any]) -> int:
        """Pid of the trial's first process. Raises TrialBegins in that process."""
        pid = os.fork()
        if pid:
            return pid
        try:
            self.be_born(orders)
        except BaseException:  # noqa: BLE001 not the trial's fault: without a supervisor the runner knows that
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        raise TrialBegins

    def be_born(self, orders: dict[str, Any]) -> None:
        """Be what a process is that has just been started."""
        os.setsid()
        self.supervisor.prctl(self.supervisor.PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.set_wakeup_fd(-1)
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        os.chdir(orders["directory"])
        say_no_more(read=True)
        os.dup2(orders["stdout"], 1)
        os.dup2(orders["stderr"], 2)
        for file in open_files() - self.files - {0, 1, 2, orders["stdout"], orders["stderr"]}:
            os.close(file)
        seed_anew()


def is_not_there(name: str, error: BaseException) -> bool:
    """Whether nothing of a module was run; the script may have an answer to that."""
    return isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")


def seed_anew() -> None:
    """What NumPy and torch do when they are imported; the generator of `random` does it at a fork by itself."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """One message, with the four files that came with it."""
    numbers = array.array("i", [0] * 4)
    message, ancillary, _, _ = control.recvmsg(_MESSAGE, socket.CMSG_SPACE(numbers.itemsize * 4))
    files = [array.array("i", data).tolist() for _, kind, data in ancillary if kind == socket.SCM_RIGHTS]
    return message, sum(files, [])  # noqa: RUF017 there is one


def open_files() -> set[int]:
    """Without the one that it takes to look."""
    with os.scandir("/proc/self/fd") as entries:
        listed = {int(entry.name) for entry in entries}
    return {file for file in listed if os.path.lexists(f"/proc/self/fd/{file}")}


def say_no_more(*, read: bool = False) -> None:
    """Let go of both streams of output, or of stdin, so that whoever reads their other ends comes to the end."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0,) if read else (1, 2):
        os.dup2(null, stream)
    os.close(null)


def threads_across_fork() -> int:
    """How many threads there are besides this one. Libraries that know of forks end their threads before one."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) - 1  # noqa: PTH208


def collect() -> None:
    """Supervisors that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def uncover() -> Any:
    """Take this directory out of everything that says it is there, and load the supervisor from it."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 as sys.path has it
    import casebook_supervisor as supervisor  # type: ignore[import-not-found]  # noqa: PLC0415 it lies beside

    del sys.modules["casebook_supervisor"]
    sys.path[:] = [place for place in sys.path if place != here]
    sys.path_importer_cache.pop(here, None)
    rest = os.environ.pop("PYTHONPATH").split(":")[1:]
    if rest:
        os.environ["PYTHONPATH"] = ":".join(rest)
    return supervisor


def step_aside() -> None:
    """Import the sitecustomize that would have been imported without this one; its errors are its own."""
    own = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


def main() -> None:
    """Returns in the trials only: the script must not run in the zygote itself."""
    try:
        control = socket.socket(fileno=int(os.environ.pop(SOCKET)))
        supervisor = uncover()
        step_aside()
        zygote = Zygote(supervisor, control)
        zygote.get_ready()
        zygote.serve()
    except TrialBegins:
        return
    except BaseException:  # noqa: BLE001 the runner sees that nobody answers
        os._exit(1)


if __name__ == "sitecustomize" and SOCKET in os.environ:
    main()
