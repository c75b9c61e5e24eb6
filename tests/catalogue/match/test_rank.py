from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from casebook_workbench.catalogue.match.known import Corpus, Known, words
from casebook_workbench.catalogue.match.rank import CONFIDENT, Match, versions
from casebook_workbench.catalogue.match.rank import rank as rank_all

WORDS: dict[str, list[str]] = {}
"""Of each case made here."""


def known(id_: str, text: str = "", **declared: Any) -> Known:
    WORDS[id_] = words(text)
    lists = ("messages", "exceptions", "cuda_errors", "signals", "kernels", "stacks")
    empty: dict[str, Any] = {"title": "", "symptom": "", "project": "", "failure": "", "versions": {}}
    return Known(**empty | {name: [] for name in lists} | {"id": id_} | declared)


def rank(cases: Sequence[Known], text: str, packages: str = "") -> list[Match]:
    return rank_all(Corpus.of(cases, [WORDS[case.id] for case in cases]), text, packages)


OTHERS = [known(f"other-{number}", f"gradient accumulation number{number}") for number in range(8)]


def ids(text: str, *cases: Known, packages: str = "") -> list[str]:
    return [each.case.id for each in rank([*OTHERS, *cases], text, packages)]


@dataclass
class Told:
    declared: dict[str, Any]
    text: str
    why: str


@pytest.mark.parametrize(
    "told",
    [
        Told(
            {"messages": [r"shape \[\d+, 16\] does not fit"]}, "ValueError: shape [64, 16] does not fit", "its message"
        ),
        Told(
            {"exceptions": ["triton.compiler.errors.CompilationError"]}, "x.CompilationError: at 3:1", "its exception"
        ),
        Told(
            {"cuda_errors": ["cudaErrorIllegalAddress"]}, "an illegal memory access was encountered", "its CUDA error"
        ),
        Told({"signals": ["SIGBUS"]}, "Bus error (core dumped)", "its signal: SIGBUS"),
        Told({"kernels": ["kernel_backward"]}, "in kernel_backward(int)", "its kernel"),
        Told({"stacks": ["_engine_run_backward|all_reduce"]}, "  at _engine_run_backward", "its stack"),
        Told({"failure": "hang"}, "training is stuck", "it hangs"),
    ],
    ids=lambda told: told.why,
)
def test_what_a_case_declares_is_found_and_told(told: Told) -> None:
    first, *_ = rank([known("it", **told.declared), *OTHERS], told.text)
    assert first.case.id == "it"
    assert any(each.startswith(told.why) for each in first.fits)


def test_what_many_declare_says_little_of_each() -> None:
    error: dict[str, Any] = {"cuda_errors": ["cudaErrorIllegalAddress"]}
    text = "CUDA error: an illegal memory access was encountered"
    alone = rank([known("it", **error)], text)[0].points
    among = [each.points for each in rank([known("it", **error), known("that", **error), known("this", **error)], text)]
    assert all(points < alone for points in among)


@pytest.mark.parametrize("exception", ["RuntimeError", "ValueError"])
def test_an_exception_that_everything_raises_says_nothing(exception: str) -> None:
    assert ids(f"{exception}: no", known("it", exceptions=[exception])) == []


def test_words_of_few_cases_count_most() -> None:
    rare = known("it", "gradient accumulation in SequentialLR")
    assert ids("gradient of SequentialLR, accumulation and last_epoch, milestones, warm up", rare)[0] == "it"


def test_a_word_or_two_make_nothing_likely() -> None:
    assert not any(each.likely for each in rank([*OTHERS, known("it", "perplexity explodes")], "perplexity explodes"))


def test_words_alone_make_nothing_likely_however_many() -> None:
    text = "perplexity explodes once gated_rows wraps around in dq_kernel, behind ragged batches whose offsets "
    text += (
        "exceed thirty-two bits, although checkpoints load cleanly, schedulers advance, and optimizers report success"
    )
    case = known("it", text)
    (first,) = rank([*OTHERS, case], text)
    assert first.points > CONFIDENT
    assert not first.likely
    declares = known("it", text, kernels=["dq_kernel"])
    assert rank([*OTHERS, declares], text)[0].likely


def test_a_kernel_that_is_called_as_its_operation_says_nothing() -> None:
    assert ids("softmax twice", known("it", kernels=["softmax"])) == []


def test_what_one_line_tells_counts_once() -> None:
    text = "CUDA error: an illegal memory access was encountered"
    message: dict[str, Any] = {"messages": ["an illegal memory access was encountered"]}
    once = rank([known("it", **message)], text)[0]
    twice = rank([known("it", **message, cuda_errors=["cudaErrorIllegalAddress"])], text)[0]
    assert twice.points == once.points
    assert len(twice.fits) == len(once.fits) + 1


def test_nothing_fits() -> None:
    assert ids("KeyError: 'lr' in my own script", known("it", "the loss explodes")) == []


def test_a_log_is_read_from_its_end() -> None:
    case = known("it", messages=["tokens were lost here"])
    assert ids("x" * 300_000 + "\ntokens were lost here", case) == ["it"]
    assert ids("tokens were lost here\n" + "x" * 300_000, case) == []


def test_versions_speak_for_and_against() -> None:
    case = known("it", "loss of training", messages=["loss is far too large"], versions={"trl": ["0.13.0", "0.14.0"]})
    text = "loss is far too large"
    same = rank([case], text, "trl 0.13.0\n")[0]
    fixed = rank([case], text, "trl 0.15.1\n")[0]
    assert "its version: trl 0.13.0" in same.fits
    assert fixed.unlike == ["trl 0.15.1: the case is fixed in 0.14.0"]
    assert same.points > rank([case], text)[0].points > fixed.points


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch==2.4.1\n", {"torch": "2.4.1"}),
        ("Package    Version\n---------- -------\nflash-attn  2.6.3\n", {"flash-attn": "2.6.3"}),
        ("[pip3] numpy==1.26.4\n", {"numpy": "1.26.4"}),
        ("- transformers version: 4.45.2\n", {"transformers": "4.45.2"}),
        ("PyTorch version: 2.5.1+cu124\n", {"pytorch": "2.5.1+cu124"}),
        ("line 12 of 3.5\nloss 0.25\n", {"loss": "0.25"}),
        ("", {}),
    ],
)
def test_installed_versions_as_tools_list_them(text: str, found: dict[str, str]) -> None:
    assert versions(text) == found


def test_one_that_stands_out_is_likely_and_two_alike_are_not() -> None:
    text = "ValueError: shape [64, 16] does not fit the tile of dq_kernel"
    one = known("it", text, messages=[r"shape \[64, 16\] does not fit"], kernels=["dq_kernel"])
    assert rank([one, *OTHERS], text)[0].likely
    twin = known("twin", text, messages=one.messages, kernels=one.kernels)
    assert not any(each.likely for each in rank([one, twin, *OTHERS], text))


def test_a_pattern_that_is_none_or_never_ends_is_no_message() -> None:
    text = "a" * 40_000
    assert ids(text, known("it", messages=["(", "(a+)+$b"])) == []
