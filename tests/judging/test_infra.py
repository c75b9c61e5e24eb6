import pytest

from failure_signature.judging.infra import blame


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("OSError: [Errno 28] No space left on device: '/tmp/x'", "the disk is full"),
        ("OSError: [Errno 28] Auf dem Ger\u00e4t ist kein Speicherplatz mehr verf\u00fcgbar", "the disk is full"),
        ("RuntimeError: No CUDA GPUs are available", "no GPU is there"),
        ("CUDA error: no CUDA-capable device is detected", "no GPU is there"),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check", "no GPU is there"),
        ("libcuda.so.1: cannot open shared object file: No such file", "the NVIDIA driver's libraries are not there"),
        ("CUDA driver version is insufficient for CUDA runtime version", "the NVIDIA driver is too old"),
        ("The NVIDIA driver on your system is too old (found version 11040)", "the NVIDIA driver is too old"),
        ("forward compatibility was attempted on non supported HW", "the NVIDIA driver is too old"),
        ("all CUDA-capable devices are busy or unavailable", "the GPU is busy or unavailable"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "the GPU is busy or unavailable"),
        ("uncorrectable ECC error encountered", "the GPU has an uncorrectable memory (ECC) error"),
        ("CUDA_ERROR_X: uncorrectable NVLink error detected", "the GPU has an uncorrectable NVLink error"),
        ("NVRM: GPU at 0000:1b: GPU has fallen off the bus.", "the GPU has fallen off the bus"),
        ("pynvml.NVMLError_GpuIsLost: GPU is lost", "the GPU has fallen off the bus"),
        ("cudaErrorSystemNotReady", "the GPU system is not ready: is the fabric manager running?"),
        ("Error 802: system not yet initialized", "the GPU system is not ready: is the fabric manager running?"),
        ("Failed to initialize NVML: Driver/library version mismatch", "the parts of the NVIDIA driver do not match"),
        ("unsupported display driver / cuda driver combination", "the parts of the NVIDIA driver do not match"),
        ("MPS client failed to connect to the MPS control daemon", "the CUDA MPS server can't be reached"),
        ("Cannot connect to the Docker daemon at unix:///x.sock", "the Docker engine can't be reached"),
        ("nvidia-container-cli: initialization error", "the container has no way to the GPU"),
    ],
)
def test_the_machine_is_to_blame(text: str, reason: str) -> None:
    assert blame(f"before\n{text}\nafter") == reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ModuleNotFoundError: No module named 'triton'",
        "ImportError: libcudart.so.12: cannot open shared object file",
        "AssertionError: Torch not compiled with CUDA enabled",
        "torch.OutOfMemoryError: CUDA out of memory",
        "CUDA error: initialization error",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "CUDA error: an illegal memory access was encountered",
    ],
)
def test_the_case_is_to_blame(text: str) -> None:
    assert blame(text) is None
