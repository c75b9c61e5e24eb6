"""What a GPU host has: a GPU, a Docker engine, and an image with PyTorch, Triton and compute-sanitizer in it."""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpu_casebook.console import Console
from gpu_casebook.daemon.client import connect, find_image
from gpu_casebook.devices import hardware
from gpu_casebook.engines.docker.engine import DockerEngine
from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import Evidence
from gpu_casebook.manifest.case import Case, find, known_images
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from tests.conftest import Checkout, write_locks

IMAGE = os.environ.get("CASEBOOK_GPU_IMAGE", "casebook/host:latest")
ROOT = Path(__file__).parents[2]

Go = Callable[[Case], Evidence]


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    if not hardware.gpus():
        pytest.skip("no NVIDIA GPU here")
    try:
        client = connect()
    except EngineError as error:
        pytest.skip(str(error))
    there = find_image(client, IMAGE)
    client.close()
    if not there:
        pytest.skip(f"no image {IMAGE} here; CASEBOOK_GPU_IMAGE names another")
    with DockerEngine.connect(Path()) as engine:
        yield engine


@pytest.fixture
def go(engine: DockerEngine) -> Go:
    """Run a case in the image as it stands, probes and all."""

    def run(case: Case) -> Evidence:
        said = io.StringIO()
        environment = next(name for name, spec in case.manifest.environments.items() if spec.gpus)
        options = Options(environment=environment, image=IMAGE)
        result = run_case(case, options, engine, Console(said))
        assert isinstance(result, Evidence), result
        print(said.getvalue(), *result.reasons, sep="\n")
        for trial in [*result.trials, *result.sanitized]:
            print(f"--- {trial.variant} {trial.instrument or ''} {trial.outcome}", trial.stdout[-3000:], sep="\n")
            print(trial.stderr[-3000:])
        return result

    return run


@pytest.fixture
def corpus() -> Callable[[str], Case]:
    """A case of this repository, by its id."""
    return lambda case: find(ROOT, case, known_images(ROOT))


MANIFEST = """\
id: tiny
title: A fault on purpose
failure: {failure}
upstream: {{project: owner/name, status: fixed}}
provenance: distilled
environments:
  current: {{image: cuda13, requirements: [torch==2.11.0], gpus: 1}}
repro:
  expect: {repro}
fixed:
  expect: {fixed}
timeout: 120s
"""


@pytest.fixture
def case(checkout: Checkout) -> Callable[..., Case]:
    """Write a case: its kind of failure, what is expected of each variant, and the two scripts."""

    def written(*, failure: str, repro: str, fixed: str, scripts: tuple[str, str]) -> Case:
        directory = checkout.write(MANIFEST.format(failure=failure, repro=repro, fixed=fixed)).parent
        for name, script in zip(("repro.py", "fixed.py"), scripts, strict=True):
            (directory / name).write_text(script)
        write_locks(directory)
        return find(checkout.root, "tiny", ["cuda13"])

    return written
