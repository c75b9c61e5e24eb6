"""Small bundles, made by hand: the runner in them prints its arguments, and where it found things."""

import hashlib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_casebook.guest import starter

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
WHEEL = "wheels/gadget-1-py3-none-any.whl"

MAIN = """\
import os, shutil, subprocess, sys
import gadget, gadget_plat

print("words", sys.argv[1:])
child = "import gadget, gpu_casebook; print('worker', gadget.__file__)"
print(subprocess.run([sys.executable, "-P", "-c", child], capture_output=True, text=True).stdout.strip())
print("tool", subprocess.run(["gadget"], capture_output=True, text=True, check=True).stdout.strip())
print("gadget", os.path.basename(os.path.dirname(gadget.__file__)))
sys.exit(12)
"""


def wheel(extra: Mapping[str, bytes] | None = None) -> bytes:
    """Pure code, code of a platform, a program, and a header that nobody wants."""
    files = {
        "gadget.py": b"",
        "gadget-1.data/platlib/gadget_plat.py": b"",
        "gadget-1.data/scripts/gadget": b"#!/bin/sh\necho from the wheel\n",
        "gadget-1.data/headers/gadget.h": b"",
        "gadget-1.dist-info/METADATA": b"Name: gadget\nVersion: 1\n",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in (files | dict(extra or {})).items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def members(**changed: bytes) -> dict[str, bytes]:
    files = {
        "run.py": Path(starter.__file__).read_bytes(),
        "checkout/runner/gpu_casebook/__init__.py": b"",
        "checkout/runner/gpu_casebook/__main__.py": MAIN.encode(),
        WHEEL: wheel(),
    }
    return files | changed


def listing(files: Mapping[str, bytes], **changed: Any) -> bytes:
    facts = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    table = {"schema_version": 2, "jobs": [], "pythons": {HERE: [WHEEL]}, "members": facts}
    return json.dumps(table | changed).encode()


def archive(path: Path, files: Mapping[str, bytes], listed: bytes | None = None) -> Path:
    everything = {starter.LIST: listed or listing(files), **files}
    with tarfile.open(path, "w") as tar:
        for name, data in everything.items():
            entry = tarfile.TarInfo(f"{starter.NAME}/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path
