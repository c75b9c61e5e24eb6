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

_BY_CODE = {error.code: error.name for error in reversed(CUDA_ERRORS)}

_NAMES = ("cudaError", "CUDA_ERROR_")
_TELLING_WORDS = 5
_INTRODUCTION_LENGTH = 120
_INTRODUCTION = re.compile(r"""(?:(?i:cuda|gpu).*(?:[:'"(\])]\s?|\(\d+\), )|CUDA )$""")
_PLACE_BEHIND = re.compile(r" at line \d+ in file \S+\.cuh?\b")  # bitsandbytes names nobody before the text
_OF_AMD = re.compile(r"\bHIP\b|\bhip[A-Z]|ROCm")
_TEXTS = sorted((error.text for error in CUDA_ERRORS), key=len, reverse=True)
_ANY = re.compile(
    r"\b(?:cudaError|CUDA_ERROR_)\w+"
    r"|(?:\[(?P<numba>\d+)\] )?Call to cu\w+ results in UNKNOWN_CUDA_ERROR(?: \((?P<old_numba>\d+)\))?"
    r"|CUDA error detected: (?P<warp>\d+)"
    rf"|{'|'.join(map(re.escape, _TEXTS))}"
)

_REPORT = re.compile(
    r"""(?:(?i:cuda|\bcu[a-z]|nccl|gpu|error|fail|launch|abort).*(?:[:,'"(\])]|with|in)\s?|CUDA |Error )$"""
)
_MENTION = re.compile(
    r"\b(?:if|when(?:ever)?|such as|like|e\.g\.|example|usage|faq|means?|avoid|expect\w*)\b|--\w", re.IGNORECASE
)
"""In a line that speaks of an error that others may meet: a help text, a usage, an advice."""


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
    r"Assertion `(?P<condition>.*)` failed\.\s*$"
)
_ASSERTION_LENGTH = 8192
"""The pattern takes quadratic time on a line that repeats most of it."""


class Assertion(NamedTuple):
    """A device-side assertion that did not hold: "file:line", the function as its compiler names it, the condition."""

    place: str
    function: str
    condition: str


def find(text: str) -> str | None:
    """Return the name of the first CUDA error in a text, or else of the first library's status, or None."""
    return next(_found(text), None) or next(_statuses(text), None)


def find_reported(text: str) -> str | None:
    """Return the name of the last CUDA error that a line of a program's output reports, or None.

    That is where "CUDA error: ", "cudaMalloc failed: " or the like comes before it, and nothing there says that it is
    but spoken of; or where its name is all of the line. Where there is none, the last library's status.
    """
    *_, last = [None, *_statuses(text, reported=True), *_found(text, reported=True)]
    return last


def find_assertion(text: str) -> Assertion | None:
    """Return the first device-side assertion that the CUDA runtime reports to have failed, or None."""
    lines = (line for line in text.splitlines() if "Assertion `" in line and len(line) <= _ASSERTION_LENGTH)
    match = next(filter(None, map(_ASSERTION.match, lines)), None)
    return Assertion(match["place"], match["function"], match["condition"]) if match else None


def is_library_status(name: str) -> bool:
    """Return whether this is the status of a library on top of CUDA, which may just follow from a fault."""
    return _LIBRARY_STATUS.fullmatch(name) is not None


def _statuses(text: str, *, reported: bool = False) -> Iterator[str]:
    for match in _ANY_STATUS.finditer(text):
        if not reported or _is_reported(text, match):
            yield _NCCL_TEXTS.get(match[0], match[0])


def _found(text: str, *, reported: bool = False) -> Iterator[str]:
    for match in _ANY.finditer(text):
        code = match["numba"] or match["old_numba"] or match["warp"]
        name = _BY_CODE.get(code) if code else _BY_WORDING.get(match[0])
        before = text[max(0, match.start() - _INTRODUCTION_LENGTH) : match.start()]
        introduced = code or _INTRODUCTION.search(before) or _PLACE_BEHIND.match(text, match.end())
        if (
            name
            and (introduced or _tells_by_itself(match[0]))
            and not _OF_AMD.search(before.rpartition("\n")[2])
            and (code or not reported or _is_reported(text, match))
        ):
            yield name


def _is_reported(text: str, match: re.Match[str]) -> bool:
    before = text[max(0, match.start() - _INTRODUCTION_LENGTH) : match.start()].rpartition("\n")[2]
    behind = text[match.end() : match.end() + _INTRODUCTION_LENGTH].partition("\n")[0].rstrip()
    if not before.strip() and not behind:
        return match[0].startswith(_NAMES)
    return _REPORT.search(before) is not None and not _MENTION.search(before) and not behind.endswith("?")


def _tells_by_itself(wording: str) -> bool:
    """Return False for texts such as "invalid argument": only after something like "CUDA error: " are they CUDA's."""
    return wording.startswith(_NAMES) or len(wording.split()) >= _TELLING_WORDS
