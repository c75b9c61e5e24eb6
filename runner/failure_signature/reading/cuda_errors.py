"""CUDA errors by every name they go by, and the runtime API name that Casebook uses for each.

cuda_errors.tsv was read from the libraries themselves: cudaGetErrorName and cudaGetErrorString of libcudart 11.8, 12.1,
12.9 and 13.5 for every code, and the driver's names for the same codes from cuda.h of those releases. A text that
differs between releases has a row for each wording.

The libraries on top have statuses of their own, kept under their own names: CUBLAS_STATUS_ALLOC_FAILED,
CUDNN_STATUS_EXECUTION_FAILED, ncclInvalidUsage. A text that names both, as NCCL's do for "unhandled cuda error", is
about the CUDA error. NCCL's texts are those of ncclGetErrorString in 2.28.9, with or without the advice in brackets.
"""

import re
from importlib.resources import files
from typing import NamedTuple


class CudaError(NamedTuple):
    """One wording of one error."""

    code: str
    name: str  # that of the runtime API
    driver: str  # the driver's name, "-" if it has none
    text: str


_TABLE = files(__package__).joinpath("cuda_errors.tsv").read_text(encoding="utf-8")  # of this package: no other I/O
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
_ANY = re.compile(  # each alternative begins with a letter of its own, so that the search is fast
    r"cudaError\w+|CUDA_ERROR_\w+"
    r"|\[(?P<numba>\d+)\] Call to cu\w+ results in UNKNOWN_CUDA_ERROR"
    r"|Call to cu\w+ results in UNKNOWN_CUDA_ERROR \((?P<old_numba>\d+)\)"
    r"|CUDA error detected: (?P<warp>\d+)"
    rf"|{'|'.join(map(re.escape, _TEXTS))}"
)

_REPORT = re.compile(
    r"""(?:(?i:cuda|\bcu[a-z]|nccl|gpu|error|fail|launch|abort).*(?:[:,'"(\])]|with)\s?|CUDA |Error )$"""
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
    names = (name for pattern in (_ANY, _ANY_STATUS) for name in map(_named, pattern.finditer(text)) if name)
    return next(names, None)


def find_reported(text: str) -> str | None:
    """Return the name of the last CUDA error that a line of a program's output reports, or None.

    That is where "CUDA error: ", "cudaMalloc failed: " or the like comes before it, and nothing there says that it is
    but spoken of; or where its name is all of the line. Where there is none, the last library's status.
    """
    matches = (match for pattern in (_ANY, _ANY_STATUS) for match in reversed(list(pattern.finditer(text))))
    return next((name for match in matches if (name := _named(match)) and _is_reported(match)), None)


def find_assertion(text: str) -> Assertion | None:
    """Return the first device-side assertion that the CUDA runtime reports to have failed, or None."""
    lines = (line for line in text.splitlines() if "Assertion `" in line and len(line) <= _ASSERTION_LENGTH)
    match = next(filter(None, map(_ASSERTION.match, lines)), None)
    return Assertion(match["place"], match["function"], match["condition"]) if match else None


def is_library_status(name: str) -> bool:
    """Return whether this is the status of a library on top of CUDA, which may just follow from a fault."""
    return _LIBRARY_STATUS.fullmatch(name) is not None


def _named(match: re.Match[str]) -> str | None:
    """Return the error that is named there, or None if the words may be about something else."""
    if match.re is _ANY_STATUS:
        return _NCCL_TEXTS.get(match[0], match[0])
    if match.lastgroup:
        return _BY_CODE.get(match[match.lastgroup])
    before = _before(match)
    if match[0].startswith(_NAMES):
        counts = not re.search(r"\w\Z", before)
    else:
        # Shorter texts, such as "invalid argument", are CUDA's only where something says so.
        introduced = _INTRODUCTION.search(before) or _PLACE_BEHIND.match(match.string, match.end())
        counts = bool(introduced) or len(match[0].split()) >= _TELLING_WORDS
    return _BY_WORDING.get(match[0]) if counts and not _OF_AMD.search(before.rpartition("\n")[2]) else None


def _is_reported(match: re.Match[str]) -> bool:
    before = _before(match).rpartition("\n")[2]
    behind = match.string[match.end() : match.end() + _INTRODUCTION_LENGTH].partition("\n")[0].rstrip()
    if not before.strip() and not behind:
        return match[0].startswith(_NAMES) or match.lastgroup is not None
    if _MENTION.search(before) or behind.endswith("?"):
        return False
    return match.lastgroup is not None or _REPORT.search(before) is not None


def _before(match: re.Match[str]) -> str:
    return match.string[max(0, match.start() - _INTRODUCTION_LENGTH) : match.start()]
