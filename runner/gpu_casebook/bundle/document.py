"""bundle.json: what is in a bundle, and how it is run."""

import json
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from gpu_casebook.errors import CasebookError
from gpu_casebook.guest import starter
from gpu_casebook.trial import EngineName

__all__ = ["Bundle", "Image", "Member"]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Member(Record):
    """One file of the bundle, by its size in bytes and sha256 in hex."""

    size: int
    sha256: str


class Image(Record):
    """An image that trials run in. `id` is None where the host has an image by this name, and none was packed."""

    name: str
    id: str | None = None


class Bundle(Record):
    """`pythons` maps versions of the host's Python ("3.12") to the wheels that the runner needs with it.

    Of the docker engine, `images` has what the case's variants run in, once each; of venv, `python` is the version
    that the host must have for the case itself.
    """

    schema_version: Literal[1] = 1
    case: str
    title: str
    environment: str
    engine: EngineName
    python: str
    images: list[Image] = []
    case_digest: str
    runner: str
    pythons: dict[str, list[str]]
    run: str = f"python3 {starter.NAME}/run.py"
    members: dict[str, Member] = {}

    @property
    def packed_images(self) -> list[Image]:
        return [image for image in self.images if image.id]

    @property
    def named_image(self) -> str | None:
        """The image that the host has by itself."""
        return next((image.name for image in self.images if not image.id), None)

    def text(self) -> str:
        """The same bundle gives the same text."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"

    @classmethod
    def read(cls, home: Path) -> Self:
        """Of the bundle unpacked at `home`. Raises CasebookError."""
        try:
            return cls.model_validate(starter.contents(home))
        except starter.Wrong as error:
            raise CasebookError(str(error)) from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise CasebookError(f"{home / starter.LIST}: {where}: {first['msg']}; copy the bundle again") from None
