import time

import pytest

from failure_signature.reading.cuda_errors import (
    CUDA_ERRORS,
    NAMES,
    Assertion,
    find,
    find_assertion,
    find_reported,
    is_library_status,
)

ILLEGAL = "cudaErrorIllegalAddress"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported later", ILLEGAL),
        ("Search for `cudaErrorIllegalAddress' in the CUDA documentation", ILLEGAL),
        ("Triton Error [CUDA]: an illegal memory access was encountered", ILLEGAL),
        ("Triton Error [CUDA]: invalid argument", "cudaErrorInvalidValue"),
        ("CUDA driver error: device kernel image is invalid", "cudaErrorInvalidKernelImage"),
        ("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", ILLEGAL),
        ("cuda runtime error (77) : an illegal memory access was encountered at x.cu:5", ILLEGAL),
        ("NCCL WARN Cuda failure 'out of memory'", "cudaErrorMemoryAllocation"),
        ("NCCL WARN Cuda failure 2 'out of memory'", "cudaErrorMemoryAllocation"),
        ("GPUassert: invalid device function x.cu 5", "cudaErrorInvalidDeviceFunction"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", "cudaErrorMemoryAllocation"),
        ("CUDA error: device-side assert triggered", "cudaErrorAssert"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "cudaErrorDevicesUnavailable"),
        ("all CUDA-capable devices are busy or unavailable", "cudaErrorDevicesUnavailable"),
        ("an illegal memory access was encountered", ILLEGAL),
        ("sync: cudaErrorLaunchFailure", "cudaErrorLaunchFailure"),
        ("what():  CUDA error: operation not permitted when stream is capturing", "cudaErrorStreamCaptureUnsupported"),
        ("CUDA error: unspecified launch failure in prior launch", "cudaErrorPriorLaunchFailure"),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`", "CUBLAS_STATUS_EXECUTION_FAILED"),
        ("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_NOT_INITIALIZED"),
        ("cuFFT error: CUFFT_INTERNAL_ERROR", "CUFFT_INTERNAL_ERROR"),
        ("NCCL error in: x.cpp:93, unhandled cuda error, NCCL version 2.19.3", "ncclUnhandledCudaError"),
        (
            "ncclUnhandledCudaError: Call failed.\nLast error:\nCuda failure 2 'out of memory'",
            "cudaErrorMemoryAllocation",
        ),
        ("init: invalid usage (run with NCCL_DEBUG=WARN for details)", "ncclInvalidUsage"),
        (
            "Error invalid configuration argument at line 117 in file /src/csrc/ops.cu",
            "cudaErrorInvalidConfiguration",
        ),
        ("Error named symbol not found at line 90 in file /src/csrc/ops.cu", "cudaErrorSymbolNotFound"),
        ("(External) CUDA error(1), invalid argument. \n  [Hint: x]", "cudaErrorInvalidValue"),
        ("[700] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR", ILLEGAL),
        ("Error at driver init: Call to cuInit results in UNKNOWN_CUDA_ERROR (100)", "cudaErrorNoDevice"),
        ("Warp CUDA error: CUDA error detected: 700", ILLEGAL),
    ],
)
def test_however_it_arrives(text: str, name: str) -> None:
    assert find(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "OSError: [Errno 22] invalid argument",
        "mmap failed: out of memory",
        "ValueError: operation not supported",
        "CUDA is fine\nmmap: invalid argument",
        "CUBLAS_STATUS_SUCCESS and CUDNN_STATUS_SUCCESS",
        "MY_CUBLAS_STATUS_ALLOC_FAILED",
        "ncclDataType",
        "socket: invalid usage",
        "cudaErrorOfNobody and CUDA_ERROR_OF_NOBODY",
        "mycudaErrorIllegalAddress",
        "CUDA error: no error",
        "cudaSuccess",
        "HIP error: an illegal memory access was encountered",
        "hipErrorIllegalAddress",
        "CUDA error detected: 999999",
        "Error in the invalid argument list at line 3",
    ],
)
def test_what_is_no_cuda_error(text: str) -> None:
    assert find(text) is None
    assert find_reported(text) is None


def test_first_and_last() -> None:
    text = "CUDA error: out of memory\nretrying\nCUDA error: misaligned address\n"
    assert (find(text), find_reported(text)) == ("cudaErrorMemoryAllocation", "cudaErrorMisalignedAddress")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("cudaDeviceSynchronize: cudaErrorIllegalAddress: an illegal memory access was encountered", ILLEGAL),
        ("CUDA error: an illegal memory access was encountered", ILLEGAL),
        ("  what():  CUDA error: an illegal memory access was encountered", ILLEGAL),
        ("GPUassert: an illegal memory access was encountered x.cu 5", ILLEGAL),
        ("CUDA error 700 at ggml-cuda.cu:6863: an illegal memory access was encountered", ILLEGAL),
        ("CUDA out of memory. Tried to allocate 2 GiB. If reserved memory is large", "cudaErrorMemoryAllocation"),
        ("cudaErrorIllegalAddress", ILLEGAL),
        ("launch failed with cudaErrorInvalidValue", "cudaErrorInvalidValue"),
        ("Error invalid configuration argument at line 117 in file /ops.cu", "cudaErrorInvalidConfiguration"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)
def test_what_a_program_reports(line: str, name: str) -> None:
    assert find_reported(f"before\n{line}\nafter\n") == name


@pytest.mark.parametrize(
    "line",
    [
        "an illegal memory access was encountered",
        "usage: x.py [--on-error cudaErrorIllegalAddress]",
        "  --retry  try again after a CUDA error: an illegal memory access was encountered",
        "FAQ: CUDA error: an illegal memory access was encountered",
        "If you see `CUDA error: an illegal memory access was encountered`, set CUDA_LAUNCH_BLOCKING=1",
        "What does CUDA error: an illegal memory access was encountered mean?",
        "errors such as CUBLAS_STATUS_ALLOC_FAILED",
    ],
)
def test_what_a_program_only_speaks_of(line: str) -> None:
    assert find_reported(f"before\n{line}\nafter\n") is None


@pytest.mark.parametrize("error", CUDA_ERRORS, ids=str)
def test_every_wording_in_the_table_leads_to_its_name(error: tuple[str, str, str, str]) -> None:
    _, name, driver, text = error
    assert find(name) == name
    assert driver == "-" or find(f"error {driver}!") == name
    shared = [other.name for other in CUDA_ERRORS if other.text == text]
    assert find(f"CUDA error: {text}") == shared[0]


def test_the_table_is_there() -> None:
    assert len(NAMES) > 130
    assert {error.code for error in CUDA_ERRORS if error.name == ILLEGAL} == {"700"}


def test_the_last_library_status_counts_only_where_no_cuda_error_is_named() -> None:
    text = "cuBLAS error: CUBLAS_STATUS_NOT_INITIALIZED\ncuBLAS error: CUBLAS_STATUS_ALLOC_FAILED\n"
    assert find_reported(text) == "CUBLAS_STATUS_ALLOC_FAILED"
    assert find_reported(f"CUDA error: misaligned address\n{text}") == "cudaErrorMisalignedAddress"


def test_which_names_are_a_librarys() -> None:
    assert is_library_status("CUBLAS_STATUS_ALLOC_FAILED")
    assert is_library_status("ncclInvalidUsage")
    assert not is_library_status("CUBLAS_STATUS_SUCCESS")
    assert not is_library_status(ILLEGAL)


def test_an_assertion_on_the_device() -> None:
    line = "a/b.cu:5: void look_up(const int *, int): block: [0,2,0], thread: [31,0,0] Assertion `i[t] < n` failed."
    found = find_assertion(f"before\n{line}\n{line.replace('31', '32')}\nafter")
    assert found == Assertion("a/b.cu:5", "void look_up(const int *, int)", "i[t] < n")
    assert find_assertion("a.c:5: main: Assertion `0' failed.") is None


def test_a_line_of_assertions_without_end_is_passed_over_at_once() -> None:
    began = time.process_time()
    assert find_assertion("/a:1: f: block: [0,0,0], thread: [0,0,0] Assertion `" * 5000) is None
    assert time.process_time() - began < 1
