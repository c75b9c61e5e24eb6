"""A bundle for venv, packed here and run as on a host without a network: nothing but Python, and no way out."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpu_casebook.evidence import Verdict, load
from gpu_casebook.manifest.case import find
from gpu_casebook.packages.resolve import write_locks
from tests.conftest import IMAGES, MANIFEST, Checkout

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

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


@pytest.fixture
def here(checkout: Checkout) -> Path:
    """A checkout with a case that needs one small package, locked."""
    manifest = MANIFEST.replace("numpy==1.26.4", "idna==3.10").replace(
        "image: cpu", f"image: cpu\n    python: '{PYTHON}'"
    )
    manifest = manifest.replace("message: all good", "message: idna 3.10")
    checkout.write(manifest, script=SCRIPT)
    write_locks(find(checkout.root, "tiny", IMAGES), print)
    return checkout.root


def test_a_case_goes_there_and_its_evidence_comes_back(here: Path, tmp_path: Path, cut_off: bool) -> None:  # noqa: FBT001
    there, home = tmp_path / "there", tmp_path / "home"
    there.mkdir()
    casebook = (sys.executable, "-m", "gpu_casebook")
    known = {"PYTHONPATH": str(Path(__file__).parents[2] / "runner"), **os.environ}
    words = ("bundle", "tiny", "--environment", "interpreter", "--engine", "venv", "-o", there / "x.casebook.tar")
    status, said = run(*casebook, *words, "--split", "9MB", cwd=here, variables=known)
    assert status == 0, said
    assert f"needs Python {PYTHON}, and Python {PYTHON} for the case" in said
    assert "python3 x.casebook.tar.run.py" in said

    starter = there / "x.casebook.tar.run.py"
    python = getattr(sys, "_base_executable", sys.executable)
    status, said = run(python, starter, "--trials", "3", cwd=there, cut_off=cut_off, variables={"HOME": str(home)})
    assert status == 0, said
    assert "confirmed: tiny, environment interpreter on CPU" in said

    back = there / "tiny.interpreter.evidence.json"
    status, said = run(*casebook, "bundle-join", back, cwd=here, variables=known)
    assert (status, "confirmed: tiny, environment interpreter" in said) == (0, True), said
    assert "(warning)" not in said
    joined = load(here / "reports" / "evidence" / "tiny" / "interpreter.venv.cpu.json")
    assert joined.verdict is Verdict.CONFIRMED
    assert joined.environment.exact
    assert all("no way out" in trial.stdout for trial in joined.trials if cut_off)
    assert "tiny" in (here / "reports" / "README.md").read_text()

    (there / "casebook-bundle" / "locked").rename(there / "gone")
    status, said = run(python, starter, cwd=there, variables={"HOME": str(home)})
    assert (status, "idna-3.10-py3-none-any.whl: is missing" in said) == (1, True)


def test_another_runner_hands_over_to_the_bundles_own(tmp_path: Path) -> None:
    from tests.bundle.bundles import archive, members

    path = archive(tmp_path / "x.casebook.tar", members())
    words = ("bundle-run", path, "--trials", "3")
    known = {"PYTHONPATH": str(Path(__file__).parents[2] / "runner"), **os.environ}
    status, said = run(sys.executable, "-m", "gpu_casebook", *words, cwd=tmp_path, variables=known)
    assert status == 12, said
    assert f"words ['bundle-run', '{tmp_path / 'casebook-bundle'}', '--trials', '3']" in said
    with tarfile.open(path) as tar:
        assert len(tar.getnames()) == 5
