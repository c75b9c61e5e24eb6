"""A file of an upstream commit, as manifests, recipes and evidence name it."""

from typing import Annotated

from pydantic import Field

from gpu_casebook.document import Document

_REPOSITORY = r"^https://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~-]+)+$"
_COMMIT = "^[0-9a-f]{40}$"
_SHA256 = "^[0-9a-f]{64}$"
_PATH = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$"
PATTERN_WORDS = {
    _REPOSITORY: "is not a repository's address; write it as https://HOST/OWNER/NAME",
    _COMMIT: "is not a whole commit; write its 40 digits",
    _SHA256: "is not a sha256; write its 64 digits, as sha256sum prints them",
    _PATH: "is not the path of a file in a repository",
}
Repository = Annotated[str, Field(pattern=_REPOSITORY)]
Commit = Annotated[str, Field(pattern=_COMMIT)]
Sha256 = Annotated[str, Field(pattern=_SHA256)]
FilePath = Annotated[str, Field(pattern=_PATH)]
Files = Annotated[dict[FilePath, Sha256], Field(min_length=1)]


class SourceFile(Document):
    """A file of an upstream commit. `url` is the repository's, `path` the file's in there, and `sha256` in hex."""

    url: Repository
    commit: Commit
    path: FilePath
    sha256: Sha256

    @property
    def place(self) -> str:
        """Its path below the directory from which scripts import it: that of the repository, or its src/."""
        return self.path.removeprefix("src/")

    @property
    def address(self) -> str:
        """Where the repository's host has the file as it is, at that commit."""
        return f"{self.url}/raw/{self.commit}/{self.path}"
