"""What is put over a locked environment: wheels of somebody's own, and other versions from the package index.

What a wheel of one's own depends on stays as it is locked; what a version from the index depends on is resolved, as
locks are, and put over too where the lock does not suit it.
"""

import hashlib
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from gpu_casebook.packages.lock import fewer, read_lock, without
from gpu_casebook.packages.resolve import scratch_lock
from gpu_casebook.packages.wheels import download_lock
from gpu_casebook.pins import is_wheel
from gpu_casebook.trial import Note, Recipe


@contextmanager
def wheels(recipe: Recipe, note: Note) -> Iterator[list[Path]]:
    """Yield the wheels that go over the recipe's lock, some in a directory that is there for as long.

    Raises BuildError for what the index does not have or can't be asked for.
    """
    found = [Path(each) for each in recipe.over if is_wheel(each)]
    wanted = [each for each in recipe.over if not is_wheel(each)]
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
        entries += f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
    return f"{lock}\n{entries}"
