"""Prints, as one line of JSON, what a Python has installed and which distributions have each module.

A script for somebody's own interpreter: it stands alone, with Python 3.8's standard library and nothing else. The
modules to look up are its arguments, dotted where namespace packages need that, as google.protobuf does.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib import metadata


def top_levels(distribution: metadata.Distribution) -> set[str]:
    """Return the names that the distribution can be imported by."""
    listed = (distribution.read_text("top_level.txt") or "").split()
    if listed:
        return set(listed)
    names = {str(path).split("/")[0] for path in distribution.files or ()}
    modules = {re.split(r"\.(?:py|so|pyd|cpython-|abi3)", name)[0] for name in names if not name.startswith((".", "_"))}
    return modules or {distribution.metadata["Name"].replace("-", "_")}


def holds(distribution: metadata.Distribution, module: str) -> bool:
    """Return whether one of its files is that module, or lies in that package."""
    place = module.replace(".", "/")
    return any(re.match(rf"{re.escape(place)}(?:/|\.)", str(path)) for path in distribution.files or ())


def from_elsewhere(distribution: metadata.Distribution) -> str | None:
    """Return where it was installed from if the index may not have that: an editable checkout, a directory, ..."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    if origin.get("dir_info", {}).get("editable"):
        return "an editable checkout"
    if "dir_info" in origin:
        return "a local directory"
    return "a repository" if "vcs_info" in origin else None


def report(modules: list[str]) -> dict[str, object]:
    tops = {module.split(".")[0] for module in modules}
    found: dict[str, list[metadata.Distribution]] = {top: [] for top in tops}
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if not name or name.lower() in versions:
            continue  # what comes first on the path is what gets imported
        versions[name.lower()] = distribution.version
        for top in tops & top_levels(distribution):
            found[top].append(distribution)
    return {
        "python": platform.python_version(),
        "standard": sorted(getattr(sys, "stdlib_module_names", ())),
        "versions": versions,
        "modules": {module: [facts(each) for each in givers(module, found)] for module in modules},
    }


def givers(module: str, found: dict[str, list[metadata.Distribution]]) -> list[metadata.Distribution]:
    """Return the distributions that have a module; if several share its top-level name, those that have its files."""
    candidates = found[module.split(".", maxsplit=1)[0]]
    return candidates if len(candidates) < 2 else [each for each in candidates if holds(each, module)] or candidates


def facts(distribution: metadata.Distribution) -> dict[str, object]:
    return {
        "name": distribution.metadata["Name"],
        "version": distribution.version,
        "elsewhere": from_elsewhere(distribution),
        "requires": requires(distribution),
    }


def requires(distribution: metadata.Distribution) -> list[str]:
    """Return the names of what it requires without a condition on extras, and does not pin itself."""
    parts = [each.partition(";") for each in distribution.requires or ()]
    always = [wanted for wanted, _, condition in parts if "==" not in wanted and "extra" not in condition]
    return [re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0] for each in always]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(report(sys.argv[1:])) + "\n")
