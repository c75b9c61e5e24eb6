"""A cache of the wheels that builds download: no build downloads again what another one did.

While a build runs, a mirror of the package index answers on the loopback. The build gets both addresses and uses the
mirror's if it answers: for an engine on another machine it does not, and the build asks the index itself. Files are
kept under the sha256 that the index gives, and checked against it whenever one comes in or goes out; the lock's hashes
decide what gets installed, whoever served it. Credentials for the index stay here.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import ssl
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from platformdirs import user_cache_path

from gpu_casebook.packages.settings import BuildSettings
from gpu_casebook.packages.uv import default_index

__all__ = ["Mirror", "forget_old", "kept_bytes", "place", "serving"]

KEPT_S = 30 * 24 * 3600.0
"""How long a file is kept after its last use."""
_CHUNK = 2**20
_PATIENCE_S = 180.0
_SIMPLE = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
_LINK = re.compile(rb"""(<a\b[^>]*?\bhref\s*=\s*)(["'])(.*?)\2""", re.IGNORECASE | re.DOTALL)


class IndexFile(NamedTuple):
    """A file of the index."""

    url: str
    sha256: str | None  # in hex; None if the index gives none


def place() -> Path:
    return user_cache_path("casebook") / "wheels"


def forget_old(directory: Path, now: float) -> list[Path]:
    """Remove and return files that were not used for `KEPT_S` before `now`, in seconds since the epoch."""
    gone = []
    for path in directory.glob("*"):
        with suppress(OSError):
            if now - path.stat().st_mtime > KEPT_S:
                path.unlink()
                gone.append(path)
    return gone


def kept_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*"))


@dataclass
class Mirror:
    """A mirror of the index `index` that keeps files in `directory`. Safe for several threads."""

    index: str
    directory: Path
    opener: urllib.request.OpenerDirector
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    files: dict[str, IndexFile] = field(default_factory=dict)

    @cached_property
    def _home(self) -> tuple[str, str]:
        """The index without its credentials, and the header that has them."""
        parts = urlsplit(self.index)
        if parts.username is None:
            return self.index.rstrip("/"), ""
        host = parts.netloc.rpartition("@")[2]
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        bare = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
        return bare.rstrip("/"), f"Basic {b64encode(secret.encode()).decode()}"

    def ask(self, url: str, accept: str = "*/*") -> Any:
        """Return the index's answer. Raises HTTPError, or OSError if there is none."""
        home, secret = self._home
        request = urllib.request.Request(url, headers={"Accept": accept, "User-Agent": "casebook"})  # noqa: S310
        if secret and urlsplit(url).netloc == urlsplit(home).netloc:
            request.add_unredirected_header("Authorization", secret)
        return self.opener.open(request, timeout=_PATIENCE_S)

    def page(self, project: str) -> tuple[str, bytes]:
        """Return the content type and text of a project's page, with every link leading to this mirror."""
        with closing(self.ask(f"{self._home[0]}/{project}/", _SIMPLE)) as answer:
            kind, body, url = answer.headers.get("Content-Type", "text/html"), answer.read(), answer.geturl()
        return kind, self._json(body, url) if "json" in kind else self._html(body, url)

    def _json(self, body: bytes, url: str) -> bytes:
        data = json.loads(body)
        for each in data.get("files", []):
            each["url"] = self._here(urljoin(url, each["url"]), each.get("hashes", {}).get("sha256"))
        return json.dumps(data).encode()

    def _html(self, body: bytes, url: str) -> bytes:
        def moved(link: re.Match[bytes]) -> bytes:
            target, fragment = urldefrag(urljoin(url, link[3].decode().replace("&amp;", "&")))
            digest = re.match(r"sha256=([0-9a-f]{64})$", fragment)
            here = self._here(target, digest[1] if digest else None)
            return link[1] + link[2] + f"{here}#{fragment}".rstrip("#").encode() + link[2]

        return _LINK.sub(moved, body)

    def _here(self, url: str, sha256: str | None) -> str:
        key = hashlib.sha256(url.encode()).hexdigest()[:32]
        name = urlsplit(url).path.rpartition("/")[2]
        self.files[key] = IndexFile(url, sha256 if re.fullmatch("[0-9a-f]{64}", sha256 or "") else None)
        return f"/{self.token}/files/{key}/{name}"

    def kept(self, file: IndexFile) -> Path | None:
        """Return the file if it is here and intact, and set its time to now: the last use."""
        path = self.directory / (file.sha256 or "-")
        if file.sha256 is None or not path.is_file():
            return None
        with path.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() == file.sha256:
                os.utime(path)
                return path
        path.unlink(missing_ok=True)
        return None

    def passed_on(self, answer: IO[bytes], file: IndexFile, to: BufferedIOBase) -> None:
        """Copy `answer` to `to`, and keep it if its digest is right. If the disk is full, it is only passed on."""
        partial = self.directory / f".{secrets.token_hex(8)}"
        digest, copy = hashlib.sha256(), _Copy(partial if file.sha256 else None)
        try:
            listening = True
            while (listening or copy.goes_on) and (chunk := answer.read(_CHUNK)):
                listening = listening and _handed(chunk, to)
                digest.update(chunk)
                copy.write(chunk)
        finally:
            whole = copy.close()
            if whole and digest.hexdigest() == file.sha256:
                with suppress(OSError):
                    partial.replace(self.directory / file.sha256)
            partial.unlink(missing_ok=True)


def _handed(chunk: bytes, to: BufferedIOBase) -> bool:
    """Return whether the client took it. One that wants only the metadata hangs up, and asks for all of it later."""
    try:
        to.write(chunk)
    except ConnectionError:
        return False
    return True


class _Copy:
    """A file that is written until that fails."""

    def __init__(self, path: Path | None) -> None:
        self._file: IO[bytes] | None = None
        with suppress(OSError):
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("wb")

    @property
    def goes_on(self) -> bool:
        return self._file is not None

    def write(self, chunk: bytes) -> None:
        try:
            if self._file:
                self._file.write(chunk)
        except OSError:
            self.close()

    def close(self) -> bool:
        """Return whether all of it was written."""
        file, self._file = self._file, None
        try:
            if file:
                file.close()
        except OSError:
            return False
        return file is not None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Credentials follow on the same host, and to no other."""

    def redirect_request(  # noqa: PLR0917 as its base has it
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        secret = req.unredirected_hdrs.get("Authorization")
        if new and secret and urlsplit(newurl).netloc == urlsplit(req.full_url).netloc:
            new.add_unredirected_header("Authorization", secret)
        return new


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mirror: Mirror
    _begun = False

    def do_GET(self) -> None:
        with suppress(ConnectionError):
            self._answer()

    do_HEAD = do_GET  # noqa: N815 as the server spells it

    def _answer(self) -> None:
        match self.path.strip("/").split("/"):
            case [token, *rest] if secrets.compare_digest(token, self.mirror.token):
                try:
                    self._route(rest)
                except urllib.error.HTTPError as error:
                    error.close()
                    self._say(error.code)
                except (OSError, HTTPException, ValueError):
                    if not self._begun:  # in the middle of a file nothing can be said any more
                        self._say(502)
            case _:
                self._say(404)

    def _route(self, rest: list[str]) -> None:
        match rest:
            case []:
                self._say(200)
            case ["simple", project]:
                kind, body = self.mirror.page(project)
                self._say(200, body, kind)
            case ["files", key, name] if key in self.mirror.files:
                self._file(self.mirror.files[key], name)
            case _:
                self._say(404)

    def _file(self, file: IndexFile, name: str) -> None:
        if name.endswith(".metadata"):
            with closing(self.mirror.ask(f"{file.url}.metadata")) as answer:
                self._say(200, answer.read(), "application/octet-stream")
        elif self.command == "HEAD":
            self._say(405)  # uv asks whether it may have ranges
        elif path := self.mirror.kept(file):
            with path.open("rb") as content:
                self._begin(path.stat().st_size)
                shutil.copyfileobj(content, self.wfile, _CHUNK)
        else:
            with closing(self.mirror.ask(file.url)) as answer:
                length = answer.headers.get("Content-Length")
                self._begin(int(length) if length else None)
                self.mirror.passed_on(answer, file, self.wfile)

    def _begin(self, length: int | None) -> None:
        """A file's head. The connection ends with the file, so that a torn one is seen to be torn."""
        self._begun = True
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Connection", "close")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _say(self, status: int, body: bytes = b"", kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 as the server spells it
        pass


@contextmanager
def serving(settings: BuildSettings, directory: Path) -> Iterator[BuildSettings]:
    """Serve a mirror and yield the settings with its address; yield them unchanged if the index can't be mirrored."""
    index = settings.variables.get("UV_DEFAULT_INDEX") or default_index()
    if index is None or "UV_INSECURE_HOST" in settings.variables:
        yield settings
        return
    forget_old(directory, time.time())
    mirror = Mirror(index, directory, _opener(settings))
    handler = type("Handler", (_Handler,), {"mirror": mirror})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, name="wheels", daemon=True)
    thread.start()
    try:
        yield settings.with_mirror(f"http://127.0.0.1:{server.server_port}/{mirror.token}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _opener(settings: BuildSettings) -> urllib.request.OpenerDirector:
    certificates = settings.certificates
    context = ssl.create_default_context(cadata=certificates.decode("utf-8", "replace") if certificates else None)
    proxies = {name.removesuffix("_proxy"): url for name, url in settings.proxies.items() if name.endswith("_proxy")}
    return urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies or None), urllib.request.HTTPSHandler(context=context), _Redirects()
    )
