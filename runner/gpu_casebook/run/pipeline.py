"""The pipeline: case -> environment -> engine -> trials -> verdict -> evidence."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.guard import Guard, guarded, tries
from gpu_casebook.evidence import Durations, Evidence, Outcome, Trial
from gpu_casebook.judging.decision import Tally
from gpu_casebook.judging.expectation import growth, judge, observe
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.revision import own_revision
from gpu_casebook.run.attesting import AttestedEnvironment, Loaded, attested
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan, recipe
from gpu_casebook.run.probes import Bench, run_probes
from gpu_casebook.run.record import evidence
from gpu_casebook.run.sanitized import judged, sanitized_trials, summary_of
from gpu_casebook.trial import Recipe, TrialRequest, TrialResult


def run_case(case: Case, options: Options, engine: Engine, console: Console) -> Evidence | Skipped:
    """Run one case in one environment. Nothing is written; see `gpu_casebook.report` for that."""
    plan = make_plan(case, options, engine)
    if isinstance(plan, Skipped):
        return plan
    with guarded(engine, plan.gpus, console.say, shared=plan.spec.share_gpu) as guard:
        return _Run(plan, guard, console).evidence()


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


@dataclass(frozen=True)
class _Run:
    plan: Plan
    guard: Guard
    console: Console
    _loaded: dict[Variant, Loaded] = field(default_factory=dict, init=False)

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
            found = {wanted: attested(plan, self.guard, files, there, wanted) for wanted, there in environments.items()}
            places = {variant: found[wanted] for variant, wanted in _recipes(plan).items()}
            prepared = time.monotonic()
            reason = plan.gpu_mismatch(places[Variant.REPRO].attestation)
            if reason:
                return Skipped(plan.case.id, [f"{plan.environment}: {reason}"])
            plan.refuse_unfit({variant: place.attestation for variant, place in places.items()})
            trials = self._trials(places, files)
            prepared_for = {variant: place.prepared for variant, place in places.items()}
            bench = Bench(plan, self.guard, self.console, prepared_for)
            sanitized = sanitized_trials(bench)
            probes = run_probes(bench, trials, sanitized) if plan.options.probes else []
        ended = time.monotonic()
        return evidence(
            plan,
            self.engine,
            places,
            trials=trials,
            sanitized=sanitized,
            probes=probes,
            loaded=self._loaded,
            started=started,
            durations=Durations(prepare_s=prepared - begun, trials_s=ended - prepared, total_s=ended - begun),
            runner=runner,
        )

    def _trials(self, places: Mapping[Variant, AttestedEnvironment], files: Mapping[str, bytes]) -> list[Trial]:
        """Run trials of both variants, in turns, each in a fresh process, until the verdict is settled."""
        plan, asked = self.plan, self.plan.terms
        trials: list[Trial] = []
        tally = Tally(trials, asked)
        with self.console.task(plan.case.id, asked.trials + max(asked.trials, asked.clean)) as advance:
            while (variant := tally.next) and not self.guard.given_up:
                number = tally.used(variant) + 1
                trials += self._tried(variant, number, places[variant].prepared, plan.request(variant, files))
                tally = Tally(trials, asked)
                advance(summary_of(trials[-1]))
        if self.guard.given_up:
            self.console.say(f"  no more trials: {self.guard.given_up}")
        elif not tally.used(Variant.FIXED):
            self.console.say("  fixed is not run: it could not change the verdict")
        return trials

    def _tried(self, variant: Variant, number: int, prepared: Prepared, request: TrialRequest) -> list[Trial]:
        def once() -> Trial:
            result = self.guard.run(prepared, request)
            seen = self._loaded.setdefault(variant, Loaded())
            seen.libraries.update(result.libraries)
            seen.pythons.update(result.pythons)
            if result.kept:
                self.console.say(f"  kept: {result.kept}")
            return self._judged(variant, number, result)

        return tries(once, self._is_spoiled)

    def _is_spoiled(self, trial: Trial) -> bool:
        return trial.outcome is Outcome.INFRA and not self.guard.given_up

    def _judged(self, variant: Variant, number: int, result: TrialResult) -> Trial:
        repro, fixed = (self.plan.case.expectation(self.plan.environment, each) for each in Variant)
        expectation, failure = (repro, None) if variant is Variant.REPRO else (fixed, repro)
        seen = observe(result, f"{variant}.py")
        return judged(
            variant,
            number,
            result,
            seen,
            judge(expectation, result, seen, failure),
            growth=growth(expectation.growth, seen) if expectation.growth else None,
            zygote=result.zygote,
            xids=self.guard.xids,
        )
