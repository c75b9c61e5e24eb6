"""CUDA errors by every name they go by, and the runtime API name that Casebook uses for each.

cuda_errors.tsv was read from the libraries themselves: cudaGetErrorName and cudaGetErrorString of libcudart 11.8, 12.1,
12.9 and 13.5 for every code, and the driver's names for the same codes from cuda.h of those releases. A text that
differs between releases has a row for each wording.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class CudaError(NamedTuple):
    """One wording of one error: code, runtime name, driver name ("-" where the driver has none), text."""

    code: int
    name: str
    driver: str
    text: str


def _read(path: Path) -> tuple[CudaError, ...]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return tuple(CudaError(int(row["code"]), row["name"], row["driver"], row["text"]) for row in rows)


CUDA_ERRORS = _read(Path(__file__).with_suffix(".tsv"))

_BY_WORDING = {
    wording: error.name
    for error in reversed(CUDA_ERRORS)  # where two share a text, the one with the lower code
    for wording in (error.name, error.driver, error.text)
}
NAMES = frozenset(error.name for error in CUDA_ERRORS)
"""Every name that an expectation's `cuda_error` may have."""

_TELLING_WORDS = 5
_INTRODUCTION_LENGTH = 120
_INTRODUCTION = re.compile(r"""(?:(?i:cuda|gpu).*[:'"(\])]\s?|CUDA )$""")
_TEXTS = sorted((error.text for error in CUDA_ERRORS), key=len, reverse=True)
_ANY = re.compile(rf"\b(?:cudaError|CUDA_ERROR_)\w+|{'|'.join(map(re.escape, _TEXTS))}")


def find(text: str) -> str | None:
    """Runtime name of the first CUDA error in a text."""
    return next(_found(text), None)


def find_last(text: str) -> str | None:
    """Runtime name of the last CUDA error in a text."""
    *_, last = [None, *_found(text)]
    return last


def _found(text: str) -> Iterator[str]:
    for match in _ANY.finditer(text):
        name = _BY_WORDING.get(match[0])
        before = text[max(0, match.start() - _INTRODUCTION_LENGTH) : match.start()]
        if name and (_tells_by_itself(match[0]) or _INTRODUCTION.search(before)):
            yield name


def _tells_by_itself(wording: str) -> bool:
    """Texts such as "invalid argument" are anybody's: only after something like "CUDA error: " are they CUDA's."""
    return wording.startswith(("cudaError", "CUDA_ERROR_")) or len(wording.split()) >= _TELLING_WORDS
