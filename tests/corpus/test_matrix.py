import json
from typing import Any

import pytest

from casebook_workbench.corpus.matrix import ANY, MOST, Per, kinds, lacking, matrix, place
from casebook_workbench.corpus.model import Job
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
    found = {entry["name"]: entry["runner"] for entry in entries(CORPUS)}
    assert found == {
        "hang/gloo": "hosted",
        "backward/front-end": "hosted",
        "backward/current": "gpu1",
        "mask/current": "gpu1",
        "hang/nccl": "gpu2",
    }


def test_every_job_is_in_one_entry_whatever_the_grouping() -> None:
    wanted = sorted((each.case, each.environment) for each in CORPUS)
    for per in Per:
        assert pairs(entries(CORPUS, per=per)) == wanted
    assert pairs([*entries(CORPUS, ANY[:1]), *entries(CORPUS, ANY[1:])]) == wanted


@pytest.mark.parametrize("names", [["gpu1"], ["gpu2"], ["gpu1", "gpu2"]])
def test_only_what_those_machines_can_run(names: list[str]) -> None:
    there = kinds(json.dumps(dict.fromkeys(names, "a-runner")))
    for per in Per:
        assert {entry["runner"] for entry in entries(CORPUS, there, per)} == set(names)


HOPPER = job("hopper", gpus=1, compute_capability=">=9.0,<10.0")
RECENT = job("recent", gpus=1, compute_capability=">=8.0")
PAIR = job("pair", gpus=2, compute_capability=">=8.0")


@pytest.mark.parametrize(
    ("names", "placed"),
    [
        ("gpu1", {"backward": "gpu1", "hopper": "gpu1", "recent": "gpu1", "pair": None}),
        ("gpu1-sm75", {"backward": "gpu1-sm75", "hopper": None, "recent": None, "pair": None}),
        ("gpu1 gpu1-sm90", {"backward": "gpu1-sm90", "hopper": "gpu1-sm90", "recent": "gpu1-sm90", "pair": None}),
        ("gpu1-sm90 gpu1-sm75", {"backward": "gpu1-sm75", "hopper": "gpu1-sm90", "recent": "gpu1-sm90", "pair": None}),
        ("gpu1-sm120 gpu1-sm80", {"backward": "gpu1-sm80", "hopper": None, "recent": "gpu1-sm80", "pair": None}),
        ("gpu1-sm120 gpu1", {"backward": "gpu1-sm120", "hopper": "gpu1", "recent": "gpu1-sm120", "pair": None}),
        ("gpu2-sm103", {"backward": None, "hopper": None, "recent": None, "pair": "gpu2-sm103"}),
        ("", {"backward": None, "hopper": None, "recent": None, "pair": None}),
    ],
)
def test_a_case_goes_to_a_machine_that_has_its_architecture(names: str, placed: dict[str, str | None]) -> None:
    there = kinds(json.dumps(dict.fromkeys(names.split(), "a-runner")))
    jobs = [CORPUS[2], HOPPER, RECENT, PAIR]
    found = {each.case: place(each, there) for each in jobs}
    assert {case: kind and kind.name for case, kind in found.items()} == placed
    wanted = sorted(f"{runner} {case}" for case, runner in placed.items() if runner)
    assert sorted(f"{each['runner']} {each['cases']}" for each in entries(jobs, there)) == wanted


def test_why_a_case_has_no_machine() -> None:
    assert lacking(HOPPER) == "no runner is named that has 1 GPU of compute capability >=9.0,<10.0"
    assert lacking(CORPUS[0]) == "no runner is named that has 2 GPUs"


@pytest.mark.parametrize(
    ("runners", "what"),
    [
        ("my-scale-set", "not a JSON object"),
        ('["gpu1"]', "not a JSON object"),
        ("1", "not a JSON object"),
        ('{"gpu1": "a", "h100": "b"}', "'h100' is no kind of machine; those are gpu1, gpu2, gpu1-sm90 and the like"),
        ('{"gpu4": "a"}', "'gpu4' is no kind of machine"),
        ('{"gpu1-sm9": "a"}', "'gpu1-sm9' is no kind of machine"),
    ],
)
def test_what_names_no_runners_is_said(runners: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        kinds(runners)


def test_no_variable_names_no_runner() -> None:
    assert kinds("") == []


def test_one_entry_for_each_kind_of_machine() -> None:
    more = [*CORPUS, job("backward", "upstream", gpus=1), job("wide", "eight", gpus=8), job("broken", "", gpus=0)]
    found = entries(more, per=Per.MACHINE)
    assert [(entry["runner"], entry["cases"], entry["environments"]) for entry in found] == [
        ("hosted", "broken", ""),
        ("hosted", "backward hang", "front-end gloo"),
        ("gpu1", "backward mask", "current upstream"),
        ("gpu2", "hang wide", "eight nccl"),
    ]
    assert found[2]["name"] == "backward/current and 1 more"


def test_a_machine_with_many_gpus_is_one_kind() -> None:
    wide = [job("wide", "eight", gpus=8)]
    assert [entry["runner"] for entry in entries(wide, kinds('{"gpu2": "a"}'))] == ["gpu2"]
    assert entries(wide, kinds('{"gpu1": "a"}')) == []


def test_nothing_to_do_is_an_empty_list_on_one_line() -> None:
    assert matrix([]) == matrix(CORPUS[:1], ANY[:1]) == '{"include": []}'
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
