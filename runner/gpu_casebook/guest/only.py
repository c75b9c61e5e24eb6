"""Removes from an environment what nobody asked for of a few packages: all files but those that match.

Run by the environment's own Python as `python -I -S only.py SITE_PACKAGES PACKAGES PATTERNS`, each a list with blanks.
What stays is what RECORD says it is, so that it can be compared with that as in every package; its other rows go. A
script for the inside of an environment: it stands alone, with Python 3.8's standard library and nothing else.
"""

from __future__ import annotations

import csv
import os
import re
import sys
from fnmatch import fnmatchcase
from importlib.util import cache_from_source
from pathlib import Path


def reduce(site: Path, package: str, patterns: list[str]) -> set[str]:
    """Remove the files of a package that match nothing; return the patterns that match one of them."""
    normal = re.compile(re.sub(r"[-_.]+", "[-_.]+", package) + r"-[^-]+\.dist-info", re.IGNORECASE)
    (about,) = (path for path in site.glob("*.dist-info") if normal.fullmatch(path.name))
    record = about / "RECORD"
    matched: set[str] = set()
    with record.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row]
    kept = []
    for row in rows:
        fits = {pattern for pattern in patterns if fnmatchcase(row[0], pattern)}
        matched |= fits
        if fits or row[0].startswith(f"{about.name}/"):
            kept.append(row)
            continue
        for path in (site / row[0], Path(cache_from_source(str(site / row[0])))):
            if os.path.lexists(path):
                path.unlink()
                _remove_empty(path.parent, site)
    partial = record.with_suffix(".partial")  # RECORD itself may be a link to a file that others have too
    with partial.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(kept)
    partial.replace(record)
    return matched


def _remove_empty(directory: Path, site: Path) -> None:
    while directory != site and site in directory.parents and not any(directory.iterdir()):
        directory.rmdir()
        directory = directory.parent


def main(site: str, packages: str, patterns: str) -> str | None:
    """Return what is wrong, if something is."""
    wanted = patterns.split()
    matched = [reduce(Path(site), package, wanted) for package in packages.split()]
    missing = [pattern for pattern in wanted if not any(pattern in each for each in matched)]
    return f"no file of {packages} matches {', '.join(missing)}" if missing else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
