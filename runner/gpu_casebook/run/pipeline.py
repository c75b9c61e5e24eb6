"""The pipeline: case -> environment -> engine -> trials -> verdict -> evidence."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.guard import Guard, guarded, tries
from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import Attestation, Durations, Evidence, Outcome, Trial, Variant
from gpu_casebook.guest import attest
from gpu_casebook.judging.decision import Tally
from gpu_casebook.judging.expectation import growth, judge, observe
from gpu_casebook.manifest.case import Case
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan, recipe
from gpu_casebook.run.probes import Bench, run_guest, run_probes
from gpu_casebook.run.record import AttestedEnvironment, attestation, drift, evidence
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
    return {variant: recipe(plan.case, plan.environment, variant, plan.options.image) for variant in Variant}


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

    @property
    def engine(self) -> Engine:
        return self.guard.engine

    def evidence(self) -> Evidence | Skipped:
        plan, started, begun = self.plan, datetime.now(UTC), time.monotonic()
        self.console.say(f"{plan.case.id} in environment {plan.environment} ({self.engine.version})")
        # before the GPUs are held: building one takes minutes, and no GPU
        environments = _prepare(plan, self.engine, self.console)
        with self.guard.hold_gpus(self.console.say):
            places = self._places(environments)
            prepared = time.monotonic()
            reason = plan.gpu_mismatch(places[Variant.REPRO].attestation)
            if reason:
                return Skipped(plan.case.id, [f"{plan.environment}: {reason}"])
            trials = self._trials(places)
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
            started=started,
            durations=Durations(prepare_s=prepared - begun, trials_s=ended - prepared, total_s=ended - begun),
        )

    def _places(self, environments: Mapping[Recipe, Prepared]) -> dict[Variant, AttestedEnvironment]:
        """Return each variant's environment with what was found in it."""
        places = {wanted: self._place(wanted, prepared) for wanted, prepared in environments.items()}
        return {variant: places[wanted] for variant, wanted in _recipes(self.plan).items()}

    def _place(self, wanted: Recipe, prepared: Prepared) -> AttestedEnvironment:
        seen = self._attest(prepared)
        return AttestedEnvironment(prepared, wanted.lock, seen, drift(wanted.lock, wanted.python, seen))

    def _attest(self, prepared: Prepared) -> Attestation:
        result = run_guest(self.guard, prepared, Path(attest.__file__), self.plan.gpus)
        if result.exit_status != 0:
            raise EngineError(f"the environment can't be inspected: {_failure(result)}")
        return attestation(result.stdout)

    def _trials(self, places: Mapping[Variant, AttestedEnvironment]) -> list[Trial]:
        """Run trials of both variants, each in a fresh process, until the verdict is settled."""
        plan, files, asked = self.plan, self.plan.case.payload(), self.plan.terms
        trials: list[Trial] = []
        for variant in Variant:
            request = plan.request(variant, files)
            if self.guard.given_up:
                self.console.say(f"  no more trials of {variant}: {self.guard.given_up}")
                continue
            tally = Tally(trials, asked)
            if not tally.wants(variant):
                self.console.say(f"  {variant} is not run: it could not change the verdict")
                continue
            with self.console.task(plan.case.id, tally.most(variant)) as advance:
                while tally.wants(variant) and not self.guard.given_up:
                    number = tally.used(variant) + 1
                    trials += self._tried(variant, number, places[variant].prepared, request)
                    tally = Tally(trials, asked)
                    advance(summary_of(trials[-1]))
        return trials

    def _tried(self, variant: Variant, number: int, prepared: Prepared, request: TrialRequest) -> list[Trial]:
        def once() -> Trial:
            result = self.guard.run(prepared, request)
            if result.kept:
                self.console.say(f"  kept: {result.kept}")
            return self._judged(variant, number, result)

        return tries(once, self._is_spoiled)

    def _is_spoiled(self, trial: Trial) -> bool:
        return trial.outcome is Outcome.INFRA and not self.guard.given_up

    def _judged(self, variant: Variant, number: int, result: TrialResult) -> Trial:
        expectation = self.plan.case.expectation(self.plan.environment, variant)
        seen = observe(result)
        return judged(
            variant,
            number,
            result,
            seen,
            judge(expectation, result, seen),
            growth=growth(expectation.growth, seen) if expectation.growth else None,
            zygote=result.zygote,
            xids=self.guard.xids,
        )


def _failure(result: TrialResult) -> str:
    if result.infra:
        return result.infra
    said = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()[-1]
    return f"its Python ended with {result.signal or f'exit status {result.exit_status}'}: {said}"
