"""Sanitized trials and probes in the whole pipeline: on an engine that answers by script, then on a real one."""

import io
import json
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from failure_signature.kinds import Failure, Variant
from failure_signature.reading.findings import Kind, Tool
from failure_signature.result import TrialResult
from failure_signature.trials import Trial, Verdict
from gpu_casebook import plugins, probe_registry
from gpu_casebook.console import Console
from gpu_casebook.devices import hardware, kernel_log
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import Evidence, ProbeRecord, SanitizerProbe
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.report.case_page import case_page
from gpu_casebook.run import trials
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.run.plan import Plan
from gpu_casebook.run.probes import Bench, Probe, Words
from gpu_casebook.run.probes.launch_blocking import Effect, LaunchBlockingProbe, effect
from gpu_casebook.trial import GpuAccess, Limits, Note, Recipe, TrialRequest
from tests.conftest import IMAGES, MANIFEST, Checkout, write_locks
from tests.fakes import ATTESTED, FakeEngine
from tests.guest.test_locate import none_of_the_hosts_own
from tests.recordings import DIRECTORY, Recording
from tests.run.test_launch_blocking import recorded
from tests.run.test_pipeline import H200

LOCATED = json.dumps({"path": "/opt/cuda/bin/compute-sanitizer", "version": "2025.3.1.0"})
DECLARED = "    sanitizer: {tool: memcheck, access: write, size: 4, kernel: store_one}\n"
FAILS = "{exception: torch.AcceleratorError, cuda_error: cudaErrorIllegalAddress}"

RAW, BLOCKING = recorded("torch_raw_kernel.bare"), recorded("torch_raw_kernel.blocking")
PLAIN = replace(RAW, stderr=RAW.stderr.replace("torch_raw_kernel.py", "repro.py"))
PROVED = TrialResult(stdout="rel_err=1e-7\n", stderr="", duration_s=0.5, exit_status=0)
CLEAN = replace(PROVED, stdout="========= COMPUTE-SANITIZER\nrel_err=1e-7\n========= ERROR SUMMARY: 0 errors\n")
FAULTY = recorded("torch_raw_kernel.memcheck")

UNWRITTEN = recorded("uninitialized_read.initcheck")
UNCAPTURED = recorded("torch_graph_capture.memcheck")
SILENT = TrialResult(stdout="rel_err=0.5\n", stderr="", duration_s=0.5, exit_status=0)


def manifest(*, failure: str = "illegal-access", repro: str = FAILS, declared: str = "", more: str = "") -> str:
    """`declared` is a line more of what is expected of repro; then there is no environment without a GPU."""
    keys = repro[1:-1].replace(", ", "\n    ")
    text = MANIFEST.replace("failure: wrong-numbers", f"failure: {failure}")
    text = text.replace('    figures: {rel_err: "> 1e-2"}\n', f"    {keys}\n{declared}")
    without_gpu = text[text.index("  interpreter:") : text.index("repro:\n")]
    return text.replace(without_gpu, "" if declared else without_gpu) + more


def written(checkout: Checkout, text: str) -> Case:
    directory = checkout.write(text).parent
    write_locks(directory)
    return find(checkout.root, "tiny", IMAGES)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", lambda: [H200])


def attested(text: str) -> str:
    return text[:-1] + ', "gpus": [{"name": "NVIDIA H200", "compute_capability": "9.0"}]}'


def engine(said: str = LOCATED, **ends: Sequence[TrialResult]) -> FakeEngine:
    """`ends` by script, "memcheck_repro" for repro.py under memcheck."""
    named = {f"{name.replace('_', ' ')}.py": results for name, results in ends.items()}
    on = FakeEngine({"fixed.py": [PROVED], **named}, GpuAccess(mode="direct"))
    on.attested, on.located = attested(on.attested), said
    return on


def plain_trial(on: FakeEngine) -> TrialRequest:
    """Return a trial of repro as all but the first one are, which is measured."""
    return next(request for request in on.requests[1:] if request.arguments == on.requests[0].arguments)


def go(case: Case, on: FakeEngine | VenvEngine, **options: object) -> Evidence:
    console = Console(io.StringIO())
    result = run_case(case, Options(environment="current", **options), on, console)  # type: ignore[arg-type]
    assert isinstance(result, Evidence), result
    return result


def sanitizers(evidence: Evidence) -> list[SanitizerProbe]:
    return [probe for probe in evidence.probes if isinstance(probe, SanitizerProbe)]


def most_at_once(on: FakeEngine, case: Case, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many instrumented runs there were at once at most, on a machine with four cores."""
    monkeypatch.setattr(hardware, "cores", lambda: 4)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(trials, "TRIAL_BYTES", 1)
    now, most, counting = 0, 0, threading.Condition()

    def meet(request: TrialRequest) -> None:
        nonlocal now, most
        if not (request.wrapper or "CUDA_LAUNCH_BLOCKING" in request.variables):
            return
        with counting:
            now += 1
            most = max(most, now)
            counting.notify_all()
            counting.wait_for(lambda: most > 1, 0.5)
            now -= 1

    on.before_trial = meet
    go(case, on)
    return most


class TestSanitizedTrials:
    @pytest.fixture
    def case(self, checkout: Checkout) -> Case:
        return written(checkout, manifest(declared=DECLARED))

    def test_confirmed_with_the_finding_in_repro_and_none_in_fixed(self, case: Case) -> None:
        on = engine(repro=[PLAIN], memcheck_repro=[FAULTY], memcheck_fixed=[CLEAN])
        evidence = go(case, on)
        assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
        assert [(trial.variant, trial.instrument) for trial in evidence.sanitized] == [
            (Variant.REPRO, Tool.MEMCHECK),
            (Variant.FIXED, Tool.MEMCHECK),
        ]
        assert {trial.instrument for trial in evidence.trials} == {None}
        assert evidence.rates[Variant.REPRO].n == 3
        assert evidence.sanitized[0].sanitizer
        assert evidence.sanitized[0].sanitizer.version == "2025.3.1.0"

    def test_both_variants_run_at_once(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        on = engine(repro=[PROVED], memcheck_repro=[FAULTY], memcheck_fixed=[CLEAN])
        assert most_at_once(on, case, monkeypatch) == 2

    @pytest.mark.parametrize(("cores", "verdict"), [(4, Verdict.CONFIRMED), (1, Verdict.INCONCLUSIVE)])
    def test_what_goes_otherwise_beside_others_is_repeated(
        self, case: Case, monkeypatch: pytest.MonkeyPatch, cores: int, verdict: Verdict
    ) -> None:
        monkeypatch.setattr(hardware, "cores", lambda: cores)
        monkeypatch.setattr(trials, "TRIAL_BYTES", 1)
        out_of_memory = replace(CLEAN, stdout="", stderr="torch.OutOfMemoryError: CUDA out of memory", exit_status=1)
        on = engine(repro=[PLAIN], memcheck_repro=[FAULTY], memcheck_fixed=[out_of_memory, CLEAN])
        evidence = go(case, on, probes=False)
        assert evidence.verdict is verdict, evidence.reasons
        assert len(evidence.sanitized) == 2

    def test_how_it_is_run(self, case: Case) -> None:
        on = engine(repro=[PLAIN], memcheck_repro=[FAULTY], memcheck_fixed=[CLEAN])
        go(case, on, probes=False)
        plain, under = plain_trial(on), on.requests[-1]
        assert list(under.wrapper)[:3] == ["/opt/cuda/bin/compute-sanitizer", "--tool", "memcheck"]
        assert under.variables["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
        assert under.limits.timeout_s > plain.limits.timeout_s
        assert under.gpus == plain.gpus == (0,)
        assert under.files == plain.files
        assert not plain.wrapper

    @pytest.mark.parametrize(
        ("repro", "fixed", "verdict"),
        [
            (FAULTY, FAULTY, Verdict.FIX_FAILS),
            (recorded("misaligned_read.memcheck"), CLEAN, Verdict.WRONG_FAILURE),
            (recorded("triton_out_of_bounds.memcheck"), CLEAN, Verdict.INCONCLUSIVE),  # not all was printed
            (CLEAN, CLEAN, Verdict.WRONG_FAILURE),
            (replace(CLEAN, stdout=""), CLEAN, Verdict.INCONCLUSIVE),
            (FAULTY, replace(CLEAN, stdout="rel_err=1e-7\n"), Verdict.INCONCLUSIVE),
            (FAULTY, replace(CLEAN, stdout=CLEAN.stdout.replace("1e-7", "0.5")), Verdict.FIX_FAILS),
        ],
    )
    def test_other_verdicts(self, case: Case, repro: TrialResult, fixed: TrialResult, verdict: Verdict) -> None:
        evidence = go(case, engine(repro=[PLAIN], memcheck_repro=[repro], memcheck_fixed=[fixed]))
        assert evidence.verdict is verdict, evidence.reasons

    def test_without_the_tool_there_is_no_verdict(self, case: Case) -> None:
        evidence = go(case, engine("null", repro=[PLAIN]))
        assert evidence.verdict is Verdict.INCONCLUSIVE
        assert "compute-sanitizer is not in this environment" in evidence.reasons[0]
        assert [request.wrapper for request in engine().requests if request.wrapper] == []

    def test_ctrl_c_in_a_probe_ends_the_probes_and_keeps_the_verdict(self, checkout: Checkout) -> None:
        on = engine(repro=[PLAIN], memcheck_repro=[FAULTY])

        def interrupt(request: TrialRequest) -> None:
            if "CUDA_LAUNCH_BLOCKING" in request.variables:
                raise KeyboardInterrupt

        on.before_trial = interrupt
        said = io.StringIO()
        evidence = run_case(written(checkout, manifest()), Options(environment="current"), on, Console(said))
        assert isinstance(evidence, Evidence)
        assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
        assert [probe.probe for probe in evidence.probes] == ["sanitizer"]
        assert "interrupted while probing: the verdict stands" in said.getvalue()

    def test_no_probes_leaves_what_the_verdict_needs(self, case: Case) -> None:
        on = engine(repro=[PLAIN], memcheck_repro=[FAULTY], memcheck_fixed=[CLEAN])
        evidence = go(case, on, probes=False)
        assert evidence.verdict is Verdict.CONFIRMED
        assert evidence.probes == []
        assert "--no-probes" in evidence.command

    def test_a_silent_failure(self, checkout: Checkout) -> None:
        """Out of bounds, and nothing else to see: both variants end well."""
        case = written(checkout, manifest(repro="{exit_status: 0}", declared=DECLARED, failure="illegal-access"))
        on = engine(repro=[PROVED], memcheck_repro=[FAULTY], memcheck_fixed=[CLEAN])
        assert go(case, on).verdict is Verdict.CONFIRMED
        on = engine(repro=[PROVED], memcheck_repro=[CLEAN], memcheck_fixed=[CLEAN])
        assert go(case, on).verdict is Verdict.NOT_REPRODUCED

    def test_a_graph_is_captured_again_with_the_cache(self, case: Case) -> None:
        on = engine(repro=[PLAIN], memcheck_repro=[UNCAPTURED, FAULTY], memcheck_fixed=[UNCAPTURED, CLEAN])
        evidence = go(case, on, probes=False)
        assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
        assert [trial.sanitizer and trial.sanitizer.cached for trial in evidence.sanitized] == [True, True]

    def test_the_tool_that_the_case_declares_is_no_probe_again(self, case: Case) -> None:
        on = engine(repro=[*[PLAIN] * 3, BLOCKING], memcheck_repro=[FAULTY], memcheck_fixed=[CLEAN])
        assert [probe.probe for probe in go(case, on).probes] == ["launch-blocking"]


class TestProbes:
    def probed(self, checkout: Checkout, on: FakeEngine, **changed: str) -> Evidence:
        return go(written(checkout, manifest(**changed)), on)

    def tools(self, evidence: Evidence) -> list[Tool]:
        return [probe.report.tool for probe in sanitizers(evidence)]

    def test_what_is_found_is_kept_and_decides_nothing(self, checkout: Checkout) -> None:
        on = engine(repro=[*[PLAIN] * 3, BLOCKING], memcheck_repro=[FAULTY])
        evidence = self.probed(checkout, on)
        assert evidence.verdict is Verdict.CONFIRMED
        memcheck, blocking = evidence.probes
        assert isinstance(memcheck, SanitizerProbe)
        assert memcheck.report.findings[0].kind is Kind.OUT_OF_BOUNDS
        assert memcheck.stdout == FAULTY.stdout
        assert isinstance(blocking, LaunchBlockingProbe)
        assert effect(blocking) is Effect.MOVED

    @pytest.mark.parametrize(("alone", "most"), [("false", 2), ("true", 1)])
    def test_they_run_at_once_unless_the_case_is_alone(
        self, checkout: Checkout, monkeypatch: pytest.MonkeyPatch, alone: str, most: int
    ) -> None:
        on = engine(repro=[*[PLAIN] * 3, BLOCKING], memcheck_repro=[FAULTY])
        text = manifest().replace("    image: cuda13\n", f"    image: cuda13\n    alone: {alone}\n")
        assert most_at_once(on, written(checkout, text), monkeypatch) == most

    def test_launch_blocking_is_the_same_trial_with_one_variable_more(self, checkout: Checkout) -> None:
        on = engine(repro=[PLAIN], memcheck_repro=[FAULTY])
        self.probed(checkout, on)
        plain, probe = plain_trial(on), on.requests[-1]
        assert probe.variables == {**plain.variables, "CUDA_LAUNCH_BLOCKING": "1"}
        assert (probe.arguments, probe.files, probe.gpus) == (plain.arguments, plain.files, plain.gpus)

    @pytest.mark.parametrize(
        ("failure", "more", "tools"),
        [
            ("illegal-access", "", [Tool.MEMCHECK]),
            ("race", "", [Tool.MEMCHECK, Tool.RACECHECK]),
            ("wrong-numbers", "", [Tool.MEMCHECK, Tool.INITCHECK]),
            ("non-finite", "", [Tool.MEMCHECK, Tool.INITCHECK]),
            ("race", "probes: [synccheck, synccheck]\n", [Tool.SYNCCHECK]),
            ("race", "probes: []\n", []),
            ("hang", "", []),
            ("compile-error", "", []),
        ],
    )
    def test_which_tools(self, checkout: Checkout, failure: str, more: str, tools: list[Tool]) -> None:
        on = engine(
            repro=[PLAIN],
            memcheck_repro=[CLEAN],
            racecheck_repro=[CLEAN],
            initcheck_repro=[CLEAN],
            synccheck_repro=[CLEAN],
        )
        evidence = self.probed(checkout, on, failure=failure, more=more)
        assert self.tools(evidence) == tools

    def silent(self, checkout: Checkout, on: FakeEngine) -> Evidence:
        return self.probed(checkout, on, failure="wrong-numbers", repro='{figures: {rel_err: "> 1e-2"}}')

    def test_a_finding_in_a_silent_failure_is_looked_for_in_fixed(self, checkout: Checkout) -> None:
        on = engine(repro=[SILENT], memcheck_repro=[CLEAN], initcheck_repro=[UNWRITTEN], initcheck_fixed=[CLEAN])
        looks = [(it.report.tool, it.variant) for it in sanitizers(self.silent(checkout, on))]
        assert looks == [
            (Tool.MEMCHECK, Variant.REPRO),
            (Tool.INITCHECK, Variant.REPRO),
            (Tool.INITCHECK, Variant.FIXED),
        ]

    def test_an_error_that_a_call_returned_is_not_looked_for_in_fixed(self, checkout: Checkout) -> None:
        on = engine(repro=[SILENT], memcheck_repro=[recorded("invalid_device.memcheck")], initcheck_repro=[CLEAN])
        assert {it.variant for it in sanitizers(self.silent(checkout, on))} == {Variant.REPRO}

    def test_a_graph_is_captured_again_with_the_cache(self, checkout: Checkout) -> None:
        on = engine(repro=[SILENT], memcheck_repro=[UNCAPTURED, CLEAN], initcheck_repro=[CLEAN])
        memcheck, initcheck = sanitizers(self.silent(checkout, on))
        assert (memcheck.report.cached, initcheck.report.cached) == (True, False)
        assert memcheck.report.findings == []
        plain, (first, again, other) = plain_trial(on), [it for it in on.requests if it.wrapper]
        assert again.variables == plain.variables
        assert first.variables == other.variables == {**plain.variables, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        assert again.wrapper == first.wrapper

    def test_a_capture_that_is_refused_with_the_cache_too_is_the_scripts_own(self, checkout: Checkout) -> None:
        on = engine(repro=[SILENT], memcheck_repro=[UNCAPTURED], initcheck_repro=[CLEAN])
        memcheck, _initcheck = sanitizers(self.silent(checkout, on))
        assert memcheck.report.findings[0].kind is Kind.API_ERROR
        assert len([it for it in on.requests if "memcheck" in it.wrapper]) == 2

    def test_without_a_cuda_error_nothing_is_blocked(self, checkout: Checkout) -> None:
        on = engine(repro=[SILENT], memcheck_repro=[CLEAN])
        evidence = self.probed(checkout, on, repro='{figures: {rel_err: "> 1e-2"}}')
        assert [probe.probe for probe in evidence.probes] == ["sanitizer"]

    def test_no_gpu_no_probes(self, checkout: Checkout) -> None:
        case = written(checkout, manifest())
        on = engine(repro=[PLAIN])
        result = run_case(case, Options(environment="interpreter"), on, Console(io.StringIO()))
        assert isinstance(result, Evidence)
        assert result.probes == []

    @pytest.mark.parametrize("stuck", [replace(PROVED, timed_out=True), replace(PROVED, hung=True)])
    def test_what_hangs_is_not_probed(self, checkout: Checkout, stuck: TrialResult) -> None:
        stuck = replace(stuck, exit_status=None, signal="SIGKILL")
        assert self.probed(checkout, engine(repro=[stuck])).probes == []

    def test_a_missing_tool_is_a_note(self, checkout: Checkout) -> None:
        evidence = self.probed(checkout, engine("null", repro=[PLAIN]))
        assert evidence.verdict is Verdict.CONFIRMED
        assert isinstance(evidence.probes[0], SanitizerProbe)
        assert evidence.probes[0].note == "compute-sanitizer is not in this environment"

    def test_an_engine_that_goes_away_is_a_note(self, checkout: Checkout) -> None:
        def gone(request: TrialRequest) -> None:
            if request.wrapper or "CUDA_LAUNCH_BLOCKING" in request.variables:
                raise EngineError("the engine went away")

        on = engine(repro=[PLAIN])
        on.before_trial = gone
        evidence = self.probed(checkout, on)
        assert evidence.verdict is Verdict.CONFIRMED
        assert [probe.note for probe in evidence.probes] == ["the engine went away"] * 2

    def test_a_probe_is_bounded_by_what_the_trials_took(self, checkout: Checkout) -> None:
        on = engine(repro=[replace(PLAIN, duration_s=20.0)], memcheck_repro=[FAULTY])
        self.probed(checkout, on)
        assert on.requests[-1].limits.timeout_s == 200.0
        on = engine(repro=[replace(PLAIN, duration_s=100.0)], memcheck_repro=[FAULTY])
        self.probed(checkout, on)
        assert on.requests[-1].limits.timeout_s == 600.0

    def test_evidence_survives_a_round_trip(self, checkout: Checkout, tmp_path: Path) -> None:
        evidence = self.probed(checkout, engine(repro=[PLAIN], memcheck_repro=[FAULTY]))
        evidence.write(tmp_path / "e.json")
        assert Evidence.read(tmp_path / "e.json") == evidence


class EchoRecord(ProbeRecord):
    probe: Literal["echo"] = "echo"
    heard: str


class Echo:
    """A probe as another distribution would bring it: it runs repro once more and keeps what it prints."""

    record = EchoRecord

    def suggested(self, _failure: Failure) -> bool:
        return False

    def applies(self, _plan: Plan, _trials: Sequence[Trial], _sanitized: Sequence[Trial]) -> bool:
        return True

    def run(self, bench: Bench, _trials: Sequence[Trial], limits: Limits) -> Iterator[EchoRecord]:
        yield EchoRecord(heard=bench.run(Variant.REPRO, limits, {"ECHO": "1"}).stdout.strip())

    def words(self, record: ProbeRecord) -> Words:
        assert isinstance(record, EchoRecord)
        return Words(title="echo on repro", lines=[f"heard {record.heard}"])


ECHO: Probe = Echo()


def test_a_plug_in_adds_a_probe_and_replaces_none(monkeypatch: pytest.MonkeyPatch) -> None:
    added = {"echo": f"{__name__}:ECHO", "memcheck": f"{__name__}:ECHO"}
    monkeypatch.setattr(plugins, "find", lambda group: added if group == probe_registry.GROUP else {})
    assert probe_registry.probe("echo") is ECHO
    assert probe_registry.probe("memcheck") is not ECHO


class TestAProbeOfSomebodyElse:
    @pytest.fixture
    def evidence(self, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Evidence:
        with monkeypatch.context() as patch:
            patch.setitem(probe_registry.PROBES, "echo", f"{__name__}:ECHO")
            on = engine(repro=[*[PLAIN] * 3, SILENT])
            evidence = go(written(checkout, manifest(more="probes: [echo]\n")), on)
            assert on.requests[-1].variables["ECHO"] == "1"
            assert Evidence.model_validate_json(evidence.model_dump_json()) == evidence
            page = case_page([evidence])
            assert "echo on repro:" in page
            assert "- heard rel" in page
        return evidence

    def test_it_runs_and_is_in_the_evidence_and_on_the_page(self, evidence: Evidence) -> None:
        assert evidence.verdict is Verdict.CONFIRMED
        assert '"heard":"rel_err=0.5"' in evidence.model_dump_json()

    def test_a_runner_without_it_keeps_its_record_and_shows_it(self, evidence: Evidence) -> None:
        again = Evidence.model_validate_json(evidence.model_dump_json())
        assert again.model_dump_json() == evidence.model_dump_json()
        page = case_page([again])
        assert "echo, a probe that this runner does not have:" in page
        assert '"heard": "rel_err=0.5"' in page


def test_faults_in_the_kernel_log_are_kept_with_the_trial_they_came_in(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["NVRM: Xid (PCI:0000:00:06): 13, pid=1, name=other"]  # before the first trial

    @contextmanager
    def log() -> Iterator[Callable[[], str]]:
        told = 0

        def new() -> str:
            nonlocal told
            told, fresh = len(lines), lines[told:]
            return "\n".join(fresh)

        yield new

    def trial(request: TrialRequest) -> None:
        if request.arguments == ["repro.py"]:
            lines.append(f"NVRM: Xid (PCI:0000:00:06): 31, pid={len(on.requests)}, name=python3")

    monkeypatch.setattr(kernel_log, "kernel_log", log)
    on = engine(repro=[PLAIN], memcheck_repro=[FAULTY])
    on.before_trial = trial
    evidence = go(written(checkout, manifest()), on)
    assert [[it.number for it in trial.xids] for trial in evidence.trials] == [[31], []] * 3 + [[]]
    assert [trial.xids[0].pid for trial in evidence.trials[:6:2]] == [0, 2, 4]


FAKE_TOOL = """\
#!{python}
import subprocess, sys
if sys.argv[1:] == ["--version"]:
    print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.3.1.0 (build 1) (public-release)")
    sys.exit()
program = sys.argv[sys.argv.index("--launch-timeout") + 2:]
print("========= COMPUTE-SANITIZER", flush=True)
subprocess.run(program)
print(open({directory!r} + "/" + program[-1] + ".txt").read(), flush=True)
sys.exit(6 if program[-1] == "repro.py" else 0)
"""

CRASHES = """\
import os
def launch():
    if os.environ.get("CUDA_LAUNCH_BLOCKING"):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
def read_back():
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
launch()
print(f"cached={int('PYTORCH_NO_CUDA_MEMORY_CACHING' not in os.environ)}", flush=True)
read_back()
"""


class PretendedGpu(VenvEngine):
    """A real engine on a machine that is said to have a GPU, with a compute-sanitizer that prints what was recorded."""

    def __init__(self, place: Path, tool: str | None) -> None:
        super().__init__(cache=place / "cache", place=place / "scratch")
        (place / "scratch").mkdir(parents=True)
        self._tool = tool

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        prepared = super().prepare(recipe, note)
        if self._tool:
            program = Path(prepared.python).parent / "compute-sanitizer"
            program.write_text(self._tool)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            Seal.of(program.parents[1]).write()
        return super().prepare(recipe, note)

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        result = super().run(prepared, request)
        if "attest.py" in request.arguments and "content" not in request.arguments:
            return replace(result, stdout=attested(ATTESTED))
        return result


@pytest.fixture
def tool(tmp_path: Path) -> str:
    """The program's text; its reports are what was recorded of one raw kernel, and of none."""
    reports = tmp_path / "reports"
    reports.mkdir()
    for script, name in (("repro.py", "torch_raw_kernel"), ("fixed.py", "clean")):
        said = Recording.read(DIRECTORY / f"{name}.memcheck.txt").stdout
        (reports / f"{script}.txt").write_text(said.partition("COMPUTE-SANITIZER\n")[2].replace("finished=1\n", ""))
    return FAKE_TOOL.format(python=sys.executable, directory=str(reports))


@pytest.fixture
def crashing(checkout: Checkout) -> Case:
    text = manifest(repro="{exception: RuntimeError, cuda_error: cudaErrorIllegalAddress}", declared=DECLARED)
    text = text.replace("[numpy==2.2.6]", "[]")
    case = written(checkout, text.replace("image: cuda13", f"image: cuda13\n    python: '3.{sys.version_info.minor}'"))
    (case.directory / "repro.py").write_text(CRASHES)
    return case


def test_the_whole_path_in_real_processes(crashing: Case, tool: str, tmp_path: Path) -> None:
    with PretendedGpu(tmp_path / "engine", tool) as on:
        evidence = go(crashing, on)
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    repro, _fixed = evidence.sanitized
    assert repro.sanitizer
    assert repro.sanitizer.declared == 0
    assert repro.observation.figures == {"cached": 0}
    assert evidence.trials[0].observation.figures == {"cached": 1}
    (blocking,) = evidence.probes
    assert isinstance(blocking, LaunchBlockingProbe)
    assert effect(blocking) is Effect.MOVED
    assert blocking.surfaced
    assert blocking.launched
    assert (blocking.surfaced.line, blocking.launched.line) == (6, 4)
    assert blocking.surfaced.file == "repro.py"


@none_of_the_hosts_own
def test_the_whole_path_without_the_tool(crashing: Case, tmp_path: Path) -> None:
    with PretendedGpu(tmp_path / "engine", None) as on:
        evidence = go(crashing, on)
    assert evidence.verdict is Verdict.INCONCLUSIVE
    assert "compute-sanitizer is not in this environment" in evidence.reasons[0]


@none_of_the_hosts_own
def test_a_tool_that_does_not_run_is_not_there(crashing: Case, tmp_path: Path) -> None:
    with PretendedGpu(tmp_path / "engine", "#!/nowhere/python\n") as on:
        assert go(crashing, on).verdict is Verdict.INCONCLUSIVE
