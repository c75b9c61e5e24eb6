"""Evidence of old means what it meant: its outcomes give its verdict, and what was observed gives its outcomes."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from failure_signature.expectation import Expectation
from failure_signature.judging.decision import decide, terms
from failure_signature.judging.outcome import judge, observe
from failure_signature.judging.sanitized import settled
from failure_signature.judging.signature import Sign, Signature
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Observation, Trial
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import Evidence, load
from gpu_casebook.manifest.case import Case, find, known_images

ROOT = Path(__file__).parents[2]
EVIDENCE = sorted(ROOT.glob("reports/evidence/*/*.json"))
ENDED = {field.name for field in fields(TrialResult)} & {*Observation.model_fields}
LEAST_FILES, LEAST_UNCHANGED = 148, 130


@cache
def case(id_: str) -> Case:
    return find(ROOT, id_, known_images(ROOT))


def unchanged() -> Iterator[tuple[Case, Evidence]]:
    """The evidence of cases that are still as they were."""
    for run in map(load, EVIDENCE):
        if run.case.digest == case(run.case.id).digest():
            yield case(run.case.id), run


def expected(case_: Case, run: Evidence) -> tuple[Expectation, Expectation]:
    """What repro and fixed were to do."""
    repro, fixed = (case_.expectation(run.environment.name, variant) for variant in Variant)
    return repro, fixed


def result(trial: Trial) -> TrialResult:
    """How a stored trial ended. Where nothing was compared, the engine itself had put the blame on the machine."""
    ended = {name: getattr(trial.observation, name) for name in ENDED}
    infra = None if trial.mismatches else trial.infra
    return TrialResult(stdout=trial.stdout, stderr=trial.stderr, duration_s=trial.duration_s, infra=infra, **ended)


def test_no_file_is_lost() -> None:
    assert len(EVIDENCE) >= LEAST_FILES
    assert sum(1 for _ in unchanged()) >= LEAST_UNCHANGED


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_stored_outcomes_give_the_stored_verdict(path: Path) -> None:
    run = load(path)
    case_ = case(run.case.id)
    manifest = case_.manifest
    if run.case.digest != case_.digest():  # it may have asked for another number of trials then
        manifest = manifest.model_copy(update={"trials": max(trial.number for trial in run.trials_of(Variant.REPRO))})
    repro, fixed = expected(case_, run)
    asked = terms(
        repro,
        fixed,
        trials=manifest.trials,
        least=manifest.trials,
        alpha=manifest.alpha,
        clean_trials=manifest.clean_trials,
    )
    if run.semantics == 1:  # fixed needed no more trials than repro
        asked = replace(asked, clean=0)
    decision = settled(decide(run.trials, asked), run.trials, run.sanitized)
    assert (decision.verdict, [*decision.reasons], decision.rates) == (run.verdict, run.reasons, run.rates)


def test_what_was_observed_gives_the_stored_outcomes() -> None:
    for case_, run in unchanged():
        repro, fixed = expected(case_, run)
        for trial in run.trials:
            ended, where = result(trial), (run.case.id, run.environment.name, trial.variant, trial.number)
            seen = observe(ended, f"{trial.variant}.py")
            assert seen.model_dump_json() == trial.observation.model_dump_json(), where  # as text: NaN is unlike itself
            of_repro = trial.variant is Variant.REPRO
            judged = judge(repro, ended, seen) if of_repro else judge(fixed, ended, seen, repro)
            assert (judged.outcome, [*judged.mismatches]) == (trial.outcome, trial.mismatches), where


def test_single_runs_say_what_the_verdict_says() -> None:
    """By the rule for single runs, each trial of repro shows the failure, and each of fixed proves its absence.

    Not those of a race, of outputs that differ between runs, or of what shows only under compute-sanitizer.
    """
    signs = set[tuple[Variant, Sign]]()
    for case_, run in unchanged():
        repro, fixed = expected(case_, run)
        with suppress(UsageError):
            sought = Signature(*case_.failures(run.environment.name).values(), proof=fixed)
            trials = run.trials_of(Variant.FIXED) if repro.rate else run.trials
            signs |= {(trial.variant, sought.read(result(trial), trial.observation).sign) for trial in trials}
    assert signs == {(Variant.REPRO, Sign.SHOWS), (Variant.FIXED, Sign.ABSENT)}
