"""What an instrumented run found, as data, and in a sentence for a person. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

from pydantic import Field

from gpu_casebook.document import Document
from gpu_casebook.text import one_line

_CLONE = re.compile(r"\[clone (.+?)\] ")
"""How the tool names a function that belongs to one kernel: "[clone kernel(int)] function(int)"."""


class Tool(StrEnum):
    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"


class Kind(StrEnum):
    OUT_OF_BOUNDS = "out-of-bounds"
    MISALIGNED = "misaligned"
    LIFETIME = "lifetime"
    """Before the allocation is there, or after it was freed, in stream order."""
    INVALID_ACCESS = "invalid-access"
    """An access that the tool calls invalid for another reason."""
    ILLEGAL_ADDRESS = "illegal-address"
    """The hardware refused an access that the tool had no objection to: its memory went away meanwhile."""
    RACE = "race"
    UNINITIALIZED = "uninitialized"
    UNUSED = "unused"
    SYNC = "sync"
    LEAK = "leak"
    INVALID_FREE = "invalid-free"
    STACK_OVERFLOW = "stack-overflow"
    ASSERT = "assert"
    TRAP = "trap"
    API_ERROR = "api-error"
    """A CUDA call returned an error: mostly what follows from another finding."""
    TOOL = "tool"
    """The tool speaks of itself: it could not run, or may have missed something."""
    OTHER = "other"


class Dim3(NamedTuple):
    x: int
    y: int
    z: int

    def __str__(self) -> str:
        return f"({self.x},{self.y},{self.z})"


class KernelPlace(Document):
    """A function as the tool names it, and its source line where the program was compiled with line information."""

    function: str | None = None
    file: str | None = None
    line: int | None = None

    @property
    def source(self) -> str | None:
        return f"{self.file}:{self.line}" if self.file else None


class Site(KernelPlace):
    """One side of a race."""

    access: str
    thread: Dim3 | None = None


class Nearest(Document):
    """The allocation next to a bad address, all in bytes.

    `distance` is the tool's own number: 1 is the first byte after the allocation, and an access that ends where the
    allocation begins is as far before it as it is large. 0 is inside.
    """

    side: Literal["before", "after", "inside"]
    distance: int
    size: int | None = None


class Finding(Document):
    """One error report; after `grouped`, what `count` reports that differ in thread and address have in common.

    `size` is in bytes: of the access, the leak or the unused allocation. `place` is where it happened; the kernel is
    the outermost of `device_frames` where the tool printed them. `detail` is the tool's word for the kind: of barrier
    error, of invalid free, of hazard. `hazards` counts bytes, as racecheck does. `call` is the CUDA call that returned
    `error`, or that read what nobody wrote.
    """

    tool: Tool
    kind: Kind
    title: str
    access: str | None = None
    space: str | None = None
    size: int | None = None
    place: KernelPlace = KernelPlace()
    device_frames: list[KernelPlace] = Field(default_factory=list)
    host_frames: list[str] = Field(default_factory=list)
    thread: Dim3 | None = None
    block: Dim3 | None = None
    nearest: Nearest | None = None
    sites: list[Site] = Field(default_factory=list)
    hazards: int | None = None
    severity: Literal["error", "warning", "info"] | None = None
    detail: str | None = None
    error: str | None = None
    call: str | None = None
    count: int = 1
    text: str
    """The report as printed, without the prefix."""

    @property
    def kernel(self) -> str | None:
        """The kernel's name as the tool prints it: demangled, with template and parameter lists.

        Where the tool printed no device frames, it is that of a function which the compiler did not inline.
        """
        functions = [place.function for place in (*reversed(self.device_frames), self.place, *self.sites)]
        outermost = next(filter(None, functions), None)
        cloned = _CLONE.match(outermost or "")
        return cloned[1] if cloned else outermost

    @property
    def kernel_name(self) -> str | None:
        """The kernel's bare name, such as "kernel_backward"."""
        return short_name(self.kernel) if self.kernel else None


class Summary(Document, extra="ignore"):  # older evidence has more keys
    """The report's closing lines. For racecheck, `errors` counts the reports that it printed, `warnings` included."""

    errors: int
    warnings: int = 0
    not_printed: int = 0


class SanitizerExpectation(Protocol):
    """What a manifest can say of a finding; None is not looked at.

    `kernel` is the bare name, or any part of the full one.
    """

    @property
    def tool(self) -> str | None: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def access(self) -> str | None: ...
    @property
    def size(self) -> int | None: ...
    @property
    def kernel(self) -> str | None: ...


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for all that differ only in thread, block and address, in the order of the first of each.

    The one that stands for all is the nearest to its allocation, then the first in thread order.
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_what(finding), []).append(finding)
    return [
        min(group, key=_order).model_copy(update={"count": sum(finding.count for finding in group)})
        for group in groups.values()
    ]


def alike(first: Finding, second: Finding) -> bool:
    """Whether both are the same but for thread, block and address."""
    return _what(first) == _what(second)


def sentence(finding: Finding) -> str:
    """For a person, without a full stop.

    Such as "an out-of-bounds write of 4 bytes, just behind a 256-byte buffer, in kernel_backward (memcheck;
    thread (0,0,0), block (4,0,0))".
    """
    aside = [finding.tool.value]
    if finding.thread and finding.block:
        aside.append(f"thread {finding.thread}, block {finding.block}")
    if finding.hazards:
        aside.append(_counted(finding.hazards, "hazard"))
    if finding.count > 1:
        aside.append(f"{finding.count:,} times")
    return f"{_SENTENCES[finding.kind](finding)} ({'; '.join(aside)})"


def brief(finding: Finding) -> str:
    """A few words for a headline, which names the kernel itself where it is an access that is bad."""
    if finding.kind in BAD_ACCESS:
        near = _near(finding.nearest, finding.size) if finding.nearest else ""
        return f"{_access(finding)}{' ' if near.startswith('just') else ', '}{near}" if near else _access(finding)
    return _SENTENCES[finding.kind](finding)


def telling(findings: Sequence[Finding]) -> Finding | None:
    """The first that speaks of the program's kernels or memory, and not of what follows from it or of the tool."""
    return next((finding for finding in findings if finding.kind not in _CONSEQUENCES), None)


def matches(expected: SanitizerExpectation, finding: Finding) -> list[str]:
    """What differs from the expectation, line by line; empty where all of it holds."""
    return list(_mismatches(expected, finding))


def missing(expected: SanitizerExpectation, findings: Sequence[Finding]) -> list[str]:
    """Empty if one of the findings is as expected; else what the nearest to it has otherwise."""
    if not findings:
        return ["compute-sanitizer found nothing"]
    return min((matches(expected, finding) for finding in findings), key=len)


def short_name(function: str) -> str:
    """`void ns::kernel_backward<float>(int, float const*)` -> `kernel_backward`. A mangled name stays as it is."""
    outside, depth = [], 0
    for character in function:
        depth += character in "<([{"
        outside.append(" " if depth and character not in "<([{" else "" if depth else character)
        depth -= character in ">)]}"
    words = [word for word in "".join(outside).split() if word not in {"const", "volatile", "noexcept", "&", "&&"}]
    names = [name for name in words[-1].split("::") if name] if words else []
    return names[-1] if names else function


def _what(finding: Finding) -> tuple[object, ...]:
    nearest = finding.nearest and (finding.nearest.side, finding.nearest.size)
    sites = tuple((site.access, site.function, site.source) for site in finding.sites)
    text = finding.text if finding.kind in {Kind.OTHER, Kind.TOOL} else None
    return (
        finding.tool,
        finding.kind,
        finding.access,
        finding.space,
        finding.size,
        finding.place,
        finding.kernel,
        nearest,
        sites,
        finding.severity,
        finding.detail,
        finding.error,
        finding.call,
        text,
    )


def _order(finding: Finding) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    distance = finding.nearest.distance if finding.nearest else 0
    return distance, tuple(finding.block or ()), tuple(finding.thread or ())


BAD_ACCESS = {Kind.OUT_OF_BOUNDS, Kind.MISALIGNED, Kind.INVALID_ACCESS, Kind.LIFETIME}
_CONSEQUENCES = {Kind.API_ERROR, Kind.TOOL, Kind.OTHER}


def _bad_access(finding: Finding) -> str:
    near = f", {_near(finding.nearest, finding.size)}," if finding.nearest else ""
    return f"{_access(finding)}{near}{_in_kernel(finding)}"


def _access(finding: Finding) -> str:
    adjectives = {
        Kind.OUT_OF_BOUNDS: "an out-of-bounds",
        Kind.MISALIGNED: "a misaligned",
        Kind.LIFETIME: "an untimely",
    }
    space = f" {finding.space}-memory" if finding.space not in {None, "global"} else ""
    adjective = adjectives.get(finding.kind, "an invalid")
    return f"{adjective}{space} {finding.access} of {_bytes(finding)}"


_FAR = 2**40
"""Bytes. What a 32-bit index can reach is nearer; a null pointer is farther."""


def _near(nearest: Nearest, size: int | None) -> str:
    buffer = f"a {nearest.size:,}-byte buffer" if nearest.size is not None else "the nearest buffer"
    if nearest.distance >= _FAR:
        return "far from any buffer"
    match nearest.side:
        case "inside":
            return f"inside {buffer}"
        case "after":
            return f"just behind {buffer}" if nearest.distance == 1 else f"{_far(nearest)} after {buffer}"
        case "before":
            return f"just before {buffer}" if nearest.distance == size else f"{_far(nearest)} before {buffer}"


def _far(nearest: Nearest) -> str:
    return _counted(nearest.distance, "byte")


def _race(finding: Finding) -> str:
    names = {"RAW": "read-after-write", "WAR": "write-after-read", "WAW": "write-after-write"}
    space = finding.space or "shared"
    if not finding.sites:
        return f"a race on {space} memory{_in_kernel(finding)}"
    what = f"a {names[finding.detail]} hazard" if finding.detail in names else "a race"
    sides = " and ".join(f"a {site.access}{_at(site)}" for site in finding.sites)
    return f"{what} on {space} memory{_in_kernel(finding)}, between {sides}"


def _at(place: KernelPlace) -> str:
    return f" at {place.source}" if place.source else ""


def _in_kernel(finding: Finding) -> str:
    """Where the fault is; if that is not the kernel itself, also which kernel and where it was on the way there."""
    if finding.kernel_name is None:
        return ""
    function = short_name(finding.place.function) if finding.place.function else finding.kernel_name
    if function == finding.kernel_name:
        return f" in {function}{_at(finding.place)}"
    frame = finding.device_frames[-1] if finding.device_frames else KernelPlace()
    return f" in {function}{_at(finding.place)}, called in {finding.kernel_name}{_at(frame)}"


def _of_memory(finding: Finding) -> str:
    return f" of {finding.space} memory" if finding.space else ""


def _bytes(finding: Finding) -> str:
    return _counted(finding.size, "byte") if finding.size is not None else "memory"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _space_before(detail: str | None) -> str:
    return f" {detail}" if detail else ""


def _colon(detail: str | None) -> str:
    return f": {detail}" if detail else ""


def _uninitialized(finding: Finding) -> str:
    by = f" by {finding.call}" if finding.call else _in_kernel(finding)
    return f"a read of {_bytes(finding)}{_of_memory(finding)} that nobody wrote{by and ','}{by}"


def _title(finding: Finding) -> str:
    return one_line(finding.title)


_SENTENCES: Mapping[Kind, Callable[[Finding], str]] = {
    Kind.OUT_OF_BOUNDS: _bad_access,
    Kind.MISALIGNED: _bad_access,
    Kind.INVALID_ACCESS: _bad_access,
    Kind.LIFETIME: _bad_access,
    Kind.UNINITIALIZED: _uninitialized,
    Kind.UNUSED: lambda it: f"an allocation of {_bytes(it)} that was not used{_colon(it.detail)}",
    Kind.RACE: _race,
    Kind.SYNC: lambda it: f"a barrier error{_in_kernel(it)}{_colon(it.detail)}",
    Kind.LEAK: lambda it: f"{_bytes(it)}{_space_before(it.detail)} that nobody freed",
    Kind.INVALID_FREE: lambda it: f"an invalid free{_in_kernel(it)}{_colon(it.detail)}",
    Kind.STACK_OVERFLOW: lambda it: f"a stack overflow{_in_kernel(it)}",
    Kind.ASSERT: lambda it: f"a device-side assertion that does not hold{_in_kernel(it)}",
    Kind.ILLEGAL_ADDRESS: lambda it: f"an access to an address that is not mapped{_in_kernel(it)}",
    Kind.TRAP: lambda it: f"a trap{_in_kernel(it)}",
    Kind.API_ERROR: lambda it: f"{it.error}, returned by {it.call or 'a CUDA call'}",
    Kind.TOOL: _title,
    Kind.OTHER: _title,
}


def _mismatches(expected: SanitizerExpectation, finding: Finding) -> Iterator[str]:
    for name in ("tool", "kind", "access", "size"):
        wanted, found = getattr(expected, name), getattr(finding, name)
        if wanted is not None and wanted != found:
            yield f"sanitizer {name}: expected {wanted}, found {'none' if found is None else found}"
    if expected.kernel is not None and not _in_names(expected.kernel, finding):
        yield f"sanitizer kernel: expected {expected.kernel}, found {finding.kernel or 'none'}"


def _in_names(name: str, finding: Finding) -> bool:
    full = [finding.kernel, finding.place.function, *(site.function for site in finding.sites)]
    return any(name in function for function in full if function)
