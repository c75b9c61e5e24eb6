import ast
import hashlib
import inspect
import io
import json
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from casebook_workbench.corpus import reuse as module
from casebook_workbench.corpus.model import End, Finished, Job, Settings
from casebook_workbench.corpus.reuse import NONE_YET, Here, reuse, why_not
from failure_signature.kinds import Grade
from failure_signature.result import TrialResult
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.engines.output import cut_middle
from gpu_casebook.errors import ManifestError
from gpu_casebook.evidence import Evidence, Gpu, ImageFacts, evidence_path, load
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.revision import SEMANTICS
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.run.plan import Skipped
from gpu_casebook.trial import GpuAccess, Recipe, Watch
from tests.conftest import Checkout, write_locks
from tests.fakes import ATTESTED, FIXED, LOCK, REPRO, FakeEngine

DAY = 86400.0
ROOT = Path(__file__).parents[2]
JUDGING = Path(__file__).with_name("judging.json")
HERE: Any = {"machine": "x86_64"}
"""Of `Here`."""
JOB = Job(case="tiny", environment="interpreter", failure="x", project="o/n", grade=Grade.SIMULATED)


def host(name: str, capability: str, driver: str) -> HostGpu:
    return HostGpu(index=0, name=name, compute_capability=capability, driver=driver)


H200 = Gpu(name="NVIDIA H200", compute_capability="9.0", driver="580.65.06")


class Place:
    """A checkout in which the case `tiny` was run once, without a GPU, on the venv engine."""

    def __init__(self, checkout: Checkout) -> None:
        self.root = checkout.root
        self.directory = checkout.write().parent
        write_locks(self.directory)
        self.settings = Settings(root=str(self.root), reports=str(self.root / "reports"), engine="venv")
        self.path = self.run()

    def run(self, **options: Any) -> Path:
        engine = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
        result = run_case(self.case, Options(environment="interpreter", **options), engine, Console(io.StringIO()))
        assert not isinstance(result, Skipped)
        path = evidence_path(self.root / "reports", result)
        result.write(path)
        return path

    def change(self, **changed: Any) -> None:
        load(self.path).model_copy(update=changed).write(self.path)

    def asked(
        self, max_age_s: float = DAY, *, here: Any = HERE, after: timedelta = timedelta(), **settings: Any
    ) -> Job | Finished:
        """What is to be done `after` the evidence and a second."""
        now = load(self.path).started + timedelta(seconds=1) + after
        return reuse(
            self.case,
            JOB,
            Settings.model_validate(self.settings.model_dump() | settings),
            Here(now=now, max_age_s=max_age_s, **here),
        )

    @property
    def case(self) -> Case:
        return find(self.root, "tiny", ["cpu", "cuda12", "cuda13"])

    def because(self, *args: Any, **more: Any) -> str:
        found = self.asked(*args, **more)
        assert isinstance(found, Job)
        return found.because


@pytest.fixture
def place(checkout: Checkout) -> Place:
    return Place(checkout)


def test_evidence_that_would_be_the_same_again_is_reused(place: Place) -> None:
    found = place.asked()
    assert isinstance(found, Finished)
    assert (found.end, found.verdict, found.device, found.duration_s) == (End.REUSED, Verdict.CONFIRMED, "CPU", 0.0)
    assert found.evidence == "evidence/tiny/interpreter.venv.cpu.json"
    assert found.rates == load(place.path).rates
    assert found.reason.startswith("of 20")
    assert found.job.name == "tiny/interpreter"


def test_without_evidence_it_is_run(place: Place) -> None:
    started = load(place.path).started
    place.path.unlink()
    found = reuse(place.case, JOB, place.settings, Here(now=started, max_age_s=DAY, **HERE))
    assert isinstance(found, Job)
    assert found.because == NONE_YET


def test_evidence_that_can_not_be_read_is_none(place: Place) -> None:
    other = place.path.with_name("interpreter.docker.cpu.json")
    other.write_text("{")
    assert isinstance(place.asked(), Finished)


@pytest.mark.parametrize(
    ("file", "old", "new", "because"),
    [
        ("repro.py", "0.5", "0.25", "the case changed"),
        ("fixed.py", "e-6", "e-7", "the case changed"),
        ("case.yaml", "timeout: 2m", "timeout: 3m", "the case changed"),
        ("locks/interpreter.txt", "sha256:2a", "sha256:2b", "the lock changed"),
    ],
)
def test_a_change_of_the_case_or_its_lock_runs_it_again(
    place: Place, file: str, old: str, new: str, because: str
) -> None:
    path = place.directory / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert place.because() == because


@pytest.mark.parametrize("file", ["README.md", "locks/current.txt"])
def test_what_it_does_not_rest_on_may_change(place: Place, file: str) -> None:
    (place.directory / file).write_text("other\n")
    assert isinstance(place.asked(), Finished)


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.CONFIRMED])
def test_only_a_confirmed_verdict_is_reused(place: Place, verdict: Verdict) -> None:
    place.change(verdict=verdict)
    assert place.because() == f"it was {verdict}"


@pytest.mark.parametrize("semantics", [0, SEMANTICS + 1])
def test_a_runner_that_meant_something_else_is_not_believed(place: Place, semantics: int) -> None:
    place.change(semantics=semantics)
    assert place.because() == "verdicts mean something else since"


def test_evidence_from_before_there_were_versions_of_meaning_loads_and_is_not_reused(place: Place) -> None:
    data = json.loads(place.path.read_text())
    del data["semantics"]
    place.path.write_text(json.dumps(data))
    assert load(place.path).semantics == 0
    assert place.because() == "verdicts mean something else since"


@pytest.mark.parametrize(
    ("settings", "because"),
    [
        ({"engine": "docker"}, "it ran on the venv engine"),
        ({"trials": 5}, "it ran with other options"),
        ({"timeout_s": 5.0}, "it ran with other options"),
        ({"probes": False}, "it ran with other options"),
    ],
)
def test_other_settings_run_it_again(place: Place, settings: Mapping[str, object], because: str) -> None:
    assert place.because(**settings) == because


def test_the_same_settings_do_not(place: Place) -> None:
    place.run(trials=5)
    assert isinstance(place.asked(trials=5), Finished)
    assert place.because() == "it ran with other options"


def test_any_engine_will_do_where_each_machine_has_its_own(place: Place) -> None:
    assert isinstance(place.asked(engine=None), Finished)


def test_age(place: Place) -> None:
    assert isinstance(place.asked(DAY, after=timedelta(hours=23)), Finished)
    assert place.because(DAY, after=timedelta(hours=24)) == "it is older than 1 d 0 h"
    assert place.because(7 * DAY, after=timedelta(days=8)) == "it is older than 7 d 0 h"
    assert place.because(1.5 * 3600, after=timedelta(days=8)) == "it is older than 1 h 30 min"


def test_no_age_at_all_runs_everything(place: Place) -> None:
    assert place.because(0) == "all are to be run again"


def test_a_date_in_the_future_says_nothing_about_age(place: Place) -> None:
    """The clock was wrong then, or is now."""
    assert place.because(7 * DAY, after=timedelta(days=-30)) == "its date lies in the future"


def test_another_processor_runs_it_again(place: Place) -> None:
    assert "x86_64" in ATTESTED
    assert place.because(here={"machine": "aarch64"}) == "it ran on another kind of processor"


def wanted(place: Place, gpus: int = 0) -> module.Wanted:
    found = module._wanted(place.case, "interpreter", place.settings)
    return module.Wanted(**{**vars(found), "gpus": gpus})


def on_gpus(evidence: Evidence, gpus: list[Gpu]) -> Evidence:
    attested = evidence.environment.attestation
    assert attested
    attested = attested.model_copy(update={"gpus": gpus})
    return evidence.model_copy(
        update={"environment": evidence.environment.model_copy(update={"attestation": attested})}
    )


@pytest.mark.parametrize(
    ("device", "same"),
    [
        (host("NVIDIA H200", "9.0", "580.65.06"), True),
        (host("NVIDIA H200", "9.0", ""), True),  # of an engine elsewhere the driver is unknown
        (host("NVIDIA H200", "9.0", "590.1"), False),
        (host("NVIDIA H100", "9.0", "580.65.06"), False),
        (host("NVIDIA H200", "10.0", "580.65.06"), False),
        (None, False),
    ],
)
def test_the_hardware_must_be_the_same(place: Place, device: HostGpu | None, same: bool) -> None:  # noqa: FBT001
    evidence = on_gpus(load(place.path), [H200])
    here = Here(now=evidence.started, max_age_s=DAY, machine="x86_64", devices=[device] if device else [])
    reason = why_not(evidence, wanted(place, gpus=1), here)
    assert reason == (None if same else "it ran on another GPU or driver")
    assert why_not(evidence, wanted(place), here) is None  # it needs none


def test_as_many_gpus_as_it_needs_now(place: Place) -> None:
    evidence = on_gpus(load(place.path), [H200])
    here = Here(now=evidence.started, max_age_s=DAY, machine="x86_64", devices=[host("NVIDIA H200", "9.0", "")])
    assert why_not(evidence, wanted(place, gpus=2), here) == "it ran on another GPU or driver"


def test_what_nobody_looked_at_is_not_reused(place: Place) -> None:
    environment = load(place.path).environment.model_copy(update={"attestation": None})
    place.change(environment=environment)
    assert place.because() == "nothing looked at what it ran on"


@pytest.mark.parametrize("now", ["casebook/cpu:abc", "sha256:1", "casebook/cpu:def", None])
def test_the_image_must_be_the_one_of_today(place: Place, now: str | None) -> None:
    """By its name, which holds the key of all that it is made from, or by its id where it was named."""
    image = ImageFacts(name="casebook/cpu:abc", id="sha256:1", size_bytes=1, base="debian@sha256:2")
    engine = load(place.path).engine.model_copy(
        update={"image": image, "gpu_access": GpuAccess(mode="toolkit", detail="")}
    )
    place.change(engine=engine)
    asked: list[tuple[Recipe, str]] = []

    def image_of(recipe: Recipe, base: str) -> str | None:
        asked.append((recipe, base))
        return now

    found = place.asked(here=HERE | {"image": image_of})
    if now in {"casebook/cpu:abc", "sha256:1"}:
        assert isinstance(found, Finished)
    else:
        assert isinstance(found, Job)
        assert found.because == "the image changed"
    assert [(recipe.image, recipe.lock, base) for recipe, base in asked] == [("cpu", LOCK, "debian@sha256:2")]


def test_of_several_the_newest_says_why_not(place: Place) -> None:
    newer = load(place.path).model_copy(update={"verdict": Verdict.FIX_FAILS})
    newer = newer.model_copy(update={"started": newer.started + timedelta(minutes=1)})
    newer.write(place.path.with_name("interpreter.venv.other.json"))
    place.change(verdict=Verdict.INCONCLUSIVE)
    assert place.because() == "it was fix-fails"


def test_a_lock_that_is_missing_is_told(place: Place) -> None:
    (place.directory / "locks" / "interpreter.txt").unlink()
    with pytest.raises(ManifestError, match="there is no lock for environment interpreter"):
        place.asked()


def judging_files() -> dict[str, str]:
    """sha256 of what decides what a trial's outcome and a case's verdict are."""
    package = ROOT / "runner" / "failure_signature"
    paths = sorted(path for path in package.rglob("*.py") if path.name != "text.py")
    texts = {path.relative_to(package).as_posix(): path.read_text() for path in paths}
    texts |= {each.__qualname__: inspect.getsource(each) for each in (TrialResult, Watch, cut_middle)}
    return {name: hashlib.sha256(meaning(text).encode()).hexdigest() for name, text in texts.items()}


def meaning(source: str) -> str:
    """The code without comments and docstrings, which change no verdict."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            kept = [each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def test_comments_and_docstrings_have_no_meaning() -> None:
    assert meaning('def f():\n    """One."""\n    return 1  # why\n') == meaning("def f():\n    return 1\n")
    assert meaning("def f():\n    return 1\n") != meaning("def f():\n    return 2\n")


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="noted by Python 3.11: another one writes f-strings otherwise"
)
def test_who_changes_what_judges_trials_looks_at_what_verdicts_mean() -> None:
    """Could a trial of old get another outcome now, or a case another verdict? Then raise revision.SEMANTICS.

    Either way say that you looked: python -m tests.corpus.test_reuse
    """
    noted = json.loads(JUDGING.read_text())
    changed = [path for path, digest in judging_files().items() if noted["files"].get(path) != digest]
    assert not changed, test_who_changes_what_judges_trials_looks_at_what_verdicts_mean.__doc__
    assert noted == {"semantics": SEMANTICS, "files": judging_files()}


if __name__ == "__main__":
    JUDGING.write_text(json.dumps({"semantics": SEMANTICS, "files": judging_files()}, indent=1) + "\n")
    print(f"wrote {JUDGING.relative_to(ROOT)}")
