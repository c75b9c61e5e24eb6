"""A package, as a wheel that is the same each time: for mutants that change an environment or its lock."""

import base64
import hashlib
import io
import zipfile
from pathlib import Path

from tests.fakes import locked
from tests.mutants.kinds import PROOF, RAISES, Kind

PIN = "casebook-demo==1.0"
_INFO = "casebook_demo-1.0.dist-info"
_NAME = "casebook_demo-1.0-py3-none-any.whl"
_FILES = {
    "casebook_demo/__init__.py": b"VALUE = 1\n",
    "casebook_demo/more.py": b"",
    f"{_INFO}/METADATA": b"Metadata-Version: 2.1\nName: casebook-demo\nVersion: 1.0\n",
    f"{_INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def _row(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def _wheel() -> bytes:
    record = "".join(_row(name, data) for name, data in _FILES.items()) + f"{_INFO}/RECORD,,\n"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in {**_FILES, f"{_INFO}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # of 1980
    return content.getvalue()


WHEEL = _wheel()
LOCK = locked([PIN]).rpartition(":")[0] + f":{hashlib.sha256(WHEEL).hexdigest()}\n"

IMPORTED = "import casebook_demo\n"
DEMO = Kind(
    name="package",
    failure="exception",
    repro=IMPORTED + RAISES,
    expect={"exception": "ValueError", "message": "sizes 64 and 16"},
    fixed=IMPORTED + PROOF,
    requirements=(PIN,),
    lock=LOCK,
)


def write_wheel(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    (directory / _NAME).write_bytes(WHEEL)
