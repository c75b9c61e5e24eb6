"""Prints, as JSON, where compute-sanitizer is and its version; null where there is none that runs.

A script for the inside of an environment: it stands alone, with Python 3.8's standard library and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Iterator  # noqa: UP035 Python 3.8

NAME = "compute-sanitizer"


def places() -> Iterator[str]:
    """Yield what to start it as: its name if that is on PATH, then its path in CUDA toolkits."""
    if shutil.which(NAME):
        yield NAME
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for root in filter(None, roots):
        found = shutil.which(NAME, path=f"{root}/bin{os.pathsep}{root}/compute-sanitizer")
        if found:
            yield found


def version(program: str) -> str | None:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(rb"Version (\d[\w.]*)", done.stdout + done.stderr)
    return match.group(1).decode() if match and done.returncode == 0 else None


def located() -> dict[str, str] | None:
    for program in places():
        found = version(program)
        if found:
            return {"path": program, "version": found}
    return None


if __name__ == "__main__":
    json.dump(located(), sys.stdout)
