"""Trials on an engine, with its GPUs checked before and after each: `devices.hygiene` judges what is read here."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pynvml

from gpu_casebook.devices import hardware, kernel_log
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.devices.hygiene import Condition, GpuState, Health, assess, last
from gpu_casebook.engines.base import VARIABLES, Engine, Prepared
from gpu_casebook.evidence import Xid
from gpu_casebook.trial import Note, TrialRequest, TrialResult

# How often, and how many times, a GPU is read again until its memory is back.
POLL_S = 0.5
POLLS = 20

_LOST = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "the driver has lost it",
    pynvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset",
}
_HOMES = ("/home/case", "/casebook-")  # one of them is in the HOME of each trial's process

INFRA_RETRIES = 2
"""How often one trial is tried again when the machine, not the case, was to blame."""

Tried = TypeVar("Tried")


def tries(once: Callable[[], Tried], is_spoiled: Callable[[Tried], bool]) -> list[Tried]:
    """Run one trial, and again while the machine is to blame, a bounded number of times. Return every try."""
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

    Use it only while `gpus` are locked: trials that are found on them are then no others' trials. If they are `shared`,
    others' trials may be on them at any time, and which processes and how much memory are there says nothing.
    """

    def __init__(
        self, engine: Engine, gpus: Sequence[HostGpu], faults: kernel_log.Faults, say: Note, *, shared: bool = False
    ) -> None:
        self.engine = engine
        self.given_up: str | None = None  # why no more trials can be run
        self.xids: list[Xid] = []  # what the kernel log got about the GPUs during the last trial
        self._gpus, self._faults, self._say = gpus, faults, say
        self._start: dict[str, GpuState] = {}
        self._shared = shared
        self._said_shared: set[str] = set()

    def hold_gpus(self, wait: Note) -> AbstractContextManager[None]:
        """Hold the GPUs, where they are this machine's, against every other runner; `wait` is told who has one."""
        if not self._gpus:
            return nullcontext()
        return hardware.lock_gpus([gpu.index for gpu in self._gpus], wait, shared=self._shared)

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        """Run a trial as the engine does, unless a GPU is unfit before it; a GPU that broke meanwhile spoils it."""
        self.xids = []
        if not request.gpus:
            return self.engine.run(prepared, request)
        if self._is_over(self._faults()):
            return TrialResult(stdout="", stderr="", duration_s=0.0, infra=self.given_up)
        result = self.engine.run(prepared, request)
        self.xids = self._faults()
        over = self._is_over(self.xids)
        return replace(result, exit_status=None, signal=None, infra=self.given_up) if over else result

    def _is_over(self, xids: Sequence[Xid]) -> bool:
        """Check the GPUs; return whether no more trials can be run."""
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
        if self._shared:
            now = replace(now, processes=None, ours=frozenset(), used_bytes=None)
        before = self._start.setdefault(gpu.uuid, now)
        if now.used_bytes is not None and now.used_bytes < (before.used_bytes or 0):
            self._start[gpu.uuid] = now
        return assess(before, now, xids)


@contextmanager
def guarded(engine: Engine, gpus: Sequence[int], say: Note, *, shared: bool = False) -> Iterator[Guard]:
    """Run trials on the engine with its GPUs checked, if they are this machine's."""
    if gpus and not engine.local:
        say("GPUs: not checked between trials, since the engine is on another machine")
    own = [gpu for gpu in hardware.gpus() if gpu.index in gpus] if engine.local else []
    with kernel_log.watch([gpu.pci for gpu in own]) as faults:
        yield Guard(engine, own, faults, say, shared=shared)
