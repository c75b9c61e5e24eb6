"""What compute-sanitizer printed, as findings. Pure: text in, findings out.

The formats are those that release 2025.3.1 prints on an H200 (tests/data/gpu) and those of NVIDIA's manual. Older
wordings ("Address" for "Access to", kernel names behind the file) are read too. What is not understood is kept: a block
of the report that no pattern knows is a finding of kind "other" with its text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from failure_signature.reading.findings import (
    EXECUTABLE,
    Dim3,
    Finding,
    KernelPlace,
    Kind,
    Nearest,
    Site,
    Summary,
    Tool,
)
from failure_signature.text import one_line, without_escapes

PRINT_LIMIT = 10
LAUNCH_TIMEOUT_S = 3600
"""For the first CUDA call. The tool's own 10 s are less than torch takes to be imported; a trial has its limit anyway.
"""
VARIABLES: Mapping[str, str] = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""PyTorch's allocator hands out pieces of large blocks: without this, one tensor's end is another's beginning."""


_IN_CAPTURE = re.compile(r"cudaErrorStreamCaptureUnsupported|operation not permitted when stream is capturing")


def at_odds_with_capture(said: str) -> bool:
    """Return whether a script may fail because of VARIABLES: nothing is allocated while a CUDA graph is captured."""
    return _IN_CAPTURE.search(said) is not None


def command(tool: Tool, program: Sequence[str], *, print_limit: int = PRINT_LIMIT) -> list[str]:
    """Return `program` under `tool`. Leaks are not looked for: a Python process never frees everything."""
    options = {"--tool": tool.value, "--print-limit": print_limit, "--launch-timeout": LAUNCH_TIMEOUT_S}
    return [EXECUTABLE, *(str(word) for option in options.items() for word in option), *program]


_NUMBER = r"\d+(?:[.,' \u00a0\u202f]\d{3})*"  # grouped as the machine's locale has it
_DIM3 = r"\(\d+, ?\d+, ?\d+\)"
_LINE = re.compile(r"(?:^|(?<=[^=]))={9}(?!=)(?: (.*?))?\s*$")
_SEVERITY = re.compile(r"(info|warn(?:ing)?|error) ?: ?", re.IGNORECASE)
_SEVERITIES: Mapping[str, Literal["info", "warning", "error"]] = {"i": "info", "w": "warning", "e": "error"}
_REASON = r"(?: \(error \d+\))?(?: due to \"(?P<detail>.*)\")?"

_TITLES: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (Kind.INVALID_ACCESS, rf"Invalid __(?P<space>\w+)__ (?:(?P<access>[\w-]+)|\?) of size (?P<size>{_NUMBER})"),
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
_FACTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"at (?P<place>.+)$",
        r"in (?P<file>.+):(?P<line>\d+)$",  # the place's source file can stand on a line of its own
        rf"by thread (?P<thread>{_DIM3}) in block (?P<block>{_DIM3})",
        r"(?:Address|Access (?:to|at)|Barrier at) 0x[0-9a-f]+ (?P<problem>.+)",
        rf"and is (?:(?P<distance>{_NUMBER}) bytes? )?(?P<side>before|after|inside) the nearest allocation",
        rf"and is .* the nearest allocation.*? of size (?P<allocation>{_NUMBER})",
        r"Uninitialized access (?:to|at) 0x[0-9a-f]+ on access by (?P<call>\w+)",
        r"(?P<unused>Not written.*)",
    )
)
"""What the lines below a title say. Of several lines that match one pattern, the first counts."""
_IN_TITLE = (
    re.compile(rf"threads starting at (?P<thread>{_DIM3})"),
    re.compile(rf"in block (?P<block>{_DIM3})"),
    re.compile(r"^(?:\w+ ?: ?)?Deadlock detected .* at (?P<place>\S.*)$"),
)
_PLACES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<function>.+)(?:\+|:)0x[0-9a-f]+(?: in (?P<file>.+):(?P<line>\d+))?",  # kernel(int)+0x70 in file.cu:6
        # 0xd80 in file.cu:162:kernel(int), or a frame of 2019 to 2023: file.cu:20:kernel(int*) [0x310]
        r"(?:0x[0-9a-f]+ in )?(?P<file>[^:]+):(?P<line>\d+):(?P<function>.+?)(?: \[0x[0-9a-f]+\])?",
        r"0x[0-9a-f]+ in (?P<function>.+)",
        r"0x[0-9a-f]+",
        r"(?P<function>[^+]+?)(?: in (?P<file>.+):(?P<line>\d+))?",
    )
)
_DEVICE_FRAME = re.compile(r"^Device Frame: ?(?!NVIDIA Internal)(.+)$", re.MULTILINE)  # OptiX has such, unnamed
_HOST_FRAME = re.compile(r"Host Frame: ?(.+)")
_HAZARDS = re.compile(rf"\[({_NUMBER}) hazards?\]")
_SITE = re.compile(
    rf"(?:and )?(?P<access>\w+) (?:access|Thread (?P<thread>{_DIM3})(?: \(.*?\))?) at (?P<place>.+?)"
    rf"(?: \[{_NUMBER} hazards?\])?$"
)
_ERRORS = re.compile(rf"^ERROR SUMMARY: ({_NUMBER}) errors?$", re.MULTILINE)
_DISPLAYED = re.compile(
    rf"^RACECHECK SUMMARY: ({_NUMBER}) hazards? displayed \({_NUMBER} errors?, ({_NUMBER})", re.MULTILINE
)
_NOT_PRINTED = re.compile(rf"^\w+ SUMMARY: ({_NUMBER}) \w+ were not printed", re.MULTILINE)
_DETAIL = re.compile(
    r"at |by thread|Address |Access |Barrier (?:at|is located)|and |in |Saved host|Host Frame|Device Frame"
    r"|\w+ Thread \(|Current Value|Identical data|Not written|Uninitialized access|[\d.]+% of|These unused|Sync mask"
)
_NOT_FINDINGS = re.compile(
    r"COMPUTE-SANITIZER$|CUDA-MEMCHECK$|\w+ SUMMARY:|Target application returned an error"
    r"|Tracking kernels launched by child processes|This tool is deprecated|Please use the compute-sanitizer"
    r"|Default timeout can be adjusted"
    r"|(?!Deadlock)[\w: ]+ called by threads"
)


def parse(text: str, tool: Tool) -> list[Finding]:
    """Return every report in `text`, in order, however much of the program's own output lies between."""
    blocks = [block for block in _blocks(text) if not _NOT_FINDINGS.match(block[0])]
    findings = [_finding(block, tool) for block in blocks]
    # Where the lines of two processes are mixed, a title comes alone, and its details go to the other's.
    whole = [found for found in findings if found.kind is not Kind.INVALID_ACCESS or "\n" in found.text]
    return whole or findings


def summary(text: str) -> Summary | None:
    """Return what the closing lines count, or None if the tool never came to its end: then no findings mean nothing."""
    report = "\n".join(line.strip() for line in _report(text))
    errors, displayed = _ERRORS.findall(report), _DISPLAYED.findall(report)
    if not errors and not displayed:
        return None
    return Summary(
        errors=_total([*errors, *(hazards for hazards, _ in displayed)]),
        warnings=_total(warnings for _, warnings in displayed),
        not_printed=_total(_NOT_PRINTED.findall(report)),
    )


def _report(text: str) -> Iterator[str]:
    """Yield the tool's own lines without prefix. A program's rules of equals signs end in them, the tool's never."""
    for line in without_escapes(text).splitlines():
        match = _LINE.search(line)
        if match and not line.rstrip().endswith("=="):
            yield match[1] or ""
        elif match and not match[1]:
            yield ""


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield each report: its title, then its details. A blank line or the next title ends it."""
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
    text = "\n".join(block)
    severity = _SEVERITY.match(title)
    kind, named = _kind(title[severity.end() :] if severity else title)
    if severity and kind is Kind.OTHER:
        kind = Kind.TOOL
    facts = _facts(title, details) | named
    if kind is Kind.INVALID_ACCESS:
        kind = next((found for words, found in _PROBLEMS.items() if words in facts.get("problem", "")), kind)
    hazards = _HAZARDS.findall(text)
    return Finding(
        tool=tool,
        kind=kind,
        title=title,
        access=facts["access"].lower() if "access" in facts else None,
        space=facts.get("space"),
        size=_number(facts.get("size")),
        place=_place_of(facts),
        device_frames=[KernelPlace.model_validate(_place(frame)) for frame in _DEVICE_FRAME.findall(text)],
        host_frames=list(_host_frames(details)),
        thread=_dim3(facts.get("thread")),
        block=_dim3(facts.get("block")),
        nearest=_nearest(facts),
        sites=[_site(match) for match in map(_SITE.match, (facts.get("site", ""), *details)) if match],
        hazards=_total(hazards) if hazards else None,
        severity=_SEVERITIES[severity[1][0].lower()] if severity and kind in {Kind.RACE, Kind.TOOL} else None,
        detail=_detail(facts),
        error=facts.get("error"),
        call=facts.get("call"),
        text=text,
    )


def _kind(title: str) -> tuple[Kind, dict[str, str]]:
    """Return the kind that a title without its severity names, and what else it says."""
    for kind, pattern in _TITLES:
        if match := pattern.match(title):
            return kind, _groups(match)
    return Kind.OTHER, {}


def _facts(title: str, details: Sequence[str]) -> dict[str, str]:
    matches = [pattern.match(line) for line in details for pattern in _FACTS]
    matches += [pattern.search(title) for pattern in _IN_TITLE]
    facts: dict[str, str] = {}
    for match in reversed(matches):  # so that the first of each kind stays
        facts |= _groups(match)
    return facts


def _groups(match: re.Match[str] | None) -> dict[str, str]:
    return {name: text for name, text in match.groupdict().items() if text} if match else {}


def _detail(facts: Mapping[str, str]) -> str | None:
    unused = re.sub(r" \(0x[0-9a-f]+\)", "", facts.get("unused", ""))
    return one_line(unused or facts.get("detail", "")).strip(" .") or None


def _place_of(facts: Mapping[str, str]) -> KernelPlace:
    if "place" not in facts:
        return KernelPlace()
    apart = {name: facts[name] for name in ("file", "line") if name in facts}
    return KernelPlace.model_validate(apart | _place(facts["place"]))


def _place(text: str) -> dict[str, str]:
    """Return the fields of a KernelPlace that a text such as "kernel(int)+0x70 in file.cu:6" names."""
    return _groups(next(filter(None, (pattern.fullmatch(text) for pattern in _PLACES)), None))


def _site(match: re.Match[str]) -> Site:
    thread = _dim3(match["thread"])
    return Site.model_validate({"access": match["access"].lower(), "thread": thread, **_place(match["place"])})


def _nearest(facts: Mapping[str, str]) -> Nearest | None:
    if "side" not in facts:
        return None
    distance, size = _number(facts.get("distance")) or 0, _number(facts.get("allocation"))
    return Nearest.model_validate({"side": facts["side"], "distance": distance, "size": size})


def _host_frames(details: Sequence[str]) -> Iterator[str]:
    """Yield function and module of each frame; offsets are left out. Older releases put the module on the next line."""
    for line, following in pairwise((*details, "")):
        if match := _HOST_FRAME.match(line):
            frame = match[1] if not following.startswith("in ") else f"{match[1]} {following}"
            yield one_line(re.sub(r" ?\[0x[0-9a-f]+\]", "", frame))


def _dim3(text: str | None) -> Dim3 | None:
    return Dim3(*map(int, re.findall(r"\d+", text))) if text else None


def _number(text: str | None) -> int | None:
    return _total([text]) if text else None


def _total(numbers: Iterable[str]) -> int:
    return sum(int(re.sub(r"\D", "", number)) for number in numbers)
