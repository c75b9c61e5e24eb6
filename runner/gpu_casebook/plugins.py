"""What other packages add to this one (verbs, engines, probes, workers), found by entry point.

Nothing need be installed: in a checkout and in a bundle the entry points are read where they are declared, in the
pyproject.toml of this project and of each package beside this one.
"""

import tomllib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from gpu_casebook.revision import CHECKOUT, PACKAGED

_BESIDE = Path(__file__).parents[1]
"""The directory that Python finds this package in."""


@cache
def find(group: str) -> dict[str, str]:
    """Return where each entry point of a group is: "module:attribute" by name. What the checkout declares wins."""
    return {point.name: point.value for point in entry_points(group=group)} | _declared().get(group, {})


def load(group: str, name: str) -> Any:
    """Return what an entry point names. Raises KeyError where there is none of this name."""
    return EntryPoint(name, find(group)[name], group).load()


@cache
def _declared() -> dict[str, dict[str, str]]:
    if PACKAGED.is_dir():  # installed from a wheel: its own metadata says all
        return {}
    found: dict[str, dict[str, str]] = {}
    for path in (CHECKOUT / "pyproject.toml", *sorted(_BESIDE.glob("*/pyproject.toml"))):
        if path.is_file():
            project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
            for group, points in project.get("entry-points", {}).items():
                found.setdefault(group, {}).update(points)
    return found
