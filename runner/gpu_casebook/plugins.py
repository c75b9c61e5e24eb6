"""What other distributions add to this one: entry points, by group and name.

Those of the plug-ins that lie beside this package in a checkout or a bundle are there without an installation.
"""

import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any


def find(group: str) -> dict[str, str]:
    """Return the entry points of a group: "module:attribute" by name."""
    beside = Path(__file__).parents[1].glob("casebook_*/pyproject.toml")
    found = [tomllib.loads(path.read_text(encoding="utf-8"))["project"]["entry-points"] for path in sorted(beside)]
    there = {name: value for points in found for name, value in points.get(group, {}).items()}
    return {point.name: point.value for point in entry_points(group=group)} | there


def load(group: str, name: str) -> Any:
    """Return what an entry point names, imported. Raises KeyError where there is none of this name."""
    return EntryPoint(name, find(group)[name], group).load()
