"""Scratch directories of trials on this machine: private, and told from those that a killed run left."""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from gpu_casebook.engines import watching
from gpu_casebook.engines.owner import Owner
from gpu_casebook.errors import MachineError
from gpu_casebook.files import disk_is_full
from gpu_casebook.trial import TrialRequest

PLACES = ("case", "home", "tmp")  # what a trial finds in its scratch directory


def usual_place() -> Path:
    """Return this user's place, where the host keeps temporary files.

    Raises MachineError if somebody else has taken its name.
    """
    place = Path(tempfile.gettempdir()).resolve() / f"casebook-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        raise MachineError(f"{place} is somebody else's; set TMPDIR to a directory of your own")
    return place


@contextmanager
def scratch(place: Path, *, keep: bool = False) -> Iterator[Path]:
    """Make a directory with an `.owner` file beside it, which is there first and goes last."""
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


@contextmanager
def disk(place: Path) -> Iterator[None]:
    """Raise MachineError where the disk is full."""
    try:
        yield
    except OSError as error:
        if not disk_is_full(error):
            raise
        raise MachineError(f"the disk is full: no room to write {error.filename or f'to {place}'}") from error


@contextmanager
def laid_out(place: Path, request: TrialRequest) -> Iterator[Path]:
    """Make a scratch directory with all that a trial finds there."""
    with disk(place), scratch(place, keep=request.keep) as directory:
        for name in PLACES:
            (directory / name).mkdir()
        lay_out(directory / "case", request.files)
        if request.watch:
            lay_out(directory / "watched", {watching.SITE.name: watching.SITE.read_bytes()})
        yield directory


def lay_out(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def sweep(place: Path, *, dry_run: bool = False) -> list[str]:
    """Remove the directories whose owners are gone, with whatever still runs in them; return a line for each thing."""
    removed = []
    for line, remove_it in _leftovers(place):
        with suppress(OSError, psutil.Error):
            if not dry_run:
                remove_it()
            removed.append(line)
    return removed


def _leftovers(place: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what each thing that a killed run left is called, and what removes it."""
    for mark in sorted(place.glob("*.owner")):
        with suppress(OSError):
            owner = Owner.parse(mark.read_text(encoding="utf-8"))
            if owner and owner.gone:
                directory = mark.with_suffix("")
                for process in _at_home_in(directory):
                    yield f"process {process.pid}", process.kill
                yield f"scratch directory {directory}", partial(_remove_marked, directory, mark)


def _remove_marked(directory: Path, mark: Path) -> None:
    remove(directory)
    mark.unlink(missing_ok=True)


def remove(directory: Path) -> None:
    """Remove a directory of a trial, which may have taken permissions away from what is in it."""
    with suppress(RecursionError):
        shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():  # it may also be nested deeper than Python can follow
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(directory)], stderr=subprocess.DEVNULL, check=False)


def end_processes(directory: Path) -> None:
    """Kill what still runs in a scratch directory: that happens only if the trial's supervisor was killed."""
    for process in _at_home_in(directory):
        with suppress(psutil.Error):
            process.kill()


def _at_home_in(directory: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            there = process.environ()
            mounted = Path(f"/proc/{process.pid}/mountinfo").read_text("utf-8", "replace")
            at_home = any(there.get(name, "").startswith(f"{directory}/") for name in ("HOME", "TMPDIR"))
            if at_home or f"{directory.parent.name}/{directory.name}/home " in mounted:
                yield process
