"""The watch: each case in each environment that can run here, its record, and what is new in it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import MachineError, UsageError
from gpu_casebook.evidence import Variant, evidence_files, load
from gpu_casebook.manifest.case import Case
from gpu_casebook.records.bisection import bisections
from gpu_casebook.records.watched import Change, Sighting, State, changed, known, watched_path
from gpu_casebook.releases.bisect import Stopped, bisect
from gpu_casebook.releases.bisector import EndError
from gpu_casebook.releases.environments import (
    Changes,
    EngineEnvironments,
    Environments,
    TriedEnvironment,
    Unusable,
    environments,
)
from gpu_casebook.releases.question import BisectOptions
from gpu_casebook.releases.signature import Sign, signature
from gpu_casebook.releases.versions import released
from gpu_casebook.revision import own_revision
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan
from gpu_casebook.statistics import clean_trials_needed, wilson
from gpu_casebook.watch.target import attempts, packages
from gpu_casebook.words import utc


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """The options of the command."""

    environment: str | None = None
    bisect: bool = False  # find the first fixed release of what was fixed since
    again: bool = False  # try also what is as it was at the last sighting


class EnvironmentWatch(NamedTuple):
    """One environment: what was seen now, and before."""

    case: str
    environment: str
    seen: Sighting | None = None
    before: Sighting | None = None
    unknown: str | None = None  # why it could not run here

    @property
    def change(self) -> Change | None:
        if self.seen and self.before and changed(self.before, self.seen):
            return Change(self.case, self.environment, self.before, self.seen)
        return None


def watch(
    case: Case, options: WatchOptions, engine: Engine, console: Console, reports: Path
) -> Iterator[EnvironmentWatch]:
    """Yield each environment in turn, after its sighting was written.

    Raises BuildError where the package index can't be reached, CasebookError where an older record can't be read.
    """
    for environment in [options.environment] if options.environment else case.manifest.environments:
        plan = make_plan(case, Options(environment=environment), engine)
        if isinstance(plan, Skipped):
            yield EnvironmentWatch(
                case.id, environment, unknown="; ".join(plan.reasons).removeprefix(f"{environment}: ")
            )
            continue
        try:
            yield _Watcher(plan, options, engine, console, reports).watch()
        except UsageError as error:  # such as a failure that single trials can't show
            yield EnvironmentWatch(case.id, environment, unknown=str(error))


class TrialsEnd(NamedTuple):
    """How the trials of one variant ended."""

    sign: Sign
    summary: str
    trials: int


@dataclass(frozen=True)
class _Watcher:
    """A case in one environment."""

    plan: Plan
    options: WatchOptions
    engine: Engine
    console: Console
    reports: Path

    @property
    def case(self) -> Case:
        return self.plan.case

    @property
    def environment(self) -> str:
        return self.plan.environment

    def watch(self) -> EnvironmentWatch:
        record = known(self.reports, self.case.id)
        before = record.latest(self.environment)
        seen = self._seen(None if self.options.again else before)
        if seen.state is State.FIXED and not seen.first_fixed:
            seen = seen.model_copy(update={"first_fixed": self._first_fixed(seen)})
        record = record.with_sighting(self.environment, seen)
        record.write(watched_path(self.reports, self.case.id))
        return EnvironmentWatch(self.case.id, self.environment, record.latest(self.environment), before)

    def _seen(self, before: Sighting | None) -> Sighting:
        to_try = attempts(self.case, self.environment, self._newest)
        failure, proof = (signature(self.case, self.environment, variant) for variant in Variant)
        with environments(self.plan, Variant.REPRO, self.engine, failure, self.console) as repro:
            if before and self._nothing_new(repro, before, to_try):
                return before.model_copy(update={"last": datetime.now(UTC)})
            return self._tried(repro, replace(repro, variant=Variant.FIXED, signature=proof), to_try)

    def _tried(self, repro: Environments, fixed: Environments, to_try: Sequence[Changes]) -> Sighting:
        """With the first of these changes that can be installed. Raises MachineError where trials can't be had."""
        quiet, failed = self._quiet(), []
        for changes in to_try:
            named = ", ".join(f"{name} {version or 'newest'}" for name, version in changes.items())
            with self.console.step(f"{self.case.id} with {named}") as note:
                try:
                    with repro.at(changes, note) as environment:
                        shown, versions = _run(environment, quiet), self._pinned_of(environment.versions)
                    with fixed.at(changes, note) as environment:
                        proof = _run(environment, self.case.manifest.trials)
                except Unusable as unusable:
                    failed.append(f"{named}: {unusable}")
                    continue
            seen = self._sighting(*judged(shown, proof), changes)
            holds = {"fix": proof.sign is Sign.QUIET, "versions": versions, "trials": shown.trials + proof.trials}
            return seen.model_copy(update=holds)
        return self._sighting(State.CANNOT, "; ".join(failed), to_try[0])

    def _sighting(self, state: State, why: str, changes: Changes) -> Sighting:
        now = datetime.now(UTC)
        return Sighting(
            state=state,
            why=why,
            moved=list(changes),
            since=now,
            last=now,
            engine=self.engine.name,
            digest=self.case.digest(),
            runner=own_revision(),
        )

    def _pinned_of(self, versions: Mapping[str, str]) -> dict[str, str]:
        return {name: versions[name] for name in packages(self.case, self.environment) if name in versions}

    def _nothing_new(self, repro: EngineEnvironments, before: Sighting, to_try: Sequence[Changes]) -> bool:
        """Whether what was let go then would come to the same versions now."""
        again = next((changes for changes in to_try if list(changes) == before.moved), None)
        if again is None or before.state is State.CANNOT:
            return False
        try:
            found = repro.resolved(again, lambda _line: None)
        except Unusable:
            return False
        return before.same_ground(self._pinned_of(found), self.case.digest())

    def _newest(self, package: str) -> str | None:
        found = released(package).newest(self.plan.spec.python)
        return str(found.version) if found else None

    def _quiet(self) -> int:
        """Trials without the failure that say it is gone, by the rate at which it was measured, or else declared."""
        manifest, trials = self.case.manifest, self.case.manifest.trials
        rate = self._measured() or self.plan.terms.least_rate or wilson(trials, trials).low
        return min(clean_trials_needed(rate, manifest.alpha), manifest.clean_trials)

    def _measured(self) -> float | None:
        """The lower end of the rate's interval in the newest evidence that has the failure."""
        paths = evidence_files(self.reports, self.case.id, self.environment)
        runs = [run for run in map(load, paths) if Variant.REPRO in run.rates and run.rates[Variant.REPRO].k]
        newest = max(runs, key=lambda run: utc(run.started), default=None)
        return newest.rates[Variant.REPRO].low if newest else None

    def _first_fixed(self, seen: Sighting) -> list[str]:
        """The release that a bisection found before, or that one finds now if --bisect was given."""
        if len(seen.moved) != 1:
            return []
        [package] = seen.moved
        for found in bisections(self.reports, self.case.id):
            asked = found.question
            if asked.seeks_fix and (asked.package, asked.environment) == (package, self.environment):
                return found.first
        return self._bisected(package, seen.versions[package]) if self.options.bisect else []

    def _bisected(self, package: str, newest: str) -> list[str]:
        options = BisectOptions(
            package=package, bad=_pinned(self.plan, package), fixed_in=newest, run=Options(environment=self.environment)
        )
        search = partial(bisect, self.case, options, self.engine, self.console, self.reports)
        try:
            return search(stopped=Stopped.EITHER)[0].first
        except (EndError, UsageError) as error:
            self.console.say(f"  the release that fixed it can't be found: {error}")
            return []


def judged(repro: TrialsEnd, fixed: TrialsEnd) -> tuple[State, str]:
    """A failure is only gone where the fix's own check ran there, and passed."""
    match repro.sign:
        case Sign.SHOWS:
            return State.STILL, repro.summary
        case Sign.QUIET if fixed.sign is Sign.QUIET:
            return State.FIXED, f"{repro.trials} trials without the failure: {repro.summary}"
        case Sign.QUIET:
            return State.OTHERWISE, f"repro keeps quiet, but fixed gives no proof: {fixed.summary}"
        case _:
            return State.OTHERWISE, repro.summary


def _run(environment: TriedEnvironment, quiet: int) -> TrialsEnd:
    """Until a trial is not quiet, or there were enough of them."""
    for number in range(1, quiet + 1):
        found = environment.run_trial()
        if found.sign is Sign.SPOILED:
            raise MachineError(f"a trial was spoiled again and again: {found.summary}; fix that, and watch again")
        if found.sign is not Sign.QUIET or number == quiet:
            return TrialsEnd(found.sign, found.summary, number)
    raise ValueError("at least one trial is needed")


def _pinned(plan: Plan, package: str) -> str:
    wanted = [Requirement(each) for each in plan.case.requirements(plan.environment, Variant.REPRO)]
    return next(next(iter(each.specifier)).version for each in wanted if canonicalize_name(each.name) == package)
