"""What evidence tells of trials that are to come."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpu_casebook.devices import hardware
from gpu_casebook.evidence import Sharing, evidence_path, load
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.places import reports_of
from gpu_casebook.run.needs import Needs, needs
from tests.conftest import IMAGES, Checkout, write_locks
from tests.fakes import FIXED, REPRO
from tests.report.example import ATTESTATION, CASE, ENGINE, ENVIRONMENT, evidence

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


def test_as_many_trials_as_were_asked_for(case: Case) -> None:
    keep(case, 7.0, published=True)
    assert needs(case, NAME, trials=1).trials_s == 7.5
    assert needs(case, NAME, trials=10).trials_s == 75.0


def test_earlier_scripts_tell_nothing_where_these_ran(case: Case) -> None:
    keep(case, 90.0, 8, published=True)
    keep(case, 7.0, 3, published=False, digest=case.digest())
    assert needs(case, NAME) == Needs(longest_s=7.0, memory_bytes=3, trials_s=3 * 7.5)


def times(case: Case, starts: Sequence[float], *, cpus: int = 4, timed_out: bool = False) -> None:
    """Keep evidence of trials of 9 s that began then, on a machine with so many cores."""
    path = keep(case, 9.0, published=True)
    run = load(path)
    begun = datetime(2026, 11, 24, tzinfo=UTC)
    trials = [
        run.trials[0].model_copy(
            update={
                "number": number,
                "started": begun + timedelta(seconds=at),
                "observation": run.trials[0].observation.model_copy(update={"timed_out": timed_out}),
            }
        )
        for number, at in enumerate(starts, 1)
    ]
    attested = ATTESTATION.model_copy(update={"cpus": cpus})
    environment = run.environment.model_copy(update={"attestation": attested})
    run.model_copy(update={"trials": trials, "environment": environment}).write(path)


@pytest.mark.parametrize(
    ("starts", "longest_s"),
    [([0, 0, 0], 3.0), ([0, 9, 18], 9.0), ([0, 4.5, 9], 6.0), ([0, 20, 20, 20], 9.0)],
)
def test_a_trial_may_take_less_where_fewer_are_beside_it(
    case: Case, monkeypatch: pytest.MonkeyPatch, starts: Sequence[float], longest_s: float
) -> None:
    monkeypatch.setattr(hardware, "cores", lambda: 4)
    times(case, starts)
    assert needs(case, NAME).longest_s == longest_s


@pytest.mark.parametrize("other", [{"cpus": 8}, {"cpus": 2}, {"timed_out": True}])
def test_of_a_trial_that_was_ended_or_had_other_cores_that_is_not_known(
    case: Case, monkeypatch: pytest.MonkeyPatch, other: dict[str, int]
) -> None:
    monkeypatch.setattr(hardware, "cores", lambda: 4)
    times(case, [0, 0, 0], **other)  # type: ignore[arg-type]
    assert needs(case, NAME).longest_s == 9.0


def test_trials_under_compute_sanitizer_take_their_time_too(case: Case) -> None:
    path = keep(case, 7.0, published=True)
    run = load(path)
    run.model_copy(update={"sanitized": run.trials[:1]}).write(path)
    assert needs(case, NAME).trials_s == 4 * 7.0 + 3 * 0.5
    assert needs(case, NAME, trials=1).trials_s == 2 * 7.0 + 0.5  # as many of those as before


def test_another_environment_tells_nothing(case: Case) -> None:
    keep(case, 90.0, 3, published=True, name="current")
    assert needs(case, NAME) == Needs()


def test_evidence_that_cannot_be_read_tells_nothing(case: Case) -> None:
    keep(case, 7.0, published=True)
    keep(case, 5.0, published=False)
    (path,) = reports_of(case.directory.parents[1], published=True).rglob("*.json")
    path.write_text("{")
    assert needs(case, NAME) == Needs(longest_s=5.0, trials_s=3 * 5.5)
