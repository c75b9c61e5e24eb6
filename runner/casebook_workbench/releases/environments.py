"""Where a version is tried: an environment of its own, locked and made for it, and taken away afterwards."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from platformdirs import user_cache_path
from pydantic import ValidationError

from casebook_workbench.redact import redact
from failure_signature.expectation import Expectation
from failure_signature.judging.signature import Reading, Signature
from failure_signature.kinds import Variant
from failure_signature.text import one_line
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.engines.guard import Guard, attempts, guarded
from gpu_casebook.errors import BuildError, MachineError, UsageError
from gpu_casebook.locking import sole
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages.index import UnreachableError, unreachable
from gpu_casebook.packages.lock import read_lock
from gpu_casebook.packages.resolve import scratch_lock
from gpu_casebook.pins import SourceFile
from gpu_casebook.run.plan import Plan
from gpu_casebook.trial import Note, Recipe

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
    """An environment that is ready."""

    lock: str  # its sha256
    versions: Mapping[str, str]  # what was locked, by canonical name
    run_trial: Callable[[], Reading]  # raises MachineError where the machine spoils the trial each time


OpenEnvironment = Callable[[Changes, Note], AbstractContextManager[TriedEnvironment]]
"""Makes an environment with some packages replaced, for as long as it is entered. Raises Unusable."""


def changed(requirements: Sequence[str], changes: Changes) -> list[str]:
    """Return the requirements with some packages at other versions, or at none in particular."""
    parsed = [Requirement(each) for each in requirements]
    for each in parsed:
        if (name := canonicalize_name(each.name)) in changes:
            version = changes[name]
            build = "".join(re.findall(r"\+[\w.]+$", str(each.specifier))) if version and "+" not in version else ""
            each.specifier = SpecifierSet(f"=={version}{build}" if version else "")
    return [str(each) for each in parsed]


@dataclass(frozen=True, kw_only=True)
class EngineEnvironments:
    """Trials of one variant of a case by an engine."""

    plan: Plan
    variant: Variant
    guard: Guard
    signature: Signature

    @contextmanager
    def at(self, changes: Changes, note: Note) -> Iterator[TriedEnvironment]:
        """Yield an environment with these packages replaced.

        Raises Unusable, or BuildError where the package index can't be reached.
        """
        plan, engine = self.plan, self.guard.engine
        with _usable():
            lock = self._lock(changes, note)
            recipe = Recipe(image=plan.spec.image, lock=lock, python=plan.spec.python, sources=self._sources)
            prepared = engine.prepare(recipe, note)
        request = plan.request(self.variant, plan.case.payload())

        def run_trial() -> Reading:
            readings = attempts(lambda: self.signature.read(self.guard.run(prepared, request)), _is_spoiled)
            if _is_spoiled(readings[-1]):
                why = f"the machine spoiled all {len(readings)} tries of a trial: {readings[-1].summary}"
                raise MachineError(f"{why}; fix that and run the command again (bisect: with --resume)")
            return readings[-1]

        try:
            key = hashlib.sha256(lock.encode()).hexdigest()
            with self.guard.hold_gpus(note):  # while trials run, and not while something is being installed
                yield TriedEnvironment(key, _versions(lock), run_trial)
        finally:
            engine.forget(prepared)

    def resolved(self, changes: Changes, note: Note) -> Mapping[str, str]:
        """Return the versions that these changes come to, with nothing installed. Raises as `at`."""
        with _usable():
            return _versions(self._lock(changes, note))

    @property
    def _sources(self) -> tuple[SourceFile, ...]:
        return self.plan.case.sources(self.plan.environment, self.variant)

    def _lock(self, changes: Changes, note: Note) -> str:
        note("resolving")
        case, environment = self.plan.case, self.plan.environment
        requirements = changed(case.requirements(environment, self.variant), changes)
        path = case.lock_path(environment, self.variant)
        kept = path.is_file() and None not in changes.values()  # a lock's pins would hold back what is to be newest
        previous = path.read_text(encoding="utf-8") if kept else ""
        anywhere = self.guard.engine.uses_host_python
        spec, own = self.plan.spec, self._sources
        return scratch_lock(requirements, spec.python, previous, special=spec.special, sources=own, anywhere=anywhere)


def _is_spoiled(reading: Reading) -> bool:
    return reading.infra is not None


def _versions(lock: str) -> Mapping[str, str]:
    return {pin.name: pin.version for pin in read_lock(lock).pins}


@contextmanager
def _usable() -> Iterator[None]:
    """Raise Unusable where these versions can't be installed, and let an index that can't be reached be an error."""
    try:
        yield
    except BuildError as error:
        if isinstance(error, UnreachableError) or unreachable(str(error)):
            raise
        raise Unusable(presentable(str(error))) from None


def presentable(words: str) -> str:
    """Return what uv or a build said, on one line for a record: no addresses, log's place, or person's name."""
    said = _LOG.sub("", words)
    return one_line(redact(_ADDRESS.sub(lambda address: address[1] or "an address", said)).text, WORDS)


@contextmanager
def environments(
    plan: Plan, variant: Variant, engine: Engine, signature: Signature, console: Console
) -> Iterator[EngineEnvironments]:
    """Yield environments on this engine. Raises UsageError while another process tries versions of the same case."""
    busy = f"another process tries versions of {plan.case.id} just now; wait for it, or end it"
    with (
        sole(_locks() / f"{plan.case.id}.lock", _refuse, busy),
        engine.throwaway() as apart,
        guarded(apart, plan.gpus, console.say, share=plan.share) as guard,
    ):
        yield EngineEnvironments(plan=plan, variant=variant, guard=guard, signature=signature)


def _locks() -> Path:
    return user_cache_path("casebook") / "steps"


def _refuse(why: str) -> NoReturn:
    raise UsageError(why)


# What is looked for


def failure(
    case: Case,
    environment: str,
    variant: Variant,
    expect_message: str | None = None,
    good_message: str | None = None,
) -> Signature:
    """Return the failure as it shows in this environment, or as the case declares it of any other.

    With `expect_message` only that wording shows it, and what the case declares does not, nor does `good_message`.
    Raises UsageError where one run can't show it, or the message is no regular expression.
    """
    declared = case.failures(environment)[environment]
    shown = [declared, *(each for name, each in case.failures().items() if name != environment)]
    fixed = case.expectation(environment, Variant.FIXED)
    known = [_worded(declared, good_message, "--good-message")] if good_message else []
    if expect_message is not None:
        shown, known = [_worded(declared, expect_message, "--expect-message")], [*shown, *known]
    proof = fixed if variant is Variant.FIXED else None
    return Signature(*shown, known=known, proof=proof, telling=[*declared.figures_unlike(fixed)])


def _worded(declared: Expectation, message: str, option: str) -> Expectation:
    try:
        return declared.overridden_by(Expectation(message=message))
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"{option} {message}: {why}") from None
