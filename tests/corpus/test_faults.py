"""Cases that break things, and things that break under cases: real runs of a corpus, and each fault stays where it is.

Processes that a script starts without end are bounded here by the script itself.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from casebook_workbench.corpus import jobs
from casebook_workbench.corpus.driver import ATTEMPTS
from casebook_workbench.corpus.events import Start
from casebook_workbench.corpus.model import End, Job, Settings
from failure_signature.kinds import Grade
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.daemon.client import LABEL, DockerClient, connect
from gpu_casebook.engines import registry as choosing
from gpu_casebook.errors import ExitStatus
from gpu_casebook.evidence import Evidence
from gpu_casebook.run import pipeline
from tests.corpus.world import PATIENCE_S, REPRO, World, eventually, make_world
from tests.engines.subjects import ROOT
from tests.engines.test_docker import clear_up_after, started
from tests.fakes import FIXED as FIXED_END
from tests.fakes import REPRO as REPRO_END
from tests.fakes import FakeEngine

SOME_NOT_CONFIRMED = 20

MEMORY = """
kept = []
while True:
    kept.append(bytearray(10**7))
"""
FORKS = """
import os, time
for _ in range(2000):
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "600"])
time.sleep(600)
"""
OUTPUT = """
import sys
for _ in range(320):
    sys.stdout.write("x" * 2**20)
raise RuntimeError("off by two")
"""
STUBBORN = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(1)
"""
FILLS = """
import tempfile
with tempfile.TemporaryFile() as file:
    while True:
        file.write(bytes(2**20))
"""
HOLDS = """
import os, time
with open(os.environ["TMPDIR"] + "/large", "wb", buffering=0) as file:
    while True:
        try:
            file.write(bytes(4096))
        except OSError:
            open({full!r}, "w").close()
            time.sleep(0.005)
"""
AFTER = """
import os, time
while not os.path.exists({full!r}):
    time.sleep(0.05)
"""
KILLS_ITS_RUNNER = """
import os, signal
status = open(f"/proc/{os.getppid()}/status").read()
os.kill(int(status.split("PPid:")[1].split()[0]), signal.SIGKILL)
"""
WAITS = """
import os, time
with open({place!r} + "/started." + str(os.getpid()), "w"):
    pass
while not os.path.exists({place!r} + "/go"):
    time.sleep(0.05)
raise RuntimeError("off by two")
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environments, which are the same for all."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def world(tmp_path: Path, cache: Path) -> World:
    return make_world(tmp_path / "checkout", cache)


def waits(world: World, name: str = "waits") -> Path:
    """A case whose repro waits until there is a file `go` in the directory; there is one `started.PID` for each."""
    place = world.root / name
    place.mkdir()
    world.write(name, WAITS.format(place=str(place)))
    return place


def started_in(place: Path, count: int = 1) -> list[psutil.Process]:
    """The trials that have started, once there are so many."""
    found = eventually(lambda: len(list(place.glob("started.*"))) >= count and sorted(place.glob("started.*")))
    return [psutil.Process(int(path.suffix[1:])) for path in found if psutil.pid_exists(int(path.suffix[1:]))]


def evidence(world: World, case: str) -> Evidence:
    path = world.ends()[case].evidence
    assert path
    return Evidence.read(world.reports / path)


# --- cases that break things


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> World:
    """One run of cases of which each breaks something, between others that are well."""
    made = make_world(tmp_path_factory.mktemp("broken") / "checkout", cache)
    for name in ("a-good-one", "m-good-one", "z-good-one"):
        made.write(name)
    (made.write("bad-manifest") / "case.yaml").write_text("id: [")
    made.write("memory", MEMORY, memory="256MiB")
    made.write("forks", FORKS)
    made.write("output", OUTPUT)
    made.write("stubborn", STUBBORN, timeout=2)
    made.write("kills-its-runner", KILLS_ITS_RUNNER)
    made.write("at-import", "import helper\n")
    (made.root / "cases" / "at-import" / "helper.py").write_text(MEMORY)
    (made.root / "cases" / "at-import" / "case.yaml").write_text(
        (made.root / "cases" / "at-import" / "case.yaml").read_text().replace("1GiB", "256MiB")
    )
    status, said = made.run("--jobs", "2")
    assert status == SOME_NOT_CONFIRMED, said
    return made


def test_each_broken_case_ends_as_its_own_result_and_the_rest_goes_on(broken: World) -> None:
    ends = {name: (end.end, end.verdict) for name, end in broken.ends().items()}
    assert ends == {
        "a-good-one": (End.RAN, Verdict.CONFIRMED),
        "m-good-one": (End.RAN, Verdict.CONFIRMED),
        "z-good-one": (End.RAN, Verdict.CONFIRMED),
        "output": (End.RAN, Verdict.CONFIRMED),
        "memory": (End.RAN, Verdict.WRONG_FAILURE),
        "at-import": (End.RAN, Verdict.WRONG_FAILURE),
        "forks": (End.RAN, Verdict.WRONG_FAILURE),
        "stubborn": (End.RAN, Verdict.WRONG_FAILURE),
        "bad-manifest": (End.BROKE, None),
        "kills-its-runner": (End.BROKE, None),
    }
    assert broken.last().ended


def test_a_bad_manifest_is_told_by_file_and_line(broken: World) -> None:
    assert broken.ends()["bad-manifest"].reason.startswith("cases/bad-manifest/case.yaml:1: is not YAML")


@pytest.mark.parametrize("case", ["memory", "at-import"])
def test_a_script_that_allocates_without_end_is_ended_at_its_limit(broken: World, case: str) -> None:
    assert "memory limit" in broken.ends()[case].reason


def test_a_script_that_forks_without_end_is_ended_at_its_limit(broken: World) -> None:
    assert "more than 1024 processes" in evidence(broken, "forks").trials[0].stderr


def test_a_flood_of_output_is_cut_and_judged_as_any_other(broken: World) -> None:
    trial = evidence(broken, "output").trials[0]
    assert "bytes cut here" in trial.stdout
    assert len(trial.stdout) < 2**20


def test_a_script_that_ignores_signals_is_ended_at_its_time(broken: World) -> None:
    assert "time limit" in broken.ends()["stubborn"].reason


def test_a_case_that_kills_its_worker_each_time_is_given_up_and_named(broken: World) -> None:
    end = broken.ends()["kills-its-runner"]
    assert end.reason.startswith(f"{ATTEMPTS} workers were lost with it")
    assert len(end.lost) == ATTEMPTS
    assert all(lost.after_s > 0 for lost in end.lost)


def test_none_of_them_leaves_anything(broken: World) -> None:
    assert broken.left() == []


def small_disk(place: Path) -> list[str]:
    """A command that runs another one with 64 MB of disk at `place`."""
    mount = f'mount -t tmpfs -o size=64m,mode=1777 none {place} && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]


@pytest.fixture
def small_world(world: World) -> World:
    """With 64 MB for trials."""
    world.environment()
    world.prefix = small_disk(world.root / "tmp")
    if subprocess.run([*world.prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    return world


def test_a_script_that_fills_its_disk_ends_as_its_own_result_and_the_rest_goes_on(small_world: World) -> None:
    world = small_world
    world.write("a-fills", FILLS)
    world.write("b-good")
    status, said = world.run("--jobs", "1")
    assert status == SOME_NOT_CONFIRMED, said
    assert world.ends()["b-good"].verdict is Verdict.CONFIRMED
    assert world.ends()["a-fills"].verdict is Verdict.INCONCLUSIVE
    assert {trial.infra for trial in evidence(world, "a-fills").trials} == {"the disk is full"}


def test_a_script_that_keeps_the_disk_full_holds_the_others_up_and_does_not_end_the_run(small_world: World) -> None:
    world, full = small_world, str(small_world.root / "full")
    world.write("a-holds", HOLDS.format(full=full), timeout=10)
    world.write("b-waits", AFTER.format(full=full) + REPRO)
    for name in ("c-good", "d-good"):
        world.write(name)
    status, said = world.run("--jobs", "2")
    assert status == SOME_NOT_CONFIRMED, said
    ends = world.ends()
    assert ends.pop("a-holds").verdict is Verdict.WRONG_FAILURE
    assert {name: end.verdict for name, end in ends.items()} == dict.fromkeys(
        ("b-waits", "c-good", "d-good"), Verdict.CONFIRMED
    )
    assert any("the disk is full" in lost.reason for end in ends.values() for lost in end.lost), said


# --- the same in containers


@pytest.mark.docker
def test_in_containers_too_each_ends_as_its_own_result(world: World, python_image: str) -> None:
    world.engine = ("--engine", "docker", "--image", python_image)
    world.write("good")
    world.write("memory", MEMORY, memory="256MiB")
    world.write("forks", FORKS)
    world.write("output", OUTPUT)
    world.write("stubborn", STUBBORN, timeout=2)
    world.write("fills", FILLS, memory="256MiB")
    status, said = world.run("--jobs", "2")
    assert status == SOME_NOT_CONFIRMED, said
    ends = {name: end.verdict for name, end in world.ends().items()}
    fills = ends.pop("fills")
    assert ends == {
        "good": Verdict.CONFIRMED,
        "output": Verdict.CONFIRMED,
        "memory": Verdict.WRONG_FAILURE,
        "forks": Verdict.WRONG_FAILURE,
        "stubborn": Verdict.WRONG_FAILURE,
    }
    assert fills in {Verdict.WRONG_FAILURE, Verdict.INCONCLUSIVE}  # its disk is memory: the bound that is met first


# --- workers and drivers that go away


def test_a_worker_that_is_killed_has_its_job_run_again_and_nothing_of_it_is_left(world: World) -> None:
    place = waits(world)
    world.write("other")
    with world.running("--jobs", "2") as process:
        (trial,) = started_in(place)
        worker = trial.parents()[1]
        assert worker.ppid() == process.pid
        worker.kill()
        (again,) = started_in(place, 2)
        assert not trial.is_running()
        assert again.is_running()
        (place / "go").touch()
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert f"lost waits/plain: worker {world.ends()['waits'].lost[0].worker} after " in said
    assert [lost.reason.split(":")[0] for lost in world.ends()["waits"].lost] == ["it was killed"]
    assert world.left() == []


def test_kill_9_of_a_run_leaves_nothing_and_what_was_finished_is_not_run_again(world: World) -> None:
    place = waits(world)
    world.write("done")
    with world.running("--jobs", "2") as process:
        (trial,) = started_in(place)
        eventually(lambda: "done" in world.ends())
        first = world.ends()["done"]
        process.kill()
    eventually(lambda: not trial.is_running() and not world.left())
    (place / "go").touch()
    status, said = world.run("--resume")
    assert status == 0, said
    assert world.ends()["done"] == first
    assert world.ends()["waits"].verdict is Verdict.CONFIRMED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_nothing(world: World, number: signal.Signals) -> None:
    place = waits(world)
    with world.running("--jobs", "2") as process:
        (trial,) = started_in(place)
        process.send_signal(number)
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitStatus.INTERRUPTED, said
    assert not trial.is_running()
    assert world.left() == []
    assert world.ends() == {}


# --- two runs at once

FAKE_GPUS = """
import os
if os.environ.get("FAKE_GPUS"):
    try:
        from gpu_casebook.devices import hardware
        from gpu_casebook.evidence import Gpu
        from gpu_casebook.run import attesting
    except ImportError:
        pass  # another Python than the runner's
    else:
        from pathlib import Path
        facts = {"name": "NVIDIA Fake", "compute_capability": "9.0", "memory_bytes": 1, "driver": "580.1"}
        count = int(os.environ["FAKE_GPUS"])
        locks = Path(os.environ["FAKE_LOCKS"])
        host = [hardware.HostGpu(index=n, uuid=f"GPU-fake-{n}", minor=n, free_bytes=1, **facts) for n in range(count)]
        hardware.gpus = lambda: host
        hardware.lock_directory = lambda: locks
        real = attesting.parse
        attesting.parse = lambda text: real(text).model_copy(update={"gpus": [Gpu(**facts)]})
"""
ALONE = """
import os, time
mine = {place!r} + "/gpu-" + os.environ["CUDA_VISIBLE_DEVICES"]
os.close(os.open(mine, os.O_CREAT | os.O_EXCL))  # raises FileExistsError where somebody is on it
time.sleep(0.3)
os.remove(mine)
"""


def test_two_runs_at_once_share_gpus_by_their_locks_and_do_not_harm_each_others_evidence(world: World) -> None:
    place = world.root / "gpus"
    for directory in (place, world.root / "site", world.root / "locks"):
        directory.mkdir()
    (world.root / "site" / "sitecustomize.py").write_text(FAKE_GPUS)
    world.variables = {
        "PYTHONPATH": f"{world.root / 'site'}:{ROOT}:{ROOT}/runner",
        "FAKE_GPUS": "2",
        "FAKE_LOCKS": str(world.root / "locks"),
    }
    alone = ALONE.format(place=str(place))
    for name in "abcd":
        script = alone + "raise RuntimeError('off by two')\n"
        world.write(name, script, alone + "print('all good')\n", hardware="gpus: 1", failure="exception")
    options = ("--jobs", "2", "--max-age", "0", "--no-probes")
    with world.running(*options) as first, world.running(*options) as second:
        both = [process.communicate(timeout=PATIENCE_S)[0] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), both
    assert list(place.iterdir()) == []
    for name in "abcd":
        (path,) = (world.reports / "evidence" / name).iterdir()
        assert Evidence.read(path).device == "NVIDIA Fake"
    logs = (world.reports / "runs").glob("*/logs/*.log")
    assert any("waiting for GPU" in log.read_text() for log in logs), "they never met"


# --- a daemon that is restarted


@pytest.fixture
def daemon(python_image: str, docker_client: DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator["Daemon"]:
    """A Docker daemon that may be restarted, with the image in it."""
    if not shutil.which("dockerd"):
        pytest.skip("starts a Docker daemon of its own, and there is no dockerd")
    top = Path(tempfile.mkdtemp(prefix="casebook-", dir="/tmp"))  # sockets want short names
    monkeypatch.setenv("DOCKER_HOST", f"unix://{top}/docker.sock")
    made = Daemon(top, str(docker_client.info()["Driver"]))
    try:
        client = connect()
        client.images.load(docker_client.images.get(python_image).save(named=True))  # type: ignore[arg-type]
        client.close()
        yield made
    finally:
        made.stop()
        clear_up_after(top)
        shutil.rmtree(top)


class Daemon:
    """With the storage that the machine's own daemon has: with vfs each container is a copy of its image."""

    def __init__(self, top: Path, storage: str) -> None:
        self._top, self._storage = top, storage
        self._process = started(top, storage)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def restart(self) -> None:
        self.stop()
        self._process = started(self._top, self._storage)


def runs(script: str) -> bool:
    client = connect()
    try:
        return any(script in str(one.attrs["Config"]["Cmd"]) for one in client.containers.list(ignore_removed=True))
    finally:
        client.close()


@pytest.mark.slow
@pytest.mark.docker
def test_a_daemon_that_is_restarted_in_mid_run_costs_another_attempt_and_no_verdict(
    world: World, python_image: str, daemon: Daemon
) -> None:
    world.engine = ("--engine", "docker", "--image", python_image)
    world.write("a-slow", "import time\ntime.sleep(15)\nraise RuntimeError('off by two')\n")
    world.write("b-good")
    with world.running("--jobs", "1") as process:
        eventually(lambda: process.poll() is not None or runs("repro.py"))
        daemon.restart()
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert {name: end.verdict for name, end in world.ends().items()} == {
        "a-slow": Verdict.CONFIRMED,
        "b-good": Verdict.CONFIRMED,
    }
    (log,) = (world.reports / "runs").glob("*/logs/w1.log")
    assert "waiting for the engine" in log.read_text()
    client, ours = connect(), {"label": f"{LABEL}.owner"}
    assert client.api.containers(all=True, filters=ours) == []
    assert not client.api.volumes(filters=ours)["Volumes"]
    client.close()


# --- a clock that jumps


class Backwards(datetime):
    """Each time it is asked, it is a day earlier."""

    asked = 0

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        cls.asked += 1
        return datetime(2026, 6, 1, tzinfo=UTC) - timedelta(days=cls.asked)


def test_a_clock_that_jumps_changes_no_duration(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("good")
    engine = FakeEngine({"repro.py": [REPRO_END], "fixed.py": [FIXED_END]})
    monkeypatch.setattr(choosing, "choose", lambda *_: engine)
    for module in (jobs, pipeline):
        monkeypatch.setattr(module, "datetime", Backwards)
    job = Job(case="good", environment="plain", failure="exception", project="owner/name", grade=Grade.SIMULATED)
    settings = Settings(root=str(world.root), reports=str(world.reports))
    finished = jobs.run_job(Start(job=job), settings, Console(sys.stderr))
    assert finished
    assert finished.end is End.RAN, finished.reason
    assert Backwards.asked >= 2
    assert 0 < finished.duration_s < 60
    durations = Evidence.read(world.reports / str(finished.evidence)).durations
    assert all(0 <= each < 60 for each in (durations.prepare_s, durations.trials_s, durations.total_s))
