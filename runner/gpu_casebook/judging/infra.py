"""Failures of the machine, told from what a failing program printed. Pure.

Only looked at in trials that failed in another way than was declared: a case about one of these errors can still be
confirmed. A missing import is none of them; it is a broken environment, and that is the case's own business.
"""

import re

_BUSY = "the GPU is busy or unavailable"
_NO_GPU = "no GPU is there"
_NO_DRIVER = "the NVIDIA driver's libraries are not there"
_OLD_DRIVER = "the NVIDIA driver is too old"
_MIXED_DRIVER = "the parts of the NVIDIA driver do not match"
_NOT_READY = "the GPU system is not ready: is the fabric manager running?"

_SIGNS = (
    (r"No space left on device", "the disk is full"),
    (r"no CUDA-capable device is detected|cudaErrorNoDevice|No CUDA GPUs are available", _NO_GPU),
    (r"Found no NVIDIA driver on your system", _NO_GPU),
    (r"libcuda\.so(?:\.1)?: cannot open shared object file|cudaErrorStubLibrary", _NO_DRIVER),
    (r"driver version is insufficient|cudaErrorInsufficientDriver", _OLD_DRIVER),
    (r"NVIDIA driver on your system is too old|cudaErrorCompatNotSupportedOnDevice", _OLD_DRIVER),
    (r"forward compatibility was attempted on non supported HW", _OLD_DRIVER),
    (r"CUDA-capable device\S* (?:are|is/are) busy or unavailable|cudaErrorDevicesUnavailable", _BUSY),
    (r"[Uu]ncorrectable ECC|cudaErrorECCUncorrectable", "the GPU has an uncorrectable memory (ECC) error"),
    (r"uncorrectable NVLink error|cudaErrorNvlinkUncorrectable", "the GPU has an uncorrectable NVLink error"),
    (r"GPU has fallen off the bus|GPU is lost", "the GPU has fallen off the bus"),
    (r"system not yet initialized|cudaErrorSystemNotReady|cudaErrorFabricNotReady", _NOT_READY),
    (r"[Dd]river/library version mismatch|cudaErrorSystemDriverMismatch", _MIXED_DRIVER),
    (r"unsupported display driver / cuda driver combination", _MIXED_DRIVER),
    (r"MPS client failed to connect|cudaErrorMpsConnectionFailed", "the CUDA MPS server can't be reached"),
    (r"[Cc]annot connect to the Docker daemon", "the Docker engine can't be reached"),
    (r"nvidia-container-cli: |could not select device driver", "the container has no way to the GPU"),
)


def blame(text: str) -> str | None:
    """Why the machine is to blame for this output, in words for a person; None if nothing says that it is."""
    return next((reason for sign, reason in _SIGNS if re.search(sign, text)), None)
