"""A selection -> the jobs of a run, and those that end before they start: broken manifests, no hardware."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from casebook_workbench.corpus.model import End, Finished, Job, ended
from failure_signature.kinds import Grade, Variant
from gpu_casebook.errors import CasebookError, ManifestError, UsageError
from gpu_casebook.manifest.case import Case, discover, find, known_images
from gpu_casebook.packages.lock import content_key
from gpu_casebook.revision import git
from gpu_casebook.run.plan import recipe

Look = Callable[[Case, Job], Job | Finished]
"""A look at a job that is selected: its end, where it need not begin, or else the job, with what there is to say."""

_SHOWN = 12
_CODE = re.compile(r"runner/(?:failure_signature|gpu_casebook|casebook_rootless)/([^/]+)(?:/.*)?(?<=\.py)")
_DECIDES_NOTHING = ("cli", "report", "__main__.py", "api.py", "console.py")
"""Parts of the runner that no verdict rests on; of a part that is new, each does until it is named here."""


_TRAITS = ("failure", "project", "environment", "grade")
"""Fields of a job that it can be selected by, and the options for it."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Each option that is given narrows the selection down; several values of one option widen it.

    They may be globs. Capitals count in cases only.
    """

    cases: Sequence[str] | None = None
    failure: Sequence[str] | None = None
    project: Sequence[str] | None = None
    environment: Sequence[str] | None = None
    grade: Sequence[str] | None = None
    changed_since: str | None = None
    """A revision of git."""

    def __str__(self) -> str:
        """Return the options as on the command line; "all" if there are none."""
        words = list(self.cases or ())
        for name in _TRAITS:
            words += [word for value in getattr(self, name) or () for word in (f"--{name}", value)]
        words += ["--changed-since", self.changed_since] if self.changed_since else []
        return shlex.join(words) or "all"

    def takes(self, job: Job) -> bool:
        """Return whether it takes this job of a case that it takes by name."""
        return all(
            _matches(getattr(job, name).lower(), [each.lower() for each in getattr(self, name) or ()])
            for name in _TRAITS
        )


class Chosen(NamedTuple):
    """Every job, and the ends of those that need not start."""

    jobs: list[Job]
    ended: list[Finished]


def as_it_is(_case: Case, job: Job) -> Job:
    """Return the job as it is: to be run."""
    return job


def select(root: Path, selection: Selection, look: Look = as_it_is) -> Chosen:
    """Return the jobs of a run in the checkout at `root`.

    Each manifest is read once, and one is held at a time: there may be a thousand.
    A case whose manifest or lock is broken ends as BROKE, wherever it is not ruled out by its name. That nothing
    changed is no mistake: then there are no jobs. Raises UsageError where nothing else is selected, or by something
    there is not.
    """
    ids = _named(root, selection)
    images, looked_at, found = known_images(root), list[Job](), list[Job | Finished]()
    for id_ in ids:
        try:
            case = find(root, id_, images)
        except Exception as error:  # noqa: BLE001 a manifest that breaks the reader is that case's own result
            broken = Job(case=id_, environment="", failure="", project="", grade=Grade.HARDWARE)
            found.append(ended(broken, End.BROKE, _why(error)))
            continue
        jobs = [_job(case, environment) for environment in case.manifest.environments]
        looked_at += jobs
        found += [_looked_at(case, job, look) for job in jobs if selection.takes(job)]
    if not found and selection.changed_since is None:
        raise UsageError(f"nothing is selected by {selection}; {_having(len(ids), looked_at)}")
    ends = [each for each in found if isinstance(each, Finished)]
    return Chosen([each.job if isinstance(each, Finished) else each for each in found], ends)


def changed(root: Path, revision: str) -> set[str]:
    """Return cases that may end differently since that revision, or since this branch left it.

    A change in a case's directory is that case's. One in images/<name>/ is that of the cases with an environment on
    that image; one in images/common/, the pinned bases, or what the runner runs and judges trials with is everybody's.
    Raises UsageError for a revision that git does not know.
    """
    paths = _changed_paths(root, revision)
    every = set(discover(root))
    if any(map(_concerns_all, paths)):
        return every
    images = {path.split("/")[1] for path in paths if path.startswith("images/")}
    own = {path.split("/")[1] for path in paths if path.startswith("cases/")}
    return (own & every) | set(_on_images(root, every - own, images))


def _looked_at(case: Case, job: Job, look: Look) -> Job | Finished:
    try:
        return look(case, job)
    except (CasebookError, OSError, UnicodeDecodeError) as error:
        return ended(job, End.BROKE, _why(error))


def _job(case: Case, environment: str) -> Job:
    manifest, spec = case.manifest, case.environment(environment)
    return Job(
        case=case.id,
        environment=environment,
        failure=manifest.failure.value,
        project=manifest.upstream.project,
        grade=spec.grade,
        gpus=spec.gpus,
        shared=spec.gpus > 0 and not case.alone(environment),
        compute_capability=spec.compute_capability,
    )


def environment_key(case: Case, environment: str) -> str:
    """Return a key over image and locks of both variants: equal keys, equal environments. Raises ManifestError."""
    recipes = dict.fromkeys(recipe(case, environment, variant) for variant in Variant)
    return "+".join(content_key(each.lock, each.python, each.image)[:20] for each in recipes)


def _why(error: Exception) -> str:
    if isinstance(error, ManifestError):
        more = len(error.problems) - 1
        return f"{error.problems[0]}{f' (and {more} more)' if more else ''}"
    return str(error) if isinstance(error, CasebookError) else f"it can't be read: {type(error).__name__}: {error}"


def _having(cases: int, jobs: Iterable[Job]) -> str:
    """Return what there is to select by, for whoever selected something else."""
    has = "the case looked at has" if cases == 1 else f"the {cases} cases looked at have"
    values = {name: sorted({getattr(job, name) for job in jobs}) for name in _TRAITS}
    return f"{has} {'; '.join(f'{name}: {_listed(each)}' for name, each in values.items())}"


def _named(root: Path, selection: Selection) -> list[str]:
    every = discover(root)
    for pattern in selection.cases or ():
        if not any(fnmatchcase(id_, pattern) for id_ in every):
            raise UsageError(f"no case is called {pattern!r} (there are: {_listed(every)})")
    ids = [id_ for id_ in every if _matches(id_, selection.cases)]
    if selection.changed_since is None:
        return ids
    return sorted(changed(root, selection.changed_since) & set(ids))


def _matches(value: str, patterns: Sequence[str] | None) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}" or "none"


def _concerns_all(path: str) -> bool:
    if path.startswith("images/"):
        return path.startswith("images/common/") or path.count("/") == 1
    found = _CODE.fullmatch(path)
    return bool(found and found[1] not in _DECIDES_NOTHING)


def _on_images(root: Path, ids: Collection[str], images: Collection[str]) -> Iterator[str]:
    known = known_images(root)
    for id_ in ids if images else ():
        try:
            specs = find(root, id_, known).manifest.environments.values()
        except CasebookError:
            yield id_  # it may be one of them
            continue
        if any(spec.image in images for spec in specs):
            yield id_


def _changed_paths(root: Path, revision: str) -> list[str]:
    """Return the paths that are committed, staged, changed or new, relative to `root`."""
    if git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}") is None:
        raise UsageError(f"--changed-since {revision}: {_what_git_has(root)}")
    base = (git(root, "merge-base", "HEAD", revision) or revision).strip()
    lists = (
        git(root, "diff", "--name-only", "--relative", "--no-renames", "-z", base, "--"),
        git(root, "ls-files", "--others", "--exclude-standard", "-z"),
    )
    return list(chain.from_iterable((names or "").split("\0")[:-1] for names in lists))


def _what_git_has(root: Path) -> str:
    names = git(root, "for-each-ref", "--sort=-creatordate", "--format=%(refname:short)")
    if names is None:
        return "this checkout has no git history, so nobody knows what changed"
    return f"git knows no such revision here (there are: {_listed([*names.split(), 'HEAD~1'])})"
