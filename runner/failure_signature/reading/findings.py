"""What an instrumented run found, as data, and in a sentence for a person. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from pydantic import Field

from failure_signature.document import Frozen
from failure_signature.text import one_line

EXECUTABLE = "compute-sanitizer"
_BESIDE = 4096
"""Bytes: beyond a page the nearest allocation has hardly to do with an access."""
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


class KernelPlace(Frozen):
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


class Nearest(Frozen):
    """The allocation next to a bad address, all in bytes.

    `distance` is the tool's own number: 1 is the first byte after the allocation, and an access that ends where the
    allocation begins is as far before it as it is large. 0 is inside.
    """

    side: Literal["before", "after", "inside"]
    distance: int
    size: int | None = None


class Finding(Frozen):
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


class Summary(Frozen, extra="ignore"):  # older evidence has more keys
    """The report's closing lines. For racecheck, `errors` counts the reports that it printed, `warnings` included."""

    errors: int
    warnings: int = 0
    not_printed: int = 0


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding for all that are alike, in the order of the first of each.

    The one that stands for all is the nearest to its allocation, then the first in thread order.
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_identity(finding), []).append(finding)
    return [
        min(group, key=_order).model_copy(update={"count": sum(finding.count for finding in group)})
        for group in groups.values()
    ]


def alike(first: Finding, second: Finding) -> bool:
    """Return whether both are the same but for thread, block and address."""
    return _identity(first) == _identity(second)


def _identity(finding: Finding) -> tuple[object, ...]:
    # Of a report that was not understood, the text is all there is to compare.
    text = finding.text if finding.kind in {Kind.OTHER, Kind.TOOL} else None
    return finding.model_dump_json(exclude=_VARIES), finding.kernel, text


_VARIES: dict[str, Any] = {
    **dict.fromkeys(("title", "text", "count", "thread", "block", "hazards", "host_frames"), True),
    "device_frames": True,  # their kernel counts, their lines do not
    "nearest": {"distance"},
    "sites": {"__all__": {"thread"}},
}
"""What may differ between reports of one fault."""


def _order(finding: Finding) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    distance = finding.nearest.distance if finding.nearest else 0
    return distance, tuple(finding.block or ()), tuple(finding.thread or ())


BAD_ACCESS = {Kind.OUT_OF_BOUNDS, Kind.MISALIGNED, Kind.INVALID_ACCESS, Kind.LIFETIME}
_CONSEQUENCES = {Kind.API_ERROR, Kind.TOOL, Kind.OTHER}


def telling(findings: Sequence[Finding]) -> Finding | None:
    """Return the first that is about the program's kernels or memory, not about a consequence of it or the tool."""
    return next((finding for finding in findings if finding.kind not in _CONSEQUENCES), None)


def sentence(finding: Finding) -> str:
    """Return the finding in words, without a full stop.

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
    return f"{_described(finding)} ({'; '.join(aside)})"


def brief(finding: Finding) -> str:
    """Return a few words for a headline, which names the kernel of a bad access itself."""
    if finding.kind not in BAD_ACCESS:
        return _described(finding)
    near = _near(finding) if finding.nearest and finding.nearest.distance <= _BESIDE else ""
    return f"{_access(finding)}{' ' if near.startswith('just') else ', '}{near}" if near else _access(finding)


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


_DESCRIPTIONS: Mapping[Kind, str] = {
    Kind.UNINITIALIZED: "a read of {bytes}{memory} that nobody wrote{reader}",
    Kind.UNUSED: "an allocation of {bytes} that was not used{detail}",
    Kind.RACE: "{race}",
    Kind.SYNC: "a barrier error{where}{detail}",
    Kind.LEAK: "{bytes}{leaked} that nobody freed",
    Kind.INVALID_FREE: "an invalid free{where}{detail}",
    Kind.STACK_OVERFLOW: "a stack overflow{where}",
    Kind.ASSERT: "a device-side assertion that does not hold{where}",
    Kind.ILLEGAL_ADDRESS: "an access to an address that is not mapped{where}",
    Kind.TRAP: "a trap{where}",
    Kind.API_ERROR: "{error}, returned by {call}",
    Kind.TOOL: "{title}",
    Kind.OTHER: "{title}",
}


def _described(finding: Finding) -> str:
    """Return what was found and where, such as "a stack overflow in kernel_backward"."""
    where, near = _in_kernel(finding), _near(finding)
    if finding.kind in BAD_ACCESS:
        return f"{_access(finding)}{f', {near},' if near else ''}{where}"
    reader = f" by {finding.call}" if finding.call else where
    return _DESCRIPTIONS[finding.kind].format(
        bytes=_bytes(finding),
        call=finding.call or "a CUDA call",
        detail=f": {finding.detail}" if finding.detail else "",
        error=finding.error,
        leaked=f" {finding.detail}" if finding.detail else "",
        memory=f" of {finding.space} memory" if finding.space else "",
        race=_race(finding),
        reader=f",{reader}" if reader else "",
        title=one_line(finding.title),
        where=where,
    )


def _access(finding: Finding) -> str:
    adjectives = {Kind.OUT_OF_BOUNDS: "out-of-bounds", Kind.MISALIGNED: "misaligned", Kind.LIFETIME: "untimely"}
    adjective = adjectives.get(finding.kind, "invalid")
    article = "a" if finding.kind is Kind.MISALIGNED else "an"
    space = f" {finding.space}-memory" if finding.space not in {None, "global"} else ""
    return f"{article} {adjective}{space} {finding.access or 'access'} of {_bytes(finding)}"


_FAR = 2**40
"""Bytes. What a 32-bit index can reach is nearer; a null pointer is farther."""


def _near(finding: Finding) -> str:
    nearest = finding.nearest
    if nearest is None:
        return ""
    if nearest.distance >= _FAR:
        return "far from any buffer"
    buffer = f"a {nearest.size:,}-byte buffer" if nearest.size is not None else "the nearest buffer"
    far = _counted(nearest.distance, "byte")
    match nearest.side:
        case "inside":
            return f"inside {buffer}"
        case "after":
            return f"just behind {buffer}" if nearest.distance == 1 else f"{far} after {buffer}"
        case "before":
            return f"just before {buffer}" if nearest.distance == finding.size else f"{far} before {buffer}"


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


def _bytes(finding: Finding) -> str:
    return _counted(finding.size, "byte") if finding.size is not None else "memory"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
