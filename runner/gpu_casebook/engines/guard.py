"""An engine that looks at its GPUs before each trial and after it: `devices.hygiene` says what that comes to."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import psutil
import pynvml

from gpu_casebook.devices import aside, hardware, kernel_log
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.devices.hygiene import Condition, GpuState, Health, assess, last
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.evidence import GpuAccess, Xid
from gpu_casebook.trial import EngineName, Note, Recipe, TrialRequest, TrialResult

POLL_S = 0.5
POLLS = 20
"""How often, and how many times, a GPU is looked at again until its memory is back."""

_LOST = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "the driver has lost it",
    pynvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset",
}
_MARKS = {"HOME": ("/home/case", "/casebook-"), "USER": ("case",), "PYTHONDONTWRITEBYTECODE": ("1",)}
"""What the environment of each trial's process has in it, whichever engine started it."""


def read(uuid: str) -> GpuState:
    """What the driver tells of this GPU now: each reading is optional."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return GpuState()
    try:
        return _read(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError as error:
        return GpuState(lost=_LOST.get(_code(error)), missing=_code(error) == pynvml.NVML_ERROR_NOT_FOUND)
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read(handle: Any) -> GpuState:
    memory = _told(pynvml.nvmlDeviceGetMemoryInfo, handle)
    remapped = _told(pynvml.nvmlDeviceGetRemappedRows, handle)
    compute = _told(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    graphics = _told(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle)
    processes = None
    if compute is not None and _sees_every_process():
        processes = frozenset(process.pid for process in [*compute, *(graphics or [])])
    return GpuState(
        used_bytes=memory and memory.used,
        processes=processes,
        ours=frozenset(filter(_ours, processes or ())),
        remap_failed=remapped and bool(remapped[3]),
    )


def _told(ask: Callable[[Any], Any], handle: Any) -> Any:
    """None for what this driver or GPU has no answer to. Raises NVMLError where the GPU is lost."""
    try:
        return ask(handle)
    except pynvml.NVMLError as error:
        if _code(error) in _LOST:
            raise
        return None


def _code(error: Exception) -> int:
    return int(getattr(error, "value", -1))


def _sees_every_process() -> bool:
    """Elsewhere than in the host's own space of pids, the driver leaves out whom it can't name."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink()) == "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel
    return False


def _ours(pid: int) -> bool:
    try:
        variables = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False
    return all(any(mark in variables.get(name, "") for mark in marks) for name, marks in _MARKS.items())


class Guard:
    """Satisfies `engines.base.Engine`. A trial on a GPU that is not fit is not run: that is the machine's fault.

    Run trials only inside the locks of `gpus`: what is then found on them are no trials of others. `faults` gives what
    the kernel log got about them since the last call. `given_up` says why no more trials can be run. Where the GPUs
    are `shared`, trials of others may be on them at any time, and what processes and memory are there says nothing.
    """

    def __init__(
        self, engine: Engine, gpus: Sequence[HostGpu], faults: kernel_log.Faults, say: Note, *, shared: bool = False
    ) -> None:
        self.name: EngineName = engine.name
        self.given_up: str | None = None
        self._engine, self._gpus, self._faults, self._say = engine, gpus, faults, say
        self._start: dict[str, GpuState] = {}
        self._shared = shared
        self._told_shared: set[str] = set()

    @property
    def local(self) -> bool:
        return self._engine.local

    @property
    def isolation(self) -> Sequence[str]:
        return self._engine.isolation

    @property
    def version(self) -> str:
        return self._engine.version

    def __enter__(self) -> Self:
        self._engine.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._engine.__exit__(*exc_info)

    def gpu_access(self) -> GpuAccess | None:
        return self._engine.gpu_access()

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        return self._engine.prepare(recipe, note)

    def sweep(self) -> Sequence[str]:
        return self._engine.sweep()

    def left(self) -> Sequence[str]:
        return self._engine.left()

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        """As the engine does it, between two looks at the GPUs: one that broke meanwhile spoils what was seen."""
        if not request.gpus or not self._gpus:
            return self._engine.run(prepared, request)
        if self._look():
            return TrialResult(stdout="", stderr="", duration_s=0.0, infra=self.given_up)
        result = self._engine.run(prepared, request)
        return replace(result, exit_status=None, signal=None, infra=self.given_up) if self._look() else result

    def _look(self) -> bool:
        """Whether the trials are at their end."""
        xids = self._faults()
        for gpu in self._gpus:
            if self.given_up is None:
                self.given_up = aside.why(gpu.uuid) or self._unfit(gpu, xids)
        return self.given_up is not None

    def _unfit(self, gpu: HostGpu, xids: Sequence[Xid]) -> str | None:
        health = self._settled(gpu, kernel_log.of_gpus(xids, [gpu.pci] if gpu.pci else []))
        told = f"GPU {gpu.index}: {health.reason}"
        if health.condition is Condition.BROKEN:
            aside.put(gpu.uuid, gpu.index, health.reason)
            return aside.why(gpu.uuid) or told
        if health.condition is Condition.LEFTOVER:
            return told
        if health.condition is Condition.SHARED and gpu.uuid not in self._told_shared:
            self._told_shared.add(gpu.uuid)
            self._say(told)
        return None

    def _settled(self, gpu: HostGpu, xids: Sequence[Xid]) -> Health:
        """Given time for its memory to come back; what runs that were killed left on it is removed."""
        health = self._health(gpu, xids)
        if health.condition is Condition.LEFTOVER:
            for line in self._engine.sweep():
                self._say(f"left by a run that was killed: {line}")
        for _ in range(POLLS):
            if not health.passing or (health.condition is Condition.SHARED and gpu.uuid in self._told_shared):
                return health
            time.sleep(POLL_S)
            health = self._health(gpu, xids)
        return last(health)

    def _health(self, gpu: HostGpu, xids: Sequence[Xid]) -> Health:
        """Against the least that was taken of it in this run: what a killed run left there at first goes away."""
        now = read(gpu.uuid)
        if self._shared:
            now = replace(now, processes=None, ours=frozenset(), used_bytes=None)
        before = self._start.setdefault(gpu.uuid, now)
        if now.used_bytes is not None and now.used_bytes < (before.used_bytes or 0):
            self._start[gpu.uuid] = now
        return assess(before, now, xids)


@contextmanager
def guarded(engine: Engine, gpus: Sequence[int], say: Note, *, shared: bool = False) -> Iterator[Guard]:
    """The engine with its GPUs looked after, where they are this machine's."""
    if gpus and not engine.local:
        say("GPUs: not looked after between trials, since the engine is on another machine")
    own = gpus if engine.local else ()
    with kernel_log.watch(own) as faults:
        yield Guard(engine, [gpu for gpu in hardware.gpus() if gpu.index in own], faults, say, shared=shared)
