"""The two documents of a bundle: bundle.json, which lists what is in it, and the file that comes back from the host."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from casebook_workbench.corpus.model import JobName, Run
from gpu_casebook.document import Document
from gpu_casebook.evidence import Evidence
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
    layers: list[str] = Field(default_factory=list)  # keys of what a packed one lies on (`Engine.layers`)


def name_of(jobs: Sequence[JobName]) -> str:
    """Return what the files of a bundle with these jobs are called."""
    first, *more = jobs
    return f"{first.case}.{first.environment}{f'+{len(more)}' if more else ''}"


class Bundle(Document):
    """What is in a bundle, and how it is run."""

    what = "a bundle"
    remedy = "copy the bundle again"

    schema_version: Literal[2] = 2
    jobs: list[JobName]
    engine: str
    images: list[Image] = Field(default_factory=list)  # what the variants run in with docker, once each
    left_out: bool = False  # some layers of these, which the host is said to have
    digests: dict[str, str]  # case -> `Case.digest`
    needs: list[str]  # versions of the host's Python that the cases themselves run with, with venv
    runner: str
    pythons: dict[str, list[str]]  # versions of the host's Python, such as "3.12" -> wheels that the runner needs
    run: str = f"python3 {starter.NAME}/run.py"
    members: dict[str, Member] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return name_of(self.jobs)

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

    schema_version: Literal[2] = 2
    bundle: Bundle  # what was packed, without its list of members
    run: Run
    evidence: list[Evidence]  # of the jobs that had a verdict
