import re
from collections.abc import Callable

import pytest

from casebook_workbench.releases.environments import failure
from failure_signature.judging.signature import Sign, Signature
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from gpu_casebook.errors import UsageError
from gpu_casebook.manifest.case import Case, find
from tests.conftest import IMAGES, Checkout

Change = Callable[[str, str], str]
FIGURES = 'figures: {rel_err: "> 1e-2"}'
WORDED = "exception: ValueError\n    message: 'off by \\d+'"
OTHERWISE = "expect:\n      fixed: {message: all good}"
ELSEWHERE = "expect:\n      repro: {message: 'wrong by \\d+'}\n      fixed: {message: all good}"


def raised(message: str, exception: str = "ValueError", cause: str = "") -> TrialResult:
    trace = 'Traceback (most recent call last):\n  File "/case/repro.py", line 1, in <module>\n    f()\n'
    before = f"{trace}{cause}\n\nThe above exception was the direct cause of the following exception:\n\n" * bool(cause)
    return TrialResult(stdout="", stderr=f"{before}{trace}{exception}: {message}\n", duration_s=1, exit_status=1)


def printed(*lines: str) -> TrialResult:
    return TrialResult(stdout="\n".join([*lines, ""]), stderr="", duration_s=1, exit_status=0)


def case(checkout: Checkout, manifest: str) -> Case:
    checkout.write(manifest)
    return find(checkout.root, "tiny", IMAGES)


@pytest.fixture
def figures(checkout: Checkout, change: Change) -> Signature:
    return failure(case(checkout, change("tiny", "tiny")), "interpreter", Variant.REPRO)


@pytest.fixture
def worded(checkout: Checkout, change: Change) -> Case:
    """Its message is another in the environment `interpreter`."""
    return case(checkout, change(FIGURES, WORDED).replace(OTHERWISE, ELSEWHERE))


class TestWhatRunsThrough:
    @pytest.mark.parametrize(
        ("result", "sign", "told"),
        [
            (printed("rel_err=0.5"), Sign.SHOWS, "ran to its end, rel_err=0.5"),
            (printed("rel_err=1e-7"), Sign.ABSENT, "ran to its end, rel_err=1e-07"),
            (printed("hello"), Sign.UNKNOWN, "ran to its end, but did not print rel_err"),
            (raised("no such name", "ImportError"), Sign.OTHER, "ImportError: no such name"),
        ],
    )
    def test_a_figure_tells(self, figures: Signature, result: TrialResult, sign: Sign, told: str) -> None:
        assert figures.read(result)[:2] == (sign, told)

    def test_what_is_told_are_the_figures_that_tell_repro_from_fixed(self, figures: Signature) -> None:
        told = figures.read(printed("a=1", "b=2", "c=3", "rel_err=0.5")).summary
        assert told == "ran to its end, rel_err=0.5"

    def test_the_machines_fault_is_neither(self, figures: Signature) -> None:
        broken = TrialResult(stdout="", stderr="", duration_s=0.1, infra="the container did not start")
        assert figures.read(broken)[:2] == (Sign.UNKNOWN, "the container did not start")

    def test_fixed_must_prove_that_its_check_ran(self, checkout: Checkout, change: Change) -> None:
        seen = failure(case(checkout, change("tiny", "tiny")), "interpreter", Variant.FIXED)
        assert seen.read(printed("all good", "rel_err=1e-7")).sign is Sign.ABSENT
        assert seen.read(printed("rel_err=1e-7")).sign is Sign.OTHER
        assert seen.read(printed("all good", "rel_err=0.5")).sign is Sign.SHOWS


class TestWordings:
    @pytest.mark.parametrize("message", ["off by 3", "wrong by 3"])
    def test_any_wording_that_the_case_declares_shows_the_failure(self, worded: Case, message: str) -> None:
        seen = failure(worded, "interpreter", Variant.REPRO)
        assert seen.read(raised(message))[:2] == (Sign.SHOWS, f"ValueError: {message}")
        assert seen.read(raised(message, "KeyError")).sign is Sign.OTHER

    def test_a_wording_that_nobody_declared_does_not(self, worded: Case) -> None:
        assert failure(worded, "interpreter", Variant.REPRO).read(raised("out by 3")).sign is Sign.OTHER

    def test_one_wording_can_be_searched_for_and_the_declared_ones_are_quiet_then(self, worded: Case) -> None:
        seen = failure(worded, "interpreter", Variant.REPRO, expect_message="wrong")
        assert seen.read(raised("wrong by 3")).sign is Sign.SHOWS
        assert seen.read(raised("off by 3")).sign is Sign.ABSENT
        assert seen.read(raised("out by 3")).sign is Sign.OTHER

    def test_a_failure_can_be_said_to_be_good(self, worded: Case) -> None:
        seen = failure(worded, "interpreter", Variant.REPRO, expect_message="wrong", good_message="^out")
        assert seen.read(raised("out by 3"))[:2] == (Sign.ABSENT, "ValueError: out by 3")

    def test_what_is_told_is_the_line_that_was_found(self, worded: Case) -> None:
        """Though it is in a cause, or far down in a text that begins with a source."""
        seen = failure(worded, "interpreter", Variant.REPRO)
        deep = raised("at 4:8:\nsource\n        ^\nwrong by 3, says the compiler")
        assert seen.read(deep).summary == "ValueError: wrong by 3, says the compiler"
        wrapped = raised("at 4:8:\nsource\n        ^", cause="KeyError: wrong by 3")
        assert seen.read(wrapped)[:2] == (Sign.SHOWS, "ValueError: KeyError: wrong by 3")

    def test_an_error_without_words_is_told_by_its_cause(self, worded: Case) -> None:
        seen = failure(worded, "interpreter", Variant.REPRO)
        told = seen.read(raised("at 4:8:\nsource\n        ^", cause="KeyError: quite another thing")).summary
        assert told == "ValueError, caused by KeyError: quite another thing"

    @pytest.mark.parametrize("option", ["expect_message", "good_message"])
    def test_a_message_that_is_no_regular_expression_is_one_line(self, worded: Case, option: str) -> None:
        line = f"--{option.replace('_', '-')} (x: is not a regular expression"
        with pytest.raises(UsageError, match=re.escape(line)):
            failure(worded, "interpreter", Variant.REPRO, **{option: "(x"})


class TestWhatSingleTrialsCanNotTell:
    @pytest.mark.parametrize(
        ("repro", "fixed", "line"),
        [
            (
                "differs: [out]\ntrials: 40",
                "same: [out]",
                "tiny: its failure is a difference between runs, so one ordinary run can't show it",
            ),
            (
                "sanitizer: {tool: memcheck, access: write}",
                "message: all good",
                "tiny: its failure shows only under compute-sanitizer, so one ordinary run can't show it",
            ),
        ],
    )
    def test_it_is_refused(self, checkout: Checkout, change: Change, repro: str, fixed: str, line: str) -> None:
        manifest = change(FIGURES, repro).replace('figures: {rel_err: "< 1e-5"}', fixed)
        manifest = manifest.replace(
            "fixed: {message: all good}", "repro: {sanitizer: null, exception: ValueError, message: off by two}"
        )
        with pytest.raises(UsageError) as caught:
            failure(case(checkout, manifest), "current", Variant.REPRO)
        assert str(caught.value) == line
