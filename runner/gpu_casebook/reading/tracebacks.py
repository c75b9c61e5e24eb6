"""The Python exception that ended a process, read off its stderr.

A process that dies of an exception prints its traceback from the top: the first frame is the script's own module (or
runpy's). Tracebacks of threads, of children, of ignored exceptions and of most that were caught and logged begin in a
function, and are passed over. One caught at module level and logged looks the same as one that was not caught.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_HEADER = "Traceback (most recent call last):"
_RANK = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_TOP_LEVEL = {"<module>", "_run_module_as_main"}
_RAISED = re.compile(r"(?P<type>[^\W\d]\w*(?:\.(?:<locals>|[^\W\d]\w*))*)(?:: (?P<message>.*)|:)?")
_SYNTAX_ERRORS = {"SyntaxError", "IndentationError", "TabError"}
_CONNECTORS = {
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
}
_AFTERWARDS = re.compile(
    r"Exception ignored |Exception in thread |Error in atexit|terminate called |Fatal Python error: "
    r"|Process \S+:$|\[[EWI]\d|\S+:\d+: \w*Warning: "
)
"""What Python, C++ and torch print to stderr between an uncaught exception and the end of the process."""


@dataclass(frozen=True)
class Raised:
    """An exception as printed. `causes` are the rest of its chain as "Type: message", the oldest first."""

    type: str
    message: str
    causes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True)
class _Block:
    """One traceback: where its first line is, where its exception's text begins and ends, and its first frame."""

    start: int
    raised_at: int
    top_level: bool


def last_raised(stderr: str) -> Raised | None:
    """The exception whose traceback, the last that begins at top level, says that it was not caught."""
    lines = _RANK.sub("", stderr).split("\n")
    blocks = list(_blocks(lines))
    for position in range(len(blocks) - 1, -1, -1):
        if blocks[position].top_level:
            return _with_causes(lines, blocks, position)
    return None


@dataclass(frozen=True)
class Frame:
    """One line of a traceback. `text` is the statement's first line, None where Python could not read the source."""

    file: str
    line: int
    function: str
    text: str | None


def innermost(stderr: str, inside: str, telling: Callable[[str], object]) -> Frame | None:
    """Where the exception that ended the process came from: its innermost frame in a file below `inside`.

    In a chain of exceptions it is the oldest with a message that is `telling`, else the last.
    """
    lines = _RANK.sub("", stderr).split("\n")
    blocks = list(_blocks(lines))
    last = next((at for at in range(len(blocks) - 1, -1, -1) if blocks[at].top_level), None)
    if last is None:
        return None
    first = last
    while first > 0 and _is_connected(lines, blocks[first].start):
        first -= 1
    ends = [*(blocks[at + 1].start for at in range(first, last)), len(lines)]
    texts = [str(_text(lines, block.raised_at, end)) for block, end in zip(blocks[first : last + 1], ends, strict=True)]
    chosen = next((at for at, text in enumerate(texts, first) if telling(text)), last)
    own = [frame for frame in _frames(lines, blocks[chosen]) if frame.file.startswith(f"{inside.rstrip('/')}/")]
    return own[-1] if own else None


def _frames(lines: Sequence[str], block: _Block) -> Iterator[Frame]:
    for at in range(block.start, block.raised_at):
        match = _FRAME.fullmatch(_plain(lines[at]))
        if match and match["function"]:
            below = _plain(lines[at + 1])
            text = below.strip() if below.startswith("    ") else None
            yield Frame(match["file"], int(match["line"]), match["function"], text)


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    at = 0
    while at < len(lines):
        headed = lines[at].endswith(_HEADER)
        first = at + headed
        frame = _FRAME.fullmatch(_plain(lines[first])) if first < len(lines) else None
        if frame is None:
            at += 1
            continue
        raised_at = _after_frames(lines, first)
        block = _block(lines, at, raised_at, frame["function"], headed=headed)
        if block:
            yield block
        at = raised_at


def _block(lines: Sequence[str], start: int, raised_at: int, function: str | None, *, headed: bool) -> _Block | None:
    raised = _RAISED.fullmatch(_plain(lines[raised_at])) if raised_at < len(lines) else None
    if raised is None:
        return None
    if headed:
        return _Block(start, raised_at, top_level=function in _TOP_LEVEL)
    # Only a syntax error in the script itself comes without a header, and its only frame without a function.
    alone = function is None and raised["type"] in _SYNTAX_ERRORS
    return _Block(start, raised_at, top_level=True) if alone else None


def _after_frames(lines: Sequence[str], first: int) -> int:
    """Index of the first line after `first` that is not indented."""
    at = first
    while at < len(lines) and _plain(lines[at]).startswith("  "):
        at += 1
    return at


def _plain(line: str) -> str:
    """A line without the margin that the traceback of an exception group has."""
    return line.removeprefix("  | ")


def _with_causes(lines: Sequence[str], blocks: Sequence[_Block], position: int) -> Raised:
    last = _text(lines, blocks[position].raised_at, len(lines))
    causes: list[str] = []
    while position > 0 and _is_connected(lines, blocks[position].start):
        end = blocks[position].start - 3
        position -= 1
        causes.insert(0, str(_text(lines, blocks[position].raised_at, end)))
    return Raised(last.type, last.message, tuple(causes))


def _is_connected(lines: Sequence[str], start: int) -> bool:
    return start >= 2 and lines[start - 2] in _CONNECTORS


def _text(lines: Sequence[str], raised_at: int, end: int) -> Raised:
    raised = _RAISED.fullmatch(_plain(lines[raised_at]))
    assert raised
    stop = next((at for at in range(raised_at + 1, end) if _AFTERWARDS.match(lines[at])), end)
    message = "\n".join([raised["message"] or "", *lines[raised_at + 1 : stop]])
    return Raised(raised["type"], message.strip("\n"))
