"""What programs with one GPU fault each printed on an H200 (see tests/gpu_programs), observed."""

import pytest

from failure_signature.judging.outcome import observe
from failure_signature.result import TrialResult
from tests.recordings import Recording, recordings

ILLEGAL, ASSERT, INVALID = "cudaErrorIllegalAddress", "cudaErrorAssert", "cudaErrorInvalidValue"
ACCELERATOR = "torch.AcceleratorError"
NOTHING = (None, None)

SEEN = {
    # bare CUDA programs, which print what the runtime says, if they look at all
    "barrier_divergent_block.bare": NOTHING,
    "barrier_divergent_warp.bare": NOTHING,
    "clean.bare": NOTHING,
    "copy_too_large.bare": (None, INVALID),
    "device_assert.bare": (None, ASSERT),
    "device_double_free.bare": (None, "cudaErrorLaunchFailure"),
    "double_free.bare": (None, INVALID),
    "global_atomic_behind.bare": NOTHING,
    "global_read_far.bare": (None, ILLEGAL),
    "global_write_before.bare": NOTHING,
    "global_write_behind.bare": NOTHING,
    "global_write_behind_many.bare": NOTHING,
    "invalid_device.bare": (None, "cudaErrorInvalidDevice"),
    "launch_errors.block.bare": (None, INVALID),
    "launch_errors.bounds.bare": (None, INVALID),
    "launch_errors.empty.bare": (None, INVALID),
    "launch_errors.grid.bare": (None, INVALID),
    "launch_errors.shared.bare": (None, INVALID),
    "leak.bare": NOTHING,
    "local_write_behind.bare": NOTHING,
    "misaligned_read.bare": (None, "cudaErrorMisalignedAddress"),
    "no_kernel_image.bare": (None, "cudaErrorNoKernelImageForDevice"),
    "null_write.bare": (None, ILLEGAL),
    "out_of_memory.bare": (None, "cudaErrorMemoryAllocation"),
    "race_read_after_write.bare": NOTHING,
    "race_write_after_read.bare": NOTHING,
    "race_write_after_write.bare": NOTHING,
    "shared_write_behind.bare": (None, ILLEGAL),
    "stack_overflow.bare": (None, ILLEGAL),
    "trap.bare": (None, "cudaErrorLaunchFailure"),
    "uninitialized_read.bare": NOTHING,
    "use_after_free.bare": (None, ILLEGAL),
    # PyTorch and Triton; the type of the exception depends on who launched
    "torch_backward_fault.bare": (ACCELERATOR, ASSERT),
    "torch_ctypes_kernel.far.bare": (ACCELERATOR, ILLEGAL),
    "torch_graph_capture.bare": NOTHING,
    "torch_graph_capture.uncached": (ACCELERATOR, "cudaErrorStreamCaptureInvalidated"),
    "torch_index_assert.bare": (ACCELERATOR, ASSERT),
    "torch_index_assert.blocking": (ACCELERATOR, ASSERT),
    "torch_out_of_memory.bare": ("torch.OutOfMemoryError", "cudaErrorMemoryAllocation"),
    "torch_raw_kernel.bare": (ACCELERATOR, ILLEGAL),
    "torch_raw_kernel.blocking": ("RuntimeError", ILLEGAL),
    "torch_raw_kernel.configuration.bare": ("RuntimeError", INVALID),
    "triton_compile_error.bare": ("triton.compiler.errors.CompilationError", None),
    "triton_out_of_bounds.bare": (ACCELERATOR, ILLEGAL),
    "triton_out_of_bounds.behind.bare": NOTHING,
    "triton_out_of_bounds.blocking": ("RuntimeError", ILLEGAL),
    "triton_out_of_resources.bare": ("triton.runtime.errors.OutOfResources", None),
    # in the cause of another exception, and in aborts
    "torch_exception_chain.bare": ("StepError", ASSERT),
    "torch_fault_at_exit.bare": (None, ASSERT),
    "torch_uncaught_cpp_exception.bare": (None, ASSERT),
    # the status of a library, which is all that the exception says
    "cublas_status.bare": ("RuntimeError", "CUBLAS_STATUS_NOT_INITIALIZED"),
    "torch_cublas_after_fault.bare": ("RuntimeError", "CUBLAS_STATUS_INTERNAL_ERROR"),
    "torch_cublas_full_device.bare": ("RuntimeError", "CUBLAS_STATUS_ALLOC_FAILED"),
    "nccl_result.bare": ("RuntimeError", "ncclInvalidArgument"),
    "torch_nccl_duplicate_gpu.bare": ("torch.distributed.DistBackendError", "ncclInvalidUsage"),
}

UNINSTRUMENTED = [recording for recording in recordings() if recording.tool is None]


def result(recording: Recording) -> TrialResult:
    status = recording.exit_status
    assert status in {0, 1, -6}
    return TrialResult(
        stdout=recording.stdout,
        stderr=recording.stderr,
        duration_s=1.0,
        exit_status=None if status == -6 else status,
        signal="SIGABRT" if status == -6 else None,
    )


def test_every_recording_is_in_the_table() -> None:
    assert {recording.name for recording in UNINSTRUMENTED} == set(SEEN)


@pytest.mark.parametrize("recording", UNINSTRUMENTED, ids=lambda it: it.name)
def test_what_a_gpu_fault_looks_like(recording: Recording) -> None:
    seen = observe(result(recording))
    assert (seen.exception, seen.cuda_error) == SEEN[recording.name]


def test_an_assertion_says_enough_where_the_program_says_nothing() -> None:
    (recording,) = (it for it in UNINSTRUMENTED if it.name == "device_assert.bare")
    silent = recording.stderr.rpartition("cudaDeviceSynchronize")[0]
    assert observe(TrialResult(stdout="", stderr=silent, duration_s=1.0, exit_status=1)).cuda_error == ASSERT
