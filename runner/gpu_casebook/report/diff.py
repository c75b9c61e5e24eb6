"""The difference between the scripts of a case as a page shows it."""

import re

DIFF_LIMIT = 20_000
_FILE = re.compile(r"(?:---|\+\+\+) (?:repro|fixed)\.py$")
_HEADER = re.compile(r"# (?:dependencies|requires-python) = ")
_DOCSTRING = re.compile(r'\s*[rR]?"""\w')


def shown_fix(diff: str) -> str:
    """Return the hunks of a diff of scripts in which code changes, without docstrings and headers, and bounded."""
    hunks, inside = list[list[str]]([[]]), dict[str, bool]()
    for line in diff.rstrip("\n").split("\n"):
        if line.startswith("@@"):
            hunks.append([line])
            inside = {}
        elif not _FILE.match(line) and not _HEADER.match(line[1:]) and not _in_docstring(line, inside):
            hunks[-1].append(line)
    changing = [hunk for hunk in hunks if any(line[:1] in {"-", "+"} and line[1:].strip() for line in hunk)]
    return _bounded("\n".join(line for hunk in changing for line in hunk))


def _in_docstring(line: str, inside: dict[str, bool]) -> bool:
    """Return whether a line of a diff belongs to a docstring. `inside`: whether one is open, in each script."""
    sides = "-+" if line[:1] == " " else line[:1]
    before = any(inside.get(side) for side in sides)
    found = before or bool(_DOCSTRING.match(line[1:]))
    inside |= dict.fromkeys(sides, found and before != (line.count('"""') % 2 == 1))
    return found


def _bounded(diff: str) -> str:
    if len(diff) <= DIFF_LIMIT:
        return diff
    kept = diff[:DIFF_LIMIT].rpartition("\n")[0]
    return f"{kept}\n[... {diff.count(chr(10), len(kept))} more lines ...]"
