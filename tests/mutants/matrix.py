"""The matrix: every case in every way it is broken, with the verdict that is right for it."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from failure_signature.kinds import Variant
from failure_signature.trials import Verdict
from gpu_casebook.manifest.case import MANIFEST
from tests.mutants import corpus, kinds, reader, variants
from tests.mutants.kinds import Kind
from tests.mutants.mutations import Mutation, every

IMAGE = "cpu"
HERE = "here"
"""The environment of cases that were made up; the corpus has none of that name."""
SAME = "pass\n"
"""Behind a script that does what the other one does: the same code twice is refused, and these go to the judge."""


OWN = {"requirements", "sources"}
"""What a variant says of its own packages."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A case to be run."""

    name: str
    directory: Path
    environment: str
    mutation: Mutation
    trials: int | None = None
    """None for as many as the manifest says: fewer confirm nothing."""
    tool: bool | None = None
    """Whether the stand-in for compute-sanitizer is there; None for a case that needs no GPU."""

    @property
    def right(self) -> Verdict | None:
        """Its one right verdict; None where there must be none, but an error."""
        return self.mutation.right

    @property
    def unmutated(self) -> bool:
        return self.name.endswith(": as it is")


def matrix(place: Path) -> list[Mutant]:
    """Write all of them below `place`. Those that take longest come first."""
    return [*synthetic(place), *_corpus(place)]


def left_out() -> Sequence[str]:
    """The environments that could run without a GPU and do not, and why."""
    return corpus.subjects()[1]


def synthetic(place: Path) -> list[Mutant]:
    """Write those that need nothing but Python."""
    made = [*every(), *variants.everything(), *reader.everything()]
    slow_first = sorted(made, key=lambda each: each[0] is not kinds.HANG)
    return [_written(place / f"{number:03}", kind, mutation) for number, (kind, mutation) in enumerate(slow_first)]


def _written(root: Path, kind: Kind, mutation: Mutation) -> Mutant:
    directory = root / "cases" / _slug(kind.name)
    (directory / "locks").mkdir(parents=True)
    lock = kind.lock if mutation.lock is None else mutation.lock
    (directory / "locks" / f"{HERE}.txt").write_text(lock)
    (directory / MANIFEST).write_text(json.dumps(_manifest(kind, mutation, directory.name)))  # JSON is YAML
    repro = kind.repro if mutation.repro is None else mutation.repro
    fixed = kind.fixed if mutation.fixed is None else mutation.fixed
    for variant, text in {Variant.REPRO: repro, Variant.FIXED: fixed + (SAME if repro == fixed else "")}.items():
        own, shared = (repr(str(root / f"{name}.turns")) for name in (variant, "shared"))
        (directory / f"{variant}.py").write_text(text.replace("TURN", own).replace("SHARED", shared))
    if mutation.beside:
        mutation.beside(directory)
    # What a tool finds counts where the ordinary trials would confirm.
    all_of_them = kind.measured or kind is kinds.SANITIZER or mutation.right is Verdict.CONFIRMED
    return Mutant(
        name=f"{kind.name}: {mutation.name}",
        directory=directory,
        environment=HERE,
        mutation=mutation,
        trials=None if all_of_them else mutation.trials,
        tool=not mutation.no_tool if kind is kinds.SANITIZER else None,
    )


def _manifest(kind: Kind, mutation: Mutation, id_: str) -> dict[str, object]:
    gpus = 1 if kind is kinds.SANITIZER else 0
    packages = list(kind.requirements)
    return {
        "id": id_,
        "title": f"A made-up failure: {kind.name}",
        "failure": kind.failure,
        "upstream": {"project": "owner/name", "status": "fixed"},
        "provenance": "distilled",
        "environments": {HERE: {"image": IMAGE, "requirements": packages, "gpus": gpus, "grade": "simulated"}},
        "repro": {"expect": dict(kind.expect if mutation.expect is None else mutation.expect)},
        "fixed": {"expect": dict(kind.proven if mutation.proven is None else mutation.proven)},
        "timeout": "60s",
        "memory": "256MiB",
        **kind.manifest,
        **(mutation.manifest or {}),
    }


def _corpus(place: Path) -> Iterator[Mutant]:
    for subject in corpus.subjects()[0]:
        for number, change in enumerate(corpus.changes(subject)):
            root = place / f"{subject.case.id}.{subject.environment}.{number:02}"
            directory = root / "cases" / subject.case.id
            shutil.copytree(subject.case.directory, directory)
            (directory / "repro.py").write_text(change.repro)
            (directory / "fixed.py").write_text(change.fixed + (SAME if change.fixed == change.repro else ""))
            _exchange(subject, change.locks, directory)
            # Releases of which both are one release are no case, by rule.
            refused = len(set(change.locks)) == 1 and corpus.has_releases(subject)
            yield Mutant(
                name=f"{subject.case.id}, {subject.environment}: {change.name}",
                directory=directory,
                environment=subject.environment,
                mutation=Mutation(name=change.name, right=None if refused else change.right, refused=refused),
                trials=None if change.right is Verdict.CONFIRMED or corpus.takes_many(subject) else 1,
            )


def _exchange(subject: corpus.Subject, of: Sequence[Variant], directory: Path) -> None:
    """Give each variant the packages of `of`, in the manifest as in the locks: a lock that is another's is refused."""
    manifest = yaml.safe_load((directory / MANIFEST).read_text())
    was = {variant: manifest[variant] for variant in Variant}
    for variant, other in zip(Variant, of, strict=True):
        kept = {key: value for key, value in was[variant].items() if key not in OWN}
        manifest[variant] = kept | {key: was[other][key] for key in OWN & was[other].keys()}
        lock = subject.case.lock_path(subject.environment, variant).name
        shutil.copyfile(subject.case.lock_path(subject.environment, other), directory / "locks" / lock)
    (directory / MANIFEST).write_text(json.dumps(manifest))  # JSON is YAML


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())
