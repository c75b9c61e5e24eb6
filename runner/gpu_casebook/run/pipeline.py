"""The pipeline: case -> environment -> engine -> trials -> verdict -> evidence."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from failure_signature.judging.decision import Decision, decide
from failure_signature.kinds import Variant
from failure_signature.trials import Trial
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.guard import Guard, guarded
from gpu_casebook.evidence import Durations, Evidence
from gpu_casebook.manifest.case import Case
from gpu_casebook.revision import own_revision
from gpu_casebook.run.attesting import AttestedEnvironment, attested
from gpu_casebook.run.needs import Needs, needs
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan, recipe
from gpu_casebook.run.probes import Bench, run_probes
from gpu_casebook.run.record import Findings, evidence
from gpu_casebook.run.trials import TrialRunner
from gpu_casebook.trial import Recipe


def run_case(case: Case, options: Options, engine: Engine, console: Console) -> Evidence | Skipped:
    """Run one case in one environment. Nothing is written; see `gpu_casebook.report` for that."""
    plan = make_plan(case, options, engine)
    if isinstance(plan, Skipped):
        return plan
    known = needs(case, plan.environment)
    share = None if plan.share is None else max(plan.share, known.memory_bytes)
    with guarded(engine, plan.gpus, console.say, share=share) as guard:
        return _Run(plan, guard, console, known).evidence()


def prepare_case(case: Case, options: Options, engine: Engine, console: Console) -> Skipped | None:
    """Prepare the environments that `run_case` would use; return why the case would not run here, or None."""
    plan = make_plan(case, options, engine)
    if isinstance(plan, Skipped):
        return plan
    _prepare(plan, engine, console)
    return None


def _recipes(plan: Plan) -> dict[Variant, Recipe]:
    """Return each variant's recipe: the same for both unless the case locks them apart."""
    return {variant: recipe(plan.case, plan.environment, variant, plan.options) for variant in Variant}


def _prepare(plan: Plan, engine: Engine, console: Console) -> dict[Recipe, Prepared]:
    environments = {}
    for wanted in dict.fromkeys(_recipes(plan).values()):
        with console.step(f"preparing {wanted.use_image or wanted.image}") as note:
            environments[wanted] = engine.prepare(wanted, note)
    return environments


def _under_a_tool(bench: Bench, trials: Sequence[Trial]) -> tuple[Sequence[Trial], Decision]:
    """Return the trials under the tool whose finding the case declares, if it does, and the verdict on all trials."""
    decision = decide(trials, bench.plan.terms)
    if bench.plan.case.expectation(bench.plan.environment, Variant.REPRO).sanitizer is None:
        return [], decision
    # What reads the tool's reports is loaded only for cases that declare a finding.
    from failure_signature.judging.sanitized import settled  # noqa: PLC0415
    from gpu_casebook.run.sanitized import sanitized_trials  # noqa: PLC0415

    sanitized = sanitized_trials(bench)
    return sanitized, settled(decision, trials, sanitized)


@dataclass(frozen=True)
class _Run:
    plan: Plan
    guard: Guard
    console: Console
    known: Needs

    @property
    def engine(self) -> Engine:
        return self.guard.engine

    @cached_property
    def files(self) -> Mapping[str, bytes]:
        """What every trial gets: read once, as somebody may edit the case meanwhile."""
        return self.plan.case.payload()

    def evidence(self) -> Evidence | Skipped:
        plan, started, begun = self.plan, datetime.now(UTC), time.monotonic()
        runner = own_revision()  # before anything changes it: a run may take hours
        self.console.say(f"{plan.case.id} in environment {plan.environment} ({self.engine.version})")
        # Before the GPUs are held: building an environment takes minutes, and no GPU.
        environments = _prepare(plan, self.engine, self.console)
        with self.guard.hold_gpus(self.console.say):
            places = self._attested(environments)
            prepared = time.monotonic()
            if reason := plan.gpu_mismatch(places[Variant.REPRO].attestation):
                return Skipped(plan.case.id, [f"{plan.environment}: {reason}"])
            plan.refuse_unfit({variant: place.attestation for variant, place in places.items()})
            found = self._findings(places)
        ended = time.monotonic()
        durations = Durations(prepare_s=prepared - begun, trials_s=ended - prepared, total_s=ended - begun)
        return evidence(plan, self.engine, found, started=started, durations=durations, runner=runner)

    def _attested(self, environments: Mapping[Recipe, Prepared]) -> dict[Variant, AttestedEnvironment]:
        """Look into each environment once, and return what each variant runs in: often it is one for both."""
        plan = self.plan
        found = {
            wanted: attested(plan, self.guard, self.files, there, wanted, say=self.console.say)
            for wanted, there in environments.items()
        }
        return {variant: found[wanted] for variant, wanted in _recipes(plan).items()}

    def _findings(self, places: Mapping[Variant, AttestedEnvironment]) -> Findings:
        """Run the trials until the verdict is settled, then the probes."""
        plan = self.plan
        environments = {variant: place.prepared for variant, place in places.items()}
        runner = TrialRunner(plan, self.guard, self.console, self.files, environments, self.known.longest_s)
        trials, sharing = runner.run()
        bench = Bench(plan, self.guard, self.console, environments)
        sanitized, decision = _under_a_tool(bench, trials)
        return Findings(
            places=places,
            trials=trials,
            sharing=sharing,
            loaded=runner.loaded,
            sanitized=sanitized,
            decision=decision,
            probes=run_probes(bench, trials, sanitized) if plan.options.probes else [],
        )
