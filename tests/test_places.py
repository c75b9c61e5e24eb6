from pathlib import Path

import pytest

from gpu_casebook import places


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As where a wheel is installed."""
    for name in ("cases", "images"):
        (tmp_path / "site" / "packaged" / name).mkdir(parents=True)
    monkeypatch.setattr(places, "PACKAGED", tmp_path / "site" / "packaged")
    monkeypatch.setattr(places, "CHECKOUT", tmp_path / "lib")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "site" / "packaged"


def test_a_corpus_without_images_has_the_public_ones(packaged: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    assert places.images_of(own) == packaged / "images"
    (own / "images").mkdir()
    assert places.images_of(own) == own / "images"


def test_reports_are_beside_the_cases_but_never_in_the_package(packaged: Path, tmp_path: Path) -> None:
    assert places.reports_of(tmp_path / "own") == tmp_path / "own" / "local"
    assert places.reports_of(tmp_path / "own", published=True) == tmp_path / "own" / "reports"
    assert places.reports_of(packaged) == tmp_path / "data" / "casebook" / "reports"


def test_the_cases_that_reports_are_of(packaged: Path, tmp_path: Path) -> None:
    (tmp_path / "own" / "cases").mkdir(parents=True)
    assert places.cases_of(tmp_path / "own" / "reports") == tmp_path / "own" / "cases"
    assert places.cases_of(tmp_path / "data" / "casebook" / "reports") == packaged / "cases"


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("nox -s case-rwkv6-backward -- --engine venv", "casebook case rwkv6-backward --engine venv"),
        ("write it: nox -s lock -- mine", "write it: casebook lock mine"),
        ("`nox -s clean -- --unused` removes those", "`casebook clean --unused` removes those"),
        ("read it, then nox -s case-tiny", "read it, then casebook case tiny"),
        ("nox -s lock -- a && nox -s check -- a", "casebook lock a && casebook check a"),
    ],
)
@pytest.mark.usefixtures("packaged")
def test_sessions_are_commands_where_the_package_is_installed(said: str, command: str) -> None:
    assert places.as_command(said) == command


def test_sessions_stay_in_a_checkout() -> None:
    assert places.as_command("nox -s lock -- mine") == "nox -s lock -- mine"
