"""What `exact` means: whatever a trial finds and is not locked makes the run drifted, with a line that names it."""

import base64
import csv
import hashlib
import io
import json
import os
import platform
import shutil
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from failure_signature.result import TrialResult
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.daemon.client import connect
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.docker.engine import DockerEngine
from gpu_casebook.engines.venv import engine as module
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.evidence import EnvironmentFacts, Evidence
from gpu_casebook.manifest.case import find
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.trial import Recipe, TrialRequest
from tests.conftest import IMAGES, Checkout
from tests.fakes import locked

ROOT = Path(__file__).parents[2]
MANIFEST = """\
id: plain
title: A program that fails
failure: exception
upstream: {{project: owner/name, status: open}}
provenance: distilled
environments:
  one: {{image: cpu, requirements: [{requirements}], python: "{python}", variables: {variables}}}
repro:
  expect: {{exception: ValueError, message: it failed}}
fixed:
  expect: {{message: all good}}
"""
REPRO = "raise ValueError('it failed')\n"
FIXED = "print('all good')\n"
MINOR = "{}.{}".format(*sys.version_info)


def wheel(directory: Path) -> str:
    """Write the wheel of a package `demo` with two modules, one of them without a package; return its lock."""
    files = {
        "demo/__init__.py": b"VALUE = 1\n",
        "demo/more.py": b"",
        "spaced/inner.py": b"",  # no __init__.py: it is where any place of the path has such a directory
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(data)])
    rows.writerow(["demo-1.0.dist-info/RECORD", "", ""])
    path = directory / "demo-1.0-py3-none-any.whl"
    directory.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, "demo-1.0.dist-info/RECORD": record.getvalue().encode()}.items():
            archive.writestr(name, data)
    return f"demo==1.0 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Bench:
    """A case that needs the package `demo`, and an engine to run it on."""

    def __init__(self, checkout: Checkout, engine: Engine, lock: str) -> None:
        self.checkout, self.engine, self.lock = checkout, engine, lock
        self.header = ""
        self.variables: dict[str, str] = {}
        self.scripts = {"repro.py": REPRO, "fixed.py": FIXED}
        self.site = Path()

    def run(self, **options: object) -> EnvironmentFacts:
        return self.evidence(**options).environment

    def evidence(self, **options: object) -> Evidence:
        requirements = "demo==1.0" if self.lock else ""
        text = MANIFEST.format(requirements=requirements, python=MINOR, variables=json.dumps(self.variables))
        directory = self.checkout.write(text, name="plain").parent
        for name, script in self.scripts.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(script)
        (directory / "locks").mkdir(exist_ok=True)
        header = locked([]).replace("# requirements:", f"# requirements: {requirements}".rstrip())
        header = header.replace("# python: 3.11\n", self.header or f"# python: {MINOR}\n")
        (directory / "locks" / "one.txt").write_text(f"{header}{self.lock}")
        case = find(self.checkout.root, "plain", IMAGES)
        found = run_case(case, Options(probes=False, **options), self.engine, Console(io.StringIO()))  # type: ignore[arg-type]
        assert isinstance(found, Evidence)
        assert found.environment.attestation
        return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VenvEngine, str, Path]]:
    """An engine that has the environment, the lock, and where its packages lie."""
    top = tmp_path_factory.mktemp("built")
    lock = wheel(top / "wheels")
    (top / "scratch").mkdir()
    with pytest.MonkeyPatch.context() as patched, VenvEngine(top / "cache", top / "scratch") as engine:
        patched.setenv("UV_NO_INDEX", "1")
        patched.setenv("UV_FIND_LINKS", str(top / "wheels"))
        patched.setenv("UV_CACHE_DIR", str(top / "uv"))
        engine.prepare(Recipe(image="cpu", lock=lock, python=MINOR), print)
        (site,) = (top / "cache" / "envs").glob("*/lib/python*/site-packages")
        yield engine, lock, site


@pytest.fixture
def sealed(checkout: Checkout, built: tuple[VenvEngine, str, Path], tmp_path: Path) -> Iterator[Bench]:
    engine, lock, site = built
    made = Bench(checkout, engine, lock)
    made.site = site
    shutil.copytree(site.parent, tmp_path / "kept", symlinks=True)
    yield made
    shutil.rmtree(site.parent)
    shutil.copytree(tmp_path / "kept", site.parent, symlinks=True)


@pytest.fixture
def bench(sealed: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    # The engine would make it anew: what the attestation finds must not rest on that.
    monkeypatch.setattr(module, "_intact", lambda directory, _note: Seal.of(directory))
    monkeypatch.setattr(Seal, "changed", lambda _seal: [])
    return sealed


def test_all_as_locked_is_exact(bench: Bench) -> None:
    found = bench.run()
    assert (found.drift, found.exact) == ([], True)
    assert found.attestation
    assert found.attestation.content
    assert found.attestation.content.files
    assert found.attestation.python == platform.python_version()
    assert found.attestation.glibc == platform.libc_ver()[1]
    assert found.fixed_attestation is None


def extra_package(bench: Bench) -> None:
    (bench.site / "other-2.dist-info").mkdir()
    (bench.site / "other-2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2\n")


def edited(bench: Bench) -> None:
    path = bench.site / "demo" / "__init__.py"
    seen = path.stat()
    path.unlink()  # a hard link goes elsewhere
    path.write_text("VALUE = 2\n")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def missing(bench: Bench) -> None:
    (bench.site / "demo" / "more.py").unlink()


def byte_code(bench: Bench) -> None:
    (path,) = (bench.site / "demo" / "__pycache__").glob("__init__.*.pyc")
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\1\0\0\0" + data[8:])


def byte_code_alone(bench: Bench) -> None:
    (path,) = (bench.site / "demo" / "__pycache__").glob("__init__.*.pyc")
    path.rename(bench.site / "demo" / "other.pyc")


def sitecustomize(bench: Bench) -> None:
    (bench.site / "sitecustomize.py").write_text("")


def other_first(bench: Bench) -> None:
    place = bench.site.parent / "elsewhere"
    shutil.copytree(bench.site / "demo", place / "demo")
    shutil.copytree(bench.site / "demo-1.0.dist-info", place / "demo-1.0.dist-info")
    (bench.site / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(place)!r})\n")


def editable(bench: Bench) -> None:
    """As `pip install -e` and `uv pip install -e` leave it."""
    place = bench.site.parent / "checkout"
    shutil.move(bench.site / "demo", place / "demo")
    record = bench.site / "demo-1.0.dist-info" / "RECORD"
    record.write_text(
        "demo.pth,,\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/WHEEL,,\ndemo-1.0.dist-info/INSTALLER,,\n"
        "demo-1.0.dist-info/REQUESTED,,\ndemo-1.0.dist-info/direct_url.json,,\ndemo-1.0.dist-info/RECORD,,\n"
    )
    url = {"url": f"file://{place}", "dir_info": {"editable": True}}
    (bench.site / "demo-1.0.dist-info" / "direct_url.json").write_text(json.dumps(url))
    (bench.site / "demo.pth").write_text(f"{place}\n")


def vendored(bench: Bench) -> None:
    bench.variables = {"PYTHONPATH": "vendor"}
    bench.scripts["vendor/demo/__init__.py"] = ""


def preloaded(bench: Bench) -> None:
    bench.variables = {"LD_PRELOAD": "libm.so.6"}


def library_path(bench: Bench) -> None:
    bench.variables = {"LD_LIBRARY_PATH": "/opt/lib"}


def beside(bench: Bench) -> None:
    bench.scripts["demo/__init__.py"] = ""


def patch(bench: Bench) -> None:
    bench.header = f"# python: {MINOR}.99\n"


def left(bench: Bench) -> None:
    bench.scripts["repro.py"] = (
        "import os, sys, time\nother = '/usr/bin/python3'\n"
        f"if sys.argv[1:] != ['2']: os.execv(other, [other, 'repro.py', '2'])\ntime.sleep(0.5)\n{REPRO}"
    )


def library(bench: Bench) -> None:
    bench.scripts["fixed.py"] = (
        "import ctypes, ctypes.util, shutil, time\nwith open('/proc/self/maps') as maps:\n"
        "    libc = next(line.split()[-1] for line in maps if 'libc.so' in line or 'libc-' in line)\n"
        f"shutil.copy(libc, 'libcublas.so.12'); ctypes.CDLL('./libcublas.so.12'); time.sleep(0.5)\n{FIXED}"
    )


RELEVANT: list[tuple[Callable[[Bench], None], list[str]]] = [
    (edited, ["demo: demo/__init__.py is not the file that was installed"]),
    (missing, ["demo: demo/more.py is missing"]),
    (byte_code, ["is byte code that is not checked against its source"]),
    (byte_code_alone, ["demo: demo/other.pyc is byte code without a source"]),
    (sitecustomize, ["sitecustomize.py is of no package"]),
    (other_first, ["demo is imported from /env/lib/", "/elsewhere is on the path", "first.pth is of no package"]),
    (editable, ["demo: was not installed from an index, but from an address", "/checkout is on the path"]),
    (
        vendored,
        [
            "the variable PYTHONPATH is vendor",
            "/case/vendor is on the path",
            "demo is imported from /case/vendor/demo/__init__.py",
        ],
    ),
    (preloaded, ["the variable LD_PRELOAD is libm.so.6"]),
    (library_path, ["the variable LD_LIBRARY_PATH is /opt/lib"]),
    (beside, ["demo is imported from /case/demo/__init__.py"]),
    (left, ["repro: /usr/bin/python3 ran, which is not the environment's Python"]),
    (library, ["fixed: /case/libcublas.so.12 was loaded, which is not of the environment"]),
]


@pytest.mark.parametrize(("change", "told"), RELEVANT, ids=lambda given: getattr(given, "__name__", ""))
def test_what_the_failure_can_depend_on(bench: Bench, change: Callable[[Bench], None], told: list[str]) -> None:
    change(bench)
    found = bench.run()
    assert not found.exact
    assert all(any(each in line for line in found.relevant_drift) for each in told), found.drift


@pytest.mark.parametrize(
    ("change", "told"),
    [(extra_package, "not locked, and installed: other 2"), (patch, f"Python: {MINOR}.99 locked, {MINOR}.")],
)
def test_the_rest(bench: Bench, change: Callable[[Bench], None], told: str) -> None:
    change(bench)
    found = bench.run()
    assert not found.exact
    assert not found.relevant_drift
    assert any(told in line for line in found.other_drift), found.drift


def test_a_trial_that_writes_to_a_package_does_not_count(sealed: Bench) -> None:
    sealed.scripts["repro.py"] = f"import demo\nwith open(demo.__file__, 'a') as file: file.write('# more')\n{REPRO}"
    evidence = sealed.evidence()
    assert evidence.verdict is Verdict.INCONCLUSIVE
    assert any("its environment was changed while it ran (lib/" in reason for reason in evidence.reasons)
    assert evidence.environment.exact


def test_another_environment_from_the_same_wheels_changes_nothing(
    sealed: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are links to the same ones, and each link is noted in ctime."""
    tried, seen = VenvEngine._run, set[int]()

    def while_another_is_made(engine: VenvEngine, prepared: Prepared, request: TrialRequest) -> TrialResult:
        with engine.throwaway() as other:
            other.prepare(Recipe(image="cpu", lock=sealed.lock, python=MINOR), print)
            result = tried(engine, prepared, request)
        seen.add((sealed.site / "demo" / "__init__.py").stat().st_ctime_ns)
        return result

    # as it was installed: linked
    shutil.rmtree(sealed.site.parents[2])
    sealed.run()
    monkeypatch.setattr(VenvEngine, "_run", while_another_is_made)
    evidence = sealed.evidence()
    assert (evidence.verdict, evidence.environment.drift) == (Verdict.CONFIRMED, [])
    assert len(seen) > len(evidence.trials)


def test_files_are_read_once_for_all_runs_in_an_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is kept, also that it was not right."""
    run, asked = VenvEngine.run, list[str]()

    def noted(engine: VenvEngine, prepared: Prepared, request: TrialRequest) -> TrialResult:
        asked.extend(word for word in request.arguments if word in {"files", "versions"})
        return run(engine, prepared, request)

    monkeypatch.setattr(VenvEngine, "run", noted)
    edited(bench)
    first, second = bench.run(), bench.run()
    assert asked == ["files", "versions"]
    assert first.drift == second.drift != []


def test_of_runs_that_begin_at_once_one_reads_the_files(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The others wait for it, and look at the versions without waiting for each other."""
    run, asked, waits = VenvEngine.run, list[str](), threading.Event()

    def noted(engine: VenvEngine, prepared: Prepared, request: TrialRequest) -> TrialResult:
        what = [word for word in request.arguments if word in {"files", "versions"}]
        asked.extend(what)
        if what == ["files"] and not later:
            later.append(pool.submit(bench.run))
            assert waits.wait(20)
        elif what == ["versions"]:
            (kept,) = (tmp_path / "attested").glob("*.json")
            with FileLock(kept.with_suffix(".lock")).acquire(timeout=0):
                pass
        return run(engine, prepared, request)

    def say(_console: Console, text: str) -> None:
        if text == "waiting for another run, which checks the files of environment one":
            waits.set()

    monkeypatch.setattr("gpu_casebook.run.attesting.user_cache_path", lambda _: tmp_path)
    monkeypatch.setattr(VenvEngine, "run", noted)
    monkeypatch.setattr(Console, "say", say)
    edited(bench)
    later = list[Future[EnvironmentFacts]]()
    with ThreadPoolExecutor(1) as pool:
        first = bench.run()
        assert first.drift == later[0].result().drift != []
    assert asked == ["files", "versions"]


def test_the_case_can_have_modules_of_its_own(bench: Bench) -> None:
    bench.scripts["helper.py"] = "import json\n"
    bench.scripts["repro.py"] = f"import helper\n{REPRO}"
    assert bench.run().exact


@pytest.fixture
def image_bench(checkout: Checkout, python_image: str) -> Iterator[Bench]:
    shutil.copytree(ROOT / "images", checkout.root / "images", dirs_exist_ok=True)
    with DockerEngine(connect(), checkout.root) as engine:
        yield Bench(checkout, engine, "")


@pytest.mark.docker
class TestDocker:
    def test_an_image_from_the_recipe_is_exact(self, image_bench: Bench) -> None:
        evidence = image_bench.evidence()
        assert (evidence.environment.drift, evidence.environment.exact) == ([], True)
        assert evidence.engine.image
        assert evidence.engine.image.id.startswith("sha256:")

    def test_an_image_as_it_stands_is_not(self, image_bench: Bench, python_image: str) -> None:
        found = image_bench.run(image=python_image)
        assert found.other_drift == [f"image: {python_image} as it stands, its files were not compared"]

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (vendored, "/case/vendor is on the path"),
            (preloaded, "the variable LD_PRELOAD is libm.so.6"),
            (left, "repro: /usr/bin/python3 ran, which is not the environment's Python"),
        ],
    )
    def test_drift(self, image_bench: Bench, change: Callable[[Bench], None], told: str) -> None:
        change(image_bench)
        found = image_bench.run()
        assert any(told in line for line in found.relevant_drift), found.drift

    def test_a_module_of_the_case_that_shadows_one(self, image_bench: Bench) -> None:
        image_bench.scripts["colorsys.py"] = ""
        assert image_bench.run().relevant_drift == ["colorsys is imported from /case/colorsys.py"]

    def test_cuda_libraries_that_a_trial_loaded(self, image_bench: Bench) -> None:
        image_bench.scripts["fixed.py"] = (
            "import ctypes, glob, shutil, time\nshutil.copy(glob.glob('/lib/*/libm.so.6')[0], '/tmp/libcudnn.so.9')\n"
            f"ctypes.CDLL('/tmp/libcudnn.so.9'); time.sleep(1)\n{FIXED}"
        )
        found = image_bench.run()
        assert found.loaded == {"fixed": ["/tmp/libcudnn.so.9"]}
