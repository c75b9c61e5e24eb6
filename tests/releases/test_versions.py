import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from casebook_workbench.releases import versions
from casebook_workbench.releases.versions import Releases, parse, released
from gpu_casebook.errors import BuildError, UsageError
from gpu_casebook.packages import uv

WHEEL = "thing-{}-py3-none-any.whl"


def listing(*files: Mapping[str, object]) -> bytes:
    return json.dumps({"meta": {"api-version": "1.0"}, "name": "thing", "files": files}).encode()


def wheels(*numbers: str) -> list[dict[str, object]]:
    return [{"filename": WHEEL.format(number), "url": "x"} for number in numbers]


def releases(*files: Mapping[str, object]) -> Releases:
    return parse("thing", versions.JSON, listing(*files))


def shown(found: Releases) -> list[str]:
    return [str(release.version) for release in found.all]


class TestReading:
    def test_versions_are_in_order_and_a_versions_files_are_one_release(self) -> None:
        found = releases(*wheels("1.10", "1.9", "2.0rc1"), {"filename": "thing-1.9.tar.gz"})
        assert shown(found) == ["1.9", "1.10", "2.0rc1"]
        assert len(found.find("1.9").files) == 2

    def test_other_packages_and_odd_names_are_left_out(self) -> None:
        names = ["other-1.0-py3-none-any.whl", "thing-1.0.exe", "thing-dev.tar.gz", "thing-1.0-py3.whl"]
        assert shown(releases(*({"filename": name} for name in names), *wheels("1"))) == ["1"]

    def test_html_says_the_same_as_json(self) -> None:
        page = """<!DOCTYPE html><html><body>
          <a href="../../f/Thing-1.0-py3-none-any.whl#sha256=ab" data-requires-python="&gt;=3.12">t</a>
          <a href="https://example.org/thing-1.1.tar.gz" data-yanked="broken &amp; bad">t</a>
          <a href="thing-1.2%2Bcpu-py3-none-any.whl" data-yanked>t</a><a name="here">no file</a></body></html>"""
        found = parse("thing", "text/html; charset=utf-8", page.encode())
        told = {str(each.version): (each.yanked, each.unfit("3.11")) for each in found.all}
        assert told == {
            "1.0": (None, "it needs Python >=3.12"),
            "1.1": ("broken & bad", None),
            "1.2+cpu": ("no reason is given", None),
        }

    @pytest.mark.parametrize("body", [b"not json", b"[]", b'{"files": 3}'])
    def test_what_is_no_listing_is_a_value_error(self, body: bytes) -> None:
        with pytest.raises(ValueError, match=r"."):
            parse("thing", versions.JSON, body)


class TestOneRelease:
    @pytest.mark.parametrize(
        ("name", "fits"),
        [
            (WHEEL.format("1"), True),
            ("thing-1-cp311-cp311-manylinux_2_28_x86_64.whl", True),
            ("thing-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
            ("thing-1-cp38-abi3-manylinux2010_x86_64.whl", True),
            ("thing-1-cp312-cp312-manylinux_2_28_x86_64.whl", False),
            ("thing-1-cp311-cp311-manylinux_2_39_x86_64.whl", False),
            ("thing-1-cp311-cp311-manylinux_2_28_aarch64.whl", False),
            ("thing-1-cp311-cp311-win_amd64.whl", False),
            ("thing-1-cp311-cp311-musllinux_1_2_x86_64.whl", False),
            ("thing-1.tar.gz", True),
        ],
    )
    def test_wheels_for_other_platforms_do_not_count(self, name: str, *, fits: bool) -> None:
        why = releases({"filename": name}).all[0].unfit("3.11")
        assert why == (None if fits else "it has no wheel for Python 3.11 on x86_64-manylinux_2_36, and no source")

    @pytest.mark.parametrize(
        ("requires", "python", "fits"),
        [
            (">=3.10", "3.11", True),
            (">=3.11.4", "3.11", True),
            ("<3.11", "3.11", False),
            ("==3.11.*", "3.11", True),
            (">=3.12,<3.14", "3.11", False),
            ("gibberish", "3.11", True),
        ],
    )
    def test_requires_python(self, requires: str, python: str, *, fits: bool) -> None:
        file = {"filename": WHEEL.format("1"), "requires-python": requires}
        assert (releases(file).all[0].unfit(python) is None) == fits

    def test_a_release_is_yanked_only_where_all_its_files_are(self) -> None:
        yanked = [{**file, "yanked": "wrong wheel"} for file in wheels("1", "2")]
        found = releases(*yanked, {"filename": "thing-1.tar.gz", "yanked": False})
        assert [each.yanked for each in found.all] == [None, "wrong wheel"]

    def test_what_a_search_leaves_out(self) -> None:
        found = releases(*wheels("1", "2rc1"), {"filename": WHEEL.format("3"), "yanked": True})
        assert [each.barred("3.11", pre=False) for each in found.all] == [
            None,
            "a pre-release",
            "yanked: no reason is given",
        ]
        assert found.all[1].barred("3.11", pre=True) is None
        assert found.newest("3.11") == "1"


class TestFinding:
    found = releases(*wheels("1.0", "1.1", "1.2", "1.3", "2.0"), {"filename": WHEEL.format("1.4"), "yanked": "oops"})

    def test_versions_may_be_written_in_any_way(self) -> None:
        assert str(self.found.find("v1.0.0").version) == "1.0"

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("1.25", "thing 1.25: there is no such release; the nearest are 1.2, 1.3, 2.0"),
            ("1.2.1", "thing 1.2.1: there is no such release; the nearest are 1.1, 1.2, 1.3, 2.0"),
            ("9", "thing 9: there is no such release; the nearest are 1.3, 2.0"),
            ("1.4", "thing 1.4 was yanked: oops; the nearest are 1.2, 1.3, 2.0"),
            ("latest", "thing latest: that is no version; write one such as 2.1.0"),
        ],
    )
    def test_a_version_that_can_not_be_had_is_one_line_with_the_nearest(self, text: str, line: str) -> None:
        with pytest.raises(UsageError) as caught:
            self.found.find(text)
        assert str(caught.value) == line


class Index(BaseHTTPRequestHandler):
    """A package index of one package; what it is asked is kept."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(f"{self.path} {self.headers['Accept']}")
        status = {"/simple/thing/": 200, "/simple/broken/": 200, "/simple/secret/": 403}.get(self.path, 404)
        self.send_response(status)
        self.send_header("Content-Type", versions.JSON)
        self.end_headers()
        self.wfile.write(b"what?" if "broken" in self.path else listing(*wheels("1", "2")))

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()


class TestAsking:
    @pytest.fixture(autouse=True)
    def no_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("no_proxy", "*")
        for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)

    @pytest.mark.parametrize("variable", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"])
    def test_the_configured_index_is_asked_for_json_first(self, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        with serving() as address:
            monkeypatch.setenv(variable, f"{address}/")
            assert shown(released("Thing")) == ["1", "2"]
        assert Index.asked[-1].startswith(f"/simple/thing/ {versions.JSON}, ")

    def test_an_index_may_have_a_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with serving() as address:
            monkeypatch.setenv("UV_DEFAULT_INDEX", f"ours={address}")
            assert shown(released("thing")) == ["1", "2"]

    @pytest.mark.parametrize(
        ("package", "kind", "line"),
        [
            ("nothing", UsageError, "the package index has no package nothing"),
            ("secret", BuildError, "the package index refuses the listing of secret: 403"),
            ("broken", BuildError, "the package index gives no listing of broken that can be read"),
        ],
    )
    def test_each_answer_that_is_no_listing_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, package: str, kind: type[Exception], line: str
    ) -> None:
        with serving() as address:
            monkeypatch.setenv("UV_DEFAULT_INDEX", address)
            with pytest.raises(kind, match=line):
                released(package)

    def test_an_index_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with serving() as address:
            pass
        monkeypatch.setenv("UV_DEFAULT_INDEX", address)
        with pytest.raises(BuildError, match=r"the package index can't be reached: .*[Cc]onnection refused"):
            released("thing")

    def test_without_a_configured_index_uv_tells_its_own(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """In a file of uv's, say; nothing of it is known here."""
        program = tmp_path / "uv"
        with serving() as address:
            program.write_text(f"#!/bin/sh\necho '--index-url {address}'\n")
            program.chmod(0o755)
            monkeypatch.setattr(uv, "program", lambda: str(program))
            assert shown(released("thing")) == ["1", "2"]
