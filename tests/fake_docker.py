"""As much of a Docker engine as finding, listing and removing images takes."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from docker.errors import APIError, ImageNotFound

if TYPE_CHECKING:
    from gpu_casebook.daemon.client import DockerClient

Image = dict[str, Any]


def image(tag: str | None, *, part: str = "", created: int = 1, id_: str = "", **labels: str) -> Image:
    """One entry of an engine's list of images. Labels are ours, without their prefix."""
    own = {f"casebook.{name}": value for name, value in {"part": part, **labels}.items() if value}
    return {
        "Id": id_ or f"sha256:{hashlib.sha256(str(tag).encode()).hexdigest()}",
        "RepoTags": [tag] if tag else ["<none>:<none>"],
        "Created": created,
        "Size": 1000,
        "SharedSize": 400,
        "Labels": own,
    }


class FakeDocker:
    """`client` is what the code under test gets; `removed`, `imported` and `pruned` say what it did."""

    client: "DockerClient"

    def __init__(self, images: Sequence[Image], in_use: Sequence[str] = ()) -> None:
        self.images = list(images)
        self.removed: list[str] = []
        self.imported: list[bytes] = []
        self.pruned: list[Mapping[str, Any]] = []
        self._in_use = in_use
        api = SimpleNamespace(
            images=self._list,
            remove_image=self._remove,
            import_image_from_file=self._import,
            tag=self._tag,
            prune_builds=self._prune,
        )
        models = SimpleNamespace(get=self._get, prune=self._prune)
        self.client = cast("DockerClient", SimpleNamespace(api=api, images=models, df=self._df))

    def _list(self, filters: Mapping[str, Any] | None = None) -> list[Image]:
        if filters is None:
            return list(self.images)
        name, _, value = str(filters["label"]).partition("=")
        return [each for each in self.images if name in each["Labels"] and value in {"", each["Labels"][name]}]

    def _get(self, name: str) -> Any:
        for each in self.images:
            if name == each["Id"] or name in (each["RepoTags"] or ()):
                return SimpleNamespace(id=each["Id"], attrs=each)
        raise ImageNotFound(name)

    def _df(self) -> dict[str, Any]:
        return {"Images": self.images, "LayersSize": 2**30 * len(self.images)}

    def _remove(self, name: str) -> None:
        if name in self._in_use:
            raise APIError(f"conflict: {name} is used by a running container")
        self.removed.append(name)
        self.images = [each for each in self.images if name != each["Id"] and name not in (each["RepoTags"] or ())]

    def _prune(self, filters: Mapping[str, Any]) -> None:
        self.pruned.append(filters)

    def _import(self, path: str, changes: Sequence[str]) -> str:
        self.imported.append(Path(path).read_bytes())
        made = image(None, id_=f"sha256:{hashlib.sha256(self.imported[-1]).hexdigest()}", part="base")
        assert changes[0] == "LABEL casebook.part=base"
        self.images.append(made)
        return f'{{"status":"importing"}}\r\n{{"status":"{made["Id"]}"}}'

    def _tag(self, id_: str, repository: str, tag: str) -> bool:
        for each in self.images:
            if each["Id"] == id_:
                each["RepoTags"] = [f"{repository}:{tag}"]
        return True
