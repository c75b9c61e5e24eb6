"""What is put over a locked environment: wheels of somebody's own, and other versions from the package index.

What a wheel of one's own depends on stays as it is locked; what a version from the index depends on is resolved, as
locks are, and put over too where the lock does not suit it.
"""

import hashlib
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from gpu_casebook.errors import UsageError
from gpu_casebook.packages.lock import fewer, read_lock, without
from gpu_casebook.packages.resolve import scratch_lock
from gpu_casebook.packages.wheels import download_lock
from gpu_casebook.trial import Note, Recipe


def check(over: Sequence[str]) -> None:
    """Raise UsageError for what is neither a wheel that can be read nor a requirement."""
    for each in over:
        if _is_file(each):
            _read(Path(each))
            continue
        try:
            wrong = Requirement(each).url
        except InvalidRequirement:
            wrong = each
        if wrong:
            raise UsageError(f"--with {each}: neither a wheel's file, *.whl, nor a requirement such as triton==3.7.0")


@contextmanager
def wheels(recipe: Recipe, note: Note) -> Iterator[list[Path]]:
    """Yield the wheels that go over the recipe's lock, some in a directory that is there for as long.

    Raises UsageError as `check`, and BuildError for what the index does not have or can't be asked for.
    """
    check(recipe.over)
    found = [Path(each) for each in recipe.over if _is_file(each)]
    wanted = [each for each in recipe.over if not _is_file(each)]
    with tempfile.TemporaryDirectory(prefix="casebook-over-") as scratch:
        if wanted:
            note(f"resolving {', '.join(wanted)}")
            lock, before = Path(scratch, "lock.txt"), read_lock(recipe.lock)
            special = before.special._replace(build=())
            text = scratch_lock(wanted, recipe.python, recipe.lock, special=special, pre=recipe.pre)
            there = {(pin.name, pin.version) for pin in before.pins}
            others = {pin.name for pin in read_lock(text).pins if (pin.name, pin.version) not in there}
            lock.write_text(fewer(text, others), encoding="utf-8")
            if others:
                found += download_lock(lock, recipe.python, Path(scratch, "wheels"), note)
        note(f"{', '.join(path.name for path in found) or 'nothing new'} over the lock")
        yield found


def combined(lock: str, paths: Collection[Path]) -> str:
    """Return the lock with these wheels in the place of what it has by their names."""
    entries = ""
    for path in paths:
        name, version = parse_wheel_filename(path.name)[:2]
        lock = without(lock, [canonicalize_name(name)])
        entries += f"{name}=={version} --hash=sha256:{hashlib.sha256(_read(path)).hexdigest()}\n"
    return f"{lock}\n{entries}"


def _is_file(word: str) -> bool:
    return word.endswith(".whl") and "://" not in word


def _read(path: Path) -> bytes:
    try:
        parse_wheel_filename(path.name)
        return path.read_bytes()
    except InvalidWheelFilename:
        raise UsageError(
            f"--with {path}: not the name of a wheel; build one: pip wheel --no-deps REQUIREMENT"
        ) from None
    except OSError as error:
        raise UsageError(f"--with {path}: can't be read: {error.strerror}") from None
