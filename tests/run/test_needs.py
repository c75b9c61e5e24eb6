"""What evidence tells of trials that are to come."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpu_casebook.evidence import Sharing, evidence_path, load
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.places import reports_of
from gpu_casebook.run.needs import Needs, needs
from tests.conftest import IMAGES, Checkout, write_locks
from tests.fakes import FIXED, REPRO
from tests.report.example import CASE, ENGINE, ENVIRONMENT, evidence

NAME = "cpu"


@pytest.fixture
def case(checkout: Checkout) -> Case:
    write_locks(checkout.write().parent)
    return find(checkout.root, "tiny", IMAGES)


def keep(
    case: Case,
    seconds: float,
    memory: int | None = None,
    *,
    published: bool,
    name: str = NAME,
    engine: str = "venv",
    digest: str = CASE.digest,
) -> Path:
    run = evidence(
        replace(REPRO, duration_s=seconds),
        replace(FIXED, duration_s=0.5),
        case=CASE.model_copy(update={"id": case.id, "digest": digest}),
        environment=ENVIRONMENT.model_copy(update={"name": name}),
        engine=ENGINE.model_copy(update={"name": engine}),
        sharing=Sharing(at_once=2, memory_bytes=memory),
        started=datetime(2026, 11, 21, tzinfo=UTC),
    )
    durations = run.durations.model_copy(update={"trials_s": 3 * (seconds + 0.5)})
    run = run.model_copy(update={"durations": durations})
    path = evidence_path(reports_of(case.directory.parents[1], published=published), run)
    run.write(path)
    return path


def test_without_evidence_nothing_is_known(case: Case) -> None:
    assert needs(case, NAME) == Needs()


def test_the_most_that_any_trial_took(case: Case) -> None:
    keep(case, 7.0, 3, published=True)
    keep(case, 90.0, None, published=True, engine="docker")
    keep(case, 5.0, 8, published=False)
    assert needs(case, NAME) == Needs(longest_s=90.0, memory_bytes=8, trials_s=3 * 90.5)


def test_earlier_scripts_tell_nothing_where_these_ran(case: Case) -> None:
    keep(case, 90.0, 8, published=True)
    keep(case, 7.0, 3, published=False, digest=case.digest())
    assert needs(case, NAME) == Needs(longest_s=7.0, memory_bytes=3, trials_s=3 * 7.5)


@pytest.mark.parametrize(("wall_s", "longest_s"), [(27.0, 9.0), (45.0, 9.0), (9.0, 3.0), (0.0, 9.0)])
def test_a_trial_takes_less_where_nothing_is_beside_it(case: Case, wall_s: float, longest_s: float) -> None:
    """Three trials of 9 s, in so many seconds: all may have shared a core."""
    path = keep(case, 9.0, published=True)
    run = load(path)
    trials = [trial.model_copy(update={"duration_s": 9.0 * (trial.duration_s == 9.0)}) for trial in run.trials]
    durations = run.durations.model_copy(update={"trials_s": wall_s})
    run.model_copy(update={"trials": trials, "durations": durations}).write(path)
    assert needs(case, NAME).longest_s == longest_s


def test_trials_under_compute_sanitizer_take_their_time_too(case: Case) -> None:
    path = keep(case, 7.0, published=True)
    run = load(path)
    run.model_copy(update={"sanitized": run.trials[:1]}).write(path)
    assert needs(case, NAME).trials_s == 4 * 7.0 + 3 * 0.5


def test_another_environment_tells_nothing(case: Case) -> None:
    keep(case, 90.0, 3, published=True, name="current")
    assert needs(case, NAME) == Needs()


def test_evidence_that_cannot_be_read_tells_nothing(case: Case) -> None:
    keep(case, 7.0, published=True)
    keep(case, 5.0, published=False)
    (path,) = reports_of(case.directory.parents[1], published=True).rglob("*.json")
    path.write_text("{")
    assert needs(case, NAME) == Needs(longest_s=5.0, trials_s=3 * 5.5)
