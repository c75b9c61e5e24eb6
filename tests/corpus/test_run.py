from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from casebook_workbench.corpus import journal
from casebook_workbench.corpus.begin import Request, begin, check_disk, durations, unable
from casebook_workbench.corpus.events import Machine
from casebook_workbench.corpus.journal import Journal
from casebook_workbench.corpus.model import End, Finished, Job, Run, Settings
from casebook_workbench.corpus.run import local_machine
from casebook_workbench.corpus.selection import Selection
from gpu_casebook.devices import hardware
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.errors import MachineError, UsageError
from gpu_casebook.evidence import evidence_path
from gpu_casebook.manifest.model import EnvironmentSpec
from gpu_casebook.places import reports_of
from gpu_casebook.run.options import Options
from gpu_casebook.trial import GpuAccess, Recipe
from tests.conftest import Checkout
from tests.corpus.test_journal import NOW, finished, job
from tests.corpus.test_selection import add
from tests.fakes import FIXED, REPRO, FakeEngine
from tests.report.example import CASE, ENVIRONMENT, evidence
from tests.run.test_pipeline import H200

HERE = Machine(name="here", cores=2)
NEEDS = EnvironmentSpec(image="cuda13", requirements=[], gpus=1, compute_capability=">=9.0")
DIRECT = GpuAccess(mode="direct")


def gpu_job(**changed: object) -> Job:
    return job("a", gpus=1, compute_capability=">=9.0", **changed)


def with_gpus(monkeypatch: pytest.MonkeyPatch, *indices: int) -> Machine:
    found = [H200.__class__(**{**vars(H200), "index": index, "uuid": f"GPU-{index}"}) for index in indices]
    monkeypatch.setattr(hardware, "gpus", lambda: found)
    return local_machine(None, None)


class TestMachine:
    def test_all_gpus_and_cores_unless_some_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert [gpu.index for gpu in with_gpus(monkeypatch, 0, 1, 2).gpus] == [0, 1, 2]
        named = local_machine(7, [2, 0])
        assert ([gpu.index for gpu in named.gpus], named.cores) == ([2, 0], 7)

    def test_a_gpu_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with_gpus(monkeypatch, 0, 1)
        with pytest.raises(MachineError, match=r"--gpu 5: no such GPU on this machine \(there are: 0, 1\)"):
            local_machine(None, [1, 5])

    def test_of_an_engine_elsewhere_the_gpus_that_were_named_are_believed_in(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with_gpus(monkeypatch, 0)
        assert local_machine(None, None, elsewhere=True).gpus == []
        assert [gpu.index for gpu in local_machine(None, [3], elsewhere=True).gpus] == [3]


class TestUnable:
    def test_without_a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        here = with_gpus(monkeypatch)
        why = unable([here], FakeEngine({}, DIRECT), None)
        assert why(NEEDS, gpu_job()) == "1 GPU is needed, and there is none"
        assert why(EnvironmentSpec(image="cpu", requirements=[]), job("a")) is None

    def test_with_one_that_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        here = with_gpus(monkeypatch, 0)
        assert unable([here], FakeEngine({}, DIRECT), None)(NEEDS, gpu_job()) is None
        said = unable([here], FakeEngine({}), None)(NEEDS, gpu_job())
        assert said == "the venv engine has no way to a GPU here"

    def test_the_driver_counts_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        here = with_gpus(monkeypatch, 0)
        newer = NEEDS.model_copy(update={"driver": ">=9999"})
        assert "driver >=9999 needed" in (unable([here], FakeEngine({}, DIRECT), None)(newer, gpu_job()) or "")

    def test_only_the_gpus_that_were_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with_gpus(monkeypatch, 0, 1)
        two = NEEDS.model_copy(update={"gpus": 2})
        why = unable([local_machine(None, [1])], FakeEngine({}, DIRECT), [1])
        assert why(two, gpu_job().model_copy(update={"gpus": 2})) == "2 GPUs are needed, and there is 1"

    def test_a_fleet_is_asked_for_its_machines(self) -> None:
        fleet = [HERE, Machine(name="there", cores=1, gpus=[HostGpu(index=0, compute_capability="9.0")])]
        assert unable(fleet, None, None)(NEEDS, gpu_job()) is None
        assert unable(fleet[:1], None, None)(NEEDS, gpu_job())


def record(reports: Path, *ends: Finished, days: int = 0, trials: int | None = None) -> None:
    id_ = journal.new_id(reports, NOW + timedelta(days=days))
    settings = Settings(root="/x", reports=str(reports), options=Options(trials=trials))
    run = Run(id=id_, started=NOW, settings=settings, jobs=[each.job for each in ends])
    with Journal.create(reports, run) as opened:
        opened.append(ends)


def test_durations_are_those_of_the_last_time_that_it_ran(tmp_path: Path) -> None:
    record(tmp_path, finished(job("a"), duration_s=1.0), finished(job("b"), duration_s=2.0))
    record(tmp_path, finished(job("a"), duration_s=9.0), days=1)
    skipped = finished(job("b"), end=End.SKIPPED, verdict=None, duration_s=0.0)
    reused = finished(job("a"), end=End.REUSED, duration_s=0.0)
    record(tmp_path, skipped, reused, days=2)
    record(tmp_path, finished(job("a"), duration_s=0.5), days=2, trials=1)
    broken = tmp_path / "runs" / journal.new_id(tmp_path, NOW + timedelta(days=3))
    (broken / journal.RUN).write_text("{")
    assert durations(tmp_path) == {"a/e": 9.0, "b/e": 2.0}
    assert durations(tmp_path, trials=1) == {"a/e": 0.5}
    assert durations(tmp_path / "nothing") == {}


class Bench:
    def __init__(self, checkout: Checkout, place: Path) -> None:
        self.root = checkout.root
        self.settings = Settings(root=str(self.root), reports=str(self.root / "reports"), engine="venv")
        self.engine = VenvEngine(place / "cache", place)

    def begin(self, **selection: object) -> Journal | None:
        asked = Selection(**selection)  # type: ignore[arg-type]
        request = Request(settings=self.settings, selection=asked, max_age_s=0.0, command="casebook corpus")
        return begin(request, [HERE], self.engine)


@pytest.fixture
def bench(checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(hardware, "gpus", list)
    add(checkout, "alpha")
    broken = add(checkout, "beta") / "case.yaml"
    broken.write_text(broken.read_text().replace("gpus: 1\n", "gpus: [1]\n"))
    return Bench(checkout, tmp_path / "engine")


def test_a_run_begins_with_a_record_of_what_is_to_be_done_and_what_need_not(bench: Bench) -> None:
    begun = bench.begin()
    assert begun
    with begun:
        run = journal.read(begun.directory)
    assert [job.name for job in run.jobs] == ["alpha/current", "alpha/interpreter", "beta"]
    assert {each.job.name: each.end for each in run.finished} == {"alpha/current": End.SKIPPED, "beta": End.BROKE}
    assert [(job.name, job.because) for job in run.left] == [("alpha/interpreter", "all are to be run again")]
    assert run.left[0].environment_key
    assert (run.selection, run.command, run.ended) == ("all", "casebook corpus", None)
    assert run.runner.startswith("0.")
    assert run.disk_before_bytes


def test_a_job_takes_as_long_as_last_time_or_as_its_trials_in_the_evidence(bench: Bench) -> None:
    """So the longest start first, also on a machine that has run none of them."""
    run = evidence(
        replace(REPRO, duration_s=7.0),
        replace(FIXED, duration_s=2.0),
        case=CASE.model_copy(update={"id": "alpha"}),
        environment=ENVIRONMENT.model_copy(update={"name": "interpreter"}),
    )
    run.write(evidence_path(reports_of(bench.root, published=True), run))

    def expected(trials: int | None = None) -> list[float | None]:
        bench.settings = bench.settings.model_copy(update={"options": Options(trials=trials)})
        begun = bench.begin(cases=["alpha"])
        assert begun
        with begun:
            return [job.expected_s for job in begun.run.left]

    assert expected() == [sum(trial.duration_s for trial in run.trials)]
    ended = finished(job("alpha", environment="interpreter"), duration_s=3.0)
    record(bench.root / "reports", ended, days=1)
    assert expected() == [3.0]
    assert expected(trials=1) == [7.0 + 2.0]


def test_a_disk_that_will_not_do_leaves_no_record(bench: Bench) -> None:
    lock = bench.root / "cases" / "alpha" / "locks" / "interpreter.txt"
    lock.write_text("# download-bytes: 999999999999999\n" + lock.read_text())
    with pytest.raises(MachineError, match="the disk is too small for this run"):
        bench.begin()
    assert journal.ids(bench.root / "reports") == []


def test_reports_that_can_not_be_written_are_one_line(bench: Bench) -> None:
    (bench.root / "reports").write_text("a file")
    with pytest.raises(UsageError, match=r"--reports .*/reports: nothing can be written there: Not a directory"):
        bench.begin()


def test_what_is_there_already_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = VenvEngine(tmp_path / "not" / "yet", tmp_path)
    large = Recipe(image="cpu", lock="# download-bytes: 999999999999999\n")
    with pytest.raises(MachineError, match=f"^the disk is too small for this run: {tmp_path} needs 1e[+]03 TB for env"):
        check_disk(engine, [large])
    check_disk(engine, [Recipe(image="cpu", lock="")])
    monkeypatch.setattr(VenvEngine, "absent", lambda _self, _recipes: [])
    check_disk(engine, [large])
