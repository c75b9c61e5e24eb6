"""The Python exception that ended a process, read off its stderr.

A process that dies of an exception prints its traceback from the top: the first frame is the script's own module.
Tracebacks of threads, of children, of ignored exceptions and of most that were caught and logged begin in a
function, and are passed over. Hydra, rich (so typer and Lightning) and IPython print forms of their own, which count
where Python printed none.

One caught at module level and printed looks like one that was not caught, until the program prints something else.
So behind a record of `logging`, and where text follows that belongs neither to the message nor to what Python and C++
print at the end, the exception is `unclear`. A message goes on where it is indented, has a blank line, follows a colon,
is spelled out in the statement that raised, or is of a kind known here; another second line may be the program's.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from failure_signature.text import one_line

_HEADER = "Traceback (most recent call last):"
_RANK = re.compile(r"\[rank(\d+)\]: ?")
_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_RAISED = re.compile(
    r"(?P<type>[^\W\d]\w*(?:\.(?:<locals>|[^\W\d]\w*))*(?:\([\w.]+\)|\[[\w., ]+\])?)(?:: (?P<message>.*)|:)?"
)
_SYNTAX_ERRORS = {"SyntaxError", "IndentationError", "TabError"}
_CONNECTORS = {
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
}
_HYDRA = "Error executing job with overrides"
_RICH_END = re.compile(r"╰─+╯")
_IPYTHON = re.compile(r"(?P<type>\w+) {2,}Traceback \(most recent call last\)")

_AFTERWARDS = re.compile(
    r"Exception ignored |Exception in thread |Error in atexit|terminate called |Fatal Python error: "
    r"|Process \S+:$|\S+:\d+: \w*Warning: |Set the environment variable HYDRA_FULL_ERROR=1"
    r"|wandb: |\[?[EWIF]\d{4}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [EWIF] |\r| *\d+%\||\(\w+ pid=\d+"
    r"|\S+:\d+:\d+ \[\d+\] NCCL |\*\*\* |(?:free|malloc|munmap_chunk)\(\): |double free |corrupted "
    r"|Aborted|Segmentation fault"
)
"""What Python, the loggers of C++, progress bars and other processes print after an uncaught exception."""
_LOGGED = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]+:")
_OPEN_ENDED = re.compile(r"at \d+:\d+:|ray::|\d+ validation errors? for |$|.*:\s*$|-{4,}$")
"""A line of a message after which all that follows belongs to it: Triton's source, Ray's frames, pydantic's fields."""
_GOES_ON = re.compile(
    r"\s|Search for `|CUDA kernel errors might|For debugging consider passing|Compile with `|Device-side assertion"
    r"|Exception raised from |frame #\d|nccl[A-Z]\w+: "
)
"""Lines that belong to a message: indented ones, and those that torch and NCCL append."""


@dataclass(frozen=True)
class Raised:
    """An exception as printed. `causes` are the rest of its chain as "Type: message", the oldest first.

    `unclear` says why it may not be what ended the process.
    """

    type: str
    message: str
    causes: tuple[str, ...] = ()
    unclear: str | None = None

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
    script: str | None  # the name of the script whose module its first frame is


def last_raised(stderr: str, script: str = "") -> Raised | None:
    """Return the exception that was not caught: that of the last traceback which begins at top level of `script`.

    Without its name any script counts, a child's too.
    Of several ranks, whose lines torch marks, the first; it is unclear which one counts where they differ.
    """
    own, ranks = _streams(stderr)
    if raised := _ended_by(own, script):
        return raised
    ended = {rank: raised for rank, lines in sorted(ranks.items()) if (raised := _ended_by(lines))}
    first = next(iter(ended.values()), None)
    if first and len({_alike(raised) for raised in ended.values()}) > 1:
        each = ", ".join(f"rank {rank} by {one_line(str(raised), 80)}" for rank, raised in ended.items())
        return replace(first, unclear=f"several ranks were ended by different exceptions: {each}")
    return first


def all_raised(stderr: str) -> Iterator[Raised]:
    """Yield the exception of every traceback: those of threads and children, and caught ones, too."""
    own, ranks = _streams(stderr)
    for lines in (own, *ranks.values()):
        for block in _blocks(lines):
            if _RAISED.fullmatch(_plain(lines[block.raised_at])):
                yield _raised(lines, block.raised_at)


def innermost(stderr: str, inside: str, telling: Callable[[str], object]) -> Frame | None:
    """Return where the exception that ended the process came from: its innermost frame in a file below `inside`.

    In a chain of exceptions it is the oldest with a message that is `telling`, else the last.
    """
    own, ranks = _streams(stderr)
    for lines in (own, *ranks.values()):
        if chain := _chain(lines):
            told = [block for block, raised in _read(lines, chain) if telling(str(raised))]
            frames = _frames(lines, [*told, chain[-1]][0])
            below = [frame for frame in frames if frame.file.startswith(f"{inside.rstrip('/')}/")]
            return below[-1] if below else None
    return None


def _streams(stderr: str) -> tuple[list[str], dict[int, list[str]]]:
    """Return the lines that no rank is named for, and those of each rank. Torch leaves blank lines unmarked."""
    own: list[str] = []
    ranks: dict[int, list[str]] = {}
    current = own
    for line in stderr.split("\n"):
        if marked := _RANK.match(line):
            current = ranks.setdefault(int(marked[1]), [])
        elif line:
            current = own
        current.append(line[marked.end() :] if marked else line)
    # With an empty line at the end, every traceback has a line behind it.
    return [*own, ""], {rank: [*lines, ""] for rank, lines in ranks.items()}


def _alike(raised: Raised) -> tuple[str, str]:
    """What is the same for ranks that failed alike: their own numbers differ."""
    return raised.type, re.sub(r"\d+", "0", raised.message.partition("\n")[0])


def _ended_by(lines: Sequence[str], script: str = "") -> Raised | None:
    if chain := _chain(lines, script):
        *causes, last = (raised for _, raised in _read(lines, chain))
        if _LOGGED.match(lines[chain[0].start - 1]):
            last = replace(last, unclear=f"{last.type} follows a log record: was it caught?")
        return replace(last, causes=tuple(map(str, causes)))
    at = _by_others(lines)
    if at is None:
        return None
    # Rich wraps lines, and leaves the blank where it did.
    return _raised("\n".join(lines[at:]).replace(" \n", " ").split("\n"), 0)


def _chain(lines: Sequence[str], script: str = "") -> list[_Block]:
    """Return the last traceback of one that was not caught, after those of its causes; none if one can't be read."""
    chains: list[list[_Block]] = []
    for block in _blocks(lines):
        if chains and lines[block.start - 2] in _CONNECTORS:
            chains[-1].append(block)
        else:
            chains.append([block])
    chain = next((it for it in reversed(chains) if _is_uncaught(lines, it, script)), [])
    return chain if all(_RAISED.fullmatch(_plain(lines[block.raised_at])) for block in chain) else []


def _is_uncaught(lines: Sequence[str], chain: Sequence[_Block], script: str) -> bool:
    own = chain[-1].script == script if script else chain[-1].script is not None
    return own or lines[chain[0].start - 1].startswith(_HYDRA)


def _read(lines: Sequence[str], chain: Sequence[_Block]) -> Iterator[tuple[_Block, Raised]]:
    for block, following in zip(chain, [*chain[1:], None], strict=True):
        end = following.start - 3 if following else None  # before the sentence that connects the two
        yield block, _raised(lines, block.raised_at, end)


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    at = 0
    while at < len(lines):
        headed = lines[at].endswith(_HEADER)
        frame = _FRAME.fullmatch(_plain(lines[at + headed])) if at + headed < len(lines) else None
        if frame is None:
            at += 1
            continue
        raised_at = at + headed
        while _plain(lines[raised_at]).startswith("  "):
            raised_at += 1
        raised = _RAISED.fullmatch(_plain(lines[raised_at]))
        # Only a syntax error in the script itself comes without a header, and its only frame without a function.
        alone = raised and raised["type"] in _SYNTAX_ERRORS and frame["function"] is None
        if headed or alone:
            name = frame["file"].rpartition("/")[2]
            yield _Block(at, raised_at, script=name if not headed or _is_top_level(frame) else None)
        at = raised_at


def _is_top_level(frame: re.Match[str]) -> bool:
    """Whether it is a script's own frame. `python -c` and `python -m` are children's, as a trial is a script."""
    return frame["function"] == "<module>" and frame["file"] not in {"<string>", "<stdin>"}


def _by_others(lines: Sequence[str]) -> int | None:
    """Return the index of the line that names the exception in the last traceback by rich or IPython."""
    for at in range(len(lines) - 2, -1, -1):
        if _RICH_END.fullmatch(lines[at]):
            top = next((line for line in reversed(lines[:at]) if line.startswith("╭")), "")
            return at + 1 if _HEADER[:-1] in top and _RAISED.fullmatch(lines[at + 1]) else None
        if header := _IPYTHON.fullmatch(lines[at]):
            names = (header["type"], f"{header['type']}: ")
            below = range(len(lines) - 1, at, -1)
            return next((it for it in below if lines[it] == names[0] or lines[it].startswith(names[1])), None)
    return None


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


def _raised(lines: Sequence[str], raised_at: int, end: int | None = None) -> Raised:
    """Read the exception named there. All lines before `end` are its text; without one its end is looked for."""
    raised = _RAISED.fullmatch(_plain(lines[raised_at]))
    assert raised
    following, unclear = lines[raised_at + 1 : end], None
    if end is None:
        source = "".join(lines[max(0, raised_at - 2) : raised_at])
        count, unclear = _extent(raised["message"], following, source)
        following = following[:count]
    message = "\n".join([raised["message"] or "", *following]).strip("\n")
    kind = raised["type"].removeprefix("__main__.")  # as Python writes it from 3.11 on
    return Raised(kind, message, unclear=unclear and f"{kind} is followed by {one_line(unclear, 80)!r}: was it caught?")


def _extent(message: str | None, following: Sequence[str], source: str) -> tuple[int, str | None]:
    """Return how many lines go on with a message, and the line behind them if nothing says what it is.

    `source` is the statement that raised, which may spell out that the message goes on.
    """
    spelled = any(f"{word}\\n" in source for word in (message or "").split()[-1:])
    open_ended = spelled or (message is not None and _OPEN_ENDED.match(message))
    for at, line in enumerate(following):
        if _AFTERWARDS.match(line) or (line.endswith(_HEADER) and not open_ended):
            return at, None
        open_ended = open_ended or (message is not None and _OPEN_ENDED.match(line))
        if not (open_ended or not line or _GOES_ON.match(line)):
            return at, line
    return len(following), None
