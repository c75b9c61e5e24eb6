"""The corpus as a whole: whatever a manifest may say of a failure, some case says it."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from failure_signature.expectation import Expectation
from failure_signature.kinds import Failure, Variant
from gpu_casebook.manifest.case import Case, discover, find, known_images

ROOT = Path(__file__).parents[1]


def cases() -> list[Case]:
    images = known_images(ROOT)
    return [find(ROOT, name, images) for name in discover(ROOT)]


def declared(case: Case) -> Iterable[str]:
    expectations = [case.expectation(name, each) for name in case.manifest.environments for each in Variant]
    return {
        key for each in expectations for key in Expectation.model_fields if getattr(each, key) not in (None, {}, [])
    }


def test_every_kind_of_failure_has_two_cases() -> None:
    counted = Counter(case.manifest.failure for case in cases())
    assert [kind for kind in Failure if counted[kind] < 2] == []


def test_every_expectation_is_declared_by_a_case() -> None:
    assert {key for case in cases() for key in declared(case)} == set(Expectation.model_fields)
