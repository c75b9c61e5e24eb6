"""Failures of the machine, recognized by what a failing program printed. Pure.

Only trials that failed in another way than declared are looked at, so a case about one of these errors can still be
confirmed. A missing import is not among them: it means a broken environment, which is a fault of the case.
"""

import re

_SIGNS = {
    "the disk is full": r"No space left on device|\[Errno 28\]",
    "no GPU is there": r"no CUDA-capable device is detected|cudaErrorNoDevice|No CUDA GPUs are available"
    r"|Found no NVIDIA driver on your system",
    "the NVIDIA driver's libraries are not there": r"libcuda\.so(?:\.1)?: cannot open shared object file"
    r"|cudaErrorStubLibrary",
    "the NVIDIA driver is too old": r"driver version is insufficient|cudaErrorInsufficientDriver"
    r"|NVIDIA driver on your system is too old|cudaErrorCompatNotSupportedOnDevice"
    r"|forward compatibility was attempted on non supported HW",
    "the GPU is busy or unavailable": r"CUDA-capable device\S* (?:are|is/are) busy or unavailable"
    r"|cudaErrorDevicesUnavailable",
    "the GPU has an uncorrectable memory (ECC) error": r"[Uu]ncorrectable ECC|cudaErrorECCUncorrectable",
    "the GPU has an uncorrectable NVLink error": r"uncorrectable NVLink error|cudaErrorNvlinkUncorrectable",
    "the GPU has fallen off the bus": r"GPU has fallen off the bus|GPU is lost",
    "the GPU system is not ready: is the fabric manager running?": r"system not yet initialized"
    r"|cudaErrorSystemNotReady|cudaErrorFabricNotReady",
    "the parts of the NVIDIA driver do not match": r"[Dd]river/library version mismatch|cudaErrorSystemDriverMismatch"
    r"|unsupported display driver / cuda driver combination",
    "the CUDA MPS server can't be reached": r"MPS client failed to connect|cudaErrorMpsConnectionFailed",
    "the Docker engine can't be reached": r"[Cc]annot connect to the Docker daemon",
    "the container has no way to the GPU": r"nvidia-container-cli: |could not select device driver",
}


def blame(text: str) -> str | None:
    """Return why the machine is to blame for this output, or None if nothing says that it is."""
    return next((reason for reason, sign in _SIGNS.items() if re.search(sign, text)), None)
