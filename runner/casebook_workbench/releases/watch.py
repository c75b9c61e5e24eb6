"""The watch: each case with the newest releases of what it pins, in each environment that can run here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name

from casebook_workbench.releases.bisect import Stopped, bisect
from casebook_workbench.releases.environments import (
    Changes,
    EngineEnvironments,
    TriedEnvironment,
    Unusable,
    environments,
    failure,
)
from casebook_workbench.releases.records import Question, bisections
from casebook_workbench.releases.search import EndError
from casebook_workbench.releases.versions import released
from failure_signature.judging.signature import Reading, Sign
from failure_signature.kinds import Variant
from failure_signature.statistics import clean_trials_needed, wilson
from failure_signature.text import utc
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import evidence_files, load
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages.lock import pins
from gpu_casebook.report.watched import Sighting, State, changed, known, watched_path
from gpu_casebook.revision import own_revision
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan

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


class EnvironmentWatch(NamedTuple):
    """One environment: what was seen now, and before."""

    environment: str
    seen: Sighting | None = None
    before: Sighting | None = None
    unknown: str | None = None  # why it could not run here

    @property
    def changed(self) -> bool:
        return bool(self.seen and self.before and changed(self.before, self.seen))


def watch(
    case: Case,
    engine: Engine,
    console: Console,
    reports: Path,
    *,
    environment: str | None = None,
    search: bool = False,
    again: bool = False,
) -> Iterator[EnvironmentWatch]:
    """Yield one environment of the case, or each in turn, after its sighting was written.

    `search` is for the first release that fixed what was fixed since; with `again` also what is as it was is tried.
    Raises BuildError where the package index can't be reached, CasebookError where an older record can't be read.
    """
    for name in [environment] if environment else case.manifest.environments:
        plan = make_plan(case, Options(environment=name), engine)
        if isinstance(plan, Skipped):
            yield EnvironmentWatch(name, unknown="; ".join(plan.reasons).removeprefix(f"{name}: "))
            continue
        try:
            yield _Watcher(plan, engine, console, reports, search=search, again=again).watch()
        except UsageError as error:  # such as a failure that single trials can't show
            yield EnvironmentWatch(name, unknown=str(error))


@dataclass(frozen=True)
class _Watcher:
    """A case in one environment."""

    plan: Plan
    engine: Engine
    console: Console
    reports: Path
    search: bool
    again: bool

    @property
    def case(self) -> Case:
        return self.plan.case

    @property
    def environment(self) -> str:
        return self.plan.environment

    def watch(self) -> EnvironmentWatch:
        record = known(self.reports, self.case.id)
        before = record.latest(self.environment)
        seen = self._seen(None if self.again else before)
        if seen.state is State.FIXED and not seen.first_fixed:
            seen = seen.model_copy(update={"first_fixed": self._first_fixed(seen)})
        record = record.with_sighting(self.environment, seen)
        record.write(watched_path(self.reports, self.case.id))
        return EnvironmentWatch(self.environment, record.latest(self.environment), before)

    def _seen(self, before: Sighting | None) -> Sighting:
        """Try the first of the changes that can be installed; `before` is seen again where nothing is new."""
        python = self.plan.spec.python
        to_try = attempts(self.case, self.environment, lambda package: released(package).newest(python))
        sought, proof = (failure(self.case, self.environment, variant) for variant in Variant)
        failed = []
        with environments(self.plan, Variant.REPRO, self.engine, sought, self.console) as repro:
            if before and self._nothing_new(repro, before, to_try):
                return before.model_copy(update={"last": datetime.now(UTC)})
            fixed = replace(repro, variant=Variant.FIXED, signature=proof)
            for changes in to_try:
                title = ", ".join(f"{name} {version or 'newest'}" for name, version in changes.items())
                try:
                    return self._tried(repro, fixed, changes, title)
                except Unusable as unusable:
                    failed.append(f"{title}: {unusable}")
        return self._sighting(State.CANNOT, "; ".join(failed), to_try[0])

    def _nothing_new(self, repro: EngineEnvironments, before: Sighting, to_try: Sequence[Changes]) -> bool:
        """Return whether the same changes as then would come to the same versions now."""
        again = next((changes for changes in to_try if list(changes) == before.moved), None)
        if again is None or before.state is State.CANNOT:
            return False
        try:
            found = repro.resolved(again, lambda _line: None)
        except Unusable:
            return False
        return before.same_ground(self._pinned_of(found), self.case.digest())

    def _tried(self, repro: EngineEnvironments, fixed: EngineEnvironments, changes: Changes, title: str) -> Sighting:
        """Run the trials of both variants. Raises Unusable, and MachineError where trials can't be had."""
        with self.console.step(f"{self.case.id} with {title}") as note:
            with repro.at(changes, note) as environment:
                versions = self._pinned_of(environment.versions)
                shown = _run(environment, self._quiet_needed())
            with fixed.at(changes, note) as environment:
                proof = _run(environment, self.case.manifest.trials)
        return self._sighting(
            *judged(shown, proof[-1]),
            changes,
            fix=proof[-1].sign is Sign.ABSENT,
            versions=versions,
            trials=len(shown) + len(proof),
        )

    def _sighting(self, state: State, why: str, changes: Changes, **found: Any) -> Sighting:
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
            **found,
        )

    def _pinned_of(self, versions: Mapping[str, str]) -> dict[str, str]:
        return {name: versions[name] for name in packages(self.case, self.environment) if name in versions}

    def _quiet_needed(self) -> int:
        """Return how many trials without the failure say it is gone, by its measured rate, or else its declared one."""
        manifest, trials = self.case.manifest, self.case.manifest.trials
        rate = self._measured_rate() or self.plan.terms.least_rate or wilson(trials, trials).low
        return min(clean_trials_needed(rate, manifest.alpha), manifest.clean_trials)

    def _measured_rate(self) -> float | None:
        """Return the lower end of the rate's interval in the newest evidence that has the failure."""
        paths = evidence_files(self.reports, self.case.id, self.environment)
        runs = [run for run in map(load, paths) if Variant.REPRO in run.rates and run.rates[Variant.REPRO].k]
        newest = max(runs, key=lambda run: utc(run.started), default=None)
        return newest.rates[Variant.REPRO].low if newest else None

    def _first_fixed(self, seen: Sighting) -> list[str]:
        """Return the release that a bisection found before, or that one finds now if --bisect was given."""
        if len(seen.moved) != 1:
            return []
        [package] = seen.moved
        for found in bisections(self.reports, self.case.id):
            asked = found.question
            if asked.seeks_fix and (asked.package, asked.environment) == (package, self.environment):
                return found.first
        if not self.search:
            return []
        question = Question(
            case=self.case.id,
            package=package,
            environment=self.environment,
            variant=Variant.REPRO,
            good=seen.versions[package],
            bad=pins(self.case.requirements(self.environment, Variant.REPRO))[package],
            alpha=self.case.manifest.alpha,
            engine=self.engine.name,
            digest=self.case.digest(),
        )
        search = partial(bisect, self.plan, question, self.engine, self.console, self.reports)
        try:
            found, _ = search(seeks_fix=True, stopped=Stopped.EITHER)
        except (EndError, UsageError) as error:
            self.console.say(f"  the release that fixed it can't be found: {error}")
            return []
        return found.first


def judged(repro: Sequence[Reading], fixed: Reading) -> tuple[State, str]:
    """Return the state and why. A failure is only gone where the fix's own check ran there, and passed."""
    last = repro[-1]
    match last.sign:
        case Sign.SHOWS:
            return State.STILL, last.summary
        case Sign.ABSENT if fixed.sign is Sign.ABSENT:
            return State.FIXED, f"{len(repro)} trials without the failure: {last.summary}"
        case Sign.ABSENT:
            return State.OTHERWISE, f"repro keeps quiet, but fixed gives no proof: {fixed.summary}"
        case _:
            return State.OTHERWISE, last.summary


def _run(environment: TriedEnvironment, quiet_needed: int) -> list[Reading]:
    """Run trials until one is not quiet, or there were enough of them."""
    readings = [environment.run_trial()]
    while readings[-1].sign is Sign.ABSENT and len(readings) < quiet_needed:
        readings.append(environment.run_trial())
    return readings


# Which packages go to their newest release


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
