"""GPUs that did not recover from a fault: noted beside the locks, for every runner on this host.

No card is ever reset from here. A person does that, and then says so: `nox -s clean`.
"""

import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gpu_casebook.text import one_line

_SUFFIX = ".aside"


def lock_directory() -> Path:
    """Shared by all users of the host. Not sticky: the kernel refuses to open other users' files in such a place."""
    directory = Path(tempfile.gettempdir()) / "casebook-gpus"
    with suppress(FileExistsError):
        directory.mkdir()
        directory.chmod(0o777)
    return directory


def put(uuid: str, index: int, reason: str) -> None:
    """Note that this GPU is set aside. The first reason stays: later ones follow from it."""
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    with suppress(OSError), _path(uuid).open("x", encoding="utf-8") as file:
        file.write(f"GPU {index} is set aside since {since}: {reason}")
        _path(uuid).chmod(0o666)


def why(uuid: str) -> str | None:
    """Return why this GPU is not to be used, and what to do about it; None if it may be."""
    try:
        text = _path(uuid).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError:
        text = ""
    return f"{one_line(text) or f'GPU {uuid} is set aside'}; `nox -s clean` takes it back"


def take_back(*, dry_run: bool) -> list[str]:
    """Have every GPU in use again, unless it is a `dry_run`, and return what was noted of each."""
    notes = []
    for path in sorted(lock_directory().glob(f"*{_SUFFIX}")):
        with suppress(OSError):
            note = f"{path.stem} ({one_line(path.read_text(encoding='utf-8', errors='replace'))})"
            if not dry_run:
                path.unlink()
            notes.append(note)
    return notes


def _path(uuid: str) -> Path:
    return lock_directory() / f"{uuid}{_SUFFIX}"
