"""The base of every JSON document that the package writes."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpu_casebook.errors import CasebookError
from gpu_casebook.files import read_bytes, write_whole
from gpu_casebook.text import one_line

MAX_BYTES = 2**28
"""Of one document: a run of thousands of jobs, or a trial's output many times over, is a tenth of it."""

Moment = Annotated[datetime, Field(ge=datetime(1970, 1, 2, tzinfo=UTC), lt=datetime(9999, 1, 1, tzinfo=UTC))]
"""A date that can be told in any zone."""
Seconds = Annotated[float, Field(ge=-1e10, le=1e10, allow_inf_nan=False)]
"""A duration, three centuries at most; below zero where a clock was set back."""
Bytes = Annotated[int, Field(ge=0, le=2**63)]


class Document(BaseModel):
    """Base of a document and of its parts: immutable, unknown keys refused."""

    # a schema is built when the first document of it is read or made: most commands read few kinds of them
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True)

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
