"""The header of inline script metadata (PEP 723) of a script. Pure."""

import re
import tomllib
from functools import lru_cache
from typing import NamedTuple

from packaging.utils import canonicalize_name

_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")  # as PEP 723 gives it


class ScriptHeader(NamedTuple):
    """Inline script metadata of PEP 723."""

    requirements: list[str]
    requires_python: str | None
    line: int  # on which it begins
    alone: tuple[str, ...] = ()  # packages that uv is told to depend on nothing, sorted


def script_header(text: str) -> ScriptHeader | None:
    """Return the script's PEP 723 header, or None. Raises ValueError, with what to do, if it can't be read."""
    blocks = [match for match in _BLOCK.finditer(text) if match["type"] == "script"]
    if len(blocks) > 1:
        raise ValueError("has two headers of inline script metadata; keep one")
    if not blocks:
        return None
    requirements, requires_python, alone = _parsed_header(blocks[0]["content"])
    return ScriptHeader(list(requirements), requires_python, text.count("\n", 0, blocks[0].start()) + 1, alone)


@lru_cache(maxsize=1024)
def _parsed_header(block: str) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    content = "".join(line[2:] if line.startswith("# ") else line[1:] for line in block.splitlines(keepends=True))
    try:
        data = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"has a header that is not TOML: {error}") from None
    dependencies, requires_python = data.get("dependencies", []), data.get("requires-python")
    if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
        raise ValueError("has a header whose dependencies are not a list of strings")
    if requires_python is not None and not isinstance(requires_python, str):
        raise ValueError("has a header whose requires-python is not a string")
    try:
        told = data.get("tool", {}).get("uv", {}).get("dependency-metadata", [])
        alone = sorted(canonicalize_name(each["name"]) for each in told if each["requires-dist"] == [])
    except (AttributeError, KeyError, TypeError):
        raise ValueError("has a header whose tool.uv.dependency-metadata has no names and requires-dist") from None
    return tuple(dependencies), requires_python, tuple(alone)
