"""Where a corpus lies, and where what is made of it goes.

A corpus is a directory with cases/, and images/ where it has some of its own: a checkout, a directory of a user's, or
the one that the installed package brings, into which nothing is ever written.
"""

import re
from pathlib import Path

from platformdirs import user_data_path

from gpu_casebook.revision import CHECKOUT, PACKAGED

OWN = "local"
"""The directory of a user's own runs."""

_SESSION = re.compile(r"\bnox -s (?:(case)-)?([\w-]+)(?: --(?= ))?")


def public() -> Path:
    """Return the corpus that belongs to this package: its checkout's, or the packaged one."""
    return CHECKOUT if (CHECKOUT / "cases").is_dir() and (CHECKOUT / "images").is_dir() else PACKAGED


def images_of(root: Path) -> Path:
    """Return the directory with the images of the corpus at `root`: its own, or the public ones."""
    own = root / "images"
    return own if own.is_dir() else public() / "images"


def reports_of(root: Path, *, published: bool = False) -> Path:
    """Return where evidence and pages of runs of the corpus at `root` go.

    Beside its cases: to local/, which git ignores, or to reports/, which is part of the corpus. Of the corpus that the
    package brings: to the user's data.
    """
    if root == PACKAGED:
        return user_data_path("casebook") / "reports"
    return root / ("reports" if published else OWN)


def cases_of(reports: Path) -> Path:
    """Return the directory with the cases that these reports are of."""
    beside = reports.parent / "cases"
    return PACKAGED / "cases" if not beside.is_dir() and PACKAGED.is_dir() else beside


def as_command(text: str) -> str:
    """Return a text with the sessions of nox that it names as commands, where the package is installed without them."""
    if not PACKAGED.is_dir():
        return text
    return _SESSION.sub(lambda found: " ".join(["casebook", *filter(None, found.groups())]), text)


def grading_of(top: Path, case: str) -> Path:
    """Return the file that says how fixes of a case are graded; only cases that can be graded have it."""
    return top / "cases" / case / "grade" / "grade.yaml"
