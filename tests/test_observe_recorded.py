"""What programs with one GPU fault each printed on an H200 (see tests/gpu_programs), observed."""

import re
from pathlib import Path

import pytest

from runner.engines.base import TrialResult
from runner.expectation import observe

RECORDED = Path(__file__).parent / "data" / "gpu"
ACCELERATOR = "torch.AcceleratorError"


def recorded(name: str) -> TrialResult:
    head, _, rest = (RECORDED / f"{name}.txt").read_text().partition("----- stdout\n")
    stdout, _, stderr = rest.partition("----- stderr\n")
    found = re.search(r"^exit status: (-?\d+)$", head, re.MULTILINE)
    assert found
    status = int(found[1])
    assert status in {0, 1, -6}
    signal = "SIGABRT" if status == -6 else None
    return TrialResult(
        stdout=stdout, stderr=stderr, duration_s=1.0, exit_status=None if signal else status, signal=signal
    )


@pytest.mark.parametrize(
    ("name", "exception", "cuda_error"),
    [
        # bare CUDA programs, which print what the runtime says
        ("clean.bare", None, None),
        ("copy_too_large.bare", None, "cudaErrorInvalidValue"),
        ("device_assert.bare", None, "cudaErrorAssert"),
        ("global_read_far.bare", None, "cudaErrorIllegalAddress"),
        ("invalid_device.bare", None, "cudaErrorInvalidDevice"),
        ("misaligned_read.bare", None, "cudaErrorMisalignedAddress"),
        ("no_kernel_image.bare", None, "cudaErrorNoKernelImageForDevice"),
        ("out_of_memory.bare", None, "cudaErrorMemoryAllocation"),
        ("trap.bare", None, "cudaErrorLaunchFailure"),
        # torch and Triton
        ("torch_backward_fault.bare", ACCELERATOR, "cudaErrorAssert"),
        ("torch_ctypes_kernel.far.bare", ACCELERATOR, "cudaErrorIllegalAddress"),
        ("torch_raw_kernel.blocking", "RuntimeError", "cudaErrorIllegalAddress"),
        ("torch_out_of_memory.bare", "torch.OutOfMemoryError", "cudaErrorMemoryAllocation"),
        ("triton_out_of_bounds.bare", ACCELERATOR, "cudaErrorIllegalAddress"),
        ("triton_out_of_bounds.blocking", "RuntimeError", "cudaErrorIllegalAddress"),
        ("triton_compile_error.bare", "triton.compiler.errors.CompilationError", None),
        ("triton_out_of_resources.bare", "triton.runtime.errors.OutOfResources", None),
        # in the cause of another exception, and in aborts
        ("torch_exception_chain.bare", "StepError", "cudaErrorAssert"),
        ("torch_fault_at_exit.bare", None, "cudaErrorAssert"),
        ("torch_uncaught_cpp_exception.bare", None, "cudaErrorAssert"),
        # errors of other libraries are no CUDA errors
        ("cublas_status.bare", "RuntimeError", None),
        ("torch_cublas_full_device.bare", "RuntimeError", None),
        ("nccl_result.bare", "RuntimeError", None),
        ("torch_nccl_duplicate_gpu.bare", "torch.distributed.DistBackendError", None),
    ],
)
def test_what_a_gpu_fault_looks_like(name: str, exception: str | None, cuda_error: str | None) -> None:
    seen = observe(recorded(name))
    assert (seen.exception, seen.cuda_error) == (exception, cuda_error)
