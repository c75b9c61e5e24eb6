"""What compute-sanitizer printed, as findings. Pure: text in, findings out.

The formats are those that release 2025.3.1 prints on an H200 (tests/data/gpu) and those of NVIDIA's manual. Older
wordings ("Address" for "Access to", kernel names behind the file) are read too. What is not understood is kept: a block
of the report that no pattern knows is a finding of kind "other" with its text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from gpu_casebook.reading.findings import Dim3, Finding, KernelPlace, Kind, Nearest, Site, Summary, Tool
from gpu_casebook.text import one_line, without_escapes

EXECUTABLE = "compute-sanitizer"
PRINT_LIMIT = 10
VARIABLES: Mapping[str, str] = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""PyTorch's allocator hands out pieces of large blocks: without this, one tensor's end is another's beginning."""


_IN_CAPTURE = re.compile(r"cudaErrorStreamCaptureUnsupported|operation not permitted when stream is capturing")


def at_odds_with_capture(said: str) -> bool:
    """Whether VARIABLES may be what a script failed of: nothing is allocated while a CUDA graph is being captured."""
    return _IN_CAPTURE.search(said) is not None


def command(tool: Tool, program: Sequence[str], *, print_limit: int = PRINT_LIMIT) -> list[str]:
    """`program` under `tool`. Leaks are looked for only where asked for: a Python process never frees everything."""
    return [EXECUTABLE, "--tool", tool.value, "--print-limit", str(print_limit), *program]


_NUMBER = r"\d+(?:[.,' \u00a0\u202f]\d{3})*"  # grouped as the machine's locale has it
_DIM3 = r"\((\d+), ?(\d+), ?(\d+)\)"
_LINE = re.compile(r"(?:^|(?<=[^=]))={9}(?!=)(?: (.*?))?\s*$")
_SEVERITY = re.compile(r"(info|warn(?:ing)?|error) ?: ?", re.IGNORECASE)
_REASON = r"(?: \(error \d+\))?(?: due to \"(?P<detail>.*)\")?"

_TITLES: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (Kind.INVALID_ACCESS, rf"Invalid __(?P<space>\w+)__ (?P<access>[\w-]+) of size (?P<size>{_NUMBER})"),
        (Kind.RACE, rf"Potential invalid __(?P<space>\w+)__ (?P<access>[\w-]+) of size (?P<size>{_NUMBER})"),
        (Kind.RACE, r"Race reported between (?P<site>.+)"),
        (Kind.RACE, r"(?:\([^)]*\) )?Potential (?P<detail>RAW|WAR|WAW) hazard detected(?:.* at __(?P<space>\w+)__)?"),
        (Kind.UNINITIALIZED, rf"Uninitialized __(?P<space>\w+)__ memory (?P<access>\w+) of size (?P<size>{_NUMBER})"),
        (Kind.UNINITIALIZED, rf"Host API (?:uninitialized )?memory access.*?(?: of size (?P<size>{_NUMBER})|$)"),
        (Kind.UNUSED, rf"Unused (?:__(?P<space>\w+)__ )?memory in allocation.* of size (?P<size>{_NUMBER})"),
        (Kind.LEAK, rf"Leaked (?P<size>{_NUMBER}) bytes?(?: at 0x[0-9a-f]+)?(?P<detail>.*)"),
        (Kind.LEAK, r"Leaked (?P<detail>.+)"),
        (Kind.INVALID_FREE, r"Malloc/Free error encountered ?: ?(?P<detail>.+)"),
        (Kind.STACK_OVERFLOW, r"Stack overflow"),
        (Kind.ASSERT, r"Warp assert"),
        (Kind.ILLEGAL_ADDRESS, r"Warp illegal address"),
        (Kind.TRAP, r"Trace/breakpoint trap"),
        (Kind.API_ERROR, rf"Program hit (?P<error>.+?){_REASON} on CUDA API call(?: to (?P<call>\w+))?"),
        (Kind.SYNC, r"(?:Barrier|Warpgroup MMA sequence) error detected\.? ?(?P<detail>.*)"),
        (Kind.SYNC, r"(?P<detail>Deadlock) detected in"),
        (Kind.TOOL, r"Internal (?:Sanitizer )?error"),
    )
)
_PROBLEMS = {
    "out of bounds": Kind.OUT_OF_BOUNDS,
    "misaligned": Kind.MISALIGNED,
    "before it is allocated": Kind.LIFETIME,
    "after it is free'd": Kind.LIFETIME,
}
_PLACE = (
    r"(?:(?P<function>.+)(?:\+|:)0x[0-9a-f]+(?: in (?P<file>.+):(?P<line>\d+))?"  # kernel(int)+0x70 in file.cu:6
    r"|0x[0-9a-f]+ in (?P<file2>[^:]+):(?P<line2>\d+):(?P<function2>.+)"  # 0xd80 in file.cu:162:kernel(int)
    r"|0x[0-9a-f]+ in (?P<function3>.+)"
    r"|0x[0-9a-f]+"
    r"|(?P<function4>[^+]+?)(?: in (?P<file4>.+):(?P<line4>\d+))?)"
)
_AT = re.compile(rf"at {_PLACE}$")
_BY = re.compile(rf"by thread {_DIM3} in block {_DIM3}")
_IN_BLOCK = re.compile(rf"in block {_DIM3}")
_STARTING_AT = re.compile(rf"threads starting at {_DIM3}")
_PROBLEM = re.compile(r"(?:Address|Access (?:to|at)|Barrier at) 0x[0-9a-f]+ (?P<problem>.+)")
_NEAREST = re.compile(
    rf"and is (?:(?P<distance>{_NUMBER}) bytes? (?P<side>before|after)|inside) the nearest allocation"
    rf"(?:.*? of size (?P<size>{_NUMBER}))?"
)
_DEVICE_FRAME = re.compile(rf"Device Frame: ?{_PLACE}$")
_HOST_FRAME = re.compile(r"Host Frame: ?(.+)")
_SITE = re.compile(rf"(?:and )?(?P<access>\w+) access at {_PLACE}(?: \[(?P<hazards>{_NUMBER}) hazards?\])?$")
_THREAD_SITE = re.compile(rf"(?P<access>\w+) Thread {_DIM3}(?: \(.*?\))? at {_PLACE}$")
_COPY = re.compile(r"Uninitialized access to 0x[0-9a-f]+ on access by (\w+)")
_DETAIL = re.compile(
    r"at |by thread|Address |Access |Barrier (?:at|is located)|and |in |Saved host|Host Frame|Device Frame"
    r"|\w+ Thread \(|Current Value|Identical data|Not written|Uninitialized access|[\d.]+% of|These unused|Sync mask"
)
_NOT_FINDINGS = re.compile(
    r"COMPUTE-SANITIZER$|CUDA-MEMCHECK$|\w+ SUMMARY:|Target application returned an error"
    r"|Tracking kernels launched by child processes|This tool is deprecated|Please use the compute-sanitizer"
    r"|(?!Deadlock)[\w: ]+ called by threads"
)


def parse(text: str, tool: Tool) -> list[Finding]:
    """Every report in `text`, in order, however much of the program's own output lies between."""
    blocks = (block for block in _blocks(text) if not _NOT_FINDINGS.match(block[0]))
    return [_finding(block, tool) for block in blocks]


def summary(text: str) -> Summary | None:
    """None where the tool never came to its end: then the absence of findings says nothing."""
    lines = [line.strip() for line in _report(text)]
    errors = _numbers(rf"ERROR SUMMARY: ({_NUMBER}) errors?$", lines)
    hazards = _numbers(rf"RACECHECK SUMMARY: ({_NUMBER}) hazards? displayed \({_NUMBER} errors?, ({_NUMBER})", lines)
    if not errors and not hazards:
        return None
    hidden = _numbers(rf"\w+ SUMMARY: ({_NUMBER}) \w+ were not printed", lines)
    return Summary(
        errors=sum(row[0] for row in errors + hazards),
        warnings=sum(row[1] for row in hazards),
        not_printed=sum(row[0] for row in hidden),
    )


def _report(text: str) -> Iterator[str]:
    """The tool's own lines without prefix. A program's rules of equals signs end in them; the tool's lines never do."""
    for line in without_escapes(text).splitlines():
        match = _LINE.search(line)
        if match and not line.rstrip().endswith("=="):
            yield match[1] or ""
        elif match and not match[1]:
            yield ""


def _blocks(text: str) -> Iterator[list[str]]:
    """Each report: its title, then its details. A blank line or the next title ends it."""
    block: list[str] = []
    for line in _report(text):
        if block and line.strip() and (line.startswith("    ") or _DETAIL.match(line.strip()) is not None):
            block.append(line.strip())
            continue
        if block:
            yield block
        block = [line.strip()] if line.strip() else []
    if block:
        yield block


def _finding(block: Sequence[str], tool: Tool) -> Finding:
    title, *details = block
    severity, bare = _severity(title)
    kind, named = _kind(bare, severity)
    problem = _first(_PROBLEM, details)
    if problem and kind is Kind.INVALID_ACCESS:
        kind = next((found for words, found in _PROBLEMS.items() if words in problem["problem"]), kind)
    sites = [site for line in (named.get("site") or "", *details) for site in _sites(line)]
    text = named.get("access")
    return Finding(
        tool=tool,
        kind=kind,
        title=title,
        access=(text.lower() if text else None),
        space=named.get("space"),
        size=_number(named.get("size")),
        place=_place_of(details),
        device_frames=[_place(match) for match in _all(_DEVICE_FRAME, details)],
        host_frames=list(_host_frames(details)),
        thread=_thread(block),
        block=_block(block),
        nearest=_nearest(details),
        sites=sites,
        hazards=_hazards(block),
        severity=severity if kind in {Kind.RACE, Kind.TOOL} else None,
        detail=_detail(named.get("detail"), details, kind),
        error=named.get("error"),
        call=named.get("call") or _copy(details),
        text="\n".join(block),
    )


def _severity(title: str) -> tuple[Literal["error", "warning", "info"] | None, str]:
    match = _SEVERITY.match(title)
    if match is None:
        return None, title
    words: dict[str, Literal["error", "warning", "info"]] = {"e": "error", "w": "warning", "i": "info"}
    return words[match[1][0].lower()], title[match.end() :]


def _kind(title: str, severity: str | None) -> tuple[Kind, dict[str, str | None]]:
    for kind, pattern in _TITLES:
        match = pattern.match(title)
        if match:
            return kind, match.groupdict()
    return (Kind.TOOL if severity else Kind.OTHER), {}


def _detail(named: str | None, details: Sequence[str], kind: Kind) -> str | None:
    if kind is Kind.UNUSED:
        unused = (re.sub(r" \(0x[0-9a-f]+\)", "", line) for line in details if line.startswith("Not written"))
        named = next(unused, named)
    return one_line(named).strip(" .") or None if named else None


def _copy(details: Sequence[str]) -> str | None:
    match = _first(_COPY, details)
    return match[1] if match else None


def _place_of(details: Sequence[str]) -> KernelPlace:
    """The "at" line; its source file can stand on a line of its own."""
    match = _first(_AT, details)
    if match is None:
        return KernelPlace()
    place = _place(match)
    apart = _first(re.compile(r"in (?P<file>.+):(?P<line>\d+)$"), details)
    if place.file is None and apart:
        return KernelPlace(function=place.function, file=apart["file"], line=int(apart["line"]))
    return place


def _place(match: re.Match[str]) -> KernelPlace:
    return KernelPlace.model_validate(_place_fields(match))


def _place_fields(match: re.Match[str]) -> dict[str, str | int | None]:
    group = match.groupdict()
    line = group["line"] or group["line2"] or group["line4"]
    return {
        "function": group["function"] or group["function2"] or group["function3"] or group["function4"],
        "file": group["file"] or group["file2"] or group["file4"],
        "line": int(line) if line else None,
    }


def _sites(line: str) -> Iterator[Site]:
    match = _SITE.match(line) or _THREAD_SITE.match(line)
    if match:
        thread = Dim3(*map(int, match.groups()[1:4])) if match.re is _THREAD_SITE else None
        yield Site.model_validate({"access": match["access"].lower(), "thread": thread, **_place_fields(match)})


def _hazards(block: Sequence[str]) -> int | None:
    counts = [int(_number(count) or 0) for line in block for count in re.findall(rf"\[({_NUMBER}) hazards?\]", line)]
    return sum(counts) if counts else None


def _thread(block: Sequence[str]) -> Dim3 | None:
    match = _first(_BY, block) or _search(_STARTING_AT, block[0])
    return Dim3(*map(int, match.groups()[:3])) if match else None


def _block(block: Sequence[str]) -> Dim3 | None:
    by = _first(_BY, block)
    match = by or _search(_IN_BLOCK, block[0])
    return Dim3(*map(int, match.groups()[-3:])) if match else None


def _nearest(details: Sequence[str]) -> Nearest | None:
    match = _first(_NEAREST, details)
    if match is None:
        return None
    return Nearest.model_validate(
        {
            "side": match["side"] or "inside",
            "distance": _number(match["distance"]) or 0,
            "size": _number(match["size"]),
        }
    )


def _host_frames(details: Sequence[str]) -> Iterator[str]:
    """Function, and the module it is in; offsets are left out. Older releases put the module on the next line."""
    for line, following in pairwise((*details, "")):
        match = _HOST_FRAME.match(line)
        if match:
            frame = match[1] if not following.startswith("in ") else f"{match[1]} {following}"
            yield one_line(re.sub(r" ?\[0x[0-9a-f]+\]", "", frame))


def _first(pattern: re.Pattern[str], lines: Iterable[str]) -> re.Match[str] | None:
    return next(iter(_all(pattern, lines)), None)


def _all(pattern: re.Pattern[str], lines: Iterable[str]) -> Iterator[re.Match[str]]:
    return (match for match in map(pattern.match, lines) if match)


def _search(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    return pattern.search(line)


def _number(text: str | None) -> int | None:
    return int(re.sub(r"\D", "", text)) if text else None


def _numbers(pattern: str, lines: Iterable[str]) -> list[list[int]]:
    found = (re.match(pattern, line) for line in lines)
    return [[_number(group) or 0 for group in match.groups()] for match in found if match]
