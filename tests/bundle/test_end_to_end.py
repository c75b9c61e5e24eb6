"""Bundles, packed here and run as on a host without a network: nothing but Python and an engine, and no way out."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from casebook_workbench.bundle.document import Bundle, Returned
from failure_signature.kinds import Variant
from failure_signature.trials import Verdict
from gpu_casebook.daemon.client import LABEL, DockerClient, find_image
from gpu_casebook.evidence import load
from gpu_casebook.images.bases import Base
from gpu_casebook.images.stages import plan
from gpu_casebook.manifest.case import find
from gpu_casebook.packages.resolve import write_locks
from gpu_casebook.run.plan import recipe
from tests.bundle.bundles import archive, members
from tests.conftest import IMAGES, MANIFEST, Checkout
from tests.corpus.world import eventually

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ROOT = Path(__file__).parents[2]
CASEBOOK = (sys.executable, "-m", "gpu_casebook")
KNOWN = {"PYTHONPATH": str(ROOT / "runner"), **os.environ}
BARE = getattr(sys, "_base_executable", sys.executable)

SCRIPT = """\
import socket
import idna

try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
except OSError:
    print("no way out")
print("idna", idna.__version__)
print("rel_err=0.5")
"""


def run(*words: object, cwd: Path, variables: Mapping[str, str], cut_off: bool = False) -> tuple[int, str]:
    wall = ["unshare", "--net", "--map-root-user"] if cut_off else []
    done = subprocess.run(
        [*wall, *map(str, words)],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def cut_off() -> bool:
    """Whether a process without a network can be had here."""
    return shutil.which("unshare") is not None and run("true", cwd=Path("/"), variables={}, cut_off=True)[0] == 0


def add(checkout: Checkout, name: str, package: str = "idna==3.10", script: str = SCRIPT) -> None:
    """Write a case that needs one small package, and its locks."""
    manifest = MANIFEST.replace("numpy==1.26.4", package).replace("id: tiny", f"id: {name}")
    manifest = manifest.replace("image: cpu", f"image: cpu\n    python: '{PYTHON}'")
    manifest = manifest.replace("message: all good", f"message: {package.replace('==', ' ')}")
    checkout.write(manifest, name=name, script=script)
    write_locks(find(checkout.root, name, IMAGES), print)


WAITS = """\
import pathlib, time
while not pathlib.Path({go!r}).exists():
    time.sleep(0.1)
"""


def test_cases_go_there_and_their_evidence_comes_back(checkout: Checkout, tmp_path: Path, cut_off: bool) -> None:  # noqa: FBT001
    """For venv, in parts. The run there is killed, and the same command goes on with it."""
    there, home, here = tmp_path / "there", tmp_path / "home", checkout.root
    there.mkdir()
    add(checkout, "first")
    add(checkout, "second", script=SCRIPT + WAITS.format(go=str(tmp_path / "go")))
    words = ("bundle", "--environment", "inter*", "--engine", "venv", "-o", there / "x.casebook.tar", "--split", "9MB")
    status, said = run(*CASEBOOK, *words, cwd=here, variables=KNOWN)
    assert status == 0, said
    assert f"needs Python {PYTHON}, and Python {PYTHON} for the cases" in said
    assert "python3 x.casebook.tar.run.py" in said

    starter, records = there / "x.casebook.tar.run.py", there / "casebook-bundle" / "reports" / "runs"
    with subprocess.Popen([BARE, starter], cwd=there, env={"PATH": os.environ["PATH"], "HOME": str(home)}) as process:
        eventually(lambda: any(path.stat().st_size for path in records.glob("*/journal.jsonl")))
        process.kill()
    (tmp_path / "go").touch()
    status, said = run(BARE, starter, cwd=there, cut_off=cut_off, variables={"HOME": str(home)})
    assert status == 0, said
    assert "1 of 2 finished, 1 left" in said
    assert "2 of 2 confirmed" in said
    assert len(list((there / "casebook-bundle" / "locked").glob("idna-*.whl"))) == 1

    back = there / "first.interpreter+1.evidence.json"
    status, said = run(*CASEBOOK, "bundle-join", back, cwd=here, variables=KNOWN)
    assert (status, "2 of 2 confirmed" in said) == (0, True), said
    assert "(warning)" not in said
    first, second = (load(here / f"local/evidence/{name}/interpreter.venv.cpu.json") for name in ("first", "second"))
    assert first.verdict is second.verdict is Verdict.CONFIRMED
    assert first.environment.exact
    assert all("no way out" in trial.stdout for trial in second.trials if cut_off)
    assert "second" in (here / "local" / "README.md").read_text()
    assert [path.name for path in (here / "local" / "runs").glob("*/README.md")] == ["README.md"]

    (there / "casebook-bundle" / "locked").rename(there / "gone")
    status, said = run(BARE, starter, cwd=there, variables={"HOME": str(home)})
    assert (status, "idna-3.10-py3-none-any.whl: is missing" in said) == (1, True)


@pytest.mark.docker
@pytest.mark.slow
def test_images_go_there_and_later_only_what_is_new(
    checkout: Checkout, tmp_path: Path, docker_client: DockerClient
) -> None:
    """For Docker, on the same engine: what is packed is removed from it, and comes back."""
    here = checkout.root
    shutil.copytree(ROOT / "images", here / "images", dirs_exist_ok=True)
    with (here / "images" / "cpu" / "Dockerfile").open("a") as file:
        file.write(f"RUN echo {tmp_path.name} > /srv/of-this-test\n")
    for name in ("first", "second"):
        add(checkout, name)
    add(checkout, "third", package="idna==3.9")
    try:
        first = travel(docker_client, here, tmp_path / "one", "first", "second")
        only = travel(docker_client, here, tmp_path / "two", "third", "--host-has", first)
    finally:
        forget(docker_client, here)
    sizes = [(file.parent / "x.tar").stat().st_size for file in (first, only)]
    assert sizes[1] < sizes[0] / 3, sizes
    status, said = run(*CASEBOOK, "bundle-join", first, only, cwd=here, variables=KNOWN)
    assert (status, "3 of 3 confirmed" in said) == (0, True), said
    assert Returned.read(only).bundle.left_out
    assert load(here / "local/evidence/third/interpreter.docker.cpu.json").environment.exact


def travel(client: DockerClient, here: Path, there: Path, *words: object) -> Path:
    """Pack, remove the environments' images, and run; what is to be brought back."""
    there.mkdir()
    packing = ("bundle", *words, "--environment", "interpreter", "--engine", "docker", "-o", there / "x.tar")
    status, said = run(*CASEBOOK, *packing, cwd=here, variables=KNOWN)
    assert status == 0, said
    with tarfile.open(there / "x.tar") as archive:
        archive.extractall(there, filter="data")
    bundle = Bundle.read(there / "casebook-bundle" / "bundle.json")
    (image,) = bundle.packed_images
    client.api.remove_image(image.name)
    docker = {name: value for name, value in os.environ.items() if name.startswith("DOCKER")}
    status, said = run(BARE, there / "casebook-bundle" / "run.py", cwd=there, variables={"HOME": str(there), **docker})
    assert (status, "loading the bundle's environments" in said) == (0, True), said
    return there / f"{bundle.name}.evidence.json"


def forget(client: DockerClient, here: Path) -> None:
    """Remove the images that this test brought: no other has its Dockerfile."""
    bases = {image.labels.get(f"{LABEL}.base", "") for image in client.images.list(filters={"label": f"{LABEL}.key"})}
    cases = [find(here, name, IMAGES) for name in ("first", "third")]
    plans = [
        plan(here, recipe(case, "interpreter", Variant.REPRO), Base(base, base)) for case in cases for base in bases
    ]
    for name in dict.fromkeys(stage.reference for each in plans for stage in each.chain() if stage.image == "cpu"):
        if find_image(client, name):
            client.api.remove_image(name)


def test_another_runner_hands_over_to_the_bundles_own(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.casebook.tar", members())
    words = ("bundle-run", path, "--trials", "3")
    status, said = run(*CASEBOOK, *words, cwd=tmp_path, variables=KNOWN)
    assert status == 12, said
    assert f"words ['bundle-run', '{tmp_path / 'casebook-bundle'}', '--trials', '3']" in said
    with tarfile.open(path) as tar:
        assert len(tar.getnames()) == 5
