"""Where errors surface and where they are launched, in tracebacks recorded on an H200."""

import pytest

from failure_signature.judging.description import SourceLine, failing, surfaced
from failure_signature.judging.outcome import observe
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Outcome, Trial
from gpu_casebook.run.probes.launch_blocking import Effect, LaunchBlockingProbe, effect, record_of
from tests.recordings import DIRECTORY, Recording


def recorded(name: str) -> TrialResult:
    """As an engine tells it: the scripts lie in /case."""
    recording = Recording.read(DIRECTORY / f"{name}.txt")
    aborted = recording.exit_status == -6
    return TrialResult(
        stdout=recording.stdout,
        stderr=recording.stderr.replace("<scratch>", "/case"),
        duration_s=1.0,
        exit_status=None if aborted else recording.exit_status,
        signal="SIGABRT" if aborted else None,
    )


def trial(result: TrialResult, outcome: Outcome = Outcome.AS_EXPECTED, variant: Variant = Variant.REPRO) -> Trial:
    return Trial(
        variant=variant,
        number=1,
        outcome=outcome,
        observation=observe(result),
        duration_s=1.0,
        stdout=result.stdout,
        stderr=result.stderr,
    )


@pytest.mark.parametrize(
    ("name", "line", "function", "text"),
    [
        ("torch_index_assert.bare", 12, "do_something_harmless", "return rows * 2 + 1"),
        ("torch_index_assert.blocking", 8, "launch_the_faulty_lookup", "return table[index]"),
        ("torch_raw_kernel.bare", 29, "<module>", "out = out + 1"),
        (
            "torch_raw_kernel.blocking",
            18,
            "launch_the_faulty_kernel",
            "kernel(grid=(1, 1, 1), block=(threads, 1, 1), args=[out, row, width])",
        ),
        ("torch_backward_fault.bare", 15, "backward", "return gradient * bad.sum().item()"),
        ("torch_exception_chain.bare", 13, "look_up", 'return table[torch.tensor([7], device="cuda")].sum().item()'),
        ("torch_cublas_after_fault.bare", 9, "<module>", 'print(f"total={(a @ a).sum().item()}")'),
        ("torch_nccl_duplicate_gpu.bare", 23, "<module>", "dist.all_reduce(tensor)"),
    ],
)
def test_the_innermost_line_of_the_script(name: str, line: int, function: str, text: str) -> None:
    at = surfaced(recorded(name).stderr)
    assert at is not None
    assert (at.line, at.function, at.text) == (line, function, text)
    assert at.file == f"{name.partition('.')[0]}.py"


@pytest.mark.parametrize("name", ["torch_uncaught_cpp_exception.bare", "torch_fault_at_exit.bare", "trap.bare"])
def test_an_abort_or_a_bare_program_names_no_line(name: str) -> None:
    assert surfaced(recorded(name).stderr) is None


def test_only_files_of_the_case_count() -> None:
    assert surfaced(Recording.read(DIRECTORY / "torch_raw_kernel.bare.txt").stderr) is None
    assert surfaced(recorded("torch_raw_kernel.bare").stderr.replace("/case/", "/case2/")) is None


def test_a_traceback_without_source() -> None:
    text = recorded("torch_raw_kernel.bare").stderr.replace("    out = out + 1\n          ~~~~^~~\n", "")
    assert surfaced(text) == SourceLine(file="torch_raw_kernel.py", line=29, function="<module>", text=None)


@pytest.mark.parametrize("program", ["torch_index_assert", "torch_raw_kernel", "triton_out_of_bounds"])
def test_the_error_moves_to_the_launch_whatever_the_exceptions_type(program: str) -> None:
    plain, blocking = recorded(f"{program}.bare"), recorded(f"{program}.blocking")
    found = record_of(trial(plain), blocking)
    assert effect(found) is Effect.MOVED
    assert found.error == observe(plain).cuda_error
    assert found.launched
    assert (
        found.launched.function
        == {
            "torch_index_assert": "launch_the_faulty_lookup",
            "torch_raw_kernel": "launch_the_faulty_kernel",
            "triton_out_of_bounds": "launch_the_faulty_kernel",
        }[program]
    )


def outcome_of(plain: str, blocking: TrialResult) -> Effect | None:
    return effect(record_of(trial(recorded(plain)), blocking))


def test_a_failure_that_is_gone_is_a_matter_of_timing() -> None:
    gone = TrialResult(stdout="free_ms=200.96\n", stderr="", duration_s=1.0, exit_status=0)
    assert outcome_of("torch_raw_kernel.bare", gone) is Effect.GONE


def test_another_failure_is_not_the_same() -> None:
    assert outcome_of("torch_raw_kernel.bare", recorded("torch_index_assert.blocking")) is Effect.OTHER
    missing = 'Traceback (most recent call last):\n  File "/case/repro.py", line 1, in <module>\nKeyError: 1\n'
    other = TrialResult(stdout="", stderr=missing, duration_s=1.0, exit_status=1)
    assert outcome_of("torch_raw_kernel.bare", other) is Effect.OTHER


def test_the_line_that_raises_may_be_the_one_that_launches() -> None:
    assert outcome_of("torch_raw_kernel.configuration.bare", recorded("torch_raw_kernel.configuration.bare")) is (
        Effect.SAME_LINE
    )


def test_the_same_error_without_a_line() -> None:
    aborted = recorded("torch_uncaught_cpp_exception.bare")
    assert outcome_of("torch_index_assert.bare", aborted) is Effect.UNPLACED


def test_a_probe_that_could_not_run_says_nothing() -> None:
    broken = TrialResult(stdout="", stderr="", duration_s=0.0, infra="no container")
    found = record_of(trial(recorded("torch_raw_kernel.bare")), broken)
    assert (effect(found), found.note) == (None, "no container")
    assert effect(LaunchBlockingProbe(error="cudaErrorAssert", note="the engine went away")) is None


def test_which_trial_is_looked_at() -> None:
    fault, clean = recorded("torch_raw_kernel.bare"), recorded("clean.bare")
    other = trial(recorded("torch_index_assert.bare"), Outcome.OTHERWISE)
    assert failing([trial(clean), other, trial(fault)]) == trial(fault)
    assert failing([trial(clean), other]) == other
    assert failing([trial(clean), trial(fault, Outcome.INFRA), trial(fault, variant=Variant.FIXED)]) is None


def test_an_error_that_was_printed_by_a_program_that_goes_on_is_no_failure() -> None:
    printed = TrialResult(stdout="CUDA error: misaligned address\n", stderr="", duration_s=1.0, exit_status=0)
    assert failing([trial(printed)]) is None
