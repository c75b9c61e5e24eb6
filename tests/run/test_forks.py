"""Forked trials of a case with a rate: which they are, and when they don't count. The engine is a fake."""

import io
import itertools
import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest

from gpu_casebook.console import Console
from gpu_casebook.devices import hardware
from gpu_casebook.engines.base import Prepared
from gpu_casebook.evidence import Evidence, Outcome, Sharing, Verdict
from gpu_casebook.judging.decision import Terms
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.bounds import Bound
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.report.case_page import case_page
from gpu_casebook.run import forks, trials
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.statistics import differ
from gpu_casebook.trial import TrialRequest, TrialResult
from tests.conftest import IMAGES, MANIFEST, Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine

FIGURES = 'figures: {rel_err: "> 1e-2"}'
STORY = "forked from a process that had imported json"
FIRST = 5
WAIT_S = 30.0
MISS = replace(REPRO, stdout="rel_err=0.0\n")


def made(checkout: Checkout, manifest: str = MANIFEST) -> Case:
    manifest = manifest.replace(FIGURES, f'{FIGURES}\n    rate: ">= 0.3"') + "trials: 40\n"
    assert "rate: " in manifest
    write_locks(checkout.write(manifest).parent)
    return find(checkout.root, "tiny", IMAGES)


@pytest.fixture
def case(checkout: Checkout) -> Case:
    return made(checkout)


class Forking(FakeEngine):
    """Repro fails in every third trial, or where it is `forked`, as that says."""

    def __init__(self, forked: Iterable[bool] = (), story: str = STORY) -> None:
        super().__init__({"repro.py": [REPRO], "fixed.py": [FIXED]})
        self.story, self.forked, self.count = story, iter(forked), 0

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        result = super().run(prepared, request)
        if result is REPRO:
            self.count += 1
            fails = next(self.forked, self.count % 3 == 0) if request.zygote else self.count % 3 == 0
            result = replace(REPRO, stdout=f"rel_err=0.{self.count}\n") if fails else MISS
        return replace(result, zygote=self.story) if request.zygote else result

    @property
    def asked(self) -> list[bool]:
        """Whether each trial of repro was to be forked."""
        return [request.zygote for request in self.requests if request.arguments == ["repro.py"]]


def go(case: Case, on: FakeEngine, **options: object) -> tuple[Evidence, str]:
    said = io.StringIO()
    result = run_case(case, Options(environment="interpreter", **options), on, Console(said))  # type: ignore[arg-type]
    assert isinstance(result, Evidence)
    return result, said.getvalue()


@pytest.mark.parametrize(
    ("rate", "trials", "expected"), [(">= 0.05", 240, 174), (">= 0.3", 40, 27), (">= 0.3", 17, 17), (">= 0.8", 7, 7)]
)
def test_how_many_trials_a_rate_takes(rate: str, trials: int, expected: int) -> None:
    assert forks.expected_trials(Terms(trials=trials, rate=Bound.parse(rate))) == expected


def test_a_tenth_is_fresh_and_never_less_than_five() -> None:
    assert [forks.fresh_share(expected) for expected in (11, 50, 51, 174)] == [5, 5, 6, 18]


def test_all_but_the_first_are_forked(case: Case) -> None:
    on = Forking()
    evidence, _ = go(case, on)
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    assert on.asked == [number >= FIRST for number in range(len(on.asked))]
    for variant in Variant:
        assert [trial.forked for trial in evidence.trials_of(variant)] == [
            number >= FIRST for number in range(evidence.rates[variant].n)
        ]
    assert "zygote" not in evidence.command
    assert evidence.dropped is None
    k, n = evidence.rates[Variant.REPRO].k, evidence.rates[Variant.REPRO].n
    page = case_page([evidence])
    told = f"(1 of 5 fresh runs, {k - 1} of {n - FIRST} forked from a process that had done the imports)"
    [line] = [line for line in page.splitlines() if told in line]
    assert "95 %" in line
    assert f"Processes of repro and fixed: {STORY}" in page


def test_where_they_may_share_they_run_at_once_also_after_a_miss(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = made(checkout, MANIFEST.replace("image: cpu", "image: cpu\n    alone: false"))
    monkeypatch.setattr(trials, "TRIAL_BYTES", 1)
    monkeypatch.setattr(hardware, "cores", lambda: 4)
    four, forked = threading.Barrier(4), itertools.count()

    def first_four_meet(request: TrialRequest) -> None:
        if request.zygote and next(forked) < 4:
            four.wait(WAIT_S)

    on = Forking()
    on.before_trial = first_four_meet
    evidence, _ = go(case, on)
    assert evidence.sharing == Sharing(at_once=4)
    missed = [trial.outcome is Outcome.AS_EXPECTED for trial in evidence.trials_of(Variant.REPRO)].index(False)
    assert missed < FIRST
    monkeypatch.setattr(trials, "TRIAL_BYTES", 2**60)
    in_a_row, _ = go(case, Forking())
    assert [trial.forked for trial in evidence.trials] == [trial.forked for trial in in_a_row.trials]


@pytest.mark.parametrize("rate", [False, True])
def test_a_forked_rate_that_is_another_one_does_not_count(case: Case, rate: bool) -> None:  # noqa: FBT001
    on = Forking([rate] * 40)
    evidence, said = go(case, on)
    assert not any(trial.forked for trial in evidence.trials)
    assert [trial.number for trial in evidence.trials_of(Variant.REPRO)] == list(
        range(1, evidence.rates[Variant.REPRO].n + 1)
    )
    assert evidence.dropped is not None
    assert evidence.dropped.startswith("of repro, 1 of 5 fresh trials were as expected, and ")
    assert f"{evidence.dropped}: the forked ones are dropped, and fresh ones follow" in said
    assert f"as they went otherwise: {evidence.dropped}" in case_page([evidence])
    fresh, _ = go(case, Forking(), zygote=False)
    assert evidence.verdict is fresh.verdict


def test_what_can_not_be_forked_counts_as_fresh(case: Case) -> None:
    evidence, _ = go(case, Forking(story="fresh processes, not forked: its imports left 1 threads running"))
    assert (evidence.verdict, evidence.dropped) == (Verdict.CONFIRMED, None)
    assert "forked from" not in case_page([evidence])


@pytest.mark.parametrize(
    ("options", "can", "forked"),
    [
        ({"zygote": False}, True, False),
        ({"keep": True}, True, False),
        ({}, False, False),
        ({"trials": 10}, True, False),
        ({"zygote": True}, True, True),
    ],
)
def test_who_decides(case: Case, options: dict[str, object], can: bool, forked: bool) -> None:  # noqa: FBT001
    on = Forking()
    on.can_fork = can
    go(case, on, **options)
    assert set(on.asked) == {forked}


def test_a_case_without_a_rate_forks_nothing(checkout: Checkout) -> None:
    write_locks(checkout.write().parent)
    on = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
    go(find(checkout.root, "tiny", IMAGES), on)
    assert not any(request.zygote for request in on.requests)


def test_two_rates_or_one() -> None:
    """Against the chi-square test of the four counts: its statistic is the square of this one's."""
    for k, n, other_k, other_n in itertools.product(range(6), (5,), (0, 3, 9, 30), (30,)):
        expected = [(k + other_k) * n / 35, (k + other_k) * other_n / 35]
        expected += [n - expected[0], other_n - expected[1]]
        seen = [k, other_k, n - k, other_n - other_k]
        square = sum((one - other) ** 2 / other for one, other in zip(seen, expected, strict=True) if other)
        assert differ(k, n, other_k, other_n) == (square > 3.841459)
    assert not differ(3, 5, 0, 0)
