import json
from typing import Any

import pytest

from gpu_casebook.corpus.matrix import MOST, Per, matrix
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
    """The jobs that these entries run: each of its cases in those of its environments that the case has."""
    known = {(each.case, each.environment) for each in CORPUS}
    named = [
        (case, environment)
        for entry in found
        for case in entry["cases"].split()
        for environment in entry["environments"].split()
    ]
    return sorted(pair for pair in named if pair in known)


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
    assert pairs([*entries(CORPUS, [0]), *entries(CORPUS, [1, 2])]) == wanted


@pytest.mark.parametrize("gpus", [[0], [1], [2], [1, 2]])
def test_only_what_those_machines_can_run(gpus: list[int]) -> None:
    for per in Per:
        assert {entry["gpus"] for entry in entries(CORPUS, gpus, per)} == set(gpus)


def test_one_entry_for_each_kind_of_machine() -> None:
    more = [*CORPUS, job("backward", "upstream", gpus=1), job("wide", "eight", gpus=8), job("broken", "", gpus=0)]
    found = entries(more, per=Per.MACHINE)
    assert [(entry["gpus"], entry["cases"], entry["environments"]) for entry in found] == [
        (0, "broken", ""),
        (0, "backward hang", "front-end gloo"),
        (1, "backward mask", "current upstream"),
        (2, "hang wide", "eight nccl"),
    ]
    assert found[2]["name"] == "backward/current and 1 more"


def test_a_machine_with_many_gpus_is_one_kind() -> None:
    wide = [job("wide", "eight", gpus=8)]
    assert [entry["gpus"] for entry in entries(wide, [2])] == [8]
    assert entries(wide, [1]) == []


def test_nothing_to_do_is_an_empty_list_on_one_line() -> None:
    assert matrix([]) == matrix(CORPUS[:1], [0]) == '{"include": []}'
    assert "\n" not in matrix(CORPUS)


@pytest.mark.parametrize("cases", [255, 256, 257, 1000])
def test_never_more_entries_than_github_takes(cases: int) -> None:
    jobs = [job(f"case-{number}", ("current", "upstream")[number % 2]) for number in range(cases)]
    found = entries(jobs)
    assert len(found) <= MOST
    assert (len(found) == cases) == (cases <= MOST)
    assert sorted(case for entry in found for case in entry["cases"].split()) == sorted(each.case for each in jobs)
    sizes = {len(entry["cases"].split()) for entry in found}
    assert max(sizes) <= -(-cases // MOST) + 1


def test_more_kinds_of_environment_than_entries_is_said() -> None:
    jobs = [job("case", f"environment-{number}") for number in range(5)]
    with pytest.raises(UsageError, match="5 kinds of environment are too many for a matrix of 4; select fewer"):
        matrix(jobs, most=4)


def test_a_case_whose_manifest_is_broken_has_an_entry_too() -> None:
    (entry,) = entries([job("broken", "", gpus=0)])
    assert (entry["name"], entry["cases"], entry["environments"]) == ("broken", "broken", "")
