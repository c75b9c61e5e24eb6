"""Versions that differ between the variants, and where the project shows what changed between them."""

from collections.abc import Iterable
from contextlib import suppress

from packaging.utils import canonicalize_name

from failure_signature.kinds import Variant
from gpu_casebook.evidence import Evidence, UpstreamFacts
from gpu_casebook.packages.lock import pins


def home_of(upstream: UpstreamFacts) -> str | None:
    """Return the project's address on GitHub, or None if its issue is elsewhere."""
    home = f"https://github.com/{upstream.project}"
    return home if (upstream.issue or "").startswith(f"{home}/") else None


def _pinned(requirements: Iterable[str]) -> dict[str, str]:
    """Return the versions by package; evidence may have been written by hand, so what is no pin is left out."""
    found = dict[str, str]()
    for each in requirements:
        with suppress(ValueError):
            found |= pins([each])
    return found


def _tags(home: str, old: str, new: str) -> str:
    """Return where the project shows what changed between two releases: no tag has the "+cpu" of a build."""
    return f"{home}/compare/" + "...".join(f"v{version.partition('+')[0]}" for version in (old, new))


def changed_versions(run: Evidence) -> list[tuple[str, str, str, str | None]]:
    """Return package, version of repro, version of fixed, and where to compare them if the package is the project's.

    The same of upstream's files, whose versions are commits.
    """
    repro, fixed = (_pinned(run.environment.variant_requirements.get(variant, [])) for variant in Variant)
    home, named = home_of(run.case.upstream), canonicalize_name(run.case.upstream.project.rpartition("/")[2])
    own = {named, {"pytorch": "torch"}.get(named)}
    files = [{file.path: file for file in run.environment.sources.get(variant, [])} for variant in Variant]
    both = [(old, new) for path, old in files[0].items() if (new := files[1].get(path)) and new.sha256 != old.sha256]
    return [
        (name, old, fixed[name], _tags(home, old, fixed[name]) if home and name in own else None)
        for name, old in repro.items()
        if fixed.get(name, old) != old
    ] + [
        (old.path, old.commit[:12], new.commit[:12], f"{old.url}/compare/{old.commit}...{new.commit}")
        for old, new in both
    ]
