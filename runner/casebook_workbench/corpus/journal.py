"""A run on disk: <reports>/runs/<id>/run.json, which says what was to be done, and journal.jsonl, what came of it.

Each line of the journal is one `Finished`, on disk before the run goes on. A line that is torn, as kill -9 or a full
disk leaves it, is as good as not there: its job is run again.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout
from pydantic import ValidationError

from casebook_workbench.corpus.model import Finished, Run
from gpu_casebook.document import MAX_BYTES
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.files import read_bytes, unreadable, write_whole

RUN, JOURNAL, LOCK, HOLDER = "run.json", "journal.jsonl", "lock", "holder"
_ID = "%Y%m%d-%H%M%S-%f"
_SHOWN = 5


def runs_directory(reports: Path) -> Path:
    return reports / "runs"


def ids(reports: Path) -> list[str]:
    """Return the ids of runs that have a record, oldest first: an id sorts by time."""
    return sorted(path.parent.name for path in runs_directory(reports).glob(f"*/{RUN}"))


def new_id(reports: Path, now: datetime) -> str:
    """Return an id that no other run has, even one of the same microsecond, and its directory."""
    stem = now.astimezone(UTC).strftime(_ID)
    for number in range(1000):
        id_ = f"{stem}-{number}" if number else stem
        with suppress(FileExistsError):
            (runs_directory(reports) / id_).mkdir(parents=True)
            return id_
    raise CasebookError(f"{runs_directory(reports)}: a thousand runs at once; is the clock standing still?")


def read(directory: Path) -> Run:
    """Return the run, finished or so far. Raises CasebookError for a record that can't be read."""
    run = Run.read(directory / RUN)
    return run.model_copy(update={"finished": list(_read_journal(directory / JOURNAL, run))})


def _read_journal(path: Path, run: Run) -> Iterator[Finished]:
    """Yield each job's first end; lines that are torn or about no job of the run are skipped."""
    left = {job.name for job in run.jobs}
    try:
        lines = read_bytes(path, MAX_BYTES).splitlines(keepends=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CasebookError(f"{path}: {unreadable(error)}; remove it") from None
    for line in lines:
        with suppress(ValidationError):
            finished = Finished.model_validate_json(line)
            if line.endswith(b"\n") and finished.job.name in left:
                left.remove(finished.job.name)
                yield finished


class Journal:
    """The record of a run that this process holds against every other. Use as a context manager."""

    def __init__(self, directory: Path, run: Run | None) -> None:
        """`run` is written down; without it, the record is there."""
        self.directory = directory
        self._lock = _held(directory)
        try:
            if run:
                _write_record(directory, run)
            self.run = run or read(directory)
            self._file = os.open(directory / JOURNAL, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except BaseException:
            self._lock.release()
            raise
        # The next line goes behind the last whole one and over what is torn, so that no line is glued to it.
        size = os.fstat(self._file).st_size
        tail = os.pread(self._file, min(size, 2**20), max(0, size - 2**20))
        self._end = size - (len(tail) - tail.rfind(b"\n") - 1) if b"\n" in tail else max(0, size - len(tail))

    @classmethod
    def create(cls, reports: Path, run: Run) -> Self:
        """Create the record of a run. `run.id` comes from `new_id`. Raises OSError."""
        return cls(runs_directory(reports) / run.id, run)

    @classmethod
    def resume(cls, reports: Path, id_: str | None) -> Self:
        """Open the record of a run to go on with: the one that is named, or the newest.

        Raises UsageError where there is no such run, or where a living process has it.
        """
        return cls(find(reports, id_), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def append(self, finished: Iterable[Finished]) -> None:
        """Write these to disk before returning. Raises OSError; then none of them is written."""
        new = list(finished)
        text = "".join(each.model_dump_json(exclude_defaults=True) + "\n" for each in new).encode()
        try:
            self._write(text)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise OSError(error.errno, error.strerror, str(self.directory / JOURNAL)) from error
        self._end += len(text)
        self.run.finished.extend(new)

    def _write(self, text: bytes) -> None:
        at = self._end
        while at < self._end + len(text):
            at += os.pwrite(self._file, text[at - self._end :], at)
        os.fsync(self._file)

    def update(self, **changed: object) -> None:
        """Change what the record says of the whole run, such as that it has ended. Raises OSError."""
        self.run = self.run.model_copy(update=changed)
        _write_record(self.directory, self.run)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._file)
            (self.directory / HOLDER).unlink(missing_ok=True)
        self._lock.release()


def find(reports: Path, id_: str | None) -> Path:
    """Return a run's directory: of the one that is named, or of the newest. Raises UsageError."""
    there = ids(reports)
    if id_ is None and not there:
        raise UsageError(f"no run to go on with: there is none in {runs_directory(reports)}")
    if id_ is not None and id_ not in there:
        shown = ", ".join(reversed(there[-_SHOWN:])) or "none"
        raise UsageError(f"no run {id_!r} in {runs_directory(reports)} (the newest are: {shown})")
    return runs_directory(reports) / (id_ or there[-1])


def _held(directory: Path) -> FileLock:
    """Lock the record against every other process of this host. The kernel frees the lock when its holder is gone."""
    lock = FileLock(directory / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        who = "another process"
        with suppress(OSError):
            who = (directory / HOLDER).read_text(encoding="utf-8").strip() or who
        raise UsageError(
            f"run {directory.name} is still going on: {who} has it; wait for it, or end it first"
        ) from None
    with suppress(OSError):
        (directory / HOLDER).write_text(f"process {os.getpid()}", encoding="utf-8")
    return lock


def _write_record(directory: Path, run: Run) -> None:
    text = run.model_dump_json(exclude={"finished"})
    write_whole(directory / RUN, text + "\n", sync=True)
