"""How much memory of its GPUs a trial takes: what the driver counts for its processes, read while they run."""

import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import psutil
import pynvml

VARIABLE = "CASEBOOK_TRIAL"
_PAUSE_S = 0.2


class Meter:
    """Use as a context manager around one trial that has `variables`: its processes are known by them, in any engine.

    A peak between two looks is missed, but frameworks keep what they once took.
    """

    def __init__(self, gpus: Sequence[str]) -> None:
        """`gpus` are UUIDs."""
        self.variables = {VARIABLE: uuid.uuid4().hex}
        self.peak_bytes: int | None = None  # of the GPU of which it took most; None if nothing was seen
        self._gpus = gpus
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        with suppress(pynvml.NVMLError):  # no driver answers any more, or none tells
            pynvml.nvmlInit()
            try:
                while not self._ended.wait(_PAUSE_S):
                    if taken := max(map(self._taken, self._gpus), default=0):
                        self.peak_bytes = max(taken, self.peak_bytes or 0)
            finally:
                pynvml.nvmlShutdown()

    def _taken(self, gpu: str) -> int:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByUUID(gpu))
        return sum(process.usedGpuMemory or 0 for process in processes if self._is_ours(process.pid))

    def _is_ours(self, pid: int) -> bool:
        with suppress(psutil.Error, OSError):  # it has ended, or is another user's
            return psutil.Process(pid).environ().get(VARIABLE) == self.variables[VARIABLE]
        return False
