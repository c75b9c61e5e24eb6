"""Chinese pages of cases, `docs/zh/<case>.md`: which of them translate an earlier text.

They stand outside of `cases/`, whose files evidence is bound to. The first line of each has a digest of what it
translates, so that a change of the English is told.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from gpu_casebook.errors import Problem, Severity
from gpu_casebook.report.readme import sections

PAGES = "docs/zh"
TRANSLATED = ("What users", "Is your failure")
_MARK = re.compile(r"<!-- en (\w+) -->$", re.MULTILINE)


def digest(readme: str) -> str:
    """Return a digest of what a page translates of a case's README: title, what users saw, is yours this one."""
    translated = [f"## {each.heading} {each.text}" for each in sections(readme) if each.heading.startswith(TRANSLATED)]
    parts = [readme.partition("\n")[0], *translated]
    return hashlib.sha256("\0".join(" ".join(part.split()) for part in parts).encode()).hexdigest()[:12]


def of_case(readme: Path, case: str, root: Path) -> Iterator[Problem]:
    """Yield a warning if a case has a page in Chinese that translates something else than its README says now."""
    page = root / PAGES / f"{case}.md"
    try:
        first = page.read_text(encoding="utf-8").partition("\n")[0]
        now = digest(readme.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return  # there is no page, or `check` has something else to say of the README
    found = _MARK.match(first)
    if not found or found[1] != now:
        what = (
            f"translates an earlier cases/{case}/README.md; translate what changed, then begin with <!-- en {now} -->"
        )
        yield Problem(f"{PAGES}/{case}.md", 1, "", what, Severity.WARNING)


def of_none(root: Path) -> Iterator[Problem]:
    """Yield a warning for each page of a case that is no longer there."""
    for page in sorted((root / PAGES).glob("*.md")):
        if page.name != "README.md" and not (root / "cases" / page.stem).is_dir():
            what = f"there is no case {page.stem}: remove the page, and its line in {PAGES}/README.md"
            yield Problem(f"{PAGES}/{page.name}", 1, "", what, Severity.WARNING)
