"""Tells, as JSON on stdout, where compute-sanitizer is and its version; null where there is none that runs.

A script for the inside of an environment: it stands alone, with Python 3.8's standard library and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "compute-sanitizer"


def places() -> Iterator[str]:
    """What to start it as: by its name if that is on the path, else where a CUDA toolkit is, named or usual."""
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
    said = re.search(rb"Version (\d[\w.]*)", done.stdout + done.stderr)
    return said.group(1).decode() if said and done.returncode == 0 else None


def main() -> None:
    for program in places():
        found = version(program)
        if found:
            json.dump({"path": program, "version": found}, sys.stdout)
            return
    json.dump(None, sys.stdout)


if __name__ == "__main__":
    main()
