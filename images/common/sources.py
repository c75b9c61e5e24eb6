"""Fetches the source distributions that a pylock.toml on stdin names into a directory. Runs while an image is built.

uv has no command for it: it fetches sources only to build them. Their hashes are compared when they are installed.
"""

import base64
import os
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX")


def asked(url: str) -> Request:
    """Return the request for a file, with the password of the index on the same host."""
    place = urlsplit(url)
    request = Request(place._replace(netloc=place.netloc.rpartition("@")[2]).geturl())  # noqa: S310 uv's own answer
    for index in map(urlsplit, [url, *" ".join(os.environ.get(name, "") for name in INDEXES).split()]):
        if index.username and (index.hostname, index.port) == (place.hostname, place.port):
            words = f"{unquote(index.username)}:{unquote(index.password or '')}"
            request.add_header("Authorization", f"Basic {base64.b64encode(words.encode()).decode()}")
    return request


directory = Path(sys.argv[1])
directory.mkdir()
for package in tomllib.load(sys.stdin.buffer)["packages"]:
    url = package["sdist"]["url"]
    with urlopen(asked(url)) as answer:  # noqa: S310
        (directory / urlsplit(url).path.rpartition("/")[2]).write_bytes(answer.read())
