"""Files of an upstream commit, fetched, checked, and made into a wheel that is installed with the lock's others.

As they are a package, what holds of packages holds of them: a hash in the lock, a part in the environment's key, a
digest in RECORD against which each file is compared. Nobody else has that wheel: it is made anew, with the same bytes.
"""

import base64
import csv
import hashlib
import io
import os
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from platformdirs import user_cache_path

from gpu_casebook.errors import BuildError
from gpu_casebook.files import read_bytes
from gpu_casebook.pins import SOURCES, SourceFile, source_pins

_MOST_BYTES = 2**22
_PATIENCE_S = 60.0
_TIME = (1980, 1, 1, 0, 0, 0)


def cache() -> Path:
    """Return the directory that keeps files by their sha256. It can be filled by hand."""
    return user_cache_path("casebook") / "sources"


def content(file: SourceFile) -> bytes:
    """Return what is in a file: from the cache, or else fetched, and then kept there.

    Raises BuildError where it can't be had, with where to put it by hand, and for what has another sha256.
    """
    kept = cache() / file.sha256
    named = f"{file.path} of {file.url} at {file.commit}"
    try:
        data = read_bytes(kept, _MOST_BYTES)
    except FileNotFoundError:
        data = _fetched(file, named, kept)
    except OSError as error:
        raise BuildError(f"{kept}: can't be read: {error.strerror}") from None
    else:
        _check(data, file, f"{kept} is not {named}", "remove it, or put that file there")
    return data


def _fetched(file: SourceFile, named: str, kept: Path) -> bytes:
    import urllib.request  # noqa: PLC0415 slow to import, and few cases have such files
    from http.client import HTTPException  # noqa: PLC0415

    try:
        with urllib.request.urlopen(file.address, timeout=_PATIENCE_S) as answer:  # noqa: S310 the manifest has https://
            data = bytes(answer.read(_MOST_BYTES + 1))
    except (OSError, HTTPException) as error:
        by_hand = f"put it there by hand as {kept} (in a clone: git show {file.commit}:{file.path})"
        raise BuildError(f"{named} can't be fetched: {getattr(error, 'reason', error)}; {by_hand}") from None
    _check(data, file, f"{file.address} is not {named}", "correct the manifest's url, commit, path or sha256")
    keep(data)
    return data


def _check(data: bytes, file: SourceFile, what: str, remedy: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise BuildError(f"{what}: its sha256 is {found}, the manifest says {file.sha256}; {remedy}")


def keep(data: bytes) -> None:
    """Put a file into the cache."""
    kept = cache() / hashlib.sha256(data).hexdigest()
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(data)
    partial.replace(kept)


def wheel(files: Sequence[SourceFile]) -> dict[str, bytes]:
    """Return the wheel of these files by its file name; nothing if there are none. Raises as `content`."""
    if not files:
        return {}
    version = str(Requirement(*source_pins(files)).specifier).removeprefix("==")
    name = SOURCES.replace("-", "_")
    about = f"{name}-{version}.dist-info"
    members = {file.place: content(file) for file in sorted(files, key=lambda file: file.place)}
    members |= {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {SOURCES}\nVersion: {version}\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: casebook\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = io.StringIO()
    rows = [(place, f"sha256={_base64(data)}", len(data)) for place, data in members.items()]
    csv.writer(record, lineterminator="\n").writerows([*rows, (f"{about}/RECORD", "", "")])
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:  # not compressed, as each zlib does that in its own way
        for place, data in (members | {f"{about}/RECORD": record.getvalue().encode()}).items():
            entry = zipfile.ZipInfo(place, _TIME)
            entry.external_attr = 0o644 << 16
            target.writestr(entry, data)
    return {f"{name}-{version}-py3-none-any.whl": archive.getvalue()}


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def locked(files: Sequence[SourceFile]) -> str:
    """Return the entry of these files in a lock; nothing if there are none. Raises as `content`."""
    hashes = [hashlib.sha256(each).hexdigest() for each in wheel(files).values()]
    return "".join(
        f"{pin} \\\n    --hash=sha256:{hash_}\n" for pin, hash_ in zip(source_pins(files), hashes, strict=True)
    )


def lay_out(files: Sequence[SourceFile], directory: Path) -> None:
    """Write the wheel of these files to a directory. Raises as `content`."""
    for name, data in wheel(files).items():
        (directory / name).write_bytes(data)


def pack(files: Iterable[SourceFile], into: Path) -> None:
    """Write each file, by its sha256, to the directory `into`. Raises as `content`."""
    into.mkdir(parents=True, exist_ok=True)
    for file in files:
        (into / file.sha256).write_bytes(content(file))
