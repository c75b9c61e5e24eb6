import math
from pathlib import Path
from typing import Any

import pytest

from failure_signature.expectation import Expectation
from failure_signature.judging.description import ending
from failure_signature.judging.outcome import Judgement, lines, observe
from failure_signature.judging.outcome import judge as judge_seen
from failure_signature.result import TrialResult
from failure_signature.trials import Observation, Outcome
from gpu_casebook.engines.output import cut_middle

TRITON = (Path(__file__).parents[1] / "data" / "stderr" / "triton-2.2.0.txt").read_text()
ABORT = (
    "terminate called after throwing an instance of 'c10::AcceleratorError'\n"
    "  what():  CUDA error: an illegal memory access was encountered\n"
)


def result(**given: Any) -> TrialResult:
    if not {"exit_status", "signal", "infra"} & set(given):
        given["exit_status"] = 0
    whole: dict[str, Any] = {"stdout": "", "stderr": "", "duration_s": 1.0} | given
    return TrialResult(**whole)


def raised(kind: str, message: str, *, before: str = "", **given: Any) -> TrialResult:
    stderr = f'{before}Traceback (most recent call last):\n  File "repro.py", line 1, in <module>\n{kind}: {message}\n'
    return result(**({"exit_status": 1, "stderr": stderr} | given))


def judge(expectation: Expectation, given: TrialResult) -> Judgement:
    return judge_seen(expectation, given, observe(given))


def expected(**declared: Any) -> Expectation:
    return Expectation.model_validate(declared)


THREAD = "Exception in thread Thread-1 (work):\nTraceback (most recent call last):\n"
FRAME = '  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner\n    self.run()\n'
CHILD = "Process Process-1:\nTraceback (most recent call last):\n"
DIES = "RuntimeError: off by two\n"


@pytest.mark.parametrize(
    ("failure", "printed", "told"),
    [
        ({"exception": "RuntimeError"}, {"stderr": THREAD + FRAME + DIES}, "RuntimeError: off by two"),
        (
            {"exception": "RuntimeError", "message": "off by"},
            {"stderr": CHILD + FRAME + DIES},
            "RuntimeError: off by two",
        ),
        (
            {"exception": "RuntimeError"},
            {"stderr": raised("RuntimeError", "x").stderr + "went on\n"},
            "RuntimeError: x",
        ),
        ({"cuda_error": "cudaErrorIllegalAddress"}, {"stderr": ABORT}, "cudaErrorIllegalAddress"),
        (
            {"signal": "SIGSEGV"},
            {"stderr": "Fatal Python error: Segmentation fault\n\n"},
            "Fatal Python error: Segmentation fault",
        ),
        (
            {"signal": "SIGABRT"},
            {"stderr": "RuntimeError: DataLoader worker (pid 7) is killed by signal: Aborted. \n"},
            "killed by signal: Aborted",
        ),
    ],
)
def test_a_fixed_whose_thread_or_child_dies_of_the_failure_has_not_mended_it(
    failure: dict[str, Any], printed: dict[str, str], told: str
) -> None:
    fixed, given = expected(message="all good"), result(stdout="all good\n", **printed)
    judgement = judge_seen(fixed, given, observe(given), expected(**failure))
    assert judgement.outcome is Outcome.OTHERWISE
    assert judgement.mismatches[0].startswith("printed the failure of repro, though not as the end of the process: ")
    assert told in judgement.mismatches[0]
    assert judge(fixed, given).outcome is Outcome.AS_EXPECTED


@pytest.mark.parametrize(
    ("failure", "stderr"),
    [
        ({"exception": "ValueError"}, THREAD + FRAME + DIES),
        ({"exception": "RuntimeError", "message": "another"}, THREAD + FRAME + DIES),
        ({"exception": "RuntimeError"}, "what a RuntimeError is\n"),
        ({"cuda_error": "cudaErrorLaunchFailure"}, ABORT),
        ({"signal": "SIGABRT"}, "Fatal Python error: Segmentation fault\n"),
    ],
)
def test_another_failure_beside_it_is_none_of_its_business(failure: dict[str, Any], stderr: str) -> None:
    given = result(stdout="all good\n", stderr=stderr)
    judgement = judge_seen(expected(message="all good"), given, observe(given), expected(**failure))
    assert judgement.outcome is Outcome.AS_EXPECTED


def test_a_message_that_is_searched_for_ever_is_not_found() -> None:
    given = result(stdout="a" * 100 + "b\n")
    assert "takes more than 1 s to search" in judge(expected(message="^(?:a|aa)+$"), given).mismatches[0]


DIGEST = "sha256:" + "0f" * 32
LEAK = "".join(f"x[{step}]={2e6 * step}\n" for step in range(10))

# What is declared, and a result of which all of it holds.
HOLDS: dict[str, tuple[dict[str, Any], TrialResult]] = {
    "nothing, and exit status 0": ({}, result()),
    "exit status": ({"exit_status": 3}, result(exit_status=3)),
    "signal": ({"signal": "SIGSEGV"}, result(signal="SIGSEGV")),
    "exception": ({"exception": "ValueError"}, raised("ValueError", "x")),
    "builtins": ({"exception": "builtins.ValueError"}, raised("ValueError", "x")),
    "qualified": ({"exception": "torch.OutOfMemoryError"}, raised("torch.OutOfMemoryError", "x")),
    "exception, then abort": ({"exception": "E"}, raised("E", "x", exit_status=None, signal="SIGABRT")),
    "message of an exception": ({"exception": "ValueError", "message": r"off by \d"}, raised("ValueError", "off by 2")),
    "message of its cause": (
        {"exception": "triton.compiler.errors.CompilationError", "message": "^ValueError: Cannot broadcast"},
        result(exit_status=1, stderr=TRITON),
    ),
    "message on stdout": ({"message": "^compiled to TTIR$"}, result(stdout="compiled to TTIR")),
    "message on stderr": ({"message": "done"}, result(stderr="done\n")),
    "coloured message": ({"message": "all done"}, result(stdout="\x1b[32mall\x1b[0m done\n")),
    "CUDA error in an exception": (
        {"cuda_error": "cudaErrorIllegalAddress", "exception": "torch.AcceleratorError"},
        raised("torch.AcceleratorError", "CUDA error: an illegal memory access was encountered"),
    ),
    "CUDA error in an abort": (
        {"cuda_error": "cudaErrorIllegalAddress", "signal": "SIGABRT"},
        result(signal="SIGABRT", stderr=ABORT),
    ),
    "CUDA error by Triton": (
        {"cuda_error": "cudaErrorInvalidValue"},
        raised("RuntimeError", "Triton Error [CUDA]: invalid argument"),
    ),
    "CUDA error of a bare program": (
        {"cuda_error": "cudaErrorMisalignedAddress"},
        result(exit_status=2, stdout="failed with cudaErrorMisalignedAddress\n"),
    ),
    "exception of Ray": (
        {"exception": "ray.exceptions.RayTaskError(RuntimeError)", "message": "illegal memory access"},
        raised(
            "ray.exceptions.RayTaskError(RuntimeError)",
            'ray::f() (pid=7, ip=172.17.0.2)\n  File "x.py", line 7, in f\n    g()\n'
            "RuntimeError: CUDA error: an illegal memory access was encountered",
        ),
    ),
    "local class": ({"exception": "f.<locals>.Mine"}, raised("f.<locals>.Mine", "x")),
    "own class, as Python 3.8 names it": ({"exception": "Mine"}, raised("__main__.Mine", "x")),
    "own class, declared as Python 3.8 names it": ({"exception": "__main__.Mine"}, raised("Mine", "x")),
    "figure": ({"figures": {"rel_err": "< 1e-5"}}, result(stdout="rel_err=9.5e-08\n")),
    "two figures": ({"figures": {"a": ">= 1", "b.c-d": "< 0"}}, result(stdout="a=1\nnoise\nb.c-d=-inf\n")),
    "infinity": ({"figures": {"a": "> 1e300"}}, result(stdout="a=inf\n")),
    "the same figure twice": ({"figures": {"a": "== 1"}}, result(stdout="a=1\na=1.0\n")),
    "undeclared figures may differ": ({"figures": {"a": "== 1"}}, result(stdout="a=1\nstep=1\nstep=2\n")),
    "figure of a failing run": ({"figures": {"a": "< 1"}, "exception": "E"}, raised("E", "x", stdout="a=0\n")),
    "digest": ({"differs": ["out"]}, result(stdout=f"out={DIGEST}\n")),
    "digest of fixed": ({"same": ["out"], "figures": {"a": "== 1"}}, result(stdout=f"out={DIGEST}\na=1\n")),
    "growth": ({"growth": {"series": "x", "per_step": "> 1e6"}}, result(stdout=LEAK)),
    "no growth": (
        {"growth": {"series": "x", "per_step": "< 1e4", "warm_up": 3}},
        result(stdout="x[0]=0\nx[1]=5e8\n" + "".join(f"x[{step}]=1e9\n" for step in range(2, 13))),
    ),
    "a rate is none of a single trial's": ({"rate": ">= 0.3", "exception": "E"}, raised("E", "x")),
    "disk full, if that is the bug": ({"exception": "OSError"}, raised("OSError", "No space left on device")),
}  # fmt: skip


@pytest.mark.parametrize(("declared", "seen"), HOLDS.values(), ids=HOLDS)
def test_as_expected(declared: dict[str, Any], seen: TrialResult) -> None:
    assert judge(expected(**declared), seen) == (Outcome.AS_EXPECTED, (), None)


# What is declared, a result that differs, and the line that says how.
DIFFERS: dict[str, tuple[dict[str, Any], TrialResult, str]] = {
    "exit status": ({}, result(exit_status=3), "exit status: expected 0, saw exit status 3"),
    "declared exit status": ({"exit_status": 3}, result(), "exit status: expected 3, saw exit status 0"),
    "an exception where none was declared": ({}, raised("E", "x"), "exit status: expected 0, saw E: x"),
    "signal": ({"signal": "SIGSEGV"}, result(signal="SIGABRT"), "signal: expected SIGSEGV, saw SIGABRT"),
    "no signal": ({"signal": "SIGSEGV"}, result(), "signal: expected SIGSEGV, saw exit status 0"),
    "other exception": (
        {"exception": "triton.compiler.errors.CompilationError"},
        raised("ModuleNotFoundError", "No module named 'triton'"),
        "exception: expected triton.compiler.errors.CompilationError, saw ModuleNotFoundError: No module named 'triton",
    ),
    "only the last part of the name": (
        {"exception": "CompilationError"},
        raised("triton.compiler.errors.CompilationError", "x"),
        "exception: expected CompilationError, saw triton.compiler.errors.CompilationError: x",
    ),
    "no exception": ({"exception": "E"}, result(signal="SIGSEGV"), "exception: expected E, saw SIGSEGV"),
    "caught and logged": (
        {"exception": "E"},
        raised("E", "x", exit_status=0),
        "exit status: expected not 0, saw exit status 0",
    ),
    "logged before an exit of its own": (
        {"exception": "E"}, raised("E", "x", exit_status=7), "exception: expected E, saw exit status 7",
    ),
    "the cause is not the exception": (
        {"exception": "ValueError"},
        result(exit_status=1, stderr=TRITON),
        "exception: expected ValueError, saw triton.compiler.errors.CompilationError: ValueError('Cannot broadcast",
    ),
    "message": (
        {"exception": "E", "message": "off by 3"},
        raised("E", "off by 2", stdout="off by 3"),
        "message: expected /off by 3/, not found in the exception's text",
    ),
    "message in a source line of the traceback only": (
        {"exception": "triton.compiler.errors.CompilationError", "message": "generator.visit"},
        result(exit_status=1, stderr=TRITON),
        "message: expected /generator.visit/, not found in the exception's text",
    ),
    "message of the output": ({"message": "x"}, result(stdout="y"), "message: expected /x/, not found in the output"),
    "CUDA error": (
        {"cuda_error": "cudaErrorAssert"},
        result(signal="SIGABRT", stderr=ABORT),
        "CUDA error: expected cudaErrorAssert, saw cudaErrorIllegalAddress",
    ),
    "no CUDA error": (
        {"cuda_error": "cudaErrorAssert"}, raised("E", "x"), "CUDA error: expected cudaErrorAssert, saw none",
    ),
    "CUDA error survived, then another exception": (
        {"cuda_error": "cudaErrorMemoryAllocation"},
        raised("ValueError", "x", before="CUDA error: out of memory\n"),
        "CUDA error: expected cudaErrorMemoryAllocation, saw none",
    ),
    "CUDA error that was caught": (
        {"cuda_error": "cudaErrorMisalignedAddress", "exit_status": 0},
        result(stdout="CUDA error: misaligned address (tried again)\n"),
        "CUDA error: expected cudaErrorMisalignedAddress, saw none",
    ),
    "CUDA error that a help text speaks of": (
        {"cuda_error": "cudaErrorIllegalAddress"},
        result(exit_status=2, stderr="usage: x.py [--on-error cudaErrorIllegalAddress]\n"),
        "CUDA error: expected cudaErrorIllegalAddress, saw none",
    ),
    "HIP error": (
        {"cuda_error": "cudaErrorIllegalAddress"},
        raised("torch.AcceleratorError", "HIP error: an illegal memory access was encountered"),
        "CUDA error: expected cudaErrorIllegalAddress, saw none",
    ),
    "CUDA error printed behind the exception": (
        {"cuda_error": "cudaErrorIllegalAddress"},
        raised("E", "x\nCUDA error: an illegal memory access was encountered"),
        "CUDA error: expected cudaErrorIllegalAddress, saw none",
    ),
    "CUDA error of one rank of two": (
        {"cuda_error": "cudaErrorMisalignedAddress"},
        result(
            exit_status=1,
            stderr="".join(
                f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "x.py", line 1, in <module>\n'
                f"[rank{rank}]: {told}\n"
                for rank, told in enumerate(["RuntimeError: CUDA error: misaligned address", "E: x"])
            ),
        ),
        "CUDA error: expected cudaErrorMisalignedAddress, saw none; several ranks were ended by different",
    ),
    "message printed behind the exception": (
        {"exception": "E", "message": "Cannot broadcast"},
        raised("E", "x\nCannot broadcast"),
        "exception: expected E, saw exit status 1; E is followed by 'Cannot broadcast': was it caught?",
    ),
    "figure of an output that was cut": (
        {"figures": {"ok": "== 1"}},
        result(stdout=cut_middle(b"ok=1\n" + b"x\n" * 50 + b"ok=1\n", 10_000, 110)),
        "stdout: is too long to be kept whole",
    ),
    "CUDA error, but it ran to its end": (
        {"cuda_error": "cudaErrorAssert"},
        result(stdout="cudaErrorAssert\n"),
        "exit status: expected not 0, saw exit status 0",
    ),
    "figure": ({"figures": {"a": "< 1"}}, result(stdout="a=1.0\n"), "figure a: expected < 1, saw 1.0"),
    "NaN": ({"figures": {"a": "!= 1"}}, result(stdout="a=nan\n"), "figure a: expected != 1, saw nan"),
    "no figure": ({"figures": {"a": "< 1"}}, result(stdout="a = 0\n"), "figure a: expected < 1, was not printed"),
    "figure on stderr": ({"figures": {"a": "< 1"}}, result(stderr="a=0\n"), "figure a: expected < 1, was not printed"),
    "no digest": ({"differs": ["out"]}, result(), "digest out: was not printed"),
    "no digest of fixed": ({"same": ["out"]}, result(stdout="out=1\n"), "digest out: was not printed"),
    "two digests": (
        {"same": ["out"]},
        result(stdout=f"out={DIGEST}\nout={DIGEST}00\n"),
        "digest out: was printed with different values",
    ),
    "digest of a run that failed": (
        {"differs": ["out"]},
        raised("E", "x", stdout=f"out={DIGEST}\n"),
        "exit status: expected 0, saw E: x",
    ),
    "growth": (
        {"growth": {"series": "x", "per_step": "< 1e4"}},
        result(stdout=LEAK),
        "growth x: expected < 1e4 per step, saw 2e+06",
    ),
    "growth over too few steps": (
        {"growth": {"series": "x", "per_step": "> 1e4", "warm_up": 3}},
        result(stdout=LEAK),
        "growth x: expected > 1e4 per step, saw 7 steps after warm-up where 10 are needed",
    ),
    "growth of nothing": (
        {"growth": {"series": "x", "per_step": "< 1e4"}},
        result(),
        "growth x: expected < 1e4 per step, saw 0 steps after warm-up where 10 are needed",
    ),
    "growth that is no number": (
        {"growth": {"series": "x", "per_step": "< 1e4"}},
        result(stdout=LEAK.replace("x[5]=10000000.0", "x[5]=nan")),
        "growth x: expected < 1e4 per step, saw nan",
    ),
    "contradicted growth": (
        {"growth": {"series": "x", "per_step": "> 1e4"}},
        result(stdout=LEAK + "x[5]=0\n"),
        "growth x: expected > 1e4 per step, was printed with different values",
    ),
    "contradiction": (
        {"figures": {"a": "< 1"}},
        result(stdout="a=0\na=0.5\n"),
        "figure a: expected < 1, was printed with different values",
    ),
    "contradiction by NaN": (
        {"figures": {"a": "< 1"}},
        result(stdout="a=0\na=nan\na=0\n"),
        "figure a: expected < 1, was printed with different values",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("declared", "seen", "line"), DIFFERS.values(), ids=DIFFERS)
def test_otherwise(declared: dict[str, Any], seen: TrialResult, line: str) -> None:
    judgement = judge(expected(**declared), seen)
    assert judgement.outcome is Outcome.OTHERWISE
    assert any(told.startswith(line) for told in judgement.mismatches), judgement.mismatches
    assert judgement.infra is None


def test_every_mismatch_is_told() -> None:
    declared = expected(exception="E", message="m", cuda_error="cudaErrorAssert", figures={"a": "< 1"})
    heads = [line.split(":")[0] for line in judge(declared, result()).mismatches]
    assert heads == ["exit status", "exception", "message", "CUDA error", "figure a"]


@pytest.mark.parametrize("end", [{"timed_out": True}, {"out_of_memory": True}])
@pytest.mark.parametrize("declared", [{}, {"signal": "SIGKILL"}, {"exception": "E"}, {"message": "x"}])
def test_time_and_memory_limits_are_never_as_expected(end: dict[str, Any], declared: dict[str, Any]) -> None:
    killed = raised("E", "x", exit_status=None, signal="SIGKILL", stdout="x", **end)
    judgement = judge(expected(**declared), killed)
    assert judgement.outcome is Outcome.OTHERWISE
    assert "limit" in judgement.mismatches[0]


def test_a_process_that_ignored_its_time_limit_and_exited_0_is_not_as_expected_either() -> None:
    assert judge(expected(), result(timed_out=True)).outcome is Outcome.OTHERWISE


def test_the_engine_says_that_the_machine_is_to_blame() -> None:
    assert judge(expected(), result(infra="container start failed")) == (Outcome.INFRA, (), "container start failed")


def test_the_program_says_that_the_machine_is_to_blame() -> None:
    judgement = judge(expected(exception="ValueError"), raised("OSError", "[Errno 28] No space left on device"))
    assert (judgement.outcome, judgement.infra) == (Outcome.INFRA, "the disk is full")
    assert judgement.mismatches


def test_who_survived_the_machine_is_judged_as_usual() -> None:
    ran = result(stdout="cleaning the cache: No space left on device\na=2\n")
    assert judge(expected(figures={"a": "< 1"}), ran).outcome is Outcome.OTHERWISE


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a=1", 1.0),
        ("a=-1.5e+3", -1500.0),
        ("a=.5", 0.5),
        ("a=5.", 5.0),
        ("a=inf", math.inf),
        ("a=-Infinity", -math.inf),
        ("a=1e999", math.inf),
        ("a=1\r", 1.0),
    ],
)
def test_figures(line: str, value: float) -> None:
    assert observe(result(stdout=f"x\n{line}\ny")).figures == {"a": value}


def test_nan_is_a_figure_and_no_contradiction_of_itself() -> None:
    seen = observe(result(stdout="a=nan\na=NaN\n"))
    assert math.isnan(seen.figures["a"])
    assert not seen.contradicted


@pytest.mark.parametrize(
    "line",
    [
        "a=1 ",
        " a=1",
        "a =1",
        "a=1,2",
        "a=1_000",
        "a=True",
        "a=tensor(1.)",
        "a=0x1",
        "a=",
        "1a=1",
        "a=\u0661",
        "a==1",
        "a=1e",
    ],
)
def test_what_is_no_figure(line: str) -> None:
    assert observe(result(stdout=f"{line}\n")).figures == {}


def test_half_a_figure_at_a_cut_is_none() -> None:
    whole = b"a=1.25e-08\n" + b"x" * 50 + b"\nb=1\n"
    text = cut_middle(whole, len(whole) + 100, 16)
    assert text.startswith("a=1.25e-\n[...")
    whole = b"a=1.25\n" * 3
    assert observe(result(stdout=cut_middle(whole, len(whole), 12))).figures == {}


@pytest.mark.parametrize(
    "unit",
    [
        *("x", "cuda: ", "\x1b[", "\x1b]", "=", "a=", "\n", ".", "cudaError", '  File "', "[rank1]: ", "[rank1]: \n"),
        "/a:1: f: block: [0,0,0], thread: [0,0,0] Assertion `",
        "Traceback (most recent call last):\n",
        'Traceback (most recent call last):\n  File "x", line 1, in f\nE\n\n',
        "\u2570\u2500\u256f\n",
    ],
)
def test_output_of_one_long_line_is_read_in_one_go(unit: str) -> None:
    long = unit * (1_000_000 // len(unit))
    assert observe(result(stdout=f"{long}\na=1\n", stderr=long)).figures["a"] == 1


def test_what_is_observed_of_a_chain() -> None:
    seen = observe(result(exit_status=1, stderr=TRITON))
    assert seen.exception == "triton.compiler.errors.CompilationError"
    assert seen.causes[0].startswith("ValueError: Cannot broadcast")
    assert ending(seen).startswith(
        "triton.compiler.errors.CompilationError: ValueError('Cannot broadcast, the expanded"
    )


@pytest.mark.parametrize(
    ("seen", "told", "fails"),
    [
        (Observation(exit_status=0), "exit status 0", False),
        (Observation(exit_status=0, cuda_error="cudaErrorAssert"), "exit status 0", False),
        (Observation(exit_status=3), "exit status 3", True),
        (Observation(signal="SIGSEGV"), "SIGSEGV", True),
        (Observation(signal="SIGABRT", cuda_error="cudaErrorAssert"), "SIGABRT, cudaErrorAssert", True),
        (Observation(signal="SIGKILL", timed_out=True), "ended at the time limit", True),
        (Observation(signal="SIGKILL", out_of_memory=True), "ended at the memory limit", True),
        (Observation(exit_status=1, exception="E", message="\n a\nb"), "E: a", True),
        (Observation(exit_status=1, exception="E", message=""), "E", True),
    ],
)
def test_how_a_trial_ended(seen: Observation, told: str, fails: bool) -> None:  # noqa: FBT001
    assert ending(seen) == told
    assert seen.failed == fails


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({}, ["exit status: 0"]),
        ({"exception": "E", "message": "m: n"}, ["exit status: not 0", "exception: E", "message: m: n"]),
        ({"signal": "SIGSEGV"}, ["signal: SIGSEGV"]),
        ({"cuda_error": "cudaErrorAssert", "exit_status": 0}, ["exit status: 0", "CUDA error: cudaErrorAssert"]),
        ({"figures": {"a": ">= 1, < 2"}}, ["exit status: 0", "figure a: >= 1, < 2"]),
        ({"differs": ["a", "b"]}, ["exit status: 0"] + [f"digest {name}: differs between runs" for name in "ab"]),
        ({"same": ["a"]}, ["exit status: 0", "digest a: the same in every run"]),
        ({"exception": "E", "rate": ">= 0.3"}, ["exit status: not 0", "exception: E", "rate: >= 0.3"]),
        (
            {"growth": {"series": "x", "per_step": "> 1e6", "warm_up": 3}},
            ["exit status: 0", "growth x: > 1e6 per step over 10 steps or more, the first 3 left out"],
        ),
    ],
)
def test_what_is_declared_in_lines(declared: dict[str, Any], told: list[str]) -> None:
    assert lines(expected(**declared)) == told
