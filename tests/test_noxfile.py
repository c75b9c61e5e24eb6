"""The noxfile, read by nox itself in a process of its own."""

import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import MANIFEST, Checkout

ROOT = Path(__file__).parents[1]


@pytest.fixture
def listing(checkout: Checkout) -> str:
    (checkout.root / "noxfile.py").write_text((ROOT / "noxfile.py").read_text())
    checkout.write()
    checkout.write(MANIFEST.replace("title: A", "title: \"It's 50 % too much: a"), name="quoted")
    checkout.write(MANIFEST.replace("title: A", "title: \u202e\x1b]0;x\x07\u200bsdrawkcab"), name="odd")
    (checkout.root / "cases" / "draft").mkdir()
    command = [sys.executable, "-m", "nox", "--list"]
    return subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, check=True).stdout


def test_every_case_is_a_session_with_its_title(listing: str) -> None:
    assert "- case-tiny -> A sum in bfloat16 loses its small terms" in listing
    assert "- case-quoted -> It's 50 % too much: a sum" in listing
    assert "- case-odd -> ]0;xsdrawkcab sum" in listing


def test_a_directory_without_a_manifest_is_none(listing: str) -> None:
    assert "draft" not in listing


def test_cases_do_not_run_by_default(listing: str) -> None:
    assert "* case-" not in listing
    for session in ("lint", "check", "tests"):
        assert f"* {session} " in listing


def test_an_empty_corpus_lists_too(checkout: Checkout) -> None:
    (checkout.root / "noxfile.py").write_text((ROOT / "noxfile.py").read_text())
    (checkout.root / "cases").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "nox", "--list"]
    done = subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_lock_has_what_pyproject_asks_for_with_hashes_and_no_address() -> None:
    text = (ROOT / "runner" / "requirements.txt").read_text()
    entries = re.split(r"\n(?=\S)", re.sub(r"\A(#.*\n)+", "", text))
    assert all("--hash=sha256:" in each for each in entries)
    assert "://" not in text
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    for wanted in map(Requirement, asked):
        version = locked[re.sub(r"[._-]+", "-", wanted.name).lower()]
        assert wanted.specifier.contains(version), f"{wanted}: {version} is locked; run nox -s lock-runner"


RECORDS = """\
#!/bin/sh
# Stands for the Python of the shared environment.
echo "$@" >> calls
case "$*" in *FAILS*) exit 1 ;; *"--alone only"*) exit 5 ;; esac
"""


@pytest.fixture
def prepared(checkout: Checkout) -> Path:
    """A checkout whose shared environment is there already: its Python writes down what it is asked."""
    (checkout.root / "cases").mkdir()
    (checkout.root / "runner").mkdir()
    files = ["noxfile.py", "pyproject.toml", "runner/requirements.txt"]
    for name in files:
        (checkout.root / name).write_text((ROOT / name).read_text())
    home = checkout.root / ".nox" / "runner-dev"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").write_text(RECORDS)
    (home / "bin" / "python").chmod(0o755)
    wanted = b"".join((ROOT / name).read_bytes() for name in files[1:])
    (home / "installed").write_text(hashlib.sha256(wanted).hexdigest())
    return checkout.root


def nox(root: Path, *words: str) -> tuple[int, list[str]]:
    """Run a session; its exit status, and what Python was asked for."""
    command = [sys.executable, "-m", "nox", "-s", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, (root / "calls").read_text().splitlines()


def test_the_suite_runs_in_two_parts_and_an_empty_one_is_no_failure(prepared: Path) -> None:
    status, (beside, alone) = nox(prepared, "tests", "--", "-k", "x")
    assert status == 0
    assert re.fullmatch(r"-m pytest --alone no -n \d+ --dist worksteal -k x", beside)
    assert alone == "-m pytest --alone only -k x -n0"


def test_a_failure_in_the_first_part_fails_the_session_after_the_second(prepared: Path) -> None:
    status, calls = nox(prepared, "tests", "--", "-k", "FAILS")
    assert (status, len(calls)) == (1, 2)


def test_a_list_is_asked_for_once(prepared: Path) -> None:
    assert nox(prepared, "tests", "--", "--alone", "list") == (0, ["-m pytest --alone list"])


def test_quick_names_directories_that_are_there(prepared: Path) -> None:
    status, (call,) = nox(prepared, "quick")
    places = re.findall(r"tests/\w+", call)
    assert (status, len(places) >= 5, [name for name in places if not (ROOT / name).is_dir()]) == (0, True, [])
