"""What only the venv engine promises."""

import base64
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpu_casebook.devices.driver import HostFacts
from gpu_casebook.engines import scratch
from gpu_casebook.engines.base import VARIABLES, Prepared
from gpu_casebook.engines.output import Output
from gpu_casebook.engines.owner import Owner
from gpu_casebook.engines.venv import engine as module
from gpu_casebook.engines.venv import supervised
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.engines.watching import Watched
from gpu_casebook.errors import BuildError, MachineError, UsageError
from gpu_casebook.packages import uv
from gpu_casebook.packages.resolve import scratch_lock
from gpu_casebook.trial import Recipe, TrialRequest
from tests.engines.subjects import (
    FAMILY,
    FORGER,
    PROCESSES,
    TOKEN,
    Bench,
    VenvSubject,
    eventually,
    runner_with_a_trial,
    this_python,
)
from tests.fakes import locked
from tests.packages.conftest import wheel as make_wheel


@pytest.fixture
def engine(tmp_path: Path) -> VenvEngine:
    return VenvEngine(cache=tmp_path / "cache", place=tmp_path / "scratch")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The lock of a package that lies in a directory; there is no index."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    path = directory / "demo-1.0-py3-none-any.whl"
    files = {
        "demo.py": b"VALUE = 42\n",
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_urlsafe(content)},{len(content)}\n" for name, content in files.items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr("demo-1.0.dist-info/RECORD", record + "demo-1.0.dist-info/RECORD,,\n")
    monkeypatch.setenv("UV_FIND_LINKS", str(directory))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return f"demo==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def _urlsafe(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def recipe(lock: str) -> Recipe:
    return Recipe(image="cpu", lock=lock, python=this_python())


def test_what_the_lock_names_is_installed(engine: VenvEngine, wheel: str) -> None:
    bench = Bench(engine, engine.prepare(recipe(wheel), print))
    assert bench.run("import demo; print(demo.VALUE, demo.__file__)").stdout.startswith("42 /env/lib/python3")
    assert list(Path(bench.prepared.python).parents[1].rglob("demo.*.pyc")), "bytecode is compiled beforehand"


def test_a_ready_environment_is_found_ready(engine: VenvEngine, wheel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = engine.prepare(recipe(wheel), print)
    monkeypatch.setattr(uv, "make", None)
    assert engine.prepare(recipe(wheel), print).key == first.key


def test_another_lock_or_python_is_another_environment(engine: VenvEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uv, "make", lambda directory, **_: directory.mkdir())
    monkeypatch.setattr(uv, "install", lambda *_, **__: None)
    monkeypatch.setattr(uv, "compile_bytecode", lambda _directory: None)
    a, b = (locked([f"{name}==1"]) for name in "ab")
    recipes = [
        Recipe(image="cpu", lock=a, python="3.11"),
        Recipe(image="cpu", lock=b, python="3.11"),
        Recipe(image="cpu", lock=a, python="3.12"),
        Recipe(image="cuda13", lock=a, python="3.11"),  # images are not for this engine
        Recipe(image="cpu", lock=f"# a comment\n{a}", python="3.11"),
    ]
    assert len({engine.prepare(one, print).key for one in recipes}) == 3


def test_environments_that_nobody_wants_go_with_what_only_they_had(
    engine: VenvEngine, wheel: str, tmp_path: Path
) -> None:
    more = make_wheel(tmp_path / "wheels", "more", "1.0", content="VALUE = 7")
    lock = f"{wheel}more==1.0 --hash=sha256:{hashlib.sha256(more.read_bytes()).hexdigest()}\n"
    wanted, other = recipe(wheel), recipe(lock)
    kept, gone = (Path(engine.prepare(each, print).python).parents[1] for each in (wanted, other))
    cache = kept.parents[1]
    assert engine.discard_unused([wanted, other]) == []
    assert engine.discard_unused([wanted], dry_run=True) == [f"environment {gone}, which no case uses"]
    named, freed = engine.discard_unused([wanted])
    assert named == f"environment {gone}, which no case uses"
    assert re.fullmatch(r"[\d.]+ kB, with packages that no environment has", freed)
    assert engine.absent([wanted, other]) == [other]
    assert not list(cache.rglob("more.py"))
    assert next(kept.rglob("demo.py")).stat().st_nlink == 2, "in the environment that stays and in the store"

    engine.discard_unused([])
    assert not [*cache.rglob("demo.py"), *cache.glob("bytecode/*/*")]
    bench = Bench(engine, engine.prepare(other, print))
    assert bench.run("import demo, more; print(demo.VALUE + more.VALUE)").stdout == "49\n", "fetched again"


def test_a_half_built_environment_is_built_anew(engine: VenvEngine, wheel: str) -> None:
    prepared = engine.prepare(recipe(wheel), print)
    directory = Path(prepared.python).parents[1]
    directory.with_suffix(".json").unlink()
    (directory / "rubbish").touch()
    bench = Bench(engine, engine.prepare(recipe(wheel), print))
    assert not (directory / "rubbish").exists()
    assert bench.run("import demo").exit_status == 0


def test_an_environment_whose_interpreter_went_away_is_built_anew(engine: VenvEngine, wheel: str) -> None:
    python = Path(engine.prepare(recipe(wheel), print).python)
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert Bench(engine, engine.prepare(recipe(wheel), print)).run("import demo").exit_status == 0


def test_two_at_once_build_one_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds, both_are_there, notes = [], threading.Event(), list[str]()

    def build(directory: Path, **_: object) -> None:
        builds.append(directory)
        both_are_there.wait(60)
        (directory / "bin").mkdir(parents=True)
        (directory / "bin" / "python").touch()

    def told(text: str) -> None:
        notes.append(text)
        both_are_there.set()

    monkeypatch.setattr(uv, "make", build)
    monkeypatch.setattr(uv, "install", lambda *_, **__: None)
    monkeypatch.setattr(uv, "compile_bytecode", lambda _directory: None)
    engines = [VenvEngine(cache=tmp_path / "cache", place=tmp_path / name) for name in ("one", "two")]
    threads = [threading.Thread(target=engine.prepare, args=(recipe(""), told)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert notes == ["waiting for another run that builds the same environment"]


def test_a_wrong_hash_is_refused(engine: VenvEngine, wheel: str) -> None:
    name, _, digest = wheel.strip().rpartition(":")
    wrong = f"{name}:{digest[::-1]}\n"
    with pytest.raises(BuildError, match=r"(?i)hash mismatch for .demo==1\.0") as raised:
        engine.prepare(recipe(wrong), print)
    assert_one_line_with_log(raised.value)


def test_a_version_that_does_not_exist_is_named(engine: VenvEngine, wheel: str) -> None:
    with pytest.raises(BuildError, match=r"demo==9\.9") as raised:
        engine.prepare(recipe(wheel.replace("1.0", "9.9")), print)
    assert_one_line_with_log(raised.value)


def test_a_lock_without_hashes_is_refused(engine: VenvEngine, wheel: str) -> None:
    with pytest.raises(BuildError, match="line 1 of the lock: demo: has no hash"):
        engine.prepare(recipe("demo==1.0\n"), print)


def test_an_index_in_a_lock_is_not_asked(engine: VenvEngine, wheel: str) -> None:
    with pytest.raises(BuildError, match=r"line 2 of the lock: '--extra-index-url .* has no place in a lock"):
        engine.prepare(recipe(f"{wheel}--extra-index-url http://127.0.0.1:9/${{GITHUB_TOKEN}}\n"), print)


def test_a_source_distribution_is_never_built_here(engine: VenvEngine, wheel: str, tmp_path: Path) -> None:
    (directory,) = (path.parent for path in tmp_path.glob("wheels/*.whl"))
    ran = tmp_path / "ran"
    setup = f"open({str(ran)!r}, 'w')\nfrom setuptools import setup\nsetup(name='other', version='1.0')\n".encode()
    path = directory / "other-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {
            "setup.py": setup,
            "PKG-INFO": b"Metadata-Version: 1.0\nName: other\nVersion: 1.0\n",
        }.items():
            entry = tarfile.TarInfo(f"other-1.0/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    with pytest.raises(BuildError, match=r"other==1\.0(\.0)? has no usable wheels"):
        engine.prepare(
            recipe(f"{wheel}other==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"), print
        )
    with pytest.raises(BuildError, match=r"other==1\.0(\.0)? has no usable wheels"):
        scratch_lock(["other==1.0"], this_python(), anywhere=True)
    assert not ran.exists()


def test_a_package_that_must_be_built_is_refused_here(engine: VenvEngine, wheel: str, tmp_path: Path) -> None:
    named = recipe(f"# build: demo\n{wheel}")
    for refused in (lambda: engine.prepare(named, print), lambda: engine.pack({"a": named}, tmp_path, print, ())):
        with pytest.raises(UsageError, match=r"^demo: built from source, .* use --engine docker$"):
            refused()


@pytest.mark.parametrize("quiet", [False, True])
def test_a_package_without_its_dependencies_is_installed_where_the_lock_says_so(
    engine: VenvEngine, wheel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, quiet: bool
) -> None:
    path = make_wheel(tmp_path / "wheels", "needy", "1.0", "missing>=1", content="VALUE = 7")
    lock = f"{wheel}needy==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
    if quiet:
        monkeypatch.setenv("UV_NO_CONFIG", "1")
    with pytest.raises(BuildError, match="missing"):
        engine.prepare(recipe(lock), print)
    bench = Bench(engine, engine.prepare(recipe(f"# without-dependencies: needy\n{lock}"), print))
    assert bench.run("import demo, needy; print(needy.VALUE)").stdout == "7\n"


def test_files_that_the_lock_does_not_name_go_and_stay_in_the_store(
    engine: VenvEngine, wheel: str, tmp_path: Path
) -> None:
    del tmp_path
    whole = Bench(engine, engine.prepare(recipe(f"# without-dependencies: demo\n{wheel}"), print))
    told = f"# without-dependencies: demo\n# only-files: {{}}\n{wheel}"
    with pytest.raises(BuildError, match="no file of demo matches gone/x"):
        engine.prepare(recipe(told.format("gone/x")), print)
    look = "from importlib.metadata import files; print(sorted(map(str, files('demo'))))"
    kept = Bench(engine, engine.prepare(recipe(told.format("demo-1.0.dist-info/*")), print))
    assert "demo.py" not in kept.run(look).stdout
    assert "No module named 'demo'" in kept.run("import demo").stderr
    assert "demo.py" in whole.run(look).stdout


def test_the_installer_sees_no_token(engine: VenvEngine, wheel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    seen: list[dict[str, str]] = []
    popen = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        seen.append(options["env"])
        return popen(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", noted)
    engine.prepare(recipe(wheel), print)
    assert seen
    assert all("GITHUB_TOKEN" not in each for each in seen)


EDIT = """
import demo, os
seen = os.stat(demo.__file__)
with open(demo.__file__, "r+") as file: file.write("VALUE = 66\\n")
os.utime(demo.__file__, ns=(seen.st_atime_ns, seen.st_mtime_ns))
"""
"""Neither size nor mtime is another afterwards."""
HOOK = "import site; open(site.getsitepackages()[0] + '/x.pth', 'w').write('import os\\n')"
REMOVE = "import demo, os; os.unlink(demo.__file__)"


@pytest.mark.parametrize(("script", "shown"), [(EDIT, "demo.py"), (HOOK, "x.pth"), (REMOVE, "demo.py")])
def test_a_trial_that_changes_its_environment_does_not_count_and_changes_nothing_for_the_next(
    engine: VenvEngine, wheel: str, script: str, shown: str, tmp_path: Path
) -> None:
    bench = Bench(engine, engine.prepare(recipe(wheel), print))
    spoiled = bench.run(script)
    (site,) = Path(bench.prepared.python).parents[1].glob("lib/python*/site-packages")
    path = f"lib/{site.parent.name}/site-packages/{shown}"
    assert spoiled.infra == f"its environment was changed while it ran ({path}), and both are thrown away"
    assert (spoiled.exit_status, spoiled.signal) == (None, None)
    with VenvEngine(cache=tmp_path / "cache", place=tmp_path / "scratch") as another:
        for again in (bench, Bench(another, another.prepare(recipe(f"# another case\n{wheel}"), print))):
            assert again.run("import demo; print(demo.VALUE)").stdout == "42\n"
    assert not (site / "x.pth").exists()


def test_a_trial_that_writes_and_takes_it_back_has_changed_nothing(engine: VenvEngine, wheel: str) -> None:
    bench = Bench(engine, engine.prepare(recipe(wheel), print))
    assert bench.run("import demo, os; os.utime(demo.__file__)").exit_status == 0


def test_what_was_changed_between_two_runs_is_made_anew(engine: VenvEngine, wheel: str) -> None:
    prepared, notes = engine.prepare(recipe(wheel), print), list[str]()
    (module_file,) = Path(prepared.python).parents[1].rglob("demo.py")
    module_file.write_text("VALUE = 66\n")
    again = Bench(engine, engine.prepare(recipe(wheel), notes.append))
    assert any(note.endswith("demo.py changed since the environment was made: it is made anew") for note in notes)
    assert any(note.endswith("in the store of packages changed: they are fetched again") for note in notes)
    assert again.run("import demo; print(demo.VALUE)").stdout == "42\n"


def test_packages_are_linked_from_our_store_and_nowhere_else(
    engine: VenvEngine, wheel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "users"))
    prepared = engine.prepare(recipe(wheel), print)
    with engine.throwaway() as steps:
        other = steps.prepare(recipe(wheel), print)
        files = [next(Path(each.python).parents[1].rglob("demo.py")).stat() for each in (prepared, other)]
    assert files[0].st_ino == files[1].st_ino, "two environments take its space once"
    stored = [path for path in (tmp_path / "cache" / "store").rglob("demo.py") if path.stat().st_ino == files[0].st_ino]
    assert (len(stored), files[1].st_nlink) == (1, 3)
    assert not list((tmp_path / "users").rglob("demo.py"))


def test_a_wheel_that_is_not_as_its_record_says_is_refused(engine: VenvEngine, wheel: str, tmp_path: Path) -> None:
    (path,) = tmp_path.glob("wheels/*.whl")
    content = path.read_bytes()
    broken = content.replace(b"VALUE = 42", b"VALUE = 43").replace(
        zlib.crc32(b"VALUE = 42\n").to_bytes(4, "little"), zlib.crc32(b"VALUE = 43\n").to_bytes(4, "little")
    )
    path.write_bytes(broken)
    lock = f"demo==1.0 --hash=sha256:{hashlib.sha256(broken).hexdigest()}\n"
    with pytest.raises(BuildError, match=r"site-packages/demo\.py: not what the wheel's RECORD says"):
        engine.prepare(recipe(lock), print)


def assert_one_line_with_log(error: BuildError) -> None:
    text = str(error)
    assert "\n" not in text
    log = Path(text.rpartition("the whole log: ")[2].rstrip(")"))
    assert "error" in log.read_text()


def test_nothing_half_built_stays_after_a_failure(engine: VenvEngine, wheel: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError):
        engine.prepare(recipe(wheel.replace("1.0", "9.9")), print)
    assert [path.suffix for path in (tmp_path / "cache" / "envs").iterdir()] == [".lock"]


UV_ON_A_FULL_DISK = """\
Resolved 1 package in 321ms
error: Failed to install: six-1.16.0-py2.py3-none-any.whl (six==1.16.0)
  cause: Failed to copy to `/x/lib/python3.11/site-packages/six.py`
  cause: failed to copy file from /a/six.py to /x/.tmpQ1kc5a: No space left on device (os error 28)
"""
"""What uv 0.13.9 said when its target was a file system of 60 KiB."""


def test_a_disk_that_fills_up_is_the_machines_fault(tmp_path: Path) -> None:
    error = uv.failure(UV_ON_A_FULL_DISK, tmp_path / "log")
    assert isinstance(error, MachineError)
    assert "the disk is full" in str(error)


def test_a_disk_that_is_full_for_ourselves(engine: VenvEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/x/y")

    monkeypatch.setattr(scratch, "lay_out", write)
    with pytest.raises(MachineError, match="the disk is full: no room to write /x/y"):
        engine.run(Prepared(key="k", python="/x/bin/python"), TrialRequest(files={}, arguments=[]))


OLDER_UV = """\
Using CPython 3.11.7
  \N{MULTIPLICATION SIGN} No solution found when resolving dependencies:
  ╰─▶ Because there is no version of nosuch==1 and you require nosuch==1, we
      can conclude that your requirements are unsatisfiable.
"""


def test_last_words_are_the_error_on_one_line() -> None:
    said = uv.last_words(OLDER_UV)
    assert said.startswith("No solution found when resolving dependencies: Because there is no version of nosuch==1")
    assert uv.last_words("warning: x\nerror: it\n  cause: y\n") == "error: it cause: y"
    assert uv.last_words("no\nmark\n") == "no mark"
    assert uv.last_words("WARNING: slow\nERROR: no x\nERROR: No matching  file\n") == "ERROR: No matching file"
    assert len(uv.last_words("error: " + "x" * 5000)) < 1000


def test_an_image_needs_the_docker_engine(engine: VenvEngine) -> None:
    with pytest.raises(UsageError, match="--image vendor/x:1 needs the docker engine"):
        engine.prepare(Recipe(image="cpu", lock="", use_image="vendor/x:1"), print)


def test_only_variables_that_are_meant_for_it_reach_a_trial(venv_bench: Bench) -> None:
    result = venv_bench.run("import os, json; print(json.dumps(dict(os.environ)))", variables={"OWN": "1"})
    variables = json.loads(result.stdout)
    assert set(variables) == {*VARIABLES, "PATH", "HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "OWN"}
    assert variables["PATH"] == "/env/bin:/usr/local/bin:/usr/bin:/bin"
    assert variables["CUDA_VISIBLE_DEVICES"] == ""
    assert variables["LANG"] == "C.UTF-8"


def test_what_keeps_a_trial_in_its_place_is_not_its_own_to_set(venv_bench: Bench) -> None:
    names = ("HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES")
    result = venv_bench.run(f"import os; print(*map(os.environ.get, {names}))", variables=dict.fromkeys(names, "/root"))
    assert result.stdout == "/scratch/home /scratch/tmp \n"


def test_chosen_gpus_are_the_ones_a_trial_sees(venv_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = HostFacts(libraries={"libcuda.so.1": Path("/opt/driver/libcuda.so.1")})
    monkeypatch.setattr(module, "host_facts", lambda: facts)
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")
    script = f"import os; print(*map(os.environ.get, {names}))"
    assert venv_bench.run(script, gpus=(2, 0)).stdout == "2,0 PCI_BUS_ID /opt/driver\n"
    monkeypatch.setattr(module, "host_facts", lambda: HostFacts(libraries=facts.libraries, loader_knows=True))
    assert venv_bench.run(script, gpus=(1,)).stdout == "1 PCI_BUS_ID None\n"


def test_no_private_path_gets_into_the_output(venv_bench: Bench, venv_subject: VenvSubject) -> None:
    script = """
import json, os, sys, tempfile
print(sys.path, sys.prefix, sys.base_prefix, os.environ, tempfile.mkdtemp())
print("x" * 1_000_000, os.getcwd(), file=sys.stderr)
json.loads("{")
"""
    result = venv_bench.run(script)
    said = result.stdout + result.stderr
    private = {str(venv_subject.place), str(venv_subject.cache), sys.base_prefix} - {"/usr", "/usr/local"}
    assert [path for path in private if path in said] == []
    assert 'File "/case/script.py"' in result.stderr
    assert "/scratch/tmp" in result.stdout
    assert "'/env/lib/python" in result.stdout


def test_a_killed_supervisor_takes_the_trial_along(
    venv_bench: Bench, venv_subject: VenvSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "_DRAIN_S", 0.2)
    token = uuid.uuid4().hex
    killer = threading.Thread(target=kill_supervisor, args=(venv_subject, token))
    killer.start()
    result = venv_bench.run(FAMILY, variables={TOKEN: token})
    killer.join()
    assert result.infra == "the trial could not be run: its supervisor ended: it was killed"
    assert (result.exit_status, result.signal) == (None, None)
    eventually(lambda: venv_subject.processes(token) == 0)


def kill_supervisor(subject: VenvSubject, token: str) -> None:
    eventually(lambda: subject.processes(token) == PROCESSES)
    for child in psutil.Process().children():
        with suppress(psutil.ZombieProcess):  # of a runner that another test killed
            if any(word.endswith("supervisor.py") for word in child.cmdline()):
                child.kill()


def test_a_trial_can_not_answer_for_its_supervisor(venv_bench: Bench) -> None:
    result = venv_bench.run(FORGER)
    assert result.stdout == "sent\n"
    assert result.exit_status is None
    assert result.infra == "the trial could not be run: its supervisor ended: it was killed"


DAEMON = """
import os, signal, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", sys.argv[1]], {})
    os._exit(0)
time.sleep(0.5)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(60)
"""


def test_what_gets_away_from_a_killed_supervisor_is_ended(venv_bench: Bench) -> None:
    token = uuid.uuid4().hex
    assert venv_bench.run(DAEMON, token).infra
    assert [each for each in psutil.process_iter(["cmdline"]) if token in (each.info["cmdline"] or [])] == []


def test_only_its_own_trials_are_ended_by_an_engine(venv_bench: Bench, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool, VenvEngine(cache=tmp_path / "cache", place=tmp_path / "scratch") as other:
        running = pool.submit(venv_bench.run, "import time; time.sleep(1); print('done')")
        while not running.done():
            other.end_trials()
            time.sleep(0.05)
    assert running.result().stdout == "done\n"


def test_a_trial_that_kills_its_supervisor_ends_no_other(venv_bench: Bench) -> None:
    kills = "import os, signal, time; time.sleep(2); os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
    with ThreadPoolExecutor() as pool:
        killer = pool.submit(venv_bench.run, kills)
        time.sleep(0.5)
        other = venv_bench.run("import time; time.sleep(5); print('whole')")
    assert killer.result().infra == "the trial could not be run: its supervisor ended: it was killed"
    assert (other.stdout, other.infra) == ("whole\n", None)


def test_a_supervisor_that_its_trial_stops_is_killed(venv_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "_PATIENCE_S", 1.0)
    script = "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP); time.sleep(60)"
    result = venv_bench.run(script, limits={"timeout_s": 1.0})
    assert result.infra == "the trial could not be run: its supervisor ended: it was killed"


def test_a_supervisor_has_no_secrets(venv_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "s3cret")
    orders = {"command": ["/bin/sleep", "0.5"], "directory": "/", "variables": {}, "timeout_s": 5.0}
    limits = {"memory_bytes": 2**30, "processes": 9, "places": []}
    process, _ = supervised.begin(orders | limits, [lambda _: None] * 2)
    eventually(lambda: len(psutil.Process(process.pid).children()) == 1)
    seen = Path(f"/proc/{process.pid}/environ")
    with suppress(PermissionError):  # as it is where nobody but root may look
        assert b"s3cret" not in seen.read_bytes()
    process.close()
    script = "import os; print(open(f'/proc/{os.getppid()}/environ').read())"
    assert "s3cret" not in venv_bench.run(script).stdout


@pytest.mark.parametrize("place", ["/dev/shm", "/scratch/tmp"])
def test_files_count_as_memory(venv_bench: Bench, place: str) -> None:
    script = """
import os, sys, tempfile, time
place = sys.argv[1] if sys.argv[1] == "/dev/shm" else tempfile.gettempdir()
with tempfile.NamedTemporaryFile(dir=place) as file:
    print(file.name, flush=True)
    for _ in range(100):
        file.write(bytes(2**20))
        file.flush()
    time.sleep(60)
"""
    result = venv_bench.run(script, place, limits={"memory_bytes": 64 * 2**20, "timeout_s": 30.0})
    Path(result.stdout.strip()).unlink(missing_ok=True)
    assert result.out_of_memory, result


def test_many_busy_processes_are_ended(venv_bench: Bench) -> None:
    script = """
import os
for _ in range(9):
    os.fork()
while True:
    pass
"""
    result = venv_bench.run(script, limits={"processes": 200, "memory_bytes": 300 * 2**20})
    assert "[the trial was ended: more than 200 processes]" in result.stderr
    assert not result.timed_out


def test_a_deep_directory_is_removed(tmp_path: Path) -> None:
    here = Path.cwd()
    (tmp_path / "x").mkdir()
    os.chdir(tmp_path / "x")
    for _ in range(1500):
        os.mkdir("d")  # noqa: PTH102 such a depth has no path
        os.chdir("d")
    os.chdir(here)
    scratch.remove(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_killed_runner_takes_its_trial_along(venv_subject: VenvSubject) -> None:
    token = uuid.uuid4().hex
    with runner_with_a_trial(venv_subject, token) as process:
        process.kill()
        eventually(lambda: venv_subject.processes(token) == 0)
    scratch.sweep(venv_subject.place)


def test_a_script_ends_with_its_supervisor_even_if_nobody_looks(venv_subject: VenvSubject) -> None:
    token = uuid.uuid4().hex
    with runner_with_a_trial(venv_subject, token) as process:
        process.send_signal(signal.SIGSTOP)
        for child in psutil.Process(process.pid).children():
            child.kill()
        eventually(lambda: venv_subject.processes(token) == PROCESSES - 1)
        process.kill()
        process.wait()
        scratch.sweep(venv_subject.place)
        eventually(lambda: venv_subject.processes(token) == 0)


def test_an_interpreter_that_is_not_there_is_the_machines_fault(venv_bench: Bench) -> None:
    prepared = Prepared(key="x", python="/nowhere/bin/python")
    result = venv_bench.engine.run(prepared, TrialRequest(files={}, arguments=["x.py"]))
    assert result.infra == "the trial could not be run: No such file or directory: /nowhere/bin/python"


@pytest.mark.parametrize(("reason", "hung"), [("abandoned", True), (None, False)])
def test_a_hang_that_ended_before_the_order_came_is_none(reason: str | None, hung: bool) -> None:  # noqa: FBT001
    request = TrialRequest(files={}, arguments=[])
    ended = {"status": 0, "ended_for": reason}
    result = Output(request).supervised(ended, Watched(hung=True))
    assert (result.hung, result.timed_out) == (hung, False)


def test_a_trial_gives_no_core_dump(venv_bench: Bench) -> None:
    assert venv_bench.run("import resource; print(resource.getrlimit(resource.RLIMIT_CORE))").stdout == "(0, 0)\n"


def test_what_a_trial_locked_away_is_removed_too(venv_bench: Bench, venv_subject: VenvSubject) -> None:
    venv_bench.run("import os; os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0o500); os.chmod('a', 0)")
    assert venv_subject.left_by(os.getpid()) == []


@pytest.fixture
def gone() -> Owner:
    """A process of this host that has ended."""
    with subprocess.Popen(["true"]) as process:
        me = Owner.current()
    return me._replace(pid=process.pid)


def left(place: Path, owner: str) -> Path:
    directory = place / "abc"
    directory.mkdir(parents=True)
    (directory / "file").touch()
    directory.with_suffix(".owner").write_text(owner)
    return directory


def test_sweep_takes_what_the_dead_left(tmp_path: Path, gone: Owner) -> None:
    directory = left(tmp_path, str(gone))
    assert scratch.sweep(tmp_path) == [f"scratch directory {directory}"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("whose", ["mine", "of another host", "unreadable"])
def test_sweep_leaves_what_may_be_in_use(tmp_path: Path, gone: Owner, whose: str) -> None:
    owner = {"mine": Owner.current(), "of another host": gone._replace(host="elsewhere-12345678")}.get(whose, "?")
    directory = left(tmp_path, str(owner))
    assert scratch.sweep(tmp_path) == []
    assert (directory / "file").exists()


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    home = tmp_path / "abc" / "home"
    with subprocess.Popen(["sleep", "600"], env={"HOME": str(home)}) as process:
        yield process
        process.kill()


def test_sweep_ends_what_still_runs_there(tmp_path: Path, gone: Owner, orphan: "subprocess.Popen[bytes]") -> None:
    left(tmp_path, str(gone))
    assert f"process {orphan.pid}" in scratch.sweep(tmp_path)
    assert orphan.wait(60) == -signal.SIGKILL


def test_scratch_space_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = scratch.usual_place()
    assert place.stat().st_mode & 0o777 == 0o700
    with scratch.scratch(place) as directory:
        assert directory.stat().st_mode & 0o777 == 0o700


def test_a_place_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "real").mkdir()
    (tmp_path / f"casebook-{os.getuid()}").symlink_to(tmp_path / "real")
    with pytest.raises(MachineError, match="somebody else's"):
        scratch.usual_place()
