"""What faulthandler and py-spy print of a process, made fit for evidence. Pure."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from failure_signature.reading.stacks import Source
from failure_signature.text import one_line

TEXT_LIMIT = 16 * 1024
"""Characters of one stack."""
LINE_LIMIT = 240
"""C++ functions have names of thousands of characters."""
_PY_SPY_HEAD = re.compile(r"\AProcess .*\n(?:Python .*\n)?\n?")
_PY_SPY_THREAD = re.compile(r"^Thread (?:0x)?[0-9A-Fa-f]+ ", re.MULTILINE)
_PYTHON = re.compile(r"(?:lib)?(?:python|pypy)[0-9.]*t?$")


def tidy(source: Source, text: str) -> str:
    """Return a stack without this machine's numbers of processes and threads, and bounded."""
    if source.startswith("py-spy"):
        text = _PY_SPY_THREAD.sub("Thread ", _PY_SPY_HEAD.sub("", text))
    lines = [line if len(line) <= LINE_LIMIT else f"{line[: LINE_LIMIT - 4]} ..." for line in text.splitlines()]
    whole = "\n".join(lines)
    return whole if len(whole) <= TEXT_LIMIT else f"{whole[:TEXT_LIMIT]}\n[... {len(whole) - TEXT_LIMIT} more ...]"


def comparable(text: str) -> str:
    """Return a text that is the same for two dumps by faulthandler between which nothing moved.

    Whichever thread the signal came to is called the current one.
    """
    return text.replace("Current thread ", "Thread ")


def command_name(words: Sequence[str]) -> str:
    """Return what a process runs: its script or module, or its program; no path, as that is the machine's."""
    if not words:
        return "a process"
    program = PurePosixPath(words[0]).name
    if not _PYTHON.fullmatch(program):
        return one_line(program, 40)
    return one_line(_python_command(iter(words[1:])) or program, 60)


def _python_command(words: Iterator[str]) -> str | None:
    for word in words:
        if word == "-m":
            return f"-m {next(words, '')}"
        if word == "-c":
            found = re.match(r"from (multiprocessing\.\w+) import", next(words, ""))
            return found[1] if found else "-c ..."
        if word in {"-X", "-W"}:
            next(words, None)
        elif not word.startswith("-"):
            return PurePosixPath(word).name
    return None
