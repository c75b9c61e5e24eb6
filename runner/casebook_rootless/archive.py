"""Archives of images, as `docker save` and `podman save` write them, and the directories that come of them."""

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu_casebook.document import Document
from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.errors import CasebookError, EngineError

_MOUNT_POINTS = ("case", "home/case", "tmp", "casebook", "usr/local/nvidia", "dev", "proc", "sys")
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


class UnpackedImage(Document):
    """What was unpacked: the files are in `root` beside this document."""

    what = "an unpacked image"
    remedy = "remove its directory, and take the image in again"

    id: str
    names: list[str]
    labels: dict[str, str]
    variables: dict[str, str]
    size_bytes: int


def unpacked(directory: Path) -> UnpackedImage | None:
    """Return the image that was unpacked to a directory; None where there is none."""
    with suppress(CasebookError):
        return UnpackedImage.read(directory / "image.json")
    return None


def unpack(path: Path, store: Path) -> list[UnpackedImage]:
    """Unpack each image of an archive to a directory in `store`, and return them all.

    One that is there stays, and is known by the archive's names too. Raises EngineError for what is no such archive.
    """
    try:
        with tarfile.open(path) as archive:
            listed: Sequence[Mapping[str, Any]] = json.load(_file(archive, "manifest.json"))
            return [_unpack(archive, image, store) for image in listed]
    except (tarfile.TarError, KeyError, ValueError, TypeError, EOFError) as error:
        why = " ".join(str(error).split())
        raise EngineError(f"{path}: no archive of images that is complete, as docker save writes it: {why}") from error


def _unpack(archive: tarfile.TarFile, image: Mapping[str, Any], store: Path) -> UnpackedImage:
    with _file(archive, image["Config"]) as file:
        # The name is the digest of the file, also in archives of Podman and of OCI layouts.
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        config = json.load(file)["config"]
    directory = store / digest[:16]
    there = unpacked(directory)
    names = sorted({*(there.names if there else ()), *(image["RepoTags"] or ())})
    if there is None:
        shutil.rmtree(directory, ignore_errors=True)
        root = directory.resolve() / "root"
        root.mkdir(parents=True)
        for layer in image["Layers"]:
            with _file(archive, layer) as file, tarfile.open(fileobj=file) as opened:
                _add(opened, root)
        make_mount_points(root)
        sealed = Seal.of(root).write()
        there = UnpackedImage(
            id=f"sha256:{digest}",
            names=names,
            labels=config.get("Labels") or {},
            variables=dict(line.split("=", 1) for line in config.get("Env") or () if "=" in line),
            size_bytes=sum(stamp[0] for stamp, _ in sealed.files.values() if stamp),
        )
    there = there.model_copy(update={"names": names})
    there.write(directory / "image.json")  # it goes last: what has none is not complete
    return there


def make_mount_points(root: Path) -> None:
    for name in _MOUNT_POINTS:
        (root / name).mkdir(parents=True, exist_ok=True)


def _file(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is no file")
    return file


def _add(layer: tarfile.TarFile, root: Path) -> None:
    """Put a layer over those below it. Raises tarfile.TarError for a path that leads out of `root`.

    Its files become the user's own, to read and to remove. Devices are left out.
    """
    layer.extraction_filter = lambda member, _: member  # what follows is stricter, and Python 3.11.2 has no filters
    members = layer.getmembers()
    for member in members:
        place = _inside(root, member.name)
        if place.name == _OPAQUE:
            for path in place.parent.glob("*"):
                _remove(path)
        elif place.name.startswith(_WHITEOUT):
            _remove(place.with_name(place.name.removeprefix(_WHITEOUT)))
    for member in members:
        place = _inside(root, member.name)
        if member.isdev() or place.name.startswith(_WHITEOUT) or place == root:
            continue
        if place.is_symlink() or not (place.is_dir() and member.isdir()):
            _remove(place)  # otherwise what other names lead to would be written to
        if member.islnk():
            member.linkname = str(_inside(root, member.linkname).relative_to(root))
        member.name = str(place.relative_to(root))
        member.mode = member.mode & 0o755 | (0o700 if member.isdir() else 0o600)
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        layer.extract(member, root)


def _inside(root: Path, name: str) -> Path:
    """Return the place of a name in an archive; raise tarfile.TarError if a symbolic link leads it out of `root`."""
    place = Path(os.path.normpath(f"{root}/{os.path.normpath(f'/{name}')}"))
    if not place.parent.resolve().is_relative_to(root) and place != root:
        raise tarfile.ReadError(f"{name} leads out of the image")
    return place


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
