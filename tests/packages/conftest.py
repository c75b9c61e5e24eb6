"""A package index on this machine, as uv sees it."""

import base64
import hashlib
import json
import socket
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


def wheel(
    directory: Path, name: str, version: str, *requires: str, content: str = "", tag: str = "py3-none-any"
) -> Path:
    """A wheel that is just big enough."""
    path = directory / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    files = {
        f"{name}.py": content,
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},{record(text)}\n" for file, text in files.items()) + f"{info}/RECORD,,\n"
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def record(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(text)}"


@dataclass(frozen=True)
class Index:
    """A package index in a directory, as PEP 691 has it, and a second one beside it."""

    root: Path
    url: str

    def add(
        self, name: str, version: str, *requires: str, to: str = "simple", hashed: bool = True, sized: bool = True
    ) -> Path:
        path = wheel(self.root / "files" / to, name, version, *requires, content=to)
        return self.list(path, to, hashed=hashed, sized=sized)

    def list(self, path: Path, to: str = "simple", *, hashed: bool = True, sized: bool = True) -> Path:
        name = path.name.partition("-")[0]
        page = self.root / to / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        listing = json.loads(page.read_text()) if page.is_file() else {"meta": {"api-version": "1.1"}, "name": name}
        hashes = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()} if hashed else {}
        file: dict[str, object] = {"filename": path.name, "url": f"/files/{to}/{path.name}", "hashes": hashes}
        file |= {"size": path.stat().st_size} if sized else {}
        page.write_text(json.dumps(listing | {"files": [*listing.get("files", []), file]}))
        return path


class Quiet(SimpleHTTPRequestHandler):
    extensions_map = {".html": "application/vnd.pypi.simple.v1+json"}  # noqa: RUF012

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    root = tmp_path / "index"
    root.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        point_uv_at(monkeypatch, f"{url}/simple", tmp_path)
        yield Index(root, url)
        server.shutdown()


def point_uv_at(monkeypatch: pytest.MonkeyPatch, url: str, scratch: Path) -> None:
    for name, value in {
        "UV_DEFAULT_INDEX": url,
        "UV_CACHE_DIR": str(scratch / "uv-cache"),
        "UV_NO_CONFIG": "1",
        "UV_HTTP_RETRIES": "0",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)


def dead_index() -> str:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
