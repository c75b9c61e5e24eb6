"""The base of every JSON document that the package writes."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Self

from pydantic import ValidationError

from failure_signature.document import Frozen
from failure_signature.text import one_line
from gpu_casebook.errors import CasebookError
from gpu_casebook.files import read_bytes, write_whole

MAX_BYTES = 2**28
"""Of one document: a run of thousands of jobs, or a trial's output many times over, is a tenth of it."""


class Document(Frozen):
    """Base of a document and of its parts: immutable, unknown keys refused."""

    what: ClassVar[str] = "a document of Casebook"  # what a file should hold, for the message that it can't be read
    remedy: ClassVar[str] = "remove the file"  # what to do then

    def write(self, path: Path, *, sync: bool = False) -> None:
        """Write as JSON, whole or not at all. With `sync` it outlives a power cut from then on."""
        write_whole(path, self.model_dump_json(indent=1) + "\n", sync=sync)

    @classmethod
    def read_all(cls, paths: Iterable[Path], unread: Callable[[str], object]) -> Iterator[tuple[Path, Self]]:
        """Yield each file with its document; `unread` is told which can't be read."""
        for path in paths:
            try:
                yield path, cls.read(path)
            except CasebookError as error:
                unread(str(error))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a document. Raises CasebookError with the file, what is wrong with it, and what to do."""
        try:
            return cls.model_validate_json(read_bytes(path, MAX_BYTES))
        except OSError as error:
            why = error.strerror
        except ValidationError as error:
            first, *more = error.errors()
            where = ".".join(map(str, first["loc"]))
            if where == "schema_version":
                given, known = one_line(repr(first["input"])), cls.model_fields[where].default
                version = f"schema_version {given}, and this runner knows {known}"
                raise CasebookError(f"{path}: {version}; use the runner that wrote it, or {cls.remedy}") from None
            why = "it is no JSON" if first["type"] == "json_invalid" else f"{where}: {first['msg']}".removeprefix(": ")
            why += f" (and {len(more)} more)" if more else ""
        raise CasebookError(f"{path}: can't be read as {cls.what}: {one_line(str(why), 400)}; {cls.remedy}")
