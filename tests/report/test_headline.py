"""A report's first line for GPU faults, put together from what was recorded on an H200."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from failure_signature.expectation import SanitizerFinding
from failure_signature.judging.decision import Terms, decide
from failure_signature.judging.outcome import observe
from failure_signature.judging.sanitized import report
from failure_signature.kinds import Variant
from failure_signature.reading.findings import Tool
from failure_signature.result import TrialResult
from failure_signature.trials import Outcome, Rate, SanitizerReport, Trial, Verdict, Xid
from gpu_casebook.evidence import Evidence, SanitizerProbe, Sharing
from gpu_casebook.report.case_page import case_page
from gpu_casebook.report.headline import headline, markdown, plain, summary
from gpu_casebook.run.probes import launch_blocking
from gpu_casebook.run.probes.launch_blocking import LaunchBlockingProbe
from tests.report.example import evidence, simulated
from tests.report.hostile import hostile
from tests.run.test_launch_blocking import recorded

PROVED = TrialResult(stdout="rel_err=1e-7\n", stderr="", duration_s=1.0, exit_status=0)
HOLDS = "; the fix holds in 3 of 3 (fails in at most 64 % of runs at 95 % confidence; figures equal to the last digit)."


def trial(variant: Variant, number: int, result: TrialResult, **more: Any) -> Trial:
    return Trial(
        variant=variant,
        number=number,
        outcome=Outcome.AS_EXPECTED,
        observation=observe(result),
        duration_s=result.duration_s,
        stdout=result.stdout,
        stderr=result.stderr,
        **more,
    )


def run(repro: TrialResult, **more: Any) -> Evidence:
    results = {Variant.REPRO: repro, Variant.FIXED: PROVED}
    trials = [trial(variant, number, results[variant]) for variant in Variant for number in (1, 2, 3)]
    decision = decide(trials, Terms(trials=3))
    more |= {"verdict": decision.verdict, "reasons": list(decision.reasons), "rates": decision.rates}
    return evidence(trials=trials, **more)


def found(name: str, tool: Tool = Tool.MEMCHECK, declared: SanitizerFinding | None = None) -> SanitizerReport:
    return report(recorded(name), tool, None, declared)


def under(name: str, tool: Tool = Tool.MEMCHECK, variant: Variant = Variant.REPRO) -> SanitizerProbe:
    return SanitizerProbe(variant=variant, report=found(name, tool), stdout=recorded(name).stdout)


def sanitized(name: str, **declared: Any) -> Trial:
    expected = SanitizerFinding.model_validate(declared)
    return trial(Variant.REPRO, 1, recorded(name), sanitizer=found(name, declared=expected))


def blocking(plain: str, result: TrialResult) -> LaunchBlockingProbe:
    return launch_blocking.record_of(trial(Variant.REPRO, 1, recorded(plain)), result)


def told(repro: str, *probes: SanitizerProbe | LaunchBlockingProbe, **more: Any) -> str:
    return plain(headline(run(recorded(repro), probes=list(probes), **more)))


def test_where_it_was_launched_what_it_did_and_where_it_showed() -> None:
    said = told(
        "torch_raw_kernel.bare",
        under("torch_raw_kernel.memcheck"),
        blocking("torch_raw_kernel.bare", recorded("torch_raw_kernel.blocking")),
    )
    assert said == (
        "Reproduces in 3 of 3 runs: illegal memory access in store_one, "
        "an out-of-bounds write of 4 bytes just behind a 256-byte buffer; "
        "surfaced at out = out + 1 (torch_raw_kernel.py:29), "
        "launched at kernel(grid=(1, 1, 1), block=(threads, 1, 1), args=[out, row, width]) (torch_raw_kernel.py:18)"
        + HOLDS
    )


def test_code_is_code_on_the_page() -> None:
    probes = [
        under("torch_raw_kernel.memcheck"),
        blocking("torch_raw_kernel.bare", recorded("torch_raw_kernel.blocking")),
    ]
    page = markdown(headline(run(recorded("torch_raw_kernel.bare"), probes=probes)))
    assert page.startswith(
        "Reproduces in 3 of 3 runs: illegal memory access in `store_one`, "
        "an out-of-bounds write of 4 bytes just behind a 256-byte buffer; "
        "surfaced at `out = out + 1` (torch_raw_kernel.py:29), launched at `kernel(grid=(1, 1, 1), "
    )


@pytest.mark.parametrize("elsewhere", ["torch_raw_kernel.py:29", "other.py:18", ""])
def test_what_the_tool_found_at_another_launch_is_not_the_fault(elsewhere: str) -> None:
    probe = under("torch_raw_kernel.memcheck")
    found = probe.report.findings[0].model_copy(update={"host_frames": [f"<module> in {elsewhere}"]})
    other = probe.model_copy(update={"report": probe.report.model_copy(update={"findings": [found]})})
    for more in ([blocking("torch_raw_kernel.bare", recorded("torch_raw_kernel.blocking"))], []):
        assert told("torch_raw_kernel.bare", other, *more).startswith(
            "Reproduces in 3 of 3 runs: illegal memory access (cudaErrorIllegalAddress); surfaced at out = out + 1"
        )


def test_without_probes_the_error_has_its_name() -> None:
    said = told("triton_out_of_bounds.bare")
    assert said == (
        "Reproduces in 3 of 3 runs: illegal memory access (cudaErrorIllegalAddress); "
        "surfaced at return target.sum().item() (triton_out_of_bounds.py:25)" + HOLDS
    )


def test_a_device_side_assertion() -> None:
    said = told("torch_index_assert.bare", under("torch_index_assert.memcheck"))
    assert said.startswith(
        "Reproduces in 3 of 3 runs: device-side assertion that does not hold (cudaErrorAssert), "
        "ind >=0 && ind < ind_dim_size && "
    )
    assert "at IndexKernelUtils.cu:16; surfaced at return rows * 2 + 1" in said


def test_the_status_of_a_library_that_only_follows() -> None:
    said = told("torch_cublas_after_fault.bare")
    assert said.startswith(
        "Reproduces in 3 of 3 runs: CUBLAS_STATUS_INTERNAL_ERROR, after a device-side assertion -sizes[i] <= index"
    )


def test_an_abort_surfaces_nowhere() -> None:
    assert "device-side assertion that does not hold (cudaErrorAssert)" in told("torch_uncaught_cpp_exception.bare")
    assert "; ends in SIGABRT; the fix holds" in told("torch_uncaught_cpp_exception.bare")


def test_a_comment_is_no_part_of_the_line() -> None:
    result = recorded("torch_raw_kernel.bare")
    noted = replace(result, stderr=result.stderr.replace("out = out + 1", "out = out + 1  # far from the fault"))
    assert "surfaced at out = out + 1 (torch_raw_kernel.py:29)" in plain(headline(run(noted)))


@pytest.mark.parametrize(
    ("distance", "told_of"), [(17, ", 17 bytes after a 256-byte buffer;"), (5000, "; surfaced at out = out + 1")]
)
def test_what_is_far_from_the_access_is_not_told(distance: int, told_of: str) -> None:
    probe = under("torch_raw_kernel.memcheck")
    first = probe.report.findings[0]
    assert first.nearest
    found = first.model_copy(update={"nearest": first.nearest.model_copy(update={"distance": distance})})
    far = probe.model_copy(update={"report": probe.report.model_copy(update={"findings": [found]})})
    launched = blocking("torch_raw_kernel.bare", recorded("torch_raw_kernel.blocking"))
    assert f"an out-of-bounds write of 4 bytes{told_of}" in told("torch_raw_kernel.bare", far, launched)


def test_a_matter_of_timing() -> None:
    gone = blocking("torch_raw_kernel.bare", PROVED)
    assert told("torch_raw_kernel.bare", gone).endswith(
        "(torch_raw_kernel.py:29); gone with CUDA_LAUNCH_BLOCKING=1, so it is a matter of timing" + HOLDS
    )


def test_where_it_is_raised_is_where_it_was_launched() -> None:
    name = "torch_raw_kernel.configuration.bare"
    said = told(name, blocking(name, recorded(name)))
    assert "surfaced" not in said
    assert "; raised at kernel(grid=(1, 1, 1)" in said


def test_out_of_bounds_in_silence() -> None:
    silent = recorded("triton_out_of_bounds.behind.bare")
    shows = run(
        silent, sanitized=[sanitized("triton_out_of_bounds.memcheck", access="write", kernel="scale_without_mask")]
    )
    assert plain(headline(shows)) == (
        "Reproduces in 3 of 3 runs: no error shows, and memcheck finds an out-of-bounds write of 4 bytes just behind a "
        "400-byte buffer in scale_without_mask" + HOLDS
    )


def test_wrong_numbers_and_what_a_probe_found() -> None:
    how = "ran to its end, rel_err=0.5 (> 1e-2)"
    said = evidence(reasons=[f"Reproduces in 3 of 3 runs: {how}; the fix holds in 3 of 3."])
    wrong = said.model_copy(
        update={"trials": run(PROVED).trials, "probes": [under("uninitialized_read.initcheck", Tool.INITCHECK)]}
    )
    assert plain(headline(wrong)) == (
        f"Reproduces in 3 of 3 runs: {how}, and initcheck finds a read of 4 bytes of global memory that nobody "
        "wrote, in read_uninitialized at uninitialized_read.cu:4" + HOLDS
    )


def silent(*probes: SanitizerProbe) -> Evidence:
    return run(replace(PROVED, stdout="rel_err=0.5\n"), probes=list(probes))


def test_what_fixed_has_as_well_is_no_cause() -> None:
    both = [under("uninitialized_read.initcheck", Tool.INITCHECK, variant) for variant in Variant]
    assert "initcheck" in plain(headline(silent(both[0])))
    assert "initcheck" not in plain(headline(silent(*both)))
    other = under("uninitialized_copy.initcheck", Tool.INITCHECK, Variant.FIXED)
    assert "read_uninitialized" in plain(headline(silent(both[0], other)))


def test_what_is_found_in_fixed_alone_is_not_told() -> None:
    said = plain(headline(silent(under("uninitialized_read.initcheck", Tool.INITCHECK, Variant.FIXED))))
    assert "initcheck" not in said


def test_the_declared_finding_comes_before_any_other() -> None:
    declared = sanitized("torch_raw_kernel.memcheck", kind="api-error")
    shows = run(recorded("torch_raw_kernel.bare"), sanitized=[declared], probes=[under("misaligned_read.memcheck")])
    said = "illegal memory access: memcheck finds cudaErrorLaunchFailure, returned by cudaLaunchKernel"
    assert said in plain(headline(shows))


def test_a_probe_that_found_nothing_adds_nothing() -> None:
    quiet = [under("clean.memcheck"), SanitizerProbe(report=SanitizerReport(tool=Tool.MEMCHECK), note="not there")]
    assert told("triton_out_of_bounds.bare", *quiet) == told("triton_out_of_bounds.bare")


@pytest.mark.parametrize(
    "reasons",
    [
        ["Does not reproduce: repro ran to its end in 3 of 3 runs."],
        ["Fails in another way than declared in 3 of 3 runs: torch.AcceleratorError: CUDA error."],
        ["The fix does not hold under memcheck: memcheck finds a trap."],
        ["Too few runs count: 2 of repro, where 3 are needed."],
        [],
    ],
)
def test_only_a_failure_that_reproduces_is_told_anew(reasons: Sequence[str]) -> None:
    shows = run(recorded("torch_raw_kernel.bare"), probes=[under("torch_raw_kernel.memcheck")])
    other = shows.model_copy(update={"reasons": list(reasons)})
    assert plain(headline(other)) == "".join(reasons[:1])


def test_no_gpu_fault_no_new_sentence() -> None:
    assert plain(headline(evidence())).startswith(evidence().reasons[0].removesuffix("."))


@pytest.mark.parametrize(("clean", "most"), [(1, 95), (3, 64), (4, 53), (10, 26), (59, 5), (300, 1)])
def test_what_clean_runs_leave_open(clean: int, most: int) -> None:
    rates = {**evidence().rates, Variant.FIXED: Rate(k=clean, n=clean, low=0.5, high=1.0)}
    assert f"(fails in at most {most} % of runs at 95 % confidence" in plain(headline(evidence(rates=rates)))


def test_figures_are_the_same_only_where_each_variant_has_one_set_of_them() -> None:
    same = evidence()
    trials = [
        each.model_copy(update={"observation": each.observation.model_copy(update={"figures": {"x": 1.0}})})
        for each in same.trials
    ]
    noisy = trials[-1].model_copy(
        update={"observation": trials[-1].observation.model_copy(update={"figures": {"x": 1.0 + 1e-12}})}
    )
    assert "equal to the last digit" in headline(evidence(trials=trials))
    assert "equal to the last digit" not in headline(evidence(trials=[*trials[:-1], noisy]))
    assert "equal to the last digit" not in headline(evidence(trials=[]))


@pytest.mark.parametrize("changed", [{"rates": {}}, {"verdict": Verdict.FIX_FAILS}])
def test_nothing_is_left_open_where_nothing_is_confirmed(changed: dict[str, Any]) -> None:
    assert headline(evidence(**changed)) == evidence().reasons[0]


class TestPages:
    @pytest.fixture
    def shows(self) -> Evidence:
        result = recorded("torch_raw_kernel.bare")
        xid = Xid(number=31, pci="0000:00:06", pid=7, process="python3", text="pid=7, name=python3, MMU | Fault")
        probes = [
            under("torch_raw_kernel.memcheck"),
            blocking("torch_raw_kernel.bare", recorded("torch_raw_kernel.blocking")),
        ]
        whole = run(result, probes=probes)
        first = whole.trials[0].model_copy(update={"xids": [xid]})
        return whole.model_copy(update={"trials": [first, *whole.trials[1:]]})

    def test_the_first_line_is_the_sentence(self, shows: Evidence) -> None:
        page = case_page([shows])
        first = markdown(headline(shows))
        assert page.splitlines()[5] == first
        assert page.count(first) == 2
        assert summary(shows)[1] == f"  {plain(headline(shows))}"

    def test_the_two_lines_side_by_side(self, shows: Evidence) -> None:
        page = case_page([shows])
        assert "| in an ordinary run | `torch_raw_kernel.py:29` | `out = out + 1` |" in page
        launched = "`kernel(grid=(1, 1, 1), block=(threads, 1, 1), args=[out, row, width])`"
        assert f"| with CUDA_LAUNCH_BLOCKING=1 | `torch_raw_kernel.py:18` | {launched} |" in page
        assert "cudaErrorIllegalAddress surfaces at one line, and comes of a launch at another." in page

    def test_findings_in_sentences_with_the_raw_text_behind_them(self, shows: Evidence) -> None:
        page = case_page([shows])
        assert "- an out-of-bounds write of 4 bytes, just behind a 256-byte buffer, in store_one" in page
        assert "<details><summary>What compute-sanitizer printed: memcheck on repro, a probe</summary>" in page
        assert "Invalid __global__ write of size 4 bytes" in page

    def test_which_script_a_probe_looked_at(self) -> None:
        looks = [under("uninitialized_read.initcheck", Tool.INITCHECK, variant) for variant in Variant]
        page = case_page([silent(*looks)])
        assert "initcheck on repro, a probe:\n- a read of 4 bytes" in page
        assert "initcheck on fixed, a probe:\n- a read of 4 bytes" in page

    def test_the_allocators_cache_is_owned_up_to(self) -> None:
        quiet = under("torch_graph_capture.memcheck-cached")
        cached = quiet.model_copy(update={"report": quiet.report.model_copy(update={"cached": True})})
        said = "- with PyTorch's caching allocator, without which no CUDA graph can be captured"
        assert said in case_page([silent(cached)])
        assert said not in case_page([silent(quiet)])

    def test_the_kernel_log(self, shows: Evidence) -> None:
        assert "- Xid 31 during repro, 1 time: <code>pid=7, name=python3, MMU &#124; Fault</code>" in case_page([shows])

    def test_the_kernel_log_of_a_gpu_that_others_used_too(self, shows: Evidence) -> None:
        """Each trial that ran when it came has noted it."""
        xids = shows.trials[0].xids
        trials = [trial.model_copy(update={"xids": xids}) for trial in shows.trials]
        page = case_page([shows.model_copy(update={"trials": trials, "sharing": Sharing(at_once=3)})])
        assert "possibly of other cases; a line may be about one of them:\n- Xid 31 during repro, 1 time: " in page
        assert "of other cases" not in case_page([shows])

    def test_gone(self) -> None:
        shows = run(recorded("torch_raw_kernel.bare"), probes=[blocking("torch_raw_kernel.bare", PROVED)])
        assert "With CUDA_LAUNCH_BLOCKING=1 cudaErrorIllegalAddress is gone: it is a matter of timing." in case_page(
            [shows]
        )

    def test_what_could_not_be_run(self) -> None:
        note = "compute-sanitizer is not in this environment"
        silent = [
            SanitizerProbe(report=SanitizerReport(tool=Tool.MEMCHECK), note=note),
            LaunchBlockingProbe(error="cudaErrorIllegalAddress", note="the engine went away"),
        ]
        page = case_page([run(recorded("torch_raw_kernel.bare"), probes=silent)])
        assert f"- says nothing: {note}" in page
        assert "Launch blocking says nothing: the engine went away." in page

    def test_a_tool_that_found_nothing_in_a_program_that_died(self) -> None:
        quiet = recorded("torch_raw_kernel.memcheck").stdout.rpartition("========= Error: process")[2]
        text = f"========= COMPUTE-SANITIZER\n========= Error: process{quiet}".replace("SUMMARY: 5", "SUMMARY: 0")
        seen = report(TrialResult(stdout=text, stderr="", duration_s=1, exit_status=6), Tool.MEMCHECK, None, None)
        page = case_page([run(recorded("torch_raw_kernel.bare"), probes=[SanitizerProbe(report=seen)])])
        assert "- nothing: 0 errors\n- Error: process didn't terminate successfully\n" in page

    def test_declared_and_seen(self) -> None:
        line = "compute-sanitizer: memcheck finds access write, kernel store_one"
        shows = run(
            recorded("torch_raw_kernel.bare"),
            sanitized=[sanitized("torch_raw_kernel.memcheck", access="write", kernel="store_one")],
        )
        case = shows.case.model_copy(update={"signature": {Variant.REPRO: [line], Variant.FIXED: []}})
        page = case_page([shows.model_copy(update={"case": case})])
        (row,) = (row for row in page.splitlines() if row.startswith("| compute-sanitizer"))
        assert "memcheck finds access write, kernel store_one" in row
        assert "an out-of-bounds write of 4 bytes, just behind a 256-byte buffer" in row

    def test_old_evidence_has_no_such_section(self) -> None:
        assert "Under instruments" not in case_page([evidence()])

    def test_what_a_program_prints_stays_text(self) -> None:
        """The kernel's name and the source line are the case's own, and may be anything."""
        evil = "</code> | <script>x</script> `"
        plain_run = recorded("torch_raw_kernel.bare")
        stderr = plain_run.stderr.replace("out = out + 1", evil)
        page = case_page([run(replace(plain_run, stderr=stderr), probes=[under("torch_raw_kernel.memcheck")])])
        assert "<script>" not in page.partition("<details>")[0]

    def test_the_line_that_launched_as_the_tool_saw_it(self) -> None:
        result = recorded("torch_raw_kernel.memcheck")
        own = replace(result, stdout=result.stdout.replace("torch_raw_kernel.py", "repro.py"))
        seen = SanitizerProbe(report=report(own, Tool.MEMCHECK, None, None))
        page = case_page([run(recorded("torch_raw_kernel.bare"), probes=[seen])])
        assert "block (0,0,0)); launched in launch_the_faulty_kernel at repro.py:18\n" in page


# --- what the terminal shows


def test_the_verdict_comes_first_and_then_why() -> None:
    first, second, *rest = summary(evidence())
    assert first == "confirmed: rwkv6-backward, environment upstream on NVIDIA H200"
    assert second.startswith("  Reproduces in 3 of 3 runs: triton.compiler.errors.CompilationError: ")
    assert second.endswith(HOLDS)
    assert rest == []


def test_what_lowers_the_worth_is_told() -> None:
    lines = summary(simulated())
    assert lines[2].startswith("  simulated: not on the device")
    assert lines[3].startswith("  drifted: ")
    assert lines[4:] == ["  drift: python 3.11.2, not 3.12", "  drift aside: numpy 1.26.4, not 1.26.3"]


def test_much_drift_is_left_to_the_report() -> None:
    environment = simulated().environment.model_copy(update={"drift": [f"package-{n}" for n in range(7)], "aside": 0})
    lines = summary(simulated(environment=environment))
    assert lines[-2:] == ["  drift: package-4", "  drift: 2 more, which the report lists"]


def test_nothing_in_it_moves_the_cursor() -> None:
    for line in summary(hostile()):
        assert line.isprintable(), line
        assert len(line) <= 402
