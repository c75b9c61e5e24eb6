"""Sanitized trials, judged on what compute-sanitizer printed on an H200, and what they make of a verdict."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from failure_signature.expectation import Expectation, SanitizerFinding
from failure_signature.judging.decision import Decision, Terms, decide
from failure_signature.judging.outcome import Judgement, observe
from failure_signature.judging.sanitized import judge_fixed, judge_repro, mismatches, report, settled
from failure_signature.kinds import Variant
from failure_signature.reading.findings import Finding, KernelPlace, Kind, Tool
from failure_signature.result import TrialResult
from failure_signature.trials import Observation, Outcome, SanitizerReport, Trial, Verdict
from gpu_casebook.run.record import sanitizer_lines
from tests.recordings import DIRECTORY, Recording

WRITE = SanitizerFinding.model_validate({"access": "write", "size": 4, "kernel": "write_behind"})
PROOF = Expectation.model_validate({"figures": {"finished": "== 1"}})
NO_SUMMARY = "========= COMPUTE-SANITIZER\nfinished=1\n"


def recorded(name: str) -> TrialResult:
    recording = Recording.read(DIRECTORY / f"{name}.txt")
    status = recording.exit_status
    return TrialResult(stdout=recording.stdout, stderr=recording.stderr, duration_s=2.0, exit_status=status)


def found(result: TrialResult, declared: SanitizerFinding | None = None, tool: Tool = Tool.MEMCHECK) -> SanitizerReport:
    return report(result, tool, "2025.3.1.0", declared)


def repro(result: TrialResult, declared: SanitizerFinding = WRITE) -> Judgement:
    return judge_repro(declared, found(result, declared, declared.tool))


def fixed(result: TrialResult, tool: Tool = Tool.MEMCHECK) -> Judgement:
    return judge_fixed(PROOF, found(result, tool=tool), result, observe(result))


class TestRepro:
    @pytest.mark.parametrize("name", ["global_write_behind.memcheck", "global_write_behind.memcheck-exit-code"])
    def test_the_declared_finding_is_enough_however_the_program_ends(self, name: str) -> None:
        assert repro(recorded(name)) == Judgement(Outcome.AS_EXPECTED)

    def test_the_position_of_the_declared_finding_is_kept(self) -> None:
        kept = found(recorded("torch_raw_kernel.memcheck"), SanitizerFinding(kernel="store_one"))
        assert kept.declared == 0
        assert kept.findings[0].kernel_name == "store_one"
        assert kept.version == "2025.3.1.0"
        after = found(recorded("torch_raw_kernel.memcheck"), SanitizerFinding.model_validate({"kind": "api-error"}))
        assert after.declared == 1

    def test_python_that_aborts_under_the_tool_is_judged_by_the_report(self) -> None:
        result = recorded("triton_out_of_bounds.memcheck")
        assert result.exit_status != 0
        assert repro(result, SanitizerFinding(kernel="scale_without_mask")).outcome is Outcome.AS_EXPECTED

    @pytest.mark.parametrize(
        ("declared", "mismatch"),
        [
            ({"access": "read", "kernel": "write_behind"}, "sanitizer access: expected read, found write"),
            ({"size": 8, "access": "write"}, "sanitizer size: expected 8, found 4"),
            ({"kernel": "another"}, "sanitizer kernel: expected another, found "),
            ({"kind": "race"}, "sanitizer kind: expected race, found out-of-bounds"),
        ],
    )
    def test_another_finding_is_not_the_declared_one(self, declared: dict[str, object], mismatch: str) -> None:
        judged = repro(recorded("global_write_behind.memcheck"), SanitizerFinding.model_validate(declared))
        assert judged.outcome is Outcome.OTHERWISE
        assert judged.mismatches[0].startswith(mismatch)

    def test_a_kernel_is_declared_by_its_whole_name(self) -> None:
        def is_declared(kernel: str, function: str) -> bool:
            finding = Finding(
                tool=Tool.MEMCHECK, kind=Kind.RACE, title="", text="", place=KernelPlace(function=function)
            )
            return not mismatches(SanitizerFinding(kernel=kernel), finding)

        backward = "void wkv::kernel_backward<float>(int, float const *)"
        assert is_declared("kernel_backward", backward)
        assert is_declared("wkv::kernel_backward<float>", backward)
        assert is_declared(backward, backward)
        assert not is_declared("kernel_backward", "wkv6_kernel_backward_reduce(int)")
        assert not is_declared("kernel_backward", "void apply<kernel_backward>(int)")
        assert not is_declared("wkv::kernel", backward)

    def test_a_tool_that_never_attached_says_nothing(self) -> None:
        clean = "========= COMPUTE-SANITIZER\n{}finished=1\n========= ERROR SUMMARY: 0 errors\n"
        late = (
            "========= Error: No attachable process found. compute-sanitizer timed-out.\n"
            "========= Default timeout can be adjusted with --launch-timeout. Awaiting target completion.\n"
        )
        result = TrialResult(stdout=clean.format(late), stderr="", duration_s=1.0, exit_status=0)
        assert repro(result).outcome is Outcome.INFRA
        assert fixed(result).outcome is Outcome.INFRA

    def test_a_script_may_print_as_the_tool_does(self) -> None:
        own = "========= COMPUTE-SANITIZER\n========= Epoch 1\nfinished=1\n========= ERROR SUMMARY: {} error\n"
        result = TrialResult(stdout=own.format(0), stderr="", duration_s=1.0, exit_status=0)
        assert fixed(result).outcome is Outcome.AS_EXPECTED
        assert fixed(replace(result, stdout=own.format(1))).outcome is Outcome.OTHERWISE

    def test_of_several_findings_the_nearest_is_compared(self) -> None:
        judged = repro(recorded("torch_raw_kernel.memcheck"), SanitizerFinding(kernel="store_one", size=3))
        assert judged.mismatches == ("sanitizer size: expected 3, found 4",)

    def test_a_clean_report_lacks_the_finding(self) -> None:
        assert repro(recorded("clean.memcheck")) == Judgement(Outcome.OTHERWISE, ("compute-sanitizer found nothing",))

    def test_no_report_says_nothing_of_the_case(self) -> None:
        lost = TrialResult(stdout="", stderr="it could not be injected\n", duration_s=1.0, exit_status=1)
        assert repro(lost) == Judgement(Outcome.INFRA, infra="memcheck gave no report: it could not be injected")
        slow = TrialResult(stdout=NO_SUMMARY, stderr="", duration_s=600.0, signal="SIGKILL", timed_out=True)
        assert repro(slow).infra == "memcheck was ended at the time limit, after 600 s"

    def test_what_was_not_printed_may_be_the_declared_finding(self) -> None:
        many = recorded("global_write_behind_many.memcheck")
        assert repro(many, SanitizerFinding(kernel="write_behind_many")).outcome is Outcome.AS_EXPECTED
        judged = repro(many, SanitizerFinding(kernel="another"))
        assert judged.outcome is Outcome.INFRA
        assert "did not print" in str(judged.infra)

    def test_what_the_machine_spoiled_says_nothing_either(self) -> None:
        spoiled = replace(recorded("global_write_behind.memcheck"), exit_status=None, infra="the GPU broke meanwhile")
        assert repro(spoiled) == Judgement(Outcome.INFRA, infra="the GPU broke meanwhile")
        spoiled = replace(recorded("clean.memcheck"), exit_status=None, infra="the GPU broke meanwhile")
        assert fixed(spoiled).outcome is Outcome.INFRA

    def test_the_finding_counts_even_if_the_tool_was_ended_later(self) -> None:
        result = recorded("global_write_behind.memcheck")
        cut = TrialResult(
            stdout=result.stdout.partition("========= ERROR SUMMARY")[0],
            stderr="",
            duration_s=600.0,
            signal="SIGKILL",
            timed_out=True,
        )
        assert found(cut).summary is None
        assert repro(cut).outcome is Outcome.AS_EXPECTED

    def test_a_race(self) -> None:
        race = SanitizerFinding.model_validate({"tool": "racecheck", "kind": "race", "kernel": "reverse"})
        assert repro(recorded("race_read_after_write.racecheck-analysis"), race).outcome is Outcome.AS_EXPECTED


class TestMismatches:
    CALLED = Finding(
        tool=Tool.MEMCHECK,
        kind=Kind.OUT_OF_BOUNDS,
        title="Invalid __global__ read of size 4",
        access="read",
        place=KernelPlace(function="helper(int)"),
        device_frames=[KernelPlace(function="void ns::outer<float>(int)")],
        text="",
    )

    @pytest.mark.parametrize("kernel", ["helper", "outer", "ns::outer<float>"])
    def test_the_function_that_faulted_counts_as_well_as_the_kernel(self, kernel: str) -> None:
        declared = SanitizerFinding.model_validate({"kind": "out-of-bounds", "access": "read", "kernel": kernel})
        assert mismatches(declared, self.CALLED) == []

    def test_what_differs_or_is_not_known(self) -> None:
        declared = SanitizerFinding.model_validate({"tool": "racecheck", "size": 4, "kernel": "k"})
        assert mismatches(declared, self.CALLED) == [
            "sanitizer tool: expected racecheck, found memcheck",
            "sanitizer size: expected 4, found none",
            "sanitizer kernel: expected k, found void ns::outer<float>(int)",
        ]
        unknown = Finding(tool=Tool.RACECHECK, kind=Kind.OTHER, title="Something new", size=4, text="")
        assert mismatches(declared, unknown) == ["sanitizer kernel: expected k, found none"]


class TestFixed:
    @pytest.mark.parametrize("tool", list(Tool))
    def test_a_clean_end_and_the_proof(self, tool: Tool) -> None:
        assert fixed(recorded(f"clean.{tool}"), tool) == Judgement(Outcome.AS_EXPECTED)

    @pytest.mark.parametrize("name", ["global_write_behind", "leak", "double_free", "launch_errors.block"])
    def test_any_finding_speaks_against_the_fix(self, name: str) -> None:
        judged = fixed(recorded(f"{name}.memcheck"))
        assert judged.outcome is Outcome.OTHERWISE
        assert judged.mismatches[0].startswith("memcheck: expected no findings, found ")

    def test_an_error_that_was_only_counted_speaks_against_it_too(self) -> None:
        clean = recorded("clean.memcheck")
        counted = TrialResult(
            stdout=clean.stdout.replace("SUMMARY: 0 errors", "SUMMARY: 3 errors"),
            stderr="",
            duration_s=1.0,
            exit_status=0,
        )
        assert fixed(counted).mismatches == ("memcheck: expected no errors, its summary counts 3",)

    def test_without_a_summary_nothing_is_proved(self) -> None:
        ended = TrialResult(stdout=NO_SUMMARY, stderr="", duration_s=1.0, exit_status=0)
        assert fixed(ended).outcome is Outcome.INFRA

    def test_a_tool_that_doubts_itself_proves_nothing(self) -> None:
        clean = recorded("clean.memcheck").stdout
        warned = clean.replace("========= ERROR", "========= Internal Sanitizer Error: out of memory\n========= ERROR")
        judged = fixed(TrialResult(stdout=warned, stderr="", duration_s=1.0, exit_status=0))
        assert judged.outcome is Outcome.INFRA
        assert "may have missed something" in str(judged.infra)

    def test_the_fix_gives_its_own_proof_under_the_tool_as_well(self) -> None:
        silent = recorded("clean.memcheck").stdout.replace("finished=1", "finished=0")
        judged = fixed(TrialResult(stdout=silent, stderr="", duration_s=1.0, exit_status=0))
        assert judged == Judgement(Outcome.OTHERWISE, ("figure finished: expected == 1, saw 0.0",))


CLEAN, FAULTY = recorded("clean.memcheck"), recorded("global_write_behind.memcheck")
ABSENT = TrialResult(stdout="", stderr="", duration_s=0.0, infra="compute-sanitizer is not in this environment")


def ordinary(*, repro_fails: bool = False, fix_holds: bool = True) -> list[Trial]:
    def trial(variant: Variant, number: int, outcome: Outcome, status: int) -> Trial:
        seen = Observation(exit_status=status)
        return Trial(
            variant=variant, number=number, outcome=outcome, observation=seen, duration_s=1.0, stdout="", stderr=""
        )

    held = Outcome.AS_EXPECTED if fix_holds else Outcome.OTHERWISE
    shows = [trial(Variant.REPRO, number, Outcome.AS_EXPECTED, int(repro_fails)) for number in (1, 2, 3)]
    return [*shows, *(trial(Variant.FIXED, number, held, 0) for number in (1, 2, 3))]


def sanitized(variant: Variant, result: TrialResult) -> Trial:
    kept = found(result, WRITE if variant is Variant.REPRO else None)
    judgement = (
        judge_repro(WRITE, kept) if variant is Variant.REPRO else judge_fixed(PROOF, kept, result, observe(result))
    )
    return Trial(
        variant=variant,
        number=1,
        outcome=judgement.outcome,
        mismatches=list(judgement.mismatches),
        infra=judgement.infra,
        observation=observe(result),
        duration_s=1.0,
        stdout=result.stdout,
        stderr=result.stderr,
        sanitizer=kept,
    )


def settle(trials: Sequence[Trial], *results: TrialResult) -> Decision:
    pairs = zip(Variant, results, strict=False)
    return settled(decide(trials, Terms(trials=3)), trials, [sanitized(variant, result) for variant, result in pairs])


class TestVerdict:
    def test_both_sides_under_the_tool_confirm(self) -> None:
        decision = settle(ordinary(), FAULTY, CLEAN)
        assert decision.verdict is Verdict.CONFIRMED
        assert decision.reasons[0].startswith("Reproduces in 3 of 3 runs")

    def test_without_sanitized_trials_nothing_changes(self) -> None:
        before = decide(ordinary(), Terms(trials=3))
        assert settled(before, ordinary(), []) == before

    @pytest.mark.parametrize(
        ("results", "verdict", "headline"),
        [
            ((CLEAN, CLEAN), Verdict.NOT_REPRODUCED, "Does not reproduce: memcheck finds nothing in repro."),
            ((FAULTY, FAULTY), Verdict.FIX_FAILS, "The fix does not hold under memcheck: memcheck finds an out-of-"),
            (
                (recorded("misaligned_read.memcheck"), CLEAN),
                Verdict.WRONG_FAILURE,
                "Not the finding that is declared: in repro memcheck finds a misaligned read of 4 bytes",
            ),
            (
                (ABSENT, ABSENT),
                Verdict.INCONCLUSIVE,
                "Nothing can be said of what memcheck finds: compute-sanitizer is not in this environment.",
            ),
            ((FAULTY, ABSENT), Verdict.INCONCLUSIVE, "Nothing can be said"),
            ((CLEAN, ABSENT), Verdict.INCONCLUSIVE, "Nothing can be said"),
            (
                (FAULTY,),
                Verdict.INCONCLUSIVE,
                "Nothing can be said of what memcheck finds: fixed was not run under it.",
            ),
        ],
    )
    def test_what_would_be_confirmed_is_lowered(
        self, results: Sequence[TrialResult], verdict: Verdict, headline: str
    ) -> None:
        decision = settle(ordinary(), *results)
        assert decision.verdict is verdict
        assert decision.reasons[0].startswith(headline)
        assert decision.reasons[1].startswith("Reproduces in 3 of 3 runs")

    def test_a_failure_that_the_tool_can_not_see_is_another_than_declared(self) -> None:
        decision = settle(ordinary(repro_fails=True), CLEAN, CLEAN)
        assert decision.verdict is Verdict.WRONG_FAILURE

    @pytest.mark.parametrize("results", [(FAULTY, CLEAN), (CLEAN, CLEAN), (ABSENT, ABSENT), (FAULTY, FAULTY)])
    def test_ordinary_trials_that_do_not_confirm_decide_alone(self, results: Sequence[TrialResult]) -> None:
        decision = settle(ordinary(fix_holds=False), *results)
        assert decision.verdict is Verdict.FIX_FAILS
        assert decision.reasons[0].startswith("Reproduces in 3 of 3 runs")

    def test_the_rates_are_those_of_ordinary_trials(self) -> None:
        assert settle(ordinary(), CLEAN, FAULTY).rates[Variant.REPRO].n == 3

    def test_what_was_not_counted_is_told(self) -> None:
        told = settle(ordinary(), ABSENT, ABSENT).reasons
        assert "repro under memcheck: not counted: compute-sanitizer is not in this environment" in told


def test_the_signature_names_both_sides() -> None:
    (line,) = sanitizer_lines(WRITE, Variant.REPRO)
    assert line == "compute-sanitizer: memcheck finds access write, size 4, kernel write_behind"
    assert sanitizer_lines(WRITE, Variant.FIXED) == ["compute-sanitizer: memcheck finds nothing"]
    assert sanitizer_lines(None, Variant.REPRO) == []
