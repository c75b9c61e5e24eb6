"""Which packages of a case go to their newest release. Pure."""

from collections.abc import Callable, Sequence

from packaging.utils import canonicalize_name

from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages.lock import pins
from gpu_casebook.releases.environments import Changes

PACKAGES = {
    "flash-attention": ("flash-attn",),
    "flash-linear-attention": ("flash-linear-attention", "fla-core"),
    "liger-kernel": ("liger-kernel",),
    "pytorch": ("torch",),
    "transformerengine": ("transformer-engine",),
}
"""Where a project's packages do not have its name."""

Newest = Callable[[str], str | None]
"""The newest release of a package that can be had here, if any."""


def packages(case: Case, environment: str) -> list[str]:
    """Return the names of all packages that either variant pins."""
    return list(pins([each for variant in Variant for each in case.requirements(environment, variant)]))


def upstream_package(case: Case, environment: str) -> str | None:
    """Return the package that the case is about: its project's, or the one that its variants pin differently."""
    project = canonicalize_name(case.manifest.upstream.project.rpartition("/")[2])
    pinned = packages(case, environment)
    own = pins([*case.manifest.repro.requirements, *case.manifest.fixed.requirements])
    candidates = [*PACKAGES.get(project, (project,)), *own]
    return next((name for name in candidates if name in pinned), None)


def attempts(case: Case, environment: str, newest: Newest) -> Sequence[Changes]:
    """Return what to change, in turn until something can be installed: first the upstream package, then all."""
    target, pinned = upstream_package(case, environment), packages(case, environment)
    everything: Changes = dict.fromkeys(pinned)
    if target is None or not (version := newest(target)):
        return [everything]
    first: Changes = {target: version}
    return [first, everything] if len(pinned) > 1 else [first]
