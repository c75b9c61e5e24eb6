"""One rule for 'is it this failure?': its steps, its use without the runner, and that each verb answers by it."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook_workbench.judge.run import answer, exit_status
from casebook_workbench.releases.environments import failure
from casebook_workbench.releases.records import Call, Step
from casebook_workbench.releases.search import _call, _count
from failure_signature.expectation import Expectation
from failure_signature.judging import signature as module
from failure_signature.judging.signature import Sign, Signature, TrialResult, ended
from failure_signature.kinds import Variant
from gpu_casebook.evidence import load
from gpu_casebook.manifest.case import Case
from tests.judging.test_stored_evidence import EVIDENCE, case, result

TRACE = 'Traceback (most recent call last):\n  File "it.py", line 1, in <module>\n    f()\n'
RAISED = Expectation(exception="ValueError", message=r"off by \d+")
MEASURED = Expectation.model_validate({"figures": {"err": "> 1e-2"}})
GROWS = Expectation.model_validate({"growth": {"series": "bytes", "per_step": "> 10", "steps": 3}})
BESIDE = Expectation.model_validate({"exception": "ValueError", "figures": {"size": "== 2"}})


def fails(message: str, stdout: str = "", type_: str = "ValueError") -> TrialResult:
    return ended(1, stdout, f"{TRACE}{type_}: {message}\n")


@pytest.mark.parametrize(
    ("expectation", "run", "sign"),
    [
        (RAISED, fails("off by 2"), Sign.SHOWS),
        (RAISED, fails("too short"), Sign.OTHER),
        (RAISED, fails("off by 2", type_="KeyError"), Sign.OTHER),
        (RAISED, ended(0, ""), Sign.ABSENT),
        (RAISED, ended(-11, ""), Sign.OTHER),
        (RAISED, ended(139, ""), Sign.OTHER),
        (RAISED, ended(1, "", "No space left on device"), Sign.UNKNOWN),
        (RAISED, TrialResult(stdout="", stderr="", duration_s=1, infra="no container"), Sign.UNKNOWN),
        (RAISED, TrialResult(stdout="", stderr="", duration_s=1, signal="SIGKILL", timed_out=True), Sign.OTHER),
        (Expectation(signal="SIGSEGV"), ended(-11, ""), Sign.SHOWS),
        (Expectation(signal="SIGSEGV"), ended(139, ""), Sign.SHOWS),
        (MEASURED, ended(0, "err=0.5\n"), Sign.SHOWS),
        (MEASURED, ended(0, "err=0\n"), Sign.ABSENT),
        (MEASURED, ended(0, "hello\n"), Sign.UNKNOWN),
        (MEASURED, ended(0, "err=0.5\nerr=0\n"), Sign.UNKNOWN),
        (MEASURED, ended(1, "err=0.5\n"), Sign.OTHER),
        (GROWS, ended(0, "bytes[0]=0\nbytes[1]=20\nbytes[2]=40\nbytes[3]=60\n"), Sign.SHOWS),
        (GROWS, ended(0, "bytes[0]=0\nbytes[1]=0\nbytes[2]=0\nbytes[3]=0\n"), Sign.ABSENT),
        (GROWS, ended(0, "bytes[0]=0\nbytes[1]=20\n"), Sign.UNKNOWN),
        (BESIDE, fails("x", "size=2\n"), Sign.SHOWS),
        (BESIDE, fails("x"), Sign.SHOWS),
        (BESIDE, fails("x", "size=3\n"), Sign.OTHER),
        (BESIDE, fails("x", "size=2\nsize=3\n"), Sign.OTHER),
        (BESIDE, ended(0, "size=2\n"), Sign.ABSENT),
    ],
)
def test_the_steps_of_the_rule(expectation: Expectation, run: TrialResult, sign: Sign) -> None:
    assert Signature(expectation).read(run).sign is sign


def test_any_of_several_expectations_shows_it_and_says_which() -> None:
    other = Expectation(exception="KeyError")
    reading = Signature(RAISED, other).read(fails("3", type_="KeyError"))
    assert (reading.sign, reading.shown) == (Sign.SHOWS, (other,))
    assert Signature(MEASURED, RAISED).read(ended(0, "")).sign is Sign.UNKNOWN
    assert Signature(RAISED, MEASURED).read(ended(0, "")).sign is Sign.UNKNOWN


def test_a_known_failure_is_absence_of_this_one() -> None:
    sought = Signature(RAISED, known=[Expectation(exception="ValueError", message="too short")])
    assert sought.read(fails("too short")).sign is Sign.ABSENT
    assert sought.read(fails("too long")).sign is Sign.OTHER


def test_a_proof_is_asked_of_a_run_that_ended_well() -> None:
    sought = Signature(RAISED, proof=Expectation(message="checked"))
    assert sought.read(ended(0, "checked\n")).sign is Sign.ABSENT
    assert sought.read(ended(0, "")).sign is Sign.OTHER
    assert sought.read(fails("off by 2")).sign is Sign.SHOWS


def test_a_log_is_both_streams() -> None:
    log = f"step 1\n{TRACE}ValueError: off by 2\nerror: the job failed\n"
    assert Signature(RAISED).read(ended(1, f"step 1\n{TRACE}ValueError: off by 2\n")).sign is Sign.SHOWS
    assert Signature(Expectation(exit_status=1, message="step 1")).read(ended(1, log)).sign is Sign.SHOWS


def test_it_reads_no_file_and_runs_nothing() -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    imported = {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
    assert not {"open", "os", "subprocess", "Path"} & (names | imported)
    assert "gpu_casebook.manifest.case" not in {
        each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)
    }


# `git bisect run casebook judge` and `casebook bisect`

CALLED = {Call.BAD: 1, Call.GOOD: 0, Call.SKIP: 125}
LINES = ["err=0.5", "size=3", "nan_count=1", "No space left on device", "CUDA error: out of memory", "ValueError: x"]
ENDS = [
    {"exit_status": 0, "signal": None},
    {"exit_status": 1, "signal": None},
    {"exit_status": None, "signal": "SIGSEGV"},
    {"exit_status": None, "signal": "SIGKILL", "timed_out": True},
    {"exit_status": None, "signal": "SIGKILL", "out_of_memory": True},
]


def sought() -> list[tuple[Case, str]]:
    """Cases whose failures one run can show, each with the environment that it was run in."""
    found = {(run.case.id, run.environment.name) for run in map(load, EVIDENCE)}
    return [
        (case(id_), name)
        for id_, name in sorted(found)
        if name in case(id_).manifest.environments and not _over_runs(case(id_), name)
    ]


def _over_runs(case_: Case, name: str) -> bool:
    expected = case_.expectation(name, Variant.REPRO)
    return bool(expected.differs or (expected.sanitizer and not expected.must_fail))


def answers(case_: Case, environment: str, run: TrialResult) -> tuple[int, int]:
    """What git is told by `judge`, and the same for what `bisect` would call a release after one trial."""
    sign, _ = answer(case_.id, case_.failures(), run)
    step = Step(version="1", started="2026-01-01T00:00:00Z")
    _count(step, failure(case_, environment, Variant.REPRO).read(run))
    call = _call(step, 1)
    assert call
    return exit_status(sign, "introduced"), CALLED[call]


@pytest.fixture(scope="module")
def trials() -> list[tuple[Case, str, TrialResult]]:
    ran = {}
    for run in map(load, EVIDENCE):
        for trial in run.trials:
            ran[run.case.id, run.environment.name, trial.variant] = result(trial)
    known = {(each.id, name): each for each, name in sought()}
    return [(known[id_, name], name, ran_) for (id_, name, _), ran_ in ran.items() if (id_, name) in known]


def test_both_say_the_same_of_every_stored_trial(trials: list[tuple[Case, str, TrialResult]]) -> None:
    """Whichever environment of the case `bisect` runs in, and whichever the trial is from."""
    for case_, _, run in trials:
        for environment in case_.manifest.environments:
            ours, theirs = answers(case_, environment, run)
            assert ours == theirs, (case_.id, environment)


@given(data=st.data())
def test_both_say_the_same_of_any_output(trials: list[tuple[Case, str, TrialResult]], data: st.DataObject) -> None:
    """Trials with lines lost or added, that end in another way, or that are those of another case."""
    case_, environment, _ = data.draw(st.sampled_from(trials))
    _, _, run = data.draw(st.sampled_from([each for each in trials if each[0] is case_] + trials[:: len(trials) // 9]))
    changed = dict(vars(run))
    for name in ("stdout", "stderr"):
        lines = getattr(run, name).splitlines()
        lost = data.draw(st.sets(st.integers(0, max(len(lines) - 1, 0)), max_size=4))
        kept = [line for at, line in enumerate(lines) if at not in lost]
        changed[name] = "".join(
            f"{line}\n" for line in [*kept, *data.draw(st.lists(st.sampled_from(LINES), max_size=2))]
        )
    changed |= data.draw(st.sampled_from([{}, {}, *ENDS]))
    changed["infra"] = data.draw(st.sampled_from([None, None, "gone"]))
    ours, theirs = answers(case_, environment, TrialResult(**changed))
    assert ours == theirs
