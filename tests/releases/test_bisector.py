"""A bisection from end to end over versions whose trials are drawn."""

import io
import random
from collections.abc import Mapping, Sequence

import pytest

from casebook_workbench.releases.records import Bisection, Call
from casebook_workbench.releases.search import Bisector, EndError, TrialCounts
from gpu_casebook.console import Console
from gpu_casebook.errors import MachineError
from tests.releases.sites import OTHER, QUIET, SHOWS, Draw, FakeEnvironments, always, in_turn, record

TERMS = TrialCounts(refute=3, least=0, most=20, limit=200)


def drive(
    begun: Bisection, site: FakeEnvironments, terms: TrialCounts = TERMS, saved: list[Bisection] | None = None
) -> Bisector:
    def save(now: Bisection) -> None:
        if saved is not None:
            saved.append(now.model_copy(deep=True))

    return Bisector(record=begun, open_environment=site.at, counts=terms, console=Console(io.StringIO()), save=save)


def versions(count: int) -> list[str]:
    return [f"1.{number}" for number in range(count)]


def site(line: Sequence[str], first_bad: str, more: Mapping[str, Draw | str] | None = None) -> FakeEnvironments:
    at = line.index(first_bad)
    plain = {version: always(SHOWS if number >= at else QUIET) for number, version in enumerate(line)}
    return FakeEnvironments({**plain, **(more or {})})


class TestAnswer:
    @pytest.mark.parametrize("first_bad", versions(10)[1:])
    def test_the_release_that_brought_it(self, first_bad: str) -> None:
        found = drive(record(versions(10)), site(versions(10), first_bad)).run()
        assert found.first == [first_bad]
        assert found.answer == f"first bad release: {first_bad}"

    @pytest.mark.parametrize("fixed", versions(10)[1:])
    def test_the_release_that_fixed_it(self, fixed: str) -> None:
        line = versions(10)
        draws = {version: always(QUIET if line.index(version) >= line.index(fixed) else SHOWS) for version in line}
        found = drive(record(line, fixed=True), FakeEnvironments(draws)).run()
        assert found.answer == f"first fixed release: {fixed}"

    def test_versions_that_can_not_tell_leave_a_range_and_say_why(self) -> None:
        tried = site(versions(6), "1.3", {"1.3": "no wheel", "1.2": always(OTHER)})
        found = drive(record(versions(6)), tried).run()
        assert found.answer == "first bad release is one of: 1.2, 1.3, 1.4"
        assert found.called(Call.SKIP) == ["1.2", "1.3"]
        assert {step.version: step.why for step in found.steps if step.call is Call.SKIP} == {
            "1.3": "no wheel",
            "1.2": OTHER.summary,
        }
        assert found.called(Call.GOOD) == ["1.0", "1.1"]
        assert found.called(Call.BAD) == ["1.4", "1.5"]

    def test_each_version_is_opened_once(self) -> None:
        tried = site(versions(30), "1.17")
        drive(record(versions(30)), tried).run()
        assert len(tried.opened) == len(set(tried.opened)) <= 2 + 5


class TestTrials:
    def test_the_rate_at_the_bad_end_says_how_many_quiet_trials_make_a_version_good(self) -> None:
        """It is measured until a good version would need no more trials than it has had."""
        found = drive(record(versions(4)), site(versions(4), "1.3")).run()
        bad, *good = found.steps
        assert found.rate
        assert (found.rate.k, found.rate.n) == (bad.shown, bad.trials)
        assert found.quiet_needed
        assert [step.quiet for step in good] == [found.quiet_needed] * len(good)
        assert found.quiet_needed <= bad.trials < 20
        assert (1 - found.rate.low) ** found.quiet_needed <= 0.01 / 3

    def test_a_flaky_bad_end_asks_more_of_the_good_ones(self) -> None:
        flaky = site(versions(3), "1.2", {"1.2": in_turn("F.." * 20)})
        found = drive(record(versions(3)), flaky, TrialCounts(refute=9, least=0, most=60, limit=200)).run()
        assert found.quiet_needed
        assert found.quiet_needed > 15
        assert flaky.trials.count("1.1") == found.quiet_needed

    def test_one_trial_that_fails_makes_a_version_bad(self) -> None:
        late = site(versions(3), "1.2", {"1.1": in_turn("...F")})
        assert drive(record(versions(3)), late).run().first == ["1.1"]
        assert late.trials.count("1.1") == 4

    def test_another_failure_ends_a_versions_trials(self) -> None:
        odd = site(versions(3), "1.2", {"1.1": in_turn("..EFF")})
        found = drive(record(versions(3)), odd).run()
        assert found.first == ["1.1", "1.2"]
        assert odd.trials.count("1.1") == 3

    def test_a_number_of_trials_that_was_asked_for_is_run(self) -> None:
        tried = site(versions(2), "1.1")
        drive(record(versions(2)), tried, TrialCounts(refute=3, least=12, most=12, limit=200)).run()
        assert tried.trials.count("1.1") == 12

    def test_a_failure_that_is_too_rare_to_search_by_says_so(self) -> None:
        rare = site(versions(2), "1.1", {"1.1": in_turn("F" + "." * 99)})
        with pytest.raises(EndError, match=r"fails in 1 of 20 trials with thing 1\.1, so \d+ quiet .* --trials N"):
            drive(record(versions(2)), rare).run()

    def test_the_machines_fault_is_nobodys_call(self) -> None:
        saved: list[Bisection] = []
        spoiled = site(versions(3), "1.2", {"1.1": in_turn("..!")})
        with pytest.raises(MachineError, match="the container did not start"):
            drive(record(versions(3)), spoiled, saved=saved).run()
        assert saved[-1].steps[-1].call is None
        assert saved[-1].steps[-1].quiet == 2


QUIET_END = "thing 1.2 was said to be bad, and 3 trials are without the failure: ran to its end"


class TestEnds:
    @pytest.mark.parametrize(
        ("good", "bad", "line"),
        [
            (always(SHOWS), always(SHOWS), "thing 1.0 was said to be good, and fails: ValueError: off by two"),
            (always(OTHER), always(SHOWS), "thing 1.0 was said to be good, and can't tell: ImportError: no such name"),
            ("no wheel", always(SHOWS), "thing 1.0 was said to be good, and can't tell: no wheel"),
            (always(QUIET), "no wheel", "thing 1.2 was said to be bad, and can't tell: no wheel"),
            (always(QUIET), always(OTHER), "thing 1.2 was said to be bad, and can't tell: ImportError: no such name"),
            (
                always(QUIET),
                always(QUIET),
                f"{QUIET_END}; if 1.0 is the bad one, write --bad 1.0 --fixed-in 1.2",
            ),
        ],
    )
    def test_an_end_that_is_not_what_it_was_said_to_be(self, good: Draw | str, bad: Draw | str, line: str) -> None:
        tried = FakeEnvironments({"1.0": good, "1.1": always(QUIET), "1.2": bad})
        with pytest.raises(EndError) as caught:
            drive(record(versions(3)), tried).run()
        assert str(caught.value) == line
        assert "1.1" not in tried.opened

    def test_the_wrong_way_round_where_the_fix_is_looked_for(self) -> None:
        tried = FakeEnvironments({"1.0": always(QUIET), "1.1": always(SHOWS)})
        with pytest.raises(EndError, match=r"if 1\.1 is the bad one, write --good 1\.0 --bad 1\.1$"):
            drive(record(versions(2), fixed=True), tried).run()


class TestResuming:
    def test_wherever_it_was_killed_nothing_is_run_again(self) -> None:
        line = versions(9)
        whole = site(line, "1.5", {"1.3": "no wheel"})
        saved: list[Bisection] = []
        found = drive(record(line), whole, saved=saved).run()
        for at, left in enumerate(saved):
            again = site(line, "1.5", {"1.3": "no wheel"})
            read = Bisection.model_validate_json(left.model_dump_json())
            resumed = drive(read, again).run()
            assert resumed.first == found.first
            assert sorted(_tallies(resumed)) == sorted(_tallies(found))
            done = sum(step.trials for step in left.steps)
            assert len(again.trials) == len(whole.trials) - done, at

    def test_a_finished_one_has_nothing_left_to_do(self) -> None:
        found = drive(record(versions(5)), site(versions(5), "1.2")).run()
        before, nothing = found.model_copy(deep=True), FakeEnvironments({})
        assert drive(found, nothing).run() == before
        assert nothing.opened == []


def _tallies(found: Bisection) -> list[tuple[str, Call | None, int, int]]:
    return [(step.version, step.call, step.shown, step.quiet) for step in found.steps]


class TestFlaky:
    """The promise of alpha, with draws from a seed."""

    SEARCHES = 400

    @pytest.mark.parametrize("rate", [0.15, 0.35, 0.7])
    def test_wrong_answers_stay_under_alpha(self, rate: float) -> None:
        draws, line, alpha = random.Random(f"bisect {rate}"), versions(12), 0.05
        terms = TrialCounts(refute=30, least=0, most=40, limit=400)
        right = wrong = refused = 0
        for _ in range(self.SEARCHES):
            first_bad = draws.randrange(1, len(line))
            tried = FakeEnvironments({each: _drawn(draws, rate * (at >= first_bad)) for at, each in enumerate(line)})
            try:
                found = drive(record(line, alpha=alpha), tried, terms).run()
            except EndError:
                refused += 1
                continue
            right, wrong = right + (found.first == [line[first_bad]]), wrong + (found.first != [line[first_bad]])
            assert found.doubt is not None
            assert found.doubt <= alpha
        assert wrong / self.SEARCHES <= alpha
        assert right >= self.SEARCHES * 0.8
        assert refused <= self.SEARCHES * 0.1

    def test_a_quiet_run_would_misjudge_it(self) -> None:
        """The same draws with one trial for each version: this is what the trials are for."""
        draws, line = random.Random("one"), versions(12)
        wrong = 0
        for _ in range(100):
            first_bad = draws.randrange(1, len(line))
            tried = FakeEnvironments({each: _drawn(draws, 0.35 * (at >= first_bad)) for at, each in enumerate(line)})
            begun = record(line).model_copy(update={"quiet_needed": 1})
            one = drive(begun, tried)
            calls = {line[0]: Call.GOOD, line[-1]: Call.BAD}
            from casebook_workbench.releases import halving

            while version := halving.next_version(line, calls):
                calls[version] = one._step(version, one._judge).call or Call.SKIP
            wrong += halving.first(line, calls, fixed=False) != [line[first_bad]]
        assert wrong > 30


def _drawn(draws: random.Random, rate: float) -> Draw:
    return lambda: SHOWS if draws.random() < rate else QUIET
