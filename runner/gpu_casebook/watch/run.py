"""The watch: each case in each environment that can run here, its record, and what is new in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import Variant, evidence_files, load
from gpu_casebook.manifest.case import Case
from gpu_casebook.records.bisection import bisections
from gpu_casebook.records.watched import Change, Sighting, State, changed, known, watched_path
from gpu_casebook.releases import site as places
from gpu_casebook.releases.begin import Ask
from gpu_casebook.releases.drive import EndError
from gpu_casebook.releases.run import Stopped, bisect
from gpu_casebook.releases.signature import signature
from gpu_casebook.releases.site import Changes, EngineSite, Unusable
from gpu_casebook.releases.versions import released
from gpu_casebook.revision import own_revision
from gpu_casebook.run.plan import Options, Plan, Skipped, make_plan
from gpu_casebook.statistics import clean_trials_needed, wilson
from gpu_casebook.watch.look import Ground, look
from gpu_casebook.watch.target import attempts, packages
from gpu_casebook.words import utc


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the command line asks for. With `again` a look is taken though nothing came out since the last one."""

    environment: str | None = None
    bisect: bool = False
    again: bool = False


class Look(NamedTuple):
    """One environment: what was seen and what was known before; `unknown` says why it could not run here."""

    case: str
    environment: str
    seen: Sighting | None = None
    before: Sighting | None = None
    unknown: str | None = None

    @property
    def change(self) -> Change | None:
        if self.seen and self.before and changed(self.before, self.seen):
            return Change(self.case, self.environment, self.before, self.seen)
        return None


def watch(case: Case, wish: Wish, engine: Engine, console: Console, reports: Path) -> Iterator[Look]:
    """Each environment in turn, its sighting written before it is told.

    Raises BuildError where the package index can't be reached, CasebookError where an older record can't be read.
    """
    for environment in [wish.environment] if wish.environment else case.manifest.environments:
        plan = make_plan(case, Options(environment=environment), engine)
        if isinstance(plan, Skipped):
            yield Look(case.id, environment, unknown="; ".join(plan.reasons).removeprefix(f"{environment}: "))
            continue
        try:
            yield _Watcher(plan, wish, engine, console, reports).look()
        except UsageError as error:  # such as a failure that single trials can't tell
            yield Look(case.id, environment, unknown=str(error))


@dataclass(frozen=True)
class _Watcher:
    """A case in one environment."""

    plan: Plan
    wish: Wish
    engine: Engine
    console: Console
    reports: Path

    @property
    def case(self) -> Case:
        return self.plan.case

    @property
    def environment(self) -> str:
        return self.plan.environment

    def look(self) -> Look:
        record = known(self.reports, self.case.id)
        before = record.latest(self.environment)
        seen = self._seen(None if self.wish.again else before)
        if seen.state is State.FIXED and not seen.first_fixed:
            seen = seen.model_copy(update={"first_fixed": self._first_fixed(seen)})
        record = record.with_sighting(self.environment, seen)
        record.write(watched_path(self.reports, self.case.id))
        return Look(self.case.id, self.environment, record.latest(self.environment), before)

    def _seen(self, before: Sighting | None) -> Sighting:
        ground, what = self._ground(), attempts(self.case, self.environment, self._newest)
        shows, proof = (signature(self.case, self.environment, variant) for variant in Variant)
        with places.site(self.plan, Variant.REPRO, self.engine, shows, self.console) as repro:
            if before and _nothing_new(repro, before, what, ground):
                return before.model_copy(update={"last": ground.now})
            return look((repro, replace(repro, variant=Variant.FIXED, signature=proof)), what, ground, self.console)

    def _ground(self) -> Ground:
        return Ground(
            case=self.case.id,
            pinned=packages(self.case, self.environment),
            quiet=self._quiet(),
            proofs=self.case.manifest.trials,
            digest=self.case.digest(),
            engine=self.engine.name,
            runner=own_revision(),
            now=datetime.now(UTC),
        )

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
        """As a bisection found it before, or as one finds it now, where one package was let go and that is wished."""
        if len(seen.moved) != 1:
            return []
        [package] = seen.moved
        for found in bisections(self.reports, self.case.id):
            asked = found.question
            if asked.mended and (asked.package, asked.environment) == (package, self.environment):
                return found.first
        return self._bisected(package, seen.versions[package]) if self.wish.bisect else []

    def _bisected(self, package: str, newest: str) -> list[str]:
        ask = Ask(package=package, bad=_pinned(self.plan, package), fixed_in=newest)
        search = partial(bisect, self.case, ask, self.engine, self.console, self.reports, environment=self.environment)
        try:
            return search(stopped=Stopped.EITHER)[0].first
        except (EndError, UsageError) as error:
            self.console.say(f"  which release mended it can't be told: {error}")
            return []


def _nothing_new(site: EngineSite, before: Sighting, what: Sequence[Changes], ground: Ground) -> bool:
    """Whether what was let go then would come to the same versions now."""
    again = next((changes for changes in what if list(changes) == before.moved), None)
    if again is None or before.state is State.CANNOT:
        return False
    try:
        found = site.resolved(again, lambda _line: None)
    except Unusable:
        return False
    versions = {name: found[name] for name in ground.pinned if name in found}
    return before.same_ground(versions, ground.digest)


def _pinned(plan: Plan, package: str) -> str:
    wanted = [Requirement(each) for each in plan.case.requirements(plan.environment, Variant.REPRO)]
    return next(next(iter(each.specifier)).version for each in wanted if canonicalize_name(each.name) == package)
