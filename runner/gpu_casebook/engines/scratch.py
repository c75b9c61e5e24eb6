"""Scratch directories of trials on this machine: private, and told from those that a killed run left."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from gpu_casebook.engines.owner import Owner
from gpu_casebook.errors import MachineError


def usual_place() -> Path:
    """Of this user, where the host keeps temporary files. Raises MachineError if somebody else has taken its name."""
    place = Path(tempfile.gettempdir()).resolve() / f"casebook-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        raise MachineError(f"{place} is somebody else's; set TMPDIR to a directory of your own")
    return place


@contextmanager
def scratch(place: Path, *, keep: bool = False) -> Iterator[Path]:
    """A new directory with an `.owner` file beside it, which is there first and goes last."""
    place.mkdir(parents=True, exist_ok=True)
    directory = place / uuid.uuid4().hex[:8]
    mark = directory.with_suffix(".owner")
    mark.write_text(str(Owner.current()), encoding="utf-8")
    try:
        directory.mkdir(mode=0o700)
        yield directory
    finally:
        if not keep:
            remove(directory)
        mark.unlink(missing_ok=True)


def sweep(place: Path) -> list[str]:
    """Remove the directories whose owners are gone, with whatever still runs in them."""
    removed = []
    for mark in _ownerless(place):
        with suppress(OSError):
            removed += end_processes(mark.with_suffix(""))
            removed += remove(mark.with_suffix(""))
            mark.unlink()
    return removed


def left(place: Path) -> list[str]:
    """What `sweep` would remove."""
    found = []
    for directory in (mark.with_suffix("") for mark in _ownerless(place)):
        found += [_process(process) for process in _at_home_in(directory)]
        found += [_scratch(directory)] if directory.is_dir() else []
    return found


def _ownerless(place: Path) -> Iterator[Path]:
    for mark in sorted(place.glob("*.owner")):
        with suppress(OSError):
            owner = Owner.parse(mark.read_text(encoding="utf-8"))
            if owner and owner.gone:
                yield mark


def remove(directory: Path) -> list[str]:
    """A trial may have taken permissions away from its own directories."""
    if not directory.is_dir():
        return []
    for path, names, _ in os.walk(directory):
        for name in names:
            with suppress(OSError, NotImplementedError):  # the latter is what a link to a directory raises
                Path(path, name).chmod(0o700, follow_symlinks=False)
    shutil.rmtree(directory, ignore_errors=True)
    return [_scratch(directory)]


def end_processes(directory: Path) -> list[str]:
    """Processes of a trial have their home there; they are left over only if its supervisor was killed."""
    ended = []
    for process in _at_home_in(directory):
        with suppress(psutil.Error):
            process.kill()
            ended.append(_process(process))
    return ended


def _at_home_in(directory: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get("HOME", "").startswith(f"{directory}/"):
                yield process


def _scratch(directory: Path) -> str:
    return f"scratch directory {directory}"


def _process(process: psutil.Process) -> str:
    return f"process {process.pid}"
