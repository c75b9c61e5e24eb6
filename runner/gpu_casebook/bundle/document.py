"""The two documents of a bundle: bundle.json, which lists what is in it, and the file that comes back from the host."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from gpu_casebook.document import Document
from gpu_casebook.evidence import Evidence, Verdict
from gpu_casebook.guest import starter


class Member(Document):
    """One file of the bundle."""

    size: int  # in bytes
    sha256: str  # in hex

    @classmethod
    def of(cls, path: Path) -> "Member":
        return cls(size=path.stat().st_size, sha256=starter.digest_of(path))


class Image(Document):
    """An image that trials run in."""

    name: str
    id: str | None = None  # None where the host has an image by this name, and none was packed


class Bundle(Document):
    """What is in a bundle, and how it is run."""

    what = "a bundle"
    remedy = "copy the bundle again"

    schema_version: Literal[1] = 1
    case: str
    title: str
    environment: str
    engine: str
    python: str  # what the case itself needs on the host with venv
    images: list[Image] = Field(default_factory=list)  # what the variants run in with docker, once each
    case_digest: str
    runner: str
    pythons: dict[str, list[str]]  # versions of the host's Python, such as "3.12" -> wheels that the runner needs
    run: str = f"python3 {starter.NAME}/run.py"
    members: dict[str, Member] = Field(default_factory=dict)

    @property
    def packed_images(self) -> list[Image]:
        return [image for image in self.images if image.id]

    @property
    def named_image(self) -> str | None:
        """The image that the host has by itself."""
        return next((image.name for image in self.images if not image.id), None)


class Returned(Document):
    """What comes back from the host."""

    what = "what bundle-run wrote"
    remedy = "copy it again"

    schema_version: Literal[1] = 1
    bundle: Bundle  # what was packed, without its list of members
    evidence: Evidence | None = None
    skipped: list[str] = Field(default_factory=list)  # why nothing was run, if there is no evidence
    console: str = ""  # what was printed there, line by line

    @property
    def verdict(self) -> Verdict:
        return self.evidence.verdict if self.evidence else Verdict.SKIPPED
