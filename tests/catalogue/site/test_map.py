"""Links between files of the checkout become links between pages."""

from pathlib import Path

import pytest

from casebook_workbench.catalogue.site.gfm import NAME
from casebook_workbench.catalogue.site.map import Map, html, survey
from gpu_casebook.evidence import evidence_path
from tests.conftest import Checkout
from tests.report.example import CASE, evidence

PAGES = {
    "README.md": "about.md",
    "docs/a.md": "docs/a.md",
    "cases/one/README.md": "cases/one/README.md",
    "cases/two/README.md": "cases/two/README.md",
    "reports/one.md": "reports/one.md",
}
MAP = Map(PAGES, {"cases/one/repro.py": "cases/one/repro.py"})


@pytest.mark.parametrize(
    ("page", "link", "address"),
    [
        ("cases/one/README.md", "../two/README.md#why", "../two/index.html#why"),
        ("cases/one/README.md", "../two", "../two/index.html"),
        ("cases/one/README.md", "repro.py", "repro.py"),
        ("cases/one/README.md", "../../reports/one.md", "../../reports/one.html"),
        ("docs/a.md", "../README.md", "../about.html"),
        ("docs/a.md", "https://example.org/x.md", "https://example.org/x.md"),
        ("docs/a.md", "#here", "#here"),
        ("docs/a.md", "../runner", None),
        ("docs/a.md", "../../outside", None),
        ("cases/one/README.md", f"{NAME}two", "../two/index.html"),
        ("cases/one/README.md", f"{NAME}one", None),
        ("cases/one/README.md", f"{NAME}three", None),
    ],
)
def test_a_link(page: str, link: str, address: str | None) -> None:
    assert MAP.address(page, link) == address


def test_what_the_site_has_not_is_in_the_repository() -> None:
    known = MAP._replace(repository="https://example.org/casebook")
    assert known.address("docs/a.md", "../runner/x.py") == "https://example.org/casebook/blob/HEAD/runner/x.py"
    assert known.address("docs/a.md", "../../outside") is None


def test_a_page_that_stands_elsewhere_keeps_its_links() -> None:
    assert MAP.address("about.md", "docs/a.md", "README.md") == "docs/a.html"


@pytest.mark.parametrize(("page", "at"), [("a/README.md", "a/index.html"), ("one.md", "one.html")])
def test_where_the_generator_puts_a_page(page: str, at: str) -> None:
    assert html(page) == at


def test_a_checkout(checkout: Checkout) -> None:
    manifest = checkout.write(name="rwkv6-backward")
    checkout.write(name="tiny")
    (manifest.parent / "locks").mkdir()
    (manifest.parent / "locks" / "current.txt").touch()
    (checkout.root / "docs").mkdir()
    (checkout.root / "docs" / "more.md").touch()
    reports = checkout.root / "elsewhere"
    evidence().write(evidence_path(reports, evidence()))
    found = survey(checkout.root, reports, ["index.md"])
    assert found.pages["docs/more.md"] == "docs/more.md"
    assert {f"cases/{CASE.id}/README.md", "cases/tiny/README.md", f"reports/{CASE.id}.md"} <= set(found.pages)
    assert "reports/tiny.md" not in found.pages
    assert f"cases/{CASE.id}/repro.py" in found.files
    assert not [name for name in found.files if "locks" in name]
    assert Path(f"reports/evidence/{CASE.id}/upstream.docker.nvidia-h200.json").as_posix() in found.files
