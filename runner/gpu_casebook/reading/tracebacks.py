"""The Python exception that ended a process, read off its stderr.

A process that dies of an exception prints its traceback from the top: the first frame is the script's own module (or
runpy's). Tracebacks of threads, of children, of ignored exceptions and of most that were caught and logged begin in a
function, and are passed over. One caught at module level and logged looks the same as one that was not caught.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

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
class Frame:
    """One line of a traceback. `text` is the statement's first line, None where Python could not read the source."""

    file: str
    line: int
    function: str
    text: str | None


class _Block(NamedTuple):
    """One traceback."""

    start: int  # index of its first line
    raised_at: int  # index of the line that names the exception
    top_level: bool  # whether its first frame is that of the script itself


def last_raised(stderr: str) -> Raised | None:
    """Return the exception that was not caught: that of the last traceback which begins at top level."""
    chain = [raised for _, raised in _chain(_lines(stderr))]
    return replace(chain[-1], causes=tuple(map(str, chain[:-1]))) if chain else None


def innermost(stderr: str, inside: str, telling: Callable[[str], object]) -> Frame | None:
    """Return where the exception that ended the process came from: its innermost frame in a file below `inside`.

    In a chain of exceptions it is the oldest with a message that is `telling`, else the last.
    """
    lines = _lines(stderr)
    chain = _chain(lines)
    if not chain:
        return None
    chosen = next((block for block, raised in chain if telling(str(raised))), chain[-1][0])
    own = [frame for frame in _frames(lines, chosen) if frame.file.startswith(f"{inside.rstrip('/')}/")]
    return own[-1] if own else None


def _lines(stderr: str) -> list[str]:
    # With an empty line at the end, every traceback has a line behind it.
    return [*_RANK.sub("", stderr).split("\n"), ""]


def _chain(lines: Sequence[str]) -> list[tuple[_Block, Raised]]:
    """Return the exception that was not caught, after those that led to it, the oldest first."""
    chain: list[tuple[_Block, Raised]] = []
    end = len(lines)
    for block in reversed(list(_blocks(lines))):
        if chain and lines[chain[0][0].start - 2] not in _CONNECTORS:
            break
        if chain or block.top_level:
            chain.insert(0, (block, _raised(lines, block.raised_at, end)))
            end = block.start - 3  # before the sentence that connects the two
    return chain


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    at = 0
    while at < len(lines):
        headed = lines[at].endswith(_HEADER)
        frame = _FRAME.fullmatch(_plain(lines[at + headed]))
        if frame is None:
            at += 1
            continue
        raised_at = at + headed
        while _plain(lines[raised_at]).startswith("  "):
            raised_at += 1
        raised = _RAISED.fullmatch(_plain(lines[raised_at]))
        # Only a syntax error in the script itself comes without a header, and its only frame without a function.
        alone = raised and raised["type"] in _SYNTAX_ERRORS and frame["function"] is None
        if raised and (headed or alone):
            yield _Block(at, raised_at, top_level=not headed or frame["function"] in _TOP_LEVEL)
        at = raised_at


def _frames(lines: Sequence[str], block: _Block) -> Iterator[Frame]:
    for at in range(block.start, block.raised_at):
        match = _FRAME.fullmatch(_plain(lines[at]))
        if match and match["function"]:
            below = _plain(lines[at + 1])
            text = below.strip() if below.startswith("    ") else None
            yield Frame(match["file"], int(match["line"]), match["function"], text)


def _plain(line: str) -> str:
    """A line without the margin that the traceback of an exception group has."""
    return line.removeprefix("  | ")


def _raised(lines: Sequence[str], raised_at: int, end: int) -> Raised:
    raised = _RAISED.fullmatch(_plain(lines[raised_at]))
    assert raised
    following = takewhile(lambda line: not _AFTERWARDS.match(line), lines[raised_at + 1 : end])
    return Raised(raised["type"], "\n".join([raised["message"] or "", *following]).strip("\n"))
