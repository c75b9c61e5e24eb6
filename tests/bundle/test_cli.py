import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpu_casebook import cli
from tests.conftest import Checkout, write_locks


@pytest.fixture(autouse=True)
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = checkout.write().parent
    write_locks(directory)
    (directory / "locks" / "interpreter.txt").unlink()
    monkeypatch.chdir(checkout.root)
    return checkout.root


def casebook(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(words), catch_exceptions=False)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["bundle", "tinny"], 2, "no case is called 'tinny' (there are: tiny)"),
        (["bundle", "tiny", "--environment", "curent"], 2, "project: owner/name; environment: current, interpreter"),
        (["bundle", "tiny", "--image", "x", "--host-has", "cases/tiny/case.yaml"], 1, "as what bundle-run wrote"),
        (["bundle", "tiny", "--split", "3"], 2, "--split 3: write a size such as 48MB"),
        (["bundle", "tiny", "--image", "x", "--engine", "venv"], 2, "--image x needs the docker engine"),
        (["bundle", "tiny", "--engine", "slurm"], 2, "no engine 'slurm'"),
        (["bundle", "tiny", "--image", "x", "--python", "2.7"], 2, "--python 2.7: write a version such as 3.12"),
        (["bundle", "tiny", "--image", "x", "--environment", "interpreter"], 3, "no lock for environment interpreter"),
        (["bundle-run", "nowhere"], 1, "casebook: nowhere: there is no such file or directory"),
        (["bundle-run", "cases"], 1, "casebook: cases: there is no bundle here"),
        (["bundle-join", "nowhere.json"], 1, "casebook: nowhere.json: can't be read as what bundle-run wrote: No such"),
        (["bundle-join", "cases/tiny/case.yaml"], 1, "case.yaml: can't be read as what bundle-run wrote"),
    ],
)
def test_a_mistake_is_one_clear_line(words: list[str], status: int, line: str) -> None:
    got, said = casebook(*words)
    assert (got, line in said) == (status, True), said
    assert "Traceback" not in said
    assert not list(Path().glob("*.tar"))


@pytest.mark.usefixtures("no_index")
def test_what_was_written_and_what_to_do_with_it_is_said(here: Path) -> None:
    status, said = casebook("bundle", "tiny", "--image", "host/image:1", "--python", "3.12")
    assert status == 0
    assert re.search(r"wrote tiny\.current\.casebook\.tar \(\d+\.\d+ MB\)", said)
    assert "needs Python 3.12 and a Docker engine with the image host/image:1:" in said
    assert "tar xf tiny.current.casebook.tar && python3 casebook-bundle/run.py" in said


@pytest.mark.usefixtures("no_index")
def test_parts_are_named_one_by_one(here: Path) -> None:
    said = casebook("bundle", "tiny", "--image", "x", "--split", "500kB", "-o", "out/b.tar")[1]
    assert "wrote out/b.tar.1of" in said
    assert "python3 b.tar.run.py   # with all these files in one directory" in said
    assert not (here / "out" / "b.tar").exists()


@pytest.mark.usefixtures("no_index")
def test_a_directory_gets_the_usual_name(here: Path) -> None:
    casebook("bundle", "tiny", "--image", "x", "--output", "cases")
    assert (here / "cases" / "tiny.current.casebook.tar").is_file()


@pytest.mark.usefixtures("no_index")
def test_where_nothing_can_be_written_it_is_one_line() -> None:
    status, said = casebook("bundle", "tiny", "--image", "x", "--output", "cases/tiny/repro.py/x.tar")
    assert (status, "casebook: cases/tiny/repro.py can't be written" in said) == (2, True), said
