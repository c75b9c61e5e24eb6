"""Where a version is tried: an environment of its own, locked and made for it, and taken away afterwards."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from platformdirs import user_cache_path

from gpu_casebook.console import Console
from gpu_casebook.devices import hardware
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.guard import Guard, guarded
from gpu_casebook.errors import BuildError, UsageError
from gpu_casebook.evidence import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages.lock import read_lock
from gpu_casebook.packages.resolve import scratch_lock, unreachable
from gpu_casebook.redact import redact
from gpu_casebook.releases.signature import Reading, Sign, Signature
from gpu_casebook.run.pipeline import tries
from gpu_casebook.run.plan import Plan
from gpu_casebook.text import one_line
from gpu_casebook.trial import Note, Recipe, TrialRequest

WORDS = 500
"""Characters of what uv said that are kept."""

_LOG = re.compile(r"\(the whole log: [^)\n]*\)|full log: \S+")
_ADDRESS = re.compile(r"(?:https?|file)://[^\s`'\"]*?([^\s/`'\"?#()]*)(?:[?#][^\s`'\"]*)?(?=[\s`'\")]|$)")

Changes = Mapping[str, str | None]
"""Canonical names of packages, and the version that replaces the pinned one; None for the newest."""


class Unusable(Exception):  # noqa: N818 it is no error: a search passes over such a version
    """These packages can't be resolved or installed together."""


@dataclass(frozen=True)
class TriedEnvironment:
    """An environment that is ready. `versions` has what was locked, by canonical name."""

    lock: str
    versions: Mapping[str, str]
    run_trial: Callable[[], Reading]


class Environments(Protocol):
    """Where versions are tried."""

    def at(self, changes: Changes, note: Note) -> AbstractContextManager[TriedEnvironment]:
        """An environment with these packages replaced. Raises Unusable."""


def names(requirements: Sequence[str]) -> list[str]:
    """The packages that are named, in canonical form."""
    return [canonicalize_name(Requirement(each).name) for each in requirements]


def changed(requirements: Sequence[str], changes: Changes) -> list[str]:
    """The requirements with some packages at other versions, or at none in particular."""
    return [_changed(Requirement(each), each, changes) for each in requirements]


def _changed(parsed: Requirement, text: str, changes: Changes) -> str:
    name = canonicalize_name(parsed.name)
    if name not in changes:
        return text
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    version = changes[name]
    return f"{name}{extras}=={version}" if version else f"{name}{extras}"


@dataclass(frozen=True, kw_only=True)
class EngineEnvironments:
    """Trials of one variant of a case by an engine."""

    plan: Plan
    variant: Variant
    guard: Guard
    signature: Signature

    @property
    def engine(self) -> Engine:
        return self.guard.engine

    @contextmanager
    def at(self, changes: Changes, note: Note) -> Iterator[TriedEnvironment]:
        """Raises Unusable, or BuildError where the package index can't be reached."""
        lock = self._lock(changes, note)
        prepared = self._prepared(Recipe(image=self.plan.spec.image, lock=lock, python=self.plan.spec.python), note)
        request = self.plan.request(self.variant, self.plan.case.payload())
        try:
            key = hashlib.sha256(lock.encode()).hexdigest()
            with self._gpus(note):
                yield TriedEnvironment(key, _versions(lock), lambda: self._run_trial(prepared, request))
        finally:
            self.engine.forget(prepared)

    def _gpus(self, note: Note) -> AbstractContextManager[None]:
        """Held while trials run, and not while something is being installed."""
        plan = self.plan
        if plan.gpus and self.engine.local:
            return hardware.lock_gpus(plan.gpus, note, shared=plan.spec.share_gpu)
        return nullcontext()

    def resolved(self, changes: Changes, note: Note) -> Mapping[str, str]:
        """The versions that these changes come to, with nothing installed. Raises as `at`."""
        return _versions(self._lock(changes, note))

    def _lock(self, changes: Changes, note: Note) -> str:
        note("resolving")
        case, spec = self.plan.case, self.plan.spec
        requirements = changed(case.requirements(self.plan.environment, self.variant), changes)
        path = case.lock_path(self.plan.environment, self.variant)
        kept = path.is_file() and None not in changes.values()  # a lock's pins would hold back what is to be newest
        previous = path.read_text(encoding="utf-8") if kept else ""
        with _usable():
            return scratch_lock(requirements, spec.python, previous, anywhere=self.engine.uses_host_python)

    def _prepared(self, recipe: Recipe, note: Note) -> Prepared:
        with _usable():
            return self.engine.prepare(recipe, note)

    def _run_trial(self, prepared: Prepared, request: TrialRequest) -> Reading:
        def once() -> Reading:
            return self.signature.read(self.guard.run(prepared, request))

        return tries(once, lambda reading: reading.sign is Sign.SPOILED)[-1]


def _versions(lock: str) -> Mapping[str, str]:
    return {pin.name: pin.version for pin in read_lock(lock).pins}


@contextmanager
def _usable() -> Iterator[None]:
    """What the package index has for these versions is their matter; that it can't be reached is not."""
    try:
        yield
    except BuildError as error:
        if unreachable(str(error)):
            raise
        raise Unusable(presentable(str(error))) from None


def presentable(words: str) -> str:
    """What uv or a build said, on one line for a record: without addresses, the log's place, or a person's name."""
    told = _LOG.sub("", words)
    return one_line(redact(_ADDRESS.sub(lambda address: address[1] or "an address", told)).text, WORDS)


@contextmanager
def environments(
    plan: Plan, variant: Variant, engine: Engine, signature: Signature, console: Console
) -> Iterator[EngineEnvironments]:
    """Environments on this engine. Raises UsageError while another process tries versions of the same case."""
    with (
        _alone(plan.case),
        engine.throwaway() as apart,
        guarded(apart, plan.gpus, console.say, shared=plan.spec.share_gpu) as guard,
    ):
        yield EngineEnvironments(plan=plan, variant=variant, guard=guard, signature=signature)


def _locks() -> Path:
    return user_cache_path("casebook") / "steps"


@contextmanager
def _alone(case: Case) -> Iterator[None]:
    _locks().mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(_locks() / f"{case.id}.lock", timeout=0):
            yield
    except Timeout:
        raise UsageError(f"another process tries versions of {case.id} just now; wait for it, or end it") from None
