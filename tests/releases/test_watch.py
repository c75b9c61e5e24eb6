"""The verb, from words to files, with packages that come from nowhere."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from casebook_workbench.releases import environments as places
from casebook_workbench.releases import versions
from casebook_workbench.releases import watch as watching
from casebook_workbench.releases.versions import Releases, parse
from casebook_workbench.releases.watch import attempts, upstream_package
from failure_signature.result import TrialResult
from gpu_casebook import cli
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.engines.base import Prepared
from gpu_casebook.errors import BuildError
from gpu_casebook.pins import ORDINARY, Special
from gpu_casebook.report.watched import State, Watched, known
from gpu_casebook.run.plan import Skipped
from gpu_casebook.trial import Note, Recipe, TrialRequest
from tests.conftest import IMAGES, Checkout, write_locks
from tests.fakes import FIXED, LOCK, REPRO, FakeEngine

PASSED = TrialResult(stdout="rel_err=0\n", stderr="", duration_s=0.1, exit_status=0)
TRACE = 'Traceback (most recent call last):\n  File "/case/repro.py", line 1, in <module>\n    f()\nImportError: gone\n'
BROKEN = TrialResult(stdout="", stderr=TRACE, duration_s=1, exit_status=1)
WATCH = ("watch", "tiny", "--environment", "interpreter")
OLD = ["1.26.4", "1.27.0"]


class World(FakeEngine):
    """What is released, what each version makes of repro and fixed, and which can't be installed."""

    def __init__(self) -> None:
        super().__init__({})
        self.released = list(OLD)
        self.repro: Callable[[str], TrialResult] = lambda _version: REPRO
        self.fixed: Callable[[str], TrialResult] = lambda _version: FIXED
        self.broken: dict[str, str] = {}
        self.ran: list[str] = []
        self.previous: list[str] = []
        self.special = ORDINARY

    def index(self, package: str) -> Releases:
        files = [{"filename": f"{package}-{version}-py3-none-any.whl"} for version in self.released]
        return parse(package, versions.JSON, json.dumps({"files": files}).encode())

    def lock(
        self, requirements: Sequence[str], _python: str, previous: str = "", *, special: Special, **_more: object
    ) -> str:
        self.previous.append(previous)
        self.special = special
        pinned = (each if "==" in each else f"{each}=={self.released[-1]}" for each in requirements)
        return "".join(f"{each} \\\n    --hash=sha256:{'0' * 64}\n" for each in pinned)

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        version = recipe.lock.partition("numpy==")[2].partition(" ")[0]
        if version in self.broken:
            raise BuildError(self.broken[version])
        return Prepared(key=version, python="/env/bin/python")

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        self.ran.append(f"{request.arguments[0]} {prepared.key}")
        return (self.repro if request.arguments[0] == "repro.py" else self.fixed)(prepared.key)


@pytest.fixture
def world(checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> World:
    found = World()
    directory = checkout.write().parent
    write_locks(directory)
    steps = tmp_path_factory.mktemp("steps")
    monkeypatch.chdir(checkout.root)
    monkeypatch.setattr(hardware, "gpus", list)
    monkeypatch.setattr(choosing, "choose", lambda *_: found)
    monkeypatch.setattr(places, "_locks", lambda: steps)
    monkeypatch.setattr(places, "scratch_lock", found.lock)
    monkeypatch.setattr(watching, "released", found.index)
    monkeypatch.setattr("casebook_workbench.releases.bisect.released", found.index)
    return found


def casebook(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(words), catch_exceptions=False)
    return result.exit_code, result.output


def record() -> Watched:
    return known(Path("reports"), "tiny")


def state() -> State:
    seen = record().latest("interpreter")
    assert seen
    return seen.state


def fixed_in(first: str) -> Callable[[str], TrialResult]:
    return lambda version: PASSED if version >= first else REPRO


class TestStates:
    def test_still_reproduces(self, world: World) -> None:
        status, said = casebook(*WATCH)
        assert (status, state()) == (0, State.STILL)
        assert "tiny, environment interpreter: still-reproduces with numpy 1.27.0" in said
        assert set(world.ran) == {"repro.py 1.27.0", "fixed.py 1.27.0"}

    def test_fixed_since_wants_enough_quiet_trials_and_the_fixs_own_proof(self, world: World) -> None:
        world.repro = fixed_in("1.27.0")
        casebook(*WATCH)
        assert state() is State.FIXED
        assert world.ran.count("repro.py 1.27.0") == 8  # at 3 of 3, the least that is declared: 0.01 = 0.56 ^ 8
        assert world.ran.count("fixed.py 1.27.0") == 3

    def test_a_repro_that_keeps_quiet_where_fixed_fails_is_not_fixed(self, world: World) -> None:
        world.repro, world.fixed = fixed_in("1.27.0"), lambda _version: BROKEN
        said = casebook(*WATCH)[1]
        assert state() is State.OTHERWISE
        assert "repro keeps quiet, but fixed gives no proof: ImportError: gone" in said

    def test_fails_otherwise(self, world: World) -> None:
        world.repro = lambda _version: BROKEN
        said = casebook(*WATCH)[1]
        assert state() is State.OTHERWISE
        assert "ImportError: gone" in said

    def test_cannot_install(self, world: World) -> None:
        world.broken["1.27.0"] = "no wheel fits"
        said = casebook(*WATCH)[1]
        assert state() is State.CANNOT
        assert "numpy newest: no wheel fits" in said

    def test_what_can_not_run_here_is_unknown_and_leaves_nothing(self, world: World) -> None:
        status, said = casebook("watch", "tiny", "--environment", "current")
        assert status == 0
        assert "tiny, environment current: not run here, so unknown: 1 GPU is needed, and there is none" in said
        assert not Path("reports/watch").exists()

    def test_the_index_that_is_away_is_no_state(self, world: World) -> None:
        world.broken["1.27.0"] = "error sending request for url (x): connection refused"
        status, said = casebook(*WATCH)
        assert (status, "connection refused" in said) == (5, True)
        assert not Path("reports/watch").exists()


def test_a_lock_holds_nothing_back_that_is_to_be_newest(world: World) -> None:
    casebook(*WATCH)
    assert set(world.previous) == {""}
    world.previous.clear()
    casebook("bisect", "tiny", "--package", "numpy", "--bad", "1.26.4", "--fixed-in", "1.27.0")
    assert set(world.previous) == {LOCK}


def test_what_is_installed_without_dependencies_stays_so(world: World, checkout: Checkout) -> None:
    manifest = checkout.root / "cases" / "tiny" / "case.yaml"
    manifest.write_text(manifest.read_text().replace("image: cpu\n", "image: cpu\n    without_dependencies: [numpy]\n"))
    casebook(*WATCH)
    assert world.special == Special(without_dependencies=("numpy",))


class TestChange:
    def test_it_has_a_status_of_its_own_and_is_listed_in_the_index(self, world: World) -> None:
        assert casebook(*WATCH)[0] == 0
        world.released.append("1.28.0")
        world.repro = fixed_in("1.28.0")
        status, said = casebook(*WATCH)
        assert (status, state()) == (30, State.FIXED)
        assert "fixed-since (was still-reproduces) with numpy 1.28.0" in said
        assert "1 change; index: reports/README.md" in said
        page = Path("reports/README.md").read_text()
        assert "| tiny | `interpreter` | still-reproduces | **fixed-since** | numpy 1.28.0 |" in page

    def test_it_is_told_once(self, world: World) -> None:
        self.test_it_has_a_status_of_its_own_and_is_listed_in_the_index(world)
        assert casebook(*WATCH)[0] == 0

    def test_a_night_without_a_gpu_changes_nothing(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        casebook(*WATCH)
        before = record()
        monkeypatch.setattr(watching, "make_plan", lambda *_: Skipped("tiny", ["interpreter: no GPU"]))
        assert casebook(*WATCH)[0] == 0
        assert record() == before

    def test_nothing_new_is_not_run_again_unless_that_is_asked(self, world: World) -> None:
        casebook(*WATCH)
        world.ran.clear()
        casebook(*WATCH)
        assert world.ran == []
        assert len(record().history["interpreter"]) == 1
        casebook(*WATCH, "--again")
        assert world.ran

    def test_a_changed_case_is_run_again(self, world: World, checkout: Checkout) -> None:
        casebook(*WATCH)
        world.ran.clear()
        (checkout.root / "cases" / "tiny" / "repro.py").write_text("print('rel_err=0.7')\n")
        casebook(*WATCH)
        assert world.ran

    def test_what_could_not_be_installed_is_tried_again(self, world: World) -> None:
        world.broken["1.27.0"] = "no wheel fits"
        casebook(*WATCH)
        world.broken.clear()
        assert casebook(*WATCH)[0] == 30
        assert state() is State.STILL


class TestFirstFixed:
    def test_it_is_searched_where_that_is_asked(self, world: World) -> None:
        casebook(*WATCH)
        world.released += ["1.28.0", "1.29.0", "1.30.0"]
        world.repro = fixed_in("1.29.0")
        status, said = casebook(*WATCH, "--bisect")
        assert status == 30
        assert "fixed-since (was still-reproduces) with numpy 1.30.0; first fixed release: 1.29.0" in said
        assert "| tiny | `interpreter` | numpy 1.30.0 | 1.29.0 |" in Path("reports/README.md").read_text()

    def test_one_that_a_bisection_found_is_taken_over_and_stays(self, world: World) -> None:
        world.released += ["1.28.0", "1.29.0"]
        world.repro = fixed_in("1.28.0")
        casebook("bisect", "tiny", "--package", "numpy", "--bad", "1.26.4", "--fixed-in", "1.29.0", "--publish")
        assert "first fixed release: 1.28.0" in casebook(*WATCH)[1]
        world.released.append("1.31.0")
        assert "with numpy 1.31.0; first fixed release: 1.28.0" in casebook(*WATCH)[1]


class TestTargets:
    @pytest.mark.parametrize(
        ("project", "requirements", "own", "target"),
        [
            ("triton-lang/triton", "[torch==2.1, triton==2.2]", "", "triton"),
            ("pytorch/pytorch", "[triton==2.2, torch==2.1]", "", "torch"),
            ("fla-org/flash-linear-attention", "[triton==2.2, fla-core==0.5.0]", "", "fla-core"),
            ("fla-org/flash-linear-attention", "[triton==2.2]", "", None),
            ("huggingface/peft", "[torch==2.1]", "requirements: [peft==0.19.1]", "peft"),
            ("who/knows", "[torch==2.1]", "requirements: [peft==0.19.1]", "peft"),
        ],
    )
    def test_the_package_that_upstream_is_about_goes_first(
        self, checkout: Checkout, project: str, requirements: str, own: str, target: str | None
    ) -> None:
        from gpu_casebook.manifest.case import find
        from tests.conftest import MANIFEST

        text = MANIFEST.replace("owner/name\n", f"{project}\n", 1).replace("[numpy==1.26.4]", requirements)
        if own:
            text = text.replace("provenance: distilled", "provenance: release")
            text = text.replace("repro:\n  expect", f"repro:\n  {own}\n  expect")
            text = text.replace("fixed:\n  expect", f"fixed:\n  {own.replace('0.19.1', '0.21.2')}\n  expect")
        checkout.write(text)
        case = find(checkout.root, "tiny", IMAGES)
        assert upstream_package(case, "interpreter") == target
        what = attempts(case, "interpreter", lambda _package: "9.9")
        if target:
            assert what[0] == {target: "9.9"}
        assert set(what[-1].values()) == {None}

    def test_where_the_newest_of_it_does_not_go_with_the_rest_all_go(
        self, world: World, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manifest = checkout.root / "cases" / "tiny" / "case.yaml"
        text = manifest.read_text().replace("owner/name\n", "numpy/numpy\n", 1)
        manifest.write_text(text.replace("[numpy==1.26.4]", "[numpy==1.26.4, six==1.16.0]"))
        lock = world.lock

        def resolved(requirements: Sequence[str], python: str, previous: str = "", **more: Any) -> str:
            if "six==1.16.0" in requirements:
                raise BuildError("numpy 1.27.0 needs another six")
            return lock(requirements, python, **more)

        monkeypatch.setattr(places, "scratch_lock", resolved)
        said = casebook(*WATCH)[1]
        assert "still-reproduces with numpy 1.27.0, six 1.27.0" in said
