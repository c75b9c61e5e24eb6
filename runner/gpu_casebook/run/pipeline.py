"""The pipeline: case -> environment -> engine -> trials -> verdict -> evidence."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.guard import Guard, guarded
from gpu_casebook.evidence import Durations, Evidence, Trial
from gpu_casebook.judging.decision import Decision, decide
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.revision import own_revision
from gpu_casebook.run.attesting import attested
from gpu_casebook.run.needs import Needs, needs
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan, recipe
from gpu_casebook.run.probes import Bench, run_probes
from gpu_casebook.run.record import evidence
from gpu_casebook.run.trials import Trials
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
    # By name, as probes are: what reads the tool's reports is loaded only for cases that ask for one.
    sanitized = import_module("gpu_casebook.run.sanitized").sanitized_trials(bench)
    return sanitized, import_module("gpu_casebook.judging.sanitized").settled(decision, trials, sanitized)


@dataclass(frozen=True)
class _Run:
    plan: Plan
    guard: Guard
    console: Console
    known: Needs

    @property
    def engine(self) -> Engine:
        return self.guard.engine

    def evidence(self) -> Evidence | Skipped:
        plan, started, begun = self.plan, datetime.now(UTC), time.monotonic()
        runner = own_revision()  # before anything changes it: a run may take hours
        self.console.say(f"{plan.case.id} in environment {plan.environment} ({self.engine.version})")
        # before the GPUs are held: building one takes minutes, and no GPU
        environments = _prepare(plan, self.engine, self.console)
        with self.guard.hold_gpus(self.console.say):
            files = plan.case.payload()
            found = {
                wanted: attested(plan, self.guard, files, there, wanted, say=self.console.say)
                for wanted, there in environments.items()
            }
            places = {variant: found[wanted] for variant, wanted in _recipes(plan).items()}
            prepared = time.monotonic()
            reason = plan.gpu_mismatch(places[Variant.REPRO].attestation)
            if reason:
                return Skipped(plan.case.id, [f"{plan.environment}: {reason}"])
            plan.refuse_unfit({variant: place.attestation for variant, place in places.items()})
            prepared_for = {variant: place.prepared for variant, place in places.items()}
            ordinary = Trials(plan, self.guard, self.console, files, prepared_for, self.known.longest_s)
            trials, sharing = ordinary.run()
            bench = Bench(plan, self.guard, self.console, prepared_for)
            sanitized, decision = _under_a_tool(bench, trials)
            probes = run_probes(bench, trials, sanitized) if plan.options.probes else []
        ended = time.monotonic()
        return evidence(
            plan,
            self.engine,
            places,
            trials=trials,
            decision=decision,
            sanitized=sanitized,
            probes=probes,
            loaded=ordinary.loaded,
            sharing=sharing,
            started=started,
            durations=Durations(prepare_s=prepared - begun, trials_s=ended - prepared, total_s=ended - begun),
            runner=runner,
        )
