"""A record in a JSON file of its own."""

from pathlib import Path
from typing import ClassVar, Self

from pydantic import ValidationError

from gpu_casebook.document import Record
from gpu_casebook.errors import CasebookError
from gpu_casebook.files import write_whole


class Stored(Record):
    """`what` it is and its `remedy` are for the line that says why a file can't be read."""

    what: ClassVar[str]
    remedy: ClassVar[str]

    def write(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        write_whole(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises CasebookError with the file, what is wrong with it, and what to do."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError as error:
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
        raise CasebookError(f"{path}: can't be read as {cls.what}: {why}; {cls.remedy}") from None
