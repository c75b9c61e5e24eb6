"""The site of the real corpus in a real browser: Debian's chromium, with axe-core's rules for accessibility.

It skips where no browser is installed; CASEBOOK_REQUIRE_BROWSER=1 turns that into a failure.
"""

import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from casebook_workbench.catalogue.site.build import build

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
BROWSERS = ("chromium-headless-shell", "chromium")
CASE = "cases/rwkv6-backward/index.html"
PAGES = ("index.html?q=Cannot+broadcast", "area.html", CASE)
PASTED = """
  File "/home/me/env/lib/python3.10/site-packages/triton/compiler/code_generator.py", line 1237, in ast_to_ttir
    raise CompilationError(fn.src, node, repr(e)) from e
triton.compiler.errors.CompilationError: at 61:21:
ValueError('Cannot broadcast, the expanded size of the tensor (64) must match the existing size (16) at \
non-singleton dimension 0: [16, 64], [64, 16]')
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    build(ROOT, ROOT / "reports", out)
    return out


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        if os.environ.get("CASEBOOK_REQUIRE_BROWSER") == "1":
            pytest.fail(f"CASEBOOK_REQUIRE_BROWSER=1, and there is no {' or '.join(BROWSERS)}")
        pytest.skip(f"no {' or '.join(BROWSERS)} is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def tab(browser: Any, address: str) -> Iterator[Any]:
    """A page; it fails the test if anything is written to the console, or asked of another host."""
    wrong, own = list[str](), (address, "data:", "blob:")
    with browser.new_context(base_url=address) as context:
        page = context.new_page()
        page.on("console", lambda said: wrong.append(f"console: {said.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
        page.on("request", lambda asked: None if asked.url.startswith(own) else wrong.append(asked.url))
        yield page
    assert wrong == []


class _Links(HTMLParser):
    """The links of a page, and what can be linked on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.names = list[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names |= {str(given.get("id")), str(given.get("name"))}
        self.links += [value for name in ("href", "src") if tag != "base" and (value := given.get(name))]


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {path: _Links(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 100
    lost = list[str]()
    for path, found in pages.items():
        for link in dict.fromkeys(found.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            at = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            at = at / "index.html" if at.is_dir() else at
            if not at.is_file() or (parts.fragment and at in pages and parts.fragment not in pages[at].names):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert lost == []


def test_a_pasted_error_leads_to_its_case(tab: Any) -> None:
    tab.goto("index.html")
    tab.get_by_label("What you saw").fill(PASTED)
    tab.get_by_role("button", name="Find the case").click()
    first = tab.locator("#cb-results li").first
    first.wait_for()
    assert "likely" in first.inner_text()
    first.get_by_role("link").click()
    tab.wait_for_url(f"**/{CASE}")
    assert tab.locator("h1").inner_text() == "RWKV6 fused recurrent backward fails to compile with an initial state"


def test_words_are_enough_and_every_page_asks(tab: Any) -> None:
    tab.goto(CASE)
    tab.get_by_label("What did you see?").fill("memory grows when tokenizing long documents")
    tab.keyboard.press("Enter")
    first = tab.locator("#cb-results li").first
    first.wait_for()
    assert "tokenizers-long-string-leak" in first.inner_text()
    assert tab.get_by_label("What you saw").input_value() == "memory grows when tokenizing long documents"


def test_what_is_nobodys_failure_is_not_called_likely(tab: Any) -> None:
    tab.goto("index.html?q=zzyzx qwxkcd")
    tab.locator("#cb-results").get_by_text("None of the").wait_for()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_kept_out(browser: Any, address: str, scheme: str, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    found = list[str]()
    shape = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "base_url": address}
    with browser.new_context(**shape) as context:
        page = context.new_page()
        for name in PAGES:
            page.goto(name)
            if "?" in name:
                page.locator("#cb-results li").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            for each in Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]:
                if each["impact"] in {"serious", "critical"}:
                    found.append(f"{name}: {each['id']}: {json.dumps(each['nodes'][0]['html'])}")
    assert found == []
