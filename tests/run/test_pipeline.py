import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import Mock

import pytest

from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Outcome, Verdict
from gpu_casebook.console import Console
from gpu_casebook.devices import hardware, ledger
from gpu_casebook.engines.guard import INFRA_RETRIES
from gpu_casebook.errors import EngineError, MachineError, ManifestError, UnfitError, UsageError
from gpu_casebook.evidence import Evidence
from gpu_casebook.locking import sole
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.report.case_page import case_page
from gpu_casebook.run import pipeline
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.run.plan import Skipped
from gpu_casebook.trial import GpuAccess
from tests.conftest import IMAGES, MANIFEST, Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine

H200 = hardware.HostGpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-0",
    compute_capability="9.0",
    minor=0,
    memory_bytes=150_000_000_000,
    free_bytes=150_000_000_000,
    driver="580.159.04",
)


@pytest.fixture
def case(checkout: Checkout) -> Case:
    """Without a GPU its environment `interpreter` is taken; `current` wants one."""
    directory = checkout.write().parent
    write_locks(directory)
    return find(checkout.root, "tiny", IMAGES)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", list)


def engine(repro: Sequence[TrialResult] = (REPRO,), fixed: Sequence[TrialResult] = (FIXED,)) -> FakeEngine:
    return FakeEngine({"repro.py": repro, "fixed.py": fixed})


def go(case: Case, on: FakeEngine, **options: object) -> Evidence:
    result = run_case(case, Options(**options), on, Console(io.StringIO()))  # type: ignore[arg-type]
    assert isinstance(result, Evidence)
    return result


PASSED = TrialResult(stdout="rel_err=0\n", stderr="", duration_s=0.1, exit_status=0)
OTHER = TrialResult(
    stdout="", stderr="Traceback (most recent call last):\n  ...\nKeyError: 'x'\n", duration_s=1, exit_status=1
)
BROKEN = TrialResult(stdout="", stderr="", duration_s=0.1, infra="the container did not start")


@pytest.mark.parametrize(
    ("repro", "fixed", "verdict"),
    [
        (REPRO, FIXED, Verdict.CONFIRMED),
        (PASSED, FIXED, Verdict.NOT_REPRODUCED),
        (OTHER, FIXED, Verdict.WRONG_FAILURE),
        (REPRO, REPRO, Verdict.FIX_FAILS),
        (REPRO, PASSED, Verdict.FIX_FAILS),
        (BROKEN, FIXED, Verdict.INCONCLUSIVE),
        (REPRO, BROKEN, Verdict.INCONCLUSIVE),
    ],
)
def test_every_verdict_comes_out_of_the_whole_pipeline(
    case: Case, repro: TrialResult, fixed: TrialResult, verdict: Verdict
) -> None:
    assert go(case, engine([repro], [fixed])).verdict is verdict


def test_the_machines_fault_is_tried_again_and_kept_in_the_evidence(case: Case) -> None:
    evidence = go(case, engine([BROKEN, REPRO]))
    assert evidence.verdict is Verdict.CONFIRMED
    outcomes = [trial.outcome for trial in evidence.trials_of(Variant.REPRO)]
    assert outcomes == [Outcome.INFRA, *[Outcome.AS_EXPECTED] * 3]
    assert evidence.rates[Variant.REPRO].infra == 1


def test_retries_are_bounded(case: Case) -> None:
    on = engine([BROKEN])
    go(case, on, trials=1)
    assert sum(request.arguments[0] == "repro.py" for request in on.requests) == 1 + INFRA_RETRIES


def test_evidence_holds_what_reports_need(case: Case) -> None:
    evidence = go(case, engine())
    assert evidence.environment.exact
    assert evidence.environment.locks.keys() == {"interpreter.txt"}
    assert "-def lost(x): return x * 0.5" in evidence.case.fix_diff
    assert evidence.case.signature[Variant.FIXED]
    assert evidence.command == "nox -s case-tiny -- --environment interpreter --engine venv"
    assert [trial.duration_s for trial in evidence.trials] == [0.5, 0.25, 0.5, 0.25, 0.5, 0.25, 0.25]


@pytest.mark.parametrize("more", ["", "# a comment\n", "  # and at its end\n"])
def test_scripts_that_are_the_same_code_are_refused_before_anything_runs(case: Case, more: str) -> None:
    case.script(Variant.FIXED).write_text(f'"""Fixed."""\n{case.script(Variant.REPRO).read_text()}{more}')
    on = engine()
    with pytest.raises(ManifestError, match="so it fixes nothing") as caught:
        go(case, on)
    assert str(caught.value.problems[0]).startswith("cases/tiny/fixed.py:1: ")
    assert on.requests == []


def test_why_a_work_around_differs_is_in_the_evidence_and_on_its_page(case: Case) -> None:
    manifest = case.manifest.model_copy(update={"because": "upstream has no fix yet"})
    evidence = go(replace(case, manifest=manifest), engine())
    assert evidence.case.because == "upstream has no fix yet"
    assert "\nBecause: upstream has no fix yet\n" in case_page([evidence])


def test_drift_is_found(case: Case) -> None:
    on = engine()
    on.attested = on.attested.replace("1.26.4", "1.26.5")
    evidence = go(case, on)
    assert not evidence.environment.exact
    assert "1.26.5" in evidence.environment.drift[0]


def test_both_environments_of_a_release_case_are_attested(case: Case) -> None:
    manifest = case.directory / "case.yaml"
    text = manifest.read_text()
    for variant, version in (("repro", "1.0"), ("fixed", "2.0")):
        text = text.replace(f"\n{variant}:\n", f"\n{variant}:\n  requirements: [six=={version}]\n")
    manifest.write_text(text)
    write_locks(case.directory)
    on = engine()
    on.attested = on.attested.replace('"1.26.4"', '"1.26.4", "six": "1.0"')
    environment = go(find(case.directory.parents[1], "tiny", IMAGES), on).environment
    assert environment.fixed_attestation
    assert environment.fixed_attestation.packages["six"] == "1.0"
    assert environment.relevant_drift == ["fixed: six: 2.0 locked, 1.0 found"]


def test_the_revision_is_that_of_the_start(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    on, head = engine(), ["1a"]
    monkeypatch.setattr(pipeline, "own_revision", lambda: head[0])
    on.before_trial = lambda _request: head.insert(0, "2b")
    assert go(case, on).runner == "1a"


def test_the_digest_follows_manifest_and_scripts_only(case: Case) -> None:
    before = case.digest()
    (case.directory / "README.md").write_text("other")
    assert case.digest() == before
    (case.directory / "data.txt").write_text("other")
    assert case.digest() != before


def test_a_trial_sees_scripts_and_data_but_no_manifest(case: Case) -> None:
    (case.directory / "data.txt").write_text("1")
    (case.directory / "__pycache__").mkdir()
    (case.directory / "__pycache__" / "x.pyc").write_text("1")
    assert set(case.payload()) == {"data.txt", "fixed.py", "repro.py"}


def test_another_architecture_is_refused_in_one_line_before_anything_is_built(case: Case) -> None:
    on = engine()
    on.machine = "aarch64"
    told = r"^the venv engine runs on aarch64, and cases are locked for x86_64; name an engine on such a machine: \S+$"
    with pytest.raises(MachineError, match=told):
        go(case, on)
    assert not on.recipes
    assert go(case, on, image="made:for-it").verdict is Verdict.CONFIRMED, "an image as it stands may fit"


def test_options_reach_the_trials(case: Case) -> None:
    on = engine()
    evidence = go(case, on, trials=1, timeout_s=5.0, keep=True, image="vendor:1")
    assert len(on.requests) == 2
    assert {request.limits.timeout_s for request in on.requests} == {5.0}
    assert all(request.keep for request in on.requests)
    assert on.recipes[0].use_image == "vendor:1"
    assert evidence.command.endswith("--engine venv --image vendor:1 --trials 1 --timeout 5")


def test_an_unknown_environment_is_a_usage_error_that_offers_the_nearest(case: Case) -> None:
    with pytest.raises(UsageError, match="interpreter"):
        go(case, engine(), environment="interpret")


def test_a_missing_lock_says_how_to_write_it(case: Case) -> None:
    (case.directory / "locks" / "interpreter.txt").unlink()
    with pytest.raises(ManifestError, match="nox -s lock -- tiny"):
        go(case, engine())


def test_an_environment_that_cannot_be_inspected_is_no_verdict(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    on = engine()
    monkeypatch.setattr(on, "run", lambda *_: TrialResult(stdout="", stderr="boom", duration_s=0, exit_status=9))
    with pytest.raises(EngineError, match="exit status 9: boom"):
        go(case, on)


class TestGpus:
    """Choosing by hardware. What a GPU has to satisfy is tested with `hardware.meets`."""

    @pytest.fixture
    def on(self, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
        monkeypatch.setattr(hardware, "gpus", lambda: [H200])
        on = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]}, GpuAccess(mode="direct"))
        on.attested = on.attested[:-1] + ', "gpus": [{"name": "NVIDIA H200", "compute_capability": "9.0"}]}'
        return on

    def test_the_gpu_reaches_the_trial(self, case: Case, on: FakeEngine) -> None:
        evidence = go(case, on)
        assert evidence.environment.name == "current"
        assert {tuple(request.gpus) for request in on.requests} == {(0,)}
        assert evidence.device == "NVIDIA H200"
        assert evidence.engine.gpu_access == GpuAccess(mode="direct")

    def test_an_environment_is_built_before_its_gpu_is_held(
        self, case: Case, on: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        built_before: list[int] = []

        @contextmanager
        def lock(*_: object, **__: object) -> Iterator[None]:
            built_before.append(len(on.recipes))
            yield

        monkeypatch.setattr(ledger, "hold", lock)
        go(case, on)
        assert set(built_before) == {1}

    def test_what_only_asks_about_a_shared_gpu_waits_for_no_room_on_it(
        self, case: Case, on: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held: list[str] = []

        def noted(name: str) -> None:
            @contextmanager
            def lock(*_: object, **__: object) -> Iterator[None]:
                held.append(name)
                yield

            monkeypatch.setattr(ledger, name, lock)

        noted("hold")
        noted("look")
        trials = go(case, on).trials
        assert held == ["look", *["hold"] * len(trials)]

    @pytest.mark.parametrize(("failure", "waits"), [("wrong-numbers", 1), ("race", 0)])
    def test_who_holds_gpus_waits_for_nobody_who_reads_files(
        self, checkout: Checkout, on: FakeEngine, monkeypatch: pytest.MonkeyPatch, failure: str, waits: int
    ) -> None:
        """That one may wait for one of these GPUs."""
        write_locks(checkout.write(MANIFEST.replace("failure: wrong-numbers", f"failure: {failure}")).parent)
        waited = Mock(wraps=sole)
        monkeypatch.setattr("gpu_casebook.run.attesting.sole", waited)
        go(find(checkout.root, "tiny", IMAGES), on)
        assert waited.call_count == waits

    def test_without_a_gpu_the_next_environment_is_taken(self, case: Case) -> None:
        assert go(case, engine()).environment.name == "interpreter"

    def test_a_named_environment_without_its_hardware_is_skipped_with_the_reason(self, case: Case) -> None:
        result = run_case(case, Options(environment="current"), engine(), Console(io.StringIO()))
        assert isinstance(result, Skipped)
        assert "GPU" in result.reasons[0]

    def test_an_environment_to_be_built_from_source_needs_an_engine_with_images(
        self, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkout.write(MANIFEST.replace("image: cpu\n", "image: cpu\n    build: [numpy]\n"))
        case = find(checkout.root, "tiny", IMAGES)
        write_locks(case.directory)
        result = run_case(case, Options(environment="interpreter"), engine(), Console(io.StringIO()))
        assert isinstance(result, Skipped)
        assert result.reasons == [
            "interpreter: numpy must be built from source, which the venv engine does not; use docker"
        ]
        monkeypatch.setattr(FakeEngine, "has_images", True)
        facts = go(case, engine()).environment
        assert (facts.name, facts.build, facts.without_dependencies) == ("interpreter", ["numpy"], [])

    def test_a_gpu_that_is_not_there_is_the_machines_error(self, case: Case, on: FakeEngine) -> None:
        with pytest.raises(MachineError, match=r"--gpu 3: no such GPU .*there are: 0"):
            go(case, on, gpus=[3])

    @pytest.mark.usefixtures("on")
    def test_an_engine_without_a_way_to_the_gpu_skips(self, case: Case) -> None:
        result = run_case(case, Options(environment="current"), engine(), Console(io.StringIO()))
        assert isinstance(result, Skipped)
        assert "no way to a GPU" in result.reasons[0]

    def test_what_the_environment_itself_sees_decides_in_the_end(self, case: Case, on: FakeEngine) -> None:
        on.attested = FakeEngine({}).attested
        result = run_case(case, Options(environment="current"), on, Console(io.StringIO()))
        assert isinstance(result, Skipped)


def test_a_lock_that_is_not_the_manifests_is_refused_before_anything_is_prepared(case: Case) -> None:
    lock = case.directory / "locks" / "interpreter.txt"
    whole = lock.read_text()
    for wrong in ["", whole[: whole.index("numpy==1.26.4 \\")], f"{whole}--index-url https://example.org/simple\n"]:
        lock.write_text(wrong)
        on = engine()
        with pytest.raises(ManifestError, match=r"^cases/tiny/locks/interpreter.txt:\d+: "):
            go(case, on)
        assert on.recipes == []


def test_an_environment_without_a_required_package_is_unfit(case: Case) -> None:
    on = engine([OTHER])
    on.attested = on.attested.replace("numpy", "pandas")
    with pytest.raises(
        UnfitError, match=r"^tiny: the image vendor/x:1 is unfit .* no numpy \(the manifest requires"
    ) as told:
        go(case, on, image="vendor/x:1")
    assert told.value.exit_status == 6
    assert on.requests == []


def test_a_vendors_build_of_a_package_is_that_package(case: Case) -> None:
    on = engine()
    on.attested = on.attested.replace("numpy", "pytorch-numpy")
    assert go(case, on).verdict is Verdict.CONFIRMED
