"""Helpers for tests that need a checkout with cases in it."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from failure_signature.kinds import Variant
from gpu_casebook.daemon import podman
from gpu_casebook.daemon.client import DockerClient, connect
from gpu_casebook.daemon.podman import PodmanClient
from gpu_casebook.devices import hardware
from gpu_casebook.errors import EngineError
from gpu_casebook.images.build import ensure
from gpu_casebook.manifest.case import load
from gpu_casebook.run import attesting
from gpu_casebook.run import trials as side_by_side
from gpu_casebook.trial import Recipe
from tests.fakes import locked

# A process inherits which signals are ignored, and the runner leaves an ignored one ignored. A shell makes background
# jobs ignore SIGINT, and nohup makes them ignore SIGHUP. With a handler here, what a test starts has the default.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)

# By default an example that takes 200 ms by the clock fails, which on a busy machine any may.
settings.register_profile("casebook", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("casebook")

pytest_plugins = ["tests.alone"]

# Hypothesis fails an example that takes more than 200 ms, as any may on a busy machine.
settings.register_profile("casebook", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("casebook")

IMAGES = ("cpu", "cuda12", "cuda13")

MANIFEST = """\
# yaml-language-server: $schema=../case.schema.json
id: tiny
title: A sum in bfloat16 loses its small terms
failure: wrong-numbers
upstream:
  project: owner/name
  status: fixed
  issue: https://example.org/owner/name/issues/1
provenance: distilled
environments:
  current:
    image: cuda13
    requirements: [numpy==2.2.6]
    gpus: 1
    compute_capability: ">=7.0,<10.0"
  interpreter:
    image: cpu
    requirements: [numpy==1.26.4]
    grade: simulated
    expect:
      fixed: {message: all good}
repro:
  expect:
    figures: {rel_err: "> 1e-2"}
fixed:
  expect:
    figures: {rel_err: "< 1e-5"}
timeout: 2m
"""

PLAIN = """\
id: plain
title: A program that fails
failure: exception
upstream: {project: owner/name, status: open}
provenance: distilled
environments:
  one: {image: cpu, requirements: []}
  two: {image: cpu, requirements: []}
repro:
  expect: {exception: ValueError, message: sizes differ}
fixed:
  expect: {message: all good}
"""
"""Two environments, which need nothing but Python."""

SCRIPT = """\
# /// script
# requires-python = "==3.11.*"
# dependencies = ["numpy==2.2.6"]
# ///
def lost(x): return x * 0.5
print(f"rel_err={lost(1.0)}")
"""


@pytest.fixture(autouse=True)
def none_set_aside(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sets a GPU of this host aside, or takes one back."""
    place = tmp_path_factory.mktemp("aside")
    monkeypatch.setattr(hardware, "lock_directory", lambda: place)
    monkeypatch.setattr(attesting, "user_cache_path", lambda _name: place)


@pytest.fixture(autouse=True)
def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were no memory for trials side by side: tests that want them give it back."""
    monkeypatch.setattr(side_by_side, "TRIAL_BYTES", 2**60)


@dataclass(frozen=True)
class Checkout:
    """A directory laid out like this repository, with no image or case but those written by the test."""

    root: Path

    def write(self, manifest: str = MANIFEST, *, name: str = "tiny", script: str = SCRIPT) -> Path:
        """Write a case with both scripts and a README; the manifest's path."""
        directory = self.root / "cases" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "repro.py").write_text(script)
        (directory / "fixed.py").write_text(script.replace("0.5", "1e-6"))
        (directory / "README.md").write_text("What failed, and why.\n")
        (directory / "case.yaml").write_text(manifest)
        return directory / "case.yaml"


def write_locks(directory: Path) -> None:
    """Write the locks that the case's manifest asks for."""
    case = load(directory / "case.yaml", IMAGES, directory.parents[1])
    (directory / "locks").mkdir(exist_ok=True)
    for name, spec in case.manifest.environments.items():
        for variant in Variant:
            case.lock_path(name, variant).write_text(locked(case.locked(name, variant), spec.python, spec.special))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    for image in IMAGES:
        (tmp_path / "images" / image).mkdir(parents=True)
        (tmp_path / "images" / image / "Dockerfile").touch()
    return Checkout(tmp_path)


@pytest.fixture
def change() -> Callable[[str, str], str]:
    """The good manifest with one passage changed; the passage must be there."""

    def changed(old: str, new: str) -> str:
        assert old in MANIFEST
        return MANIFEST.replace(old, new, 1)

    return changed


@pytest.fixture(scope="session")
def docker_client() -> Iterator[DockerClient]:
    try:
        client = connect()
    except EngineError as error:
        if os.environ.get("CASEBOOK_REQUIRE_DOCKER") == "1":
            pytest.fail(f"CASEBOOK_REQUIRE_DOCKER=1, and {error}")
        pytest.skip(str(error))
    yield client
    client.close()


@pytest.fixture(scope="session")
def podman_client() -> Iterator[PodmanClient]:
    """Podman's service at CASEBOOK_TEST_PODMAN, which CI sets. No other test finds it."""
    address = os.environ.get("CASEBOOK_TEST_PODMAN")
    if not address:
        pytest.skip("CASEBOOK_TEST_PODMAN names no service of Podman")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINER_HOST", address)
        client = podman.connect(600)
    yield client
    client.close()


@pytest.fixture(autouse=True)
def docker_where_marked(request: pytest.FixtureRequest) -> None:
    """A test that is marked `docker` skips where no engine answers, even if it starts another process to use it."""
    if request.node.get_closest_marker("docker"):
        request.getfixturevalue("docker_client")


@pytest.fixture(scope="session")
def python_image(docker_client: DockerClient) -> str:
    """An image with a Python in it: the cpu image with nothing installed, or the one that CASEBOOK_TEST_IMAGE names."""
    named = os.environ.get("CASEBOOK_TEST_IMAGE")
    if named:
        return named
    return ensure(docker_client, Path(__file__).parents[1], Recipe(image="cpu", lock=""), print).name
