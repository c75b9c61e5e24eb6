"""A wheel of somebody's own over a locked environment, on a real engine."""

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from casebook_workbench.upkeep.usage import usage
from gpu_casebook.daemon.client import DockerClient, connect
from gpu_casebook.errors import EngineError
from gpu_casebook.images import override
from gpu_casebook.trial import Recipe

ROOT = Path(__file__).parents[2]
EMPTY = Recipe(image="cpu", lock="")
LOOK = """
import importlib.metadata, json, os, probe_branch, sys
print(json.dumps({"answer": probe_branch.ANSWER, "version": importlib.metadata.version("probe-branch"),
    "user": os.getuid(), "uv": os.path.exists("/usr/local/bin/uv"), "wheels": os.path.exists("/wheels"),
    "prefix": sys.prefix}))
"""


def silent(_line: str) -> None:
    pass


def wheel(directory: Path, version: str) -> Path:
    """It says that it needs a package which nobody has."""
    path = directory / f"probe_branch-{version}-py3-none-any.whl"
    info = f"probe_branch-{version}.dist-info"
    needs = "Requires-Dist: no-such-package-anywhere"
    files = {
        "probe_branch.py": f"ANSWER = 42  # {os.getpid()}: tests beside these have images of their own\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: probe-branch\nVersion: {version}\n{needs}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), text)
    return path


@pytest.fixture(scope="module")
def client() -> Iterator[DockerClient]:
    try:
        connected = connect()
    except EngineError as error:
        if os.environ.get("CASEBOOK_REQUIRE_DOCKER") == "1":
            pytest.fail(f"CASEBOOK_REQUIRE_DOCKER=1, and {error}")
        pytest.skip(str(error))
    yield connected
    connected.close()


@pytest.fixture
def image(client: DockerClient, tmp_path: Path) -> Iterator[str]:
    made = override.ensure(client, ROOT, EMPTY, [wheel(tmp_path, "1.5")], print)
    yield made.name
    client.api.remove_image(made.name)


@pytest.mark.docker
def test_the_wheel_is_in_the_environment_without_its_dependencies_and_without_uv(
    client: DockerClient, image: str
) -> None:
    said = client.containers.run(image, ["python", "-c", LOOK], network_mode="none", remove=True)
    assert json.loads(said) == {
        "answer": 42,
        "version": "1.5",
        "user": 1000,
        "uv": False,
        "wheels": False,
        "prefix": "/opt/env",
    }


@pytest.mark.docker
def test_the_same_wheel_again_builds_nothing_and_another_is_another_image(
    client: DockerClient, image: str, tmp_path: Path
) -> None:
    before = client.images.get(image).id
    assert override.ensure(client, ROOT, EMPTY, [wheel(tmp_path, "1.5")], silent).name == image
    assert client.images.get(image).id == before
    other = override.ensure(client, ROOT, EMPTY, [wheel(tmp_path, "1.6")], silent).name
    client.api.remove_image(other)
    assert other != image


@pytest.mark.docker
def test_it_is_known_as_ours_and_used_by_no_case(client: DockerClient, image: str) -> None:
    (use,) = [use for use in usage(client, ROOT, {"a-case": [EMPTY]}) if use.name == image]
    assert (use.part, use.cases) == ("override", ())
