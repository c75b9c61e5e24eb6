"""Which runner this is: its version, the git revision in a checkout, and what its verdicts mean."""

import subprocess
from functools import cache
from pathlib import Path

from gpu_casebook import __version__

PACKED = "REVISION"
PACKAGED = Path(__file__).parent / "packaged"
"""The corpus that a wheel brings, with the revision it was built from; a checkout has none."""

SEMANTICS = 3
"""The version of what a verdict means: evidence made under another one is not reused.

A constant, and not a digest of the code: most changes to the code that judges trials change no verdict (words, speed,
one more kind of failure told apart), and all evidence on all GPUs would have to be made again for each. Who changes
that code decides, and can't forget to: tests/corpus/test_reuse.py fails until the change is looked at. Raise it where
a trial of old could get another outcome today, or a case another verdict.

3: text behind a traceback makes its exception unclear, as do ranks that fail in different ways; a CUDA error counts
where it is reported, not where it is spoken of, and in no run that ends with status 0; the stack of a hang is looked
for in the main thread's functions, and a sanitizer's kernel by its whole name; numbers from output that was cut prove
nothing.
"""


CHECKOUT = Path(__file__).parents[2]
"""The directory that holds runner/, where this package is imported from a checkout or a bundle."""


@cache
def own_revision() -> str:
    """Return `describe` of this package as it was when the process first asked, even if the files change later."""
    return _packed(PACKAGED) if PACKAGED.is_dir() else describe(CHECKOUT)


def describe(checkout: Path) -> str:
    """Return the version with the git revision, "0.1.0 (1a2b3c4d5e6f)", and "+changes" if the runner differs from it.

    Outside of a checkout: the version alone. A bundle's runner has a file that says what it was packed from.
    """
    if (checkout / "runner" / PACKED).is_file():
        return _packed(checkout / "runner")
    revision = git(checkout, "rev-parse", "--short=12", "HEAD")
    if not revision:
        return __version__
    changed = git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "runner")
    return f"{__version__} ({revision.strip()}{'+changes' if changed else ''})"


def _packed(directory: Path) -> str:
    """Return what the file in there says, or the version alone: git may know another project there."""
    try:
        return (directory / PACKED).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return __version__


def git(checkout: Path, *words: str) -> str | None:
    """Return what git prints; None if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
