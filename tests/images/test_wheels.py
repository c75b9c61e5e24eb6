"""The mirror of the package index that builds ask: with uv as its reader, and an index made here."""

import base64
import hashlib
import http.client
import http.server
import io
import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from gpu_casebook.images.wheels import KEPT_S, forget_old, kept_bytes, serving
from gpu_casebook.packages.settings import BuildSettings, collect


def wheel(name: str, version: str = "1.0") -> bytes:
    buffer, info = io.BytesIO(), f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "ANSWER = 42\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return buffer.getvalue()


WHEEL = wheel("probe")
SHA = hashlib.sha256(WHEEL).hexdigest()
FILE = "probe-1.0-py3-none-any.whl"
LOCK = f"probe==1.0 --hash=sha256:{SHA}\n"


class Index:
    """A package index with one wheel, as JSON or as HTML; `asked` has the paths in order."""

    def __init__(self, *, kind: str = "json", secret: str = "") -> None:
        self.asked: list[str] = []
        self.strangers: list[str] = []
        self.serves = WHEEL
        self.tears = 0
        """So many downloads break off in the middle."""
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_GET(self) -> None:
                index.asked.append(self.path)
                if self.path.startswith("/elsewhere/"):
                    index.strangers.append(self.headers.get("Authorization", ""))
                    return self.answer(index.serves)
                wanted = base64.b64encode(secret.encode()).decode()
                if secret and self.headers.get("Authorization") != f"Basic {wanted}":
                    return self.answer(b"", status=401)
                if self.path == "/simple/probe/" and kind == "json":
                    return self.answer(index.json(), "application/vnd.pypi.simple.v1+json")
                if self.path == "/simple/probe/":
                    page = f'<!DOCTYPE html><a class="x" href="../../files/{FILE}#sha256={SHA}">{FILE}</a>'
                    return self.answer(page.encode(), "text/html")
                if self.path == f"/files/{FILE}":
                    return self.answer(index.serves)
                return self.answer(b"", status=404)

            do_HEAD = do_GET  # noqa: N815

            def answer(self, body: bytes, kind: str = "application/octet-stream", status: int = 200) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(index.sent(body))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://{f'{secret}@' * bool(secret)}127.0.0.1:{self.server.server_port}/simple/"

    def sent(self, body: bytes) -> bytes:
        """All of it, or the beginning of a file that is to be torn."""
        torn = body == self.serves and self.tears > 0
        self.tears -= torn
        return body[:100] if torn else body

    def json(self) -> bytes:
        file = {"filename": FILE, "url": f"../../files/{FILE}", "hashes": {"sha256": SHA}}
        return json.dumps({"meta": {"api-version": "1.0"}, "name": "probe", "files": [file]}).encode()

    @property
    def downloads(self) -> int:
        return sum(path.endswith(".whl") for path in self.asked)


@contextmanager
def running(index: Index) -> Iterator[Index]:
    thread = threading.Thread(target=index.server.serve_forever)
    thread.start()
    try:
        yield index
    finally:
        index.server.shutdown()
        index.server.server_close()
        thread.join()


def settings(index: Index) -> BuildSettings:
    return collect({"UV_DEFAULT_INDEX": index.url, "SSL_CERT_FILE": os.environ.get("SSL_CERT_FILE", "")}, {})


def install(told: BuildSettings, where: Path) -> subprocess.CompletedProcess[str]:
    """As a build does it: the settings are sourced, and uv installs the lock."""
    where.mkdir()
    (where / "lock.txt").write_text(LOCK)
    (where / "env").write_bytes(told.files["settings/env"].replace(b"/settings/ca.pem", b"/dev/null"))
    uv = f"{find_uv_bin()} pip install --no-config --no-cache --require-hashes"
    (where / "script").write_text(f". ./env; {uv} --target {where / 'site'} -r lock.txt")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    return subprocess.run(["sh", "script"], cwd=where, env=plain, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["json", "html"])
@pytest.mark.parametrize("secret", ["", "user:pass%40word"])
def test_what_one_build_downloaded_no_other_downloads_again(tmp_path: Path, kind: str, secret: str) -> None:
    with running(Index(kind=kind, secret=secret.replace("%40", "@"))) as index:
        index.url = index.url.replace("pass@word", "pass%40word")
        for number in range(3):
            with serving(settings(index), tmp_path / "kept") as told:
                done = install(told, tmp_path / str(number))
            assert done.returncode == 0, done.stderr
            assert (tmp_path / str(number) / "site" / "probe.py").is_file()
        assert index.downloads == 1
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [SHA]


def test_where_the_mirror_is_not_reached_the_index_itself_is_asked(tmp_path: Path) -> None:
    with running(Index()) as index:
        with serving(settings(index), tmp_path / "kept") as told:
            pass
        done = install(told, tmp_path / "a")
        assert done.returncode == 0, done.stderr
        assert index.downloads
    assert not (tmp_path / "kept").exists()


def test_a_file_that_is_not_what_the_index_says_is_not_kept(tmp_path: Path) -> None:
    with running(Index()) as index, serving(settings(index), tmp_path / "kept") as told:
        index.serves = wheel("probe", "6.66")
        done = install(told, tmp_path / "a")
        assert done.returncode != 0
        assert not list((tmp_path / "kept").iterdir())
        index.serves = WHEEL
        assert install(told, tmp_path / "b").returncode == 0


def test_a_download_that_breaks_off_is_begun_again_and_not_kept(tmp_path: Path) -> None:
    with running(Index()) as index, serving(settings(index), tmp_path / "kept") as told:
        index.tears = 1
        url = next(line for line in pages(told).splitlines() if FILE in line)
        assert torn(url)
        assert not list((tmp_path / "kept").iterdir())
        assert install(told, tmp_path / "a").returncode == 0
        assert [path.name for path in (tmp_path / "kept").iterdir()] == [SHA]


def pages(told: BuildSettings) -> str:
    """The addresses of all files on the project's page."""
    url = mirror_of(told)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}simple/probe/") as answer:
        return "\n".join(
            url.split("/", 3)[0] + "//" + url.split("/")[2] + each["url"] for each in json.load(answer)["files"]
        )


def torn(url: str) -> bool:
    """Whether it ends before it is whole, and does end."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60) as answer:
        try:
            return len(answer.read()) < len(WHEEL)
        except http.client.IncompleteRead:
            return True


def test_a_kept_file_that_was_spoiled_is_downloaded_again(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / SHA).write_bytes(WHEEL[:-10])
    with running(Index()) as index, serving(settings(index), tmp_path / "kept") as told:
        assert install(told, tmp_path / "a").returncode == 0
        assert index.downloads
    assert (tmp_path / "kept" / SHA).read_bytes() == WHEEL


def test_where_nothing_can_be_kept_it_is_passed_on_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file where the directory should be")
    with running(Index()) as index, serving(settings(index), tmp_path / "kept") as told:
        assert install(told, tmp_path / "a").returncode == 0


def mirror_of(told: BuildSettings) -> str:
    text = told.files["settings/env"].decode()
    return text.partition('.open("')[2].partition('"')[0]


def get(url: str) -> int:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_nobody_who_does_not_know_the_address_gets_anything(tmp_path: Path) -> None:
    with running(Index(secret="a:b")) as index, serving(settings(index), tmp_path / "kept") as told:
        url = mirror_of(told)
        host = url.rsplit("/", 2)[0]
        assert get(url) == 200
        assert [get(f"{host}/{path}") for path in ("", "simple/probe/", "x/simple/probe/")] == [404, 404, 404]
        assert get(f"{url}simple/nothing/") == 404
        assert get(f"{url}files/../../etc/passwd") == 404
    assert not any(path.startswith("/etc") for path in index.asked)
    assert index.url not in mirror_of(told)


def test_credentials_go_to_the_index_and_to_no_other_host(tmp_path: Path) -> None:
    with running(Index()) as other, running(Index(secret="a:b")) as index:
        home = index.json
        away = other.url.replace("/simple/", f"/elsewhere/{FILE}").encode()
        index.json = lambda: home().replace(f"../../files/{FILE}".encode(), away)  # type: ignore[method-assign]
        with serving(settings(index), tmp_path / "kept") as told:
            assert install(told, tmp_path / "a").returncode == 0
    assert other.strangers
    assert set(other.strangers) == {""}


@pytest.mark.parametrize("more", [{"UV_INSECURE_HOST": "example.org"}, {"PIP_TRUSTED_HOST": "example.org"}])
def test_an_index_that_can_not_be_checked_is_not_mirrored(more: dict[str, str], tmp_path: Path) -> None:
    plain = collect({"UV_DEFAULT_INDEX": "https://example.org/simple", **more}, {})
    with serving(plain, tmp_path) as told:
        assert told is plain


def test_where_nobody_names_an_index_it_is_uvs_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    opened: Callable[..., Any] = urllib.request.OpenerDirector.open

    def remember(self: Any, url: Any, *words: Any, **more: Any) -> Any:
        if "127.0.0.1" in (url if isinstance(url, str) else url.full_url):
            return opened(self, url, *words, **more)
        asked.append(url.full_url)
        raise OSError("no network in this test")

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", remember)
    with serving(collect({}, {}), tmp_path) as told:
        assert get(f"{mirror_of(told)}simple/numpy/") == 502
    (url,) = asked
    assert url.startswith("https://")
    assert url.endswith("/numpy/")


def test_what_no_build_wants_any_more_is_forgotten(tmp_path: Path) -> None:
    now = time.time()
    for name, age in (("old", KEPT_S + 60), ("new", KEPT_S - 60)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (now - age, now - age))
    assert kept_bytes(tmp_path) == 2
    assert forget_old(tmp_path, now) == [tmp_path / "old"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert forget_old(tmp_path / "nowhere", now) == []
    assert kept_bytes(tmp_path / "nowhere") == 0
