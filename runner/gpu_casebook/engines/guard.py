"""Trials on an engine, with its GPUs checked before and after each: `devices.hygiene` judges what is read here."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pynvml

from failure_signature.result import TrialResult
from failure_signature.trials import Xid
from gpu_casebook.devices import hardware, kernel_log, ledger
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.devices.hygiene import Condition, GpuState, Health, assess, last
from gpu_casebook.devices.meter import Meter
from gpu_casebook.engines.base import VARIABLES, Engine, Prepared
from gpu_casebook.errors import EngineError
from gpu_casebook.trial import Note, TrialRequest

# How often, and how many times, a GPU is read again until its memory is back.
POLL_S = 0.5
POLLS = 20
_END_POLL_S = 0.2  # how often trials that are to end are looked at

_LOST = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "the driver has lost it",
    pynvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset",
}
_HOMES = ("/home/case", "/casebook-")  # one of them is in the HOME of each trial's process

INFRA_RETRIES = 2
"""How often one trial is tried again when the machine, not the case, was to blame."""

Made = TypeVar("Made")


def attempts(once: Callable[[], Made], is_spoiled: Callable[[Made], bool]) -> list[Made]:
    """Run one trial, and repeat it while the machine is to blame, a bounded number of times. Return every attempt."""
    made = [once()]
    while is_spoiled(made[-1]) and len(made) <= INFRA_RETRIES:
        made.append(once())
    return made


def read(uuid: str) -> GpuState:
    """Return what the driver says of this GPU now: each reading is optional."""
    try:
        pynvml.nvmlInit()
        return _read(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError as error:
        return GpuState(lost=_LOST.get(error.value), missing=error.value == pynvml.NVML_ERROR_NOT_FOUND)
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read(handle: Any) -> GpuState:
    memory = _reading(pynvml.nvmlDeviceGetMemoryInfo, handle)
    remapped = _reading(pynvml.nvmlDeviceGetRemappedRows, handle)
    compute = _reading(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    graphics = _reading(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle)
    processes = None
    if compute is not None and _sees_every_process():
        processes = frozenset(process.pid for process in [*compute, *(graphics or [])])
    return GpuState(
        used_bytes=memory and memory.used,
        processes=processes,
        ours=frozenset(filter(_ours, processes or ())),
        remap_failed=remapped and bool(remapped[3]),
    )


def _reading(ask: Callable[[Any], Any], handle: Any) -> Any:
    """Return None for what this driver or GPU has no answer to. Raises NVMLError where the GPU is lost."""
    try:
        return ask(handle)
    except pynvml.NVMLError as error:
        if error.value in _LOST:
            raise
        return None


def _sees_every_process() -> bool:
    # Elsewhere than in the host's own pid namespace, the driver leaves out processes that it can't name there.
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink()) == "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel
    return False


def _ours(pid: int) -> bool:
    try:
        variables = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False
    at_home = any(home in variables.get("HOME", "") for home in _HOMES)
    return at_home and all(variables.get(name) == VARIABLES[name] for name in ("USER", "PYTHONDONTWRITEBYTECODE"))


class Guard:
    """Runs trials on `engine`, but none on a GPU that is not fit: that is the machine's fault.

    Use it only while `hold_gpus` holds: trials that are found on the GPUs are then no others' trials. With a `share`,
    the bytes of each GPU that a trial takes, others' trials may be there at any time, and which processes and how much
    memory are there says nothing. Threads may run trials at once.
    """

    def __init__(
        self, engine: Engine, gpus: Sequence[HostGpu], faults: kernel_log.Faults, say: Note, *, share: int | None = None
    ) -> None:
        self.engine = engine
        self.given_up: str | None = None  # why no more trials can be run
        self._gpus, self._faults, self._say = gpus, faults, say
        self._indices = [gpu.index for gpu in gpus]
        self._start: dict[str, GpuState] = {}
        self._share = share
        self._said_shared: set[str] = set()
        self._checks = threading.Lock()
        self._running: list[list[Xid]] = []  # what the kernel log got during each trial that runs now
        self._last = threading.local()
        self._stopped = threading.Event()
        self._since = time.time_ns()
        self.waiting = 0  # trials that wait for room on a GPU
        self.measured: int | None = None  # bytes of a GPU that the last measured trial took; None if unknown

    @property
    def xids(self) -> Sequence[Xid]:
        """What the kernel log got about the GPUs during the last trial of this thread, and of those beside it."""
        return getattr(self._last, "xids", ())

    @property
    def holds(self) -> bool:
        """Whether `hold_gpus` keeps every other runner from the GPUs: there are some, and its trials do not share."""
        return bool(self._gpus) and self._share is None

    def hold_gpus(self, wait: Note) -> AbstractContextManager[None]:
        """Hold the GPUs, if they are this machine's and not shared, against others. `wait` is told who has one."""
        if not self.holds:
            return nullcontext()
        return ledger.hold(self._indices, wait)

    def run(self, prepared: Prepared, request: TrialRequest, *, measure: bool = False) -> TrialResult:
        """Run a trial as the engine does, unless a GPU is unfit before it; a GPU that broke meanwhile spoils it.

        A trial that shares GPUs waits until there is room for the guard's share, or for `measured` if that is more.
        `measure` says whether this one is to be measured.
        """
        if self._share is None or not self._gpus:
            return self._run(prepared, request)
        with ExitStack() as held:
            self._count_waiting(1)
            try:
                room = max(self._share, self.measured or 0)
                held.enter_context(ledger.hold(self._indices, self._say, room, self._pause, self._since))
            finally:
                self._count_waiting(-1)
            if not measure:
                return self._run(prepared, request)
            meter = held.enter_context(Meter([gpu.uuid for gpu in self._gpus]))
            result = self._run(prepared, replace(request, variables={**request.variables, **meter.variables}))
            self.measured = meter.peak_bytes
            return result

    def look(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        """Run what takes no memory of a GPU: as `run`, but it waits only for a run that has one of the GPUs alone."""
        beside = self._share is not None and request.gpus
        with ledger.look(self._indices, self._say, self._pause) if beside else nullcontext():
            return self._run(prepared, request)

    def _count_waiting(self, more: int) -> None:
        with self._checks:
            self.waiting += more

    def _run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        self._last.xids = ()
        self._pause(0.0)
        started = datetime.now(UTC)
        if not request.gpus:
            return replace(self.engine.run(prepared, request), started=started)
        if self._is_over(self._faults()):
            return TrialResult(stdout="", stderr="", duration_s=0.0, infra=self.given_up)
        ours: list[Xid] = []
        with self._checks:
            self._running.append(ours)
        try:
            result = self.engine.run(prepared, request)
        finally:
            over = self._is_over(self._faults(), ours)
        self._last.xids = ours
        result = replace(result, started=started)
        return replace(result, exit_status=None, signal=None, infra=self.given_up) if over else result

    def end_trials(self) -> None:
        """End the trials of other threads, which then raise or return, and keep those that wait from starting."""
        self._stopped.set()
        self.engine.end_trials()

    @contextmanager
    def pool(self, begun: Collection[Future[Any]], workers: int) -> Iterator[ThreadPoolExecutor]:
        """A pool for trials at once, all of which are in `begun`.

        Those that nobody asks for in the end are waited for; after an error they are ended.
        """
        with ThreadPoolExecutor(workers) as pool:
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                with suppress(EngineError):  # of an engine that went away; what is told is the first error
                    self.end_trials()
                    while any(trial.running() for trial in begun):  # one that had just begun was not there yet
                        time.sleep(_END_POLL_S)
                        self.end_trials()
                raise

    def side_by_side(self, runs: Sequence[Callable[[], Made]], workers: int) -> Iterator[Made]:
        """Yield what each of these functions returns, in their order. If one raises, the trials of the others end."""
        begun: list[Future[Made]] = []
        with self.pool(begun, workers) as pool:
            begun += [pool.submit(run) for run in runs]
            for future in begun:
                yield future.result()

    def _pause(self, seconds: float) -> None:
        """Raise KeyboardInterrupt where all trials are to end."""
        if self._stopped.wait(seconds):
            raise KeyboardInterrupt

    def _is_over(self, xids: Sequence[Xid], ended: list[Xid] | None = None) -> bool:
        """Check the GPUs; return whether no more trials can be run. `ended` is the list of a trial that is over."""
        with self._checks:
            for noted in self._running:
                noted.extend(xids)  # which process a fault is about can't be told across pid namespaces
            self._running = [noted for noted in self._running if noted is not ended]
            for gpu in self._gpus:
                if self.given_up is None:
                    self.given_up = hardware.why_aside(gpu.uuid) or self._unfit(gpu, xids)
            return self.given_up is not None

    def _unfit(self, gpu: HostGpu, xids: Sequence[Xid]) -> str | None:
        health = self._settled(gpu, kernel_log.of_gpus(xids, [gpu.pci] if gpu.pci else []))
        text = f"GPU {gpu.index}: {health.reason}"
        if health.condition is Condition.BROKEN:
            hardware.set_aside(gpu.uuid, gpu.index, health.reason)
            return hardware.why_aside(gpu.uuid) or text
        if health.condition is Condition.LEFTOVER:
            return text
        if health.condition is Condition.SHARED and gpu.uuid not in self._said_shared:
            self._said_shared.add(gpu.uuid)
            self._say(text)
        return None

    def _settled(self, gpu: HostGpu, xids: Sequence[Xid]) -> Health:
        """Assess the GPU once its memory had time to come back; what killed runs left on it is removed."""
        health = self._health(gpu, xids)
        if health.condition is Condition.LEFTOVER:
            for line in self.engine.sweep():
                self._say(f"left by a run that was killed: {line}")
        for _ in range(POLLS):
            if not health.passing or (health.condition is Condition.SHARED and gpu.uuid in self._said_shared):
                return health
            time.sleep(POLL_S)
            health = self._health(gpu, xids)
        return last(health)

    def _health(self, gpu: HostGpu, xids: Sequence[Xid]) -> Health:
        """Assess the GPU against the least memory taken in this run: what a killed run left goes away some time."""
        now = read(gpu.uuid)
        if self._share is not None:
            now = replace(now, processes=None, ours=frozenset(), used_bytes=None)
        before = self._start.setdefault(gpu.uuid, now)
        if now.used_bytes is not None and now.used_bytes < (before.used_bytes or 0):
            self._start[gpu.uuid] = now
        return assess(before, now, xids)


@contextmanager
def guarded(engine: Engine, gpus: Sequence[int], say: Note, *, share: int | None = None) -> Iterator[Guard]:
    """Run trials on the engine with its GPUs checked, if they are this machine's."""
    if gpus and not engine.local:
        say("GPUs: not checked between trials, since the engine is on another machine")
    own = [gpu for gpu in hardware.gpus() if gpu.index in gpus] if engine.local else []
    with kernel_log.watch([gpu.pci for gpu in own]) as faults:
        yield Guard(engine, own, faults, say, share=share)
