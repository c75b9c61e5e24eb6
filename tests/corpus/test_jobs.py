import errno
import io
from dataclasses import replace
from pathlib import Path

import pytest

from casebook_workbench.corpus import jobs
from casebook_workbench.corpus.events import Start
from casebook_workbench.corpus.jobs import run_job
from casebook_workbench.corpus.model import REASON_LIMIT, End, Finished, Job, Settings
from failure_signature.kinds import Grade, Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.errors import BuildError, EngineError, MachineError
from gpu_casebook.evidence import Evidence, load
from gpu_casebook.trial import GpuAccess
from tests.conftest import Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine
from tests.run.test_pipeline import H200


class Bench:
    """One job of a checkout with the case `tiny`, and what its worker says."""

    def __init__(self, checkout: Checkout) -> None:
        self.directory = checkout.write().parent
        write_locks(self.directory)
        self.reports = checkout.root / "reports"
        self.settings = Settings(root=str(checkout.root), reports=str(self.reports))
        self.job = Job(
            case="tiny", environment="interpreter", failure="wrong-numbers", project="o/n", grade=Grade.SIMULATED
        )
        self.engine = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]}, GpuAccess(mode="direct"))
        self.said = io.StringIO()

    def run(self, *gpus: int, job: Job | None = None, **settings: object) -> Finished:
        asked = Settings.model_validate(self.settings.model_dump() | settings)
        done = run_job(Start(job=job or self.job, gpus=gpus), asked, Console(self.said))
        assert done is not None
        return done

    def build(self) -> Finished | None:
        return run_job(Start(job=self.job, builds=True), self.settings, Console(self.said))


@pytest.fixture
def bench(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(checkout)
    monkeypatch.setattr(choosing, "choose", lambda *_: made.engine)
    monkeypatch.setattr(hardware, "gpus", list)
    return made


def test_a_job_leaves_evidence_and_a_few_words_but_no_pages(bench: Bench) -> None:
    done = bench.run()
    assert (done.end, done.verdict, done.device, done.drifted) == (End.RAN, Verdict.CONFIRMED, "CPU", False)
    assert done.rates[Variant.REPRO].k == 3
    assert done.reason
    assert done.duration_s > 0
    assert done.evidence == "evidence/tiny/interpreter.venv.cpu.json"
    evidence = load(bench.reports / done.evidence)
    assert evidence.verdict is Verdict.CONFIRMED
    assert done.started <= evidence.started
    assert not list(bench.reports.glob("*.md"))


def test_a_build_prepares_the_environment_and_runs_nothing(bench: Bench) -> None:
    assert bench.build() is None
    assert len(bench.engine.recipes) == 1
    assert bench.engine.requests == []
    assert not bench.reports.exists()


def test_a_build_that_fails_is_how_the_job_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise BuildError("no such wheel")

    monkeypatch.setattr(bench.engine, "prepare", fails)
    done = bench.build()
    assert done
    assert (done.end, done.reason) == (End.BROKE, "no such wheel")


def test_an_unfit_environment_is_not_run(bench: Bench) -> None:
    bench.engine.attested = bench.engine.attested.replace("numpy", "pandas")
    done = bench.run()
    assert (done.end, done.verdict, bench.engine.requests) == (End.SKIPPED, None, [])
    assert done.reason.startswith("environment interpreter is unfit for this case: it has no numpy (")


def test_what_can_not_run_here_is_not_built(bench: Bench) -> None:
    bench.job = bench.job.model_copy(update={"environment": "current", "gpus": 1})
    done = bench.build()
    assert done
    assert done.end is End.SKIPPED
    assert bench.engine.recipes == []


def test_settings_reach_the_run(bench: Bench) -> None:
    done = bench.run(trials=1, timeout_s=7.0, probes=False)
    assert done.rates[Variant.REPRO].n == 1
    assert {request.limits.timeout_s for request in bench.engine.requests} == {7.0}
    assert done.evidence
    assert "--trials 1 --timeout 7 --no-probes" in load(bench.reports / done.evidence).command


def test_a_job_runs_on_the_gpus_that_it_was_given(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", lambda: [H200, replace(H200, index=3, uuid="GPU-3")])
    job = bench.job.model_copy(update={"environment": "current", "gpus": 1, "grade": Grade.HARDWARE})
    bench.engine.attested = (
        bench.engine.attested[:-1] + ', "gpus": [{"name": "NVIDIA H200", "compute_capability": "9.0"}]}'
    )
    assert bench.run(3, job=job).device == "NVIDIA H200"
    assert {tuple(request.gpus) for request in bench.engine.requests} == {(3,)}


def test_not_confirmed_is_told_with_its_reason(bench: Bench) -> None:
    bench.engine = FakeEngine({"repro.py": [FIXED], "fixed.py": [FIXED]})
    done = bench.run()
    assert (done.end, done.verdict, done.confirmed) == (End.RAN, Verdict.NOT_REPRODUCED, False)
    assert done.reason


def test_infra_trials_are_counted(bench: Bench) -> None:
    infra = TrialResult(stdout="", stderr="", duration_s=0.1, infra="the container did not start")
    bench.engine = FakeEngine({"repro.py": [infra, REPRO], "fixed.py": [FIXED]})
    assert bench.run().infra_trials == 1


def test_hardware_that_is_not_there_after_all_skips(bench: Bench) -> None:
    done = bench.run(job=bench.job.model_copy(update={"environment": "current", "gpus": 1}))
    assert (done.end, done.verdict, done.evidence) == (End.SKIPPED, None, None)
    assert done.reason == "current: 1 GPU is needed, and there is none"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BuildError("numpy has no wheel\nfull log: x"), "numpy has no wheel full log: x"),
        (MachineError("no room\n" * 300), None),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "Permission denied /x"),
        (RecursionError("too deep"), "the runner failed: RecursionError: too deep (test_jobs.py:"),
        (MemoryError(), "the runner failed: MemoryError: (test_jobs.py:"),
        (SystemExit(3), "the runner failed: SystemExit: 3 (test_jobs.py:"),
    ],
)
def test_whatever_breaks_is_the_jobs_own_result(bench: Bench, error: BaseException, reason: str | None) -> None:
    def breaks(_request: object) -> None:
        raise error

    bench.engine.before_trial = breaks
    done = bench.run(engine="venv")
    assert (done.end, done.verdict, done.evidence, done.stops) == (End.BROKE, None, None, False)
    assert done.reason.startswith(reason or "no room no room")
    assert len(done.reason) <= REASON_LIMIT
    assert "\n" not in done.reason


def test_a_case_that_broke_since_it_was_chosen(bench: Bench) -> None:
    (bench.directory / "case.yaml").write_text("id: tiny\n")
    done = bench.run()
    assert (done.end, done.reason.split(":")[:2]) == (End.BROKE, ["cases/tiny/case.yaml", "1"])


def test_an_order_to_end_is_obeyed(bench: Bench) -> None:
    def stopped(_request: object) -> None:
        raise KeyboardInterrupt

    bench.engine.before_trial = stopped
    with pytest.raises(KeyboardInterrupt):
        bench.run()


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "reports/x.json")


def test_a_full_disk_is_no_end_of_the_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evidence, "write", no_space)
    done = bench.run()
    assert (done.end, done.reason, done.stops) == (End.BROKE, "no space left on reports/x.json", True)


def test_nor_is_one_that_the_engine_met(bench: Bench) -> None:
    def full(_request: object) -> None:
        raise MachineError("the disk is full: no room to write x") from OSError(errno.ENOSPC, "No space left on device")

    bench.engine.before_trial = full
    assert bench.run(engine="venv").stops


class Restarted:
    """An engine that goes away in the first trial, and answers again at the so-manyth look."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
        self.looks = 0
        self.gone = False
        bench.engine.before_trial = self.trial
        monkeypatch.setattr("casebook_workbench.corpus.jobs.time.sleep", lambda _s: None)

        def choose(*_: object) -> FakeEngine:
            if self.gone:
                self.looks += 1
                if self.looks <= looks:
                    raise EngineError("no Docker engine answers")
            return bench.engine

        monkeypatch.setattr(choosing, "choose", choose)

    def trial(self, _request: object) -> None:
        if not self.gone:
            self.gone = True
            raise EngineError("could not run a trial: the engine went away")


def test_a_daemon_that_is_restarted_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Restarted(bench, monkeypatch, looks=3)
    done = bench.run(engine="docker")
    assert (done.end, done.verdict) == (End.RAN, Verdict.CONFIRMED)
    assert engine.looks == 5  # three in vain, one that answered, and that of the second attempt
    assert "the engine went away; waiting for the engine" in bench.said.getvalue()


def test_one_that_does_not_come_back_stops_the_machine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    Restarted(bench, monkeypatch, looks=10**9)
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.0)
    done = bench.run(engine="docker")
    assert (done.end, done.stops) == (End.BROKE, True)
    assert done.reason == "no Docker engine answers; it did not come back within 0 s"


def test_an_environment_that_can_not_be_inspected_twice_is_the_jobs_own(bench: Bench) -> None:
    bench.engine.attested = "nothing"
    done = bench.run(engine="docker")
    assert (done.end, done.stops) == (End.BROKE, False)
    assert "can't be inspected" in done.reason


def test_evidence_is_there_whole_or_not_at_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run()
    path = bench.reports / "evidence/tiny/interpreter.venv.cpu.json"
    before = path.read_bytes()
    monkeypatch.setattr(Path, "replace", no_space)
    assert bench.run().stops
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]
