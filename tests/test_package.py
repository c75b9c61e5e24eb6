"""The package as it is built and installed, in a directory that has nothing to do with a checkout."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_casebook import __version__
from tests.conftest import Checkout

ROOT = Path(__file__).parents[1]
PACKAGED = "gpu_casebook/packaged/"

Casebook = Callable[..., tuple[int, str]]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source archive, as a package index would have both."""
    place = tmp_path_factory.mktemp("dist")

    def build(top: Path, target: str) -> Path:
        command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(place)]
        subprocess.run(command, cwd=top, check=True, capture_output=True)
        return next(place.glob("*.whl" if target == "wheel" else "*.tar.gz"))

    with tarfile.open(build(ROOT, "sdist")) as archive:
        archive.extractall(place, filter="data")
    return build(place / f"gpu_casebook-{__version__}", "wheel")


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, compiled as pip does it, and beside it the packages of this one."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    (site / "beside.pth").write_text(sysconfig.get_path("purelib"))
    command = [
        "pip",
        "install",
        "--offline",
        "--no-deps",
        "--compile-bytecode",
        "--python",
        str(home / "bin" / "python"),
    ]
    subprocess.run([sys.executable, "-m", "uv", *command, str(wheel)], check=True, capture_output=True)
    return home


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


@pytest.fixture
def casebook(installed: Path, empty: Path) -> Casebook:
    """Run the command in an empty directory; exit status, and both streams."""

    def run(*words: str, at: Path = empty, stdin: str = "") -> tuple[int, str]:
        variables = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "CASEBOOK_CORPUS"}}
        done = subprocess.run(
            [str(installed / "bin" / "casebook"), *words],
            cwd=at,
            env={**variables, "XDG_DATA_HOME": str(empty.parent / "data"), "DOCKER_HOST": "unix:///nowhere"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            input=stdin,
            check=False,
        )
        return done.returncode, done.stdout

    return run


def files(top: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in top.rglob("*")}


def test_the_wheel_has_all_of_the_corpus_and_says_what_it_was_built_from(wheel: Path) -> None:
    wanted = ["cases", "images", "reports/evidence", "reports/bisect", "reports/watch"]
    tracked = subprocess.run(["git", "ls-files", *wanted], cwd=ROOT, capture_output=True, text=True, check=True)
    revision = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    there = [name for name in tracked.stdout.splitlines() if (ROOT / name).is_file()]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        stamp = archive.read(f"{PACKAGED}REVISION").decode()
    packaged = {name.removeprefix(PACKAGED) for name in names if name.startswith(PACKAGED)}
    assert len(there) > 500
    assert [name for name in there if name not in packaged] == []
    assert stamp.startswith(f"{__version__} ({revision.stdout.strip()}")
    assert "gpu_casebook/py.typed" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]


@pytest.mark.slow
def test_in_an_empty_directory_the_packaged_corpus_is_there(casebook: Casebook, empty: Path, installed: Path) -> None:
    casebook("--help")
    before = files(installed)
    assert casebook("--version")[1].startswith(f"casebook {__version__} (")
    status, said = casebook("list")
    assert (status, len(said.splitlines()) > 50) == (0, True)
    status, said = casebook("match", stdin="CompilationError: Cannot broadcast, the expanded size of the tensor (64)\n")
    assert (status, said.startswith("1. rwkv6-backward")) == (0, True)
    status, said = casebook("doctor", "rwkv6-backward")
    assert status == 0, said
    assert "nox" not in said
    status, said = casebook("case", "rwkv6-backward", "--environment", "front-end", "--engine", "venv", "--no-probes")
    assert status == 0, said
    page = empty.parent / "data" / "casebook" / "reports" / "rwkv6-backward.md"
    assert said.splitlines()[-1] == f"report: {page}"
    text = page.read_text()
    assert "casebook case rwkv6-backward --environment front-end --engine venv --no-probes" in text
    assert "The kernel for the gradient of q loads the initial state as a tile of BV x BK" in text
    readme = text.partition("- Read: [README.md](")[2].partition(")")[0]
    assert (page.parent / readme).is_file()
    status, said = casebook("show", "rwkv6-backward")
    assert status == 0
    assert f"{page.parent}/evidence/rwkv6-backward/front-end.venv.cpu.json" in said
    status, said = casebook("grade")
    assert (status, len(said.splitlines()) >= 25) == (0, True)
    status, said = casebook("issue", "tokenizers-windows-lost")  # from the evidence that the package brings
    assert status == 0, said
    assert list(empty.iterdir()) == []
    assert files(installed) == before


@pytest.mark.parametrize("words", [["schema"], ["lock"], ["refresh-bases"], ["new", "mine", "--no-trial"]])
def test_nothing_writes_to_the_packaged_corpus(casebook: Casebook, words: list[str]) -> None:
    own = "name your own, a directory with cases/: --corpus DIR"
    assert casebook(*words) == (2, f"casebook: the installed corpus is not written to; {own}\n")
    publish = "casebook: --publish: the installed corpus is not written to; run this in a checkout of Casebook\n"
    assert casebook("case", "rwkv6-backward", "--publish") == (2, publish)


def test_a_corpus_of_ones_own_is_begun_in_it(casebook: Casebook, empty: Path) -> None:
    (empty / "ours" / "cases").mkdir(parents=True)
    status, said = casebook("new", "mine", "--no-trial", "--corpus", "ours")
    assert (status, said.splitlines()[-1]) == (
        0,
        "then: casebook lock mine --corpus ours && casebook check mine --corpus ours",
    )
    assert (empty / "ours" / "cases" / "mine" / "repro.py").is_file()
    assert casebook("schema", "--corpus", "ours") == (0, "wrote ours/cases/case.schema.json\n")


def test_in_a_checkout_its_own_files_win(casebook: Casebook, checkout: Checkout) -> None:
    checkout.write()
    status, said = casebook("list", at=checkout.root / "cases" / "tiny")
    assert (status, [line.split()[0] for line in said.splitlines()]) == (0, ["tiny"])


def test_a_message_names_the_command_and_no_session(casebook: Casebook, checkout: Checkout) -> None:
    checkout.write()
    status, said = casebook("case", "tiny", "--environment", "interpreter", "--engine", "venv", at=checkout.root)
    lock = "cases/tiny/locks/interpreter.txt"
    assert (status, said.splitlines()[-1]) == (
        3,
        f"{lock}:1: there is no lock for environment interpreter; write it: casebook lock tiny",
    )
