"""The matrix: every case in every way it is broken, with the verdict that is right for it."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_casebook.evidence import Verdict
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import MANIFEST
from tests.fakes import locked
from tests.mutants import corpus, kinds
from tests.mutants.kinds import Kind
from tests.mutants.mutations import Mutation, every

IMAGE = "cpu"
SAME = "pass\n"
"""Behind a script that does what the other one does: the same code twice is refused, and these go to the judge."""
LOCK = locked([])


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A case to be run. `right` is its one right verdict; None where there must be none, but an EngineError."""

    name: str
    directory: Path
    right: Verdict | None
    environment: str
    trials: int | None = None
    """None for as many as the manifest says: fewer confirm nothing."""
    timeout_s: float | None = None
    gone: Variant | None = None
    tool: bool | None = None
    """Whether the stand-in for compute-sanitizer is there; None for a case that needs no GPU."""

    @property
    def unmutated(self) -> bool:
        return self.name.endswith(": as it is")


def matrix(place: Path) -> list[Mutant]:
    """Write all of them below `place`. Those that take longest come first."""
    return [*_synthetic(place), *_corpus(place)]


def left_out() -> Sequence[str]:
    """The environments that could run without a GPU and do not, and why."""
    return corpus.subjects()[1]


def _synthetic(place: Path) -> Iterator[Mutant]:
    for number, (kind, mutation) in enumerate(every()):
        yield _written(place / f"{number:03}", kind, mutation)


def _written(root: Path, kind: Kind, mutation: Mutation) -> Mutant:
    directory = root / "cases" / _slug(kind.name)
    (directory / "locks").mkdir(parents=True)
    (directory / "locks" / "here.txt").write_text(LOCK)
    (directory / MANIFEST).write_text(json.dumps(_manifest(kind, directory.name)))  # JSON is YAML
    repro = kind.repro if mutation.repro is None else mutation.repro
    fixed = kind.fixed if mutation.fixed is None else mutation.fixed
    for variant, text in {Variant.REPRO: repro, Variant.FIXED: fixed + (SAME if repro == fixed else "")}.items():
        (directory / f"{variant}.py").write_text(text.replace("TURN", repr(str(root / f"{variant}.turns"))))
    return Mutant(
        name=f"{kind.name}: {mutation.name}",
        directory=directory,
        right=mutation.right,
        environment="here",
        trials=None if kind.measured or mutation.right is Verdict.CONFIRMED else mutation.trials,
        timeout_s=mutation.timeout_s,
        gone=mutation.gone,
        tool=not mutation.no_tool if kind is kinds.SANITIZER else None,
    )


def _manifest(kind: Kind, id_: str) -> dict[str, object]:
    gpus = 1 if kind is kinds.SANITIZER else 0
    return {
        "id": id_,
        "title": f"A made-up failure: {kind.name}",
        "failure": kind.failure,
        "upstream": {"project": "owner/name", "status": "fixed"},
        "provenance": "distilled",
        "environments": {"here": {"image": IMAGE, "requirements": [], "gpus": gpus, "grade": "simulated"}},
        "repro": {"expect": dict(kind.expect)},
        "fixed": {"expect": dict(kind.proven)},
        "timeout": "60s",
        "memory": "256MiB",
        **kind.manifest,
    }


def _corpus(place: Path) -> Iterator[Mutant]:
    for subject in corpus.subjects()[0]:
        for number, change in enumerate(corpus.changes(subject)):
            root = place / f"{subject.case.id}.{subject.environment}.{number:02}"
            directory = root / "cases" / subject.case.id
            shutil.copytree(subject.case.directory, directory)
            (directory / "repro.py").write_text(change.repro)
            (directory / "fixed.py").write_text(change.fixed + (SAME if change.fixed == change.repro else ""))
            for variant, other in zip(Variant, change.locks, strict=True):
                of = subject.case.lock_path(subject.environment, variant).name
                shutil.copyfile(subject.case.lock_path(subject.environment, other), directory / "locks" / of)
            yield Mutant(
                name=f"{subject.case.id}, {subject.environment}: {change.name}",
                directory=directory,
                right=change.right,
                environment=subject.environment,
                trials=None if change.right is Verdict.CONFIRMED else 1,
            )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())
