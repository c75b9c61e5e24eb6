"""CUDA errors by every name they go by, and the runtime API name that Casebook uses for each.

cuda_errors.tsv was read from the libraries themselves: cudaGetErrorName and cudaGetErrorString of libcudart 11.8, 12.1,
12.9 and 13.5 for every code, and the driver's names for the same codes from cuda.h of those releases. A text that
differs between releases has a row for each wording.

The libraries on top have statuses of their own, kept under their own names: CUBLAS_STATUS_ALLOC_FAILED,
CUDNN_STATUS_EXECUTION_FAILED, ncclInvalidUsage. A text that names both, as NCCL's do for "unhandled cuda error", is
about the CUDA error. NCCL's texts are those of ncclGetErrorString in 2.28.9, with or without the advice in brackets.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class CudaError(NamedTuple):
    """One wording of one error."""

    code: str
    name: str  # that of the runtime API
    driver: str  # the driver's name, "-" if it has none
    text: str


_TABLE = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8")
CUDA_ERRORS = tuple(CudaError(*row.split("\t")) for row in _TABLE.splitlines()[1:])

_BY_WORDING = {
    wording: error.name
    for error in reversed(CUDA_ERRORS)  # where two share a text, the one with the lower code
    for wording in (error.name, error.driver, error.text)
}
NAMES = frozenset(error.name for error in CUDA_ERRORS)
"""Runtime names. An expectation's `cuda_error` has one of these, or the name of a library's status."""

_TELLING_WORDS = 5
_INTRODUCTION_LENGTH = 120
_INTRODUCTION = re.compile(r"""(?:(?i:cuda|gpu).*[:'"(\])]\s?|CUDA )$""")
_TEXTS = sorted((error.text for error in CUDA_ERRORS), key=len, reverse=True)
_ANY = re.compile(rf"\b(?:cudaError|CUDA_ERROR_)\w+|{'|'.join(map(re.escape, _TEXTS))}")


LIBRARIES = "CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CURAND"
_STATUS = rf"(?:{LIBRARIES})_STATUS_(?!SUCCESS\b)[A-Z][A-Z0-9_]*"
_CUFFT = r"CUFFT_(?:INVALID_[A-Z_]+|ALLOC_FAILED|INTERNAL_ERROR|EXEC_FAILED|SETUP_FAILED|NOT_SUPPORTED|NO_WORKSPACE)"
_NCCL_TEXTS = {
    "unhandled cuda error": "ncclUnhandledCudaError",
    "unhandled system error": "ncclSystemError",
    "internal error - please report this issue to the NCCL developers": "ncclInternalError",
    "invalid argument (run with NCCL_DEBUG": "ncclInvalidArgument",
    "invalid usage (run with NCCL_DEBUG": "ncclInvalidUsage",
    "remote process exited or there was a network error": "ncclRemoteError",
}
_LIBRARY_STATUS = re.compile("|".join([_STATUS, _CUFFT, *_NCCL_TEXTS.values()]))
_ANY_STATUS = re.compile(rf"\b(?:{_LIBRARY_STATUS.pattern})\b|{'|'.join(map(re.escape, _NCCL_TEXTS))}")

_ASSERTION = re.compile(
    r"^(?P<place>\S+:\d+): (?P<function>.*): block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] "
    r"Assertion `(?P<condition>.*)` failed\.\s*$",
    re.MULTILINE,
)


class Assertion(NamedTuple):
    """A device-side assertion that did not hold: "file:line", the function as its compiler names it, the condition."""

    place: str
    function: str
    condition: str


def find(text: str) -> str | None:
    """Return the name of the first CUDA error in a text, or else of the first library's status, or None."""
    return next(_found(text), None) or next(_statuses(text), None)


def find_last(text: str) -> str | None:
    """Return the name of the last CUDA error in a text, or else of the last library's status, or None."""
    *_, last = [None, *_statuses(text), *_found(text)]
    return last


def find_assertion(text: str) -> Assertion | None:
    """Return the first device-side assertion that the CUDA runtime reports to have failed, or None."""
    match = _ASSERTION.search(text)
    return Assertion(match["place"], match["function"], match["condition"]) if match else None


def is_library_status(name: str) -> bool:
    """Return whether this is the status of a library on top of CUDA, which may just follow from a fault."""
    return _LIBRARY_STATUS.fullmatch(name) is not None


def _statuses(text: str) -> Iterator[str]:
    return (_NCCL_TEXTS.get(match[0], match[0]) for match in _ANY_STATUS.finditer(text))


def _found(text: str) -> Iterator[str]:
    for match in _ANY.finditer(text):
        name = _BY_WORDING.get(match[0])
        before = text[max(0, match.start() - _INTRODUCTION_LENGTH) : match.start()]
        if name and (_tells_by_itself(match[0]) or _INTRODUCTION.search(before)):
            yield name


def _tells_by_itself(wording: str) -> bool:
    """Return False for texts such as "invalid argument": only after something like "CUDA error: " are they CUDA's."""
    return wording.startswith(("cudaError", "CUDA_ERROR_")) or len(wording.split()) >= _TELLING_WORDS
