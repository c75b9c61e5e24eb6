"""A small site, built for real: the generator and the index of the search run, and nothing is fetched."""

import re
from pathlib import Path

import pytest

from casebook_workbench.catalogue.site import build as built
from casebook_workbench.catalogue.site.build import build
from gpu_casebook.errors import CasebookError, UsageError
from tests.cli.test_cli import casebook
from tests.conftest import Checkout


@pytest.fixture
def out(checkout: Checkout) -> Path:
    checkout.write()
    (checkout.root / "README.md").write_text("# Casebook\n")
    return checkout.root / "out"


def test_a_site(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out.parent)
    status, said = casebook("site", "out")
    assert status == 0, said
    assert said.startswith("wrote out: 1 case, ")
    page = (out / "cases" / "tiny" / "index.html").read_text()
    assert "<div data-pagefind-body>" in page
    assert "data-pagefind-body" not in (out / "index.html").read_text()
    assert (out / "pagefind" / "pagefind.js").is_file()
    assert (out / "feed.xml").is_file()
    assert (out / "cases" / "tiny" / "repro.py").is_file()
    text = "".join(path.read_text() for path in out.rglob("*.html"))
    assert re.findall(r'(?:<script[^>]*src|<link[^>]*rel="stylesheet"[^>]*href|<img[^>]*src)="https?:', text) == []


def test_it_replaces_an_earlier_site_and_nothing_else(out: Path) -> None:
    out.mkdir()
    (out / "mine.txt").touch()
    with pytest.raises(UsageError, match="is no site of Casebook; name another directory"):
        build(out.parent, out.parent / "reports", out)
    (out / "mine.txt").rename(out / built._MARK)
    assert build(out.parent, out.parent / "reports", out).cases == 1
    assert (out / "index.html").is_file()


@pytest.mark.parametrize("given", [{"address": "example.org"}, {"repository": "https://x/`y`"}])
def test_an_address_is_one_of_the_web(out: Path, given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="write an address of the web"):
        build(out.parent, out.parent / "reports", out, **given)


def test_a_file_is_no_directory(out: Path) -> None:
    out.touch()
    with pytest.raises(UsageError, match="is not a directory"):
        build(out.parent, out.parent / "reports", out)


def test_what_is_not_installed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built, "_NEEDS", ("zensical", "no_such_generator"))
    with pytest.raises(UsageError, match=r"the site needs no_such_generator: pip install 'gpu-casebook\[site\]'"):
        build(out.parent, out.parent / "reports", out)


def test_a_generator_that_fails_leaves_nothing(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built, "_configuration", lambda *_: {"no_such_key": [], "theme": 1})
    with pytest.raises(CasebookError, match="zensical could not build the site"):
        build(out.parent, out.parent / "reports", out)
    assert not out.exists()
