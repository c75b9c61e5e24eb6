import json
from typing import Any

import pytest

from gpu_casebook.corpus.matrix import MOST, On, Per, matrix
from gpu_casebook.corpus.model import Job
from gpu_casebook.errors import UsageError
from tests.corpus.report.example import job

CORPUS = [
    job("hang", "nccl", gpus=2),
    job("hang", "gloo", gpus=0),
    job("backward", "current", gpus=1),
    job("backward", "front-end", gpus=0),
    job("mask", "current", gpus=1),
]


def entries(jobs: list[Job], *words: Any, **options: Any) -> list[dict[str, Any]]:
    made = json.loads(matrix(jobs, *words, **options))
    assert list(made) == ["include"]
    return list(made["include"])


def pairs(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((case, entry["environment"]) for entry in found for case in entry["cases"].split())


def test_an_entry_for_each_case_in_each_environment_on_the_machine_that_it_needs() -> None:
    found = {entry["name"]: entry["gpus"] for entry in entries(CORPUS)}
    assert found == {
        "hang/gloo": 0,
        "backward/front-end": 0,
        "backward/current": 1,
        "mask/current": 1,
        "hang/nccl": 2,
    }


def test_every_job_is_in_one_entry_whatever_the_grouping() -> None:
    wanted = sorted((each.case, each.environment) for each in CORPUS)
    for per in Per:
        assert pairs(entries(CORPUS, per=per)) == wanted
    assert pairs([*entries(CORPUS, On.HOSTED), *entries(CORPUS, On.GPU)]) == wanted


@pytest.mark.parametrize(("on", "gpus"), [(On.HOSTED, {0}), (On.GPU, {1, 2})])
def test_only_what_those_machines_can_run(on: On, gpus: set[int]) -> None:
    assert {entry["gpus"] for entry in entries(CORPUS, on)} == gpus


def test_one_entry_for_each_kind_of_machine_and_environment() -> None:
    found = entries(CORPUS, On.GPU, Per.MACHINE)
    assert [(entry["name"], entry["cases"]) for entry in found] == [
        ("backward/current and 1 more", "backward mask"),
        ("hang/nccl", "hang"),
    ]


def test_nothing_to_do_is_an_empty_list_on_one_line() -> None:
    assert matrix([]) == matrix(CORPUS[:1], On.HOSTED) == '{"include": []}'
    assert "\n" not in matrix(CORPUS)


@pytest.mark.parametrize("cases", [255, 256, 257, 1000])
def test_never_more_entries_than_github_takes(cases: int) -> None:
    jobs = [job(f"case-{number}", ("current", "upstream")[number % 2]) for number in range(cases)]
    found = entries(jobs)
    assert len(found) <= MOST
    assert (len(found) == cases) == (cases <= MOST)
    assert len(pairs(found)) == cases
    sizes = {len(entry["cases"].split()) for entry in found}
    assert max(sizes) <= -(-cases // MOST) + 1


def test_more_kinds_of_environment_than_entries_is_said() -> None:
    jobs = [job("case", f"environment-{number}") for number in range(5)]
    with pytest.raises(UsageError, match="5 kinds of environment are too many for a matrix of 4; select fewer"):
        matrix(jobs, most=4)


def test_a_case_whose_manifest_is_broken_has_an_entry_too() -> None:
    (entry,) = entries([job("broken", "", gpus=0)])
    assert (entry["name"], entry["cases"], entry["environment"]) == ("broken", "broken", "")
