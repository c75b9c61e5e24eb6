"""What only the docker engine promises."""

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpu_casebook.daemon.client import LABEL, APIError, DockerClient, connect, find_image, pull, speaking
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.docker import engine, made, running
from gpu_casebook.engines.docker.engine import DockerEngine
from gpu_casebook.engines.docker.options import Part
from gpu_casebook.engines.docker.payload import archive_of
from gpu_casebook.engines.owner import Owner
from gpu_casebook.errors import BuildError, EngineError, MachineError, UsageError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.trial import Limits, Recipe, TrialRequest
from tests.engines.subjects import ROOT, Bench, DockerSubject, eventually

pytestmark = pytest.mark.docker


@pytest.fixture
def kept(docker_bench: Bench, docker_subject: DockerSubject) -> Iterator[dict[str, Any]]:
    """What the engine says of a trial's container that was left there."""
    result = docker_bench.run("pass", keep=True, limits={"memory_bytes": 2**28, "processes": 77})
    assert result.kept
    yield docker_subject.client.containers.get(result.kept.split()[1]).attrs
    docker_subject.take_away(result.kept)


def test_a_container_is_confined(kept: dict[str, Any]) -> None:
    host = kept["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] is None
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"]
    assert not host["Privileged"]
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (2**28, 2**28, 77)
    assert host["Init"]
    assert host["LogConfig"]["Type"] == "none"
    assert kept["Config"]["User"] not in {"", "root", "0", "0:0"}


def test_nothing_of_the_client_is_mounted(kept: dict[str, Any]) -> None:
    assert kept["HostConfig"]["Binds"] is None
    assert [(mount["Type"], mount["Destination"], mount["RW"]) for mount in kept["Mounts"]] == [
        ("volume", "/case", False)
    ]


def test_containers_and_volumes_say_whose_they_are(kept: dict[str, Any], docker_subject: DockerSubject) -> None:
    volume = docker_subject.client.volumes.get(kept["Mounts"][0]["Name"])
    for labels in (kept["Config"]["Labels"], volume.attrs["Labels"]):
        assert labels[f"{LABEL}.owner"] == str(Owner.current())
        assert labels[f"{LABEL}.run"]


def test_seen_from_inside(docker_bench: Bench) -> None:
    script = """
import os, re
status = open("/proc/self/status").read()
for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp"):
    print(name, re.search(rf"{name}:\\s*(\\S+)", status)[1])
print(os.getuid() != 0, os.getgid() != 0, os.getgroups())
for place in ("/", "/case", "/usr", "/etc"):
    try:
        open(os.path.join(place, "x"), "w")
        print("wrote to", place)
    except OSError:
        pass
"""
    result = docker_bench.run(script)
    assert result.stdout.splitlines() == [
        "CapEff 0000000000000000",
        "CapBnd 0000000000000000",
        "NoNewPrivs 1",
        "Seccomp 2",
        "True True [1000]",
    ]


def test_shared_memory_is_as_large_as_torch_needs_it(docker_bench: Bench) -> None:
    result = docker_bench.run("import os; s = os.statvfs('/dev/shm'); print(s.f_bsize * s.f_blocks)")
    assert int(result.stdout) == Limits().memory_bytes


def test_files_in_shared_memory_count_as_memory(docker_bench: Bench) -> None:
    script = "with open('/dev/shm/x', 'wb') as file:\n    while True: file.write(bytes(2**20))"
    assert docker_bench.run(script, limits={"memory_bytes": 64 * 2**20}).out_of_memory


def test_what_keeps_a_trial_in_its_place_is_not_its_own_to_set(docker_bench: Bench) -> None:
    names = ("HOME", "TMPDIR", "NVIDIA_VISIBLE_DEVICES")
    result = docker_bench.run(f"import os; print(*map(os.environ.get, {names}))", variables=dict.fromkeys(names, "all"))
    assert result.stdout == "/home/case /tmp void\n"


def test_one_volume_for_all_trials_with_the_same_files(docker_subject: DockerSubject) -> None:
    def volumes() -> int:
        return len(docker_subject.client.volumes.list(filters={"label": f"{LABEL}.run={used._id}"}))

    with docker_subject.make() as used:
        bench = Bench(used, used.prepare(docker_subject.recipe, print))
        empty = volumes()
        for _ in range(2):
            bench.run("print(1)")
        assert volumes() == empty + 1
        bench.run("print(2)")
        assert volumes() == empty + 2
    assert volumes() == 0


def test_a_container_that_is_refused_is_the_machines_fault(
    docker_bench: Bench, docker_subject: DockerSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = "/dev/casebook-is-not-there"
    part = Part(options={"devices": [f"{device}:{device}:rw"]})
    monkeypatch.setattr(DockerEngine, "_gpu_part", lambda *_: part)
    threads = threading.active_count()
    result = docker_bench.run("print(1)")
    assert (result.exit_status, result.signal) == (None, None)
    assert result.infra
    assert device in result.infra
    assert "\n" not in result.infra
    eventually(lambda: threading.active_count() == threads)
    assert docker_subject.client.containers.list(all=True, filters={"name": docker_bench.engine._id}) == []  # type: ignore[attr-defined]


def test_gpus_without_a_way_to_them_end_the_run(docker_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DockerEngine, "gpu_access", lambda _: None)
    with pytest.raises(MachineError, match="no way to a GPU"):
        docker_bench.run("print(1)", gpus=(0,))


def test_a_container_somebody_removed_is_the_machines_fault(
    docker_bench: Bench, docker_subject: DockerSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = running.state_of
    monkeypatch.setattr(engine, "state_of", lambda container: (container.remove(force=True), real(container))[1])
    result = docker_bench.run("print(1)")
    assert result.infra
    assert "No such container" in result.infra


def test_an_image_that_is_not_there(docker_subject: DockerSubject) -> None:
    with docker_subject.make() as engine, pytest.raises(BuildError, match="not on the engine and could not be pulled"):
        engine.prepare(Recipe(image="cpu", lock="", use_image="casebook.invalid/no/such:1"), print)


def test_an_image_without_python(docker_client: DockerClient, docker_subject: DockerSubject, sleeper: bytes) -> None:
    image = imported(docker_client, sleeper)
    try:
        with docker_subject.make() as engine, pytest.raises(UsageError, match="has no python3 that runs"):
            engine.prepare(Recipe(image="cpu", lock="", use_image=image.name), print)
    finally:
        docker_client.images.remove(image.id)


def test_an_image_is_built_where_none_is_named(
    docker_subject: DockerSubject, docker_client: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Recipe] = []

    def ensure(client: DockerClient, _root: Path, recipe: Recipe, note: object) -> ImageFacts:
        asked.append(recipe)
        found = find_image(client, str(docker_subject.recipe.use_image))
        assert found
        return found

    recipe = replace(docker_subject.recipe, use_image=None, lock="a lock")
    monkeypatch.setattr("gpu_casebook.images.build.ensure", ensure)
    with DockerEngine(connect(), ROOT) as engine:
        prepared = engine.prepare(recipe, print)
    assert asked == [recipe]
    assert prepared.image
    assert prepared.key == prepared.image.id


def test_a_full_disk_is_told_as_such() -> None:
    error = APIError("500", explanation="write /x: no space left on device")
    with (
        pytest.raises(MachineError, match="could not paint: write /x: no space left on device"),
        speaking("paint"),
    ):
        raise error


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("unix:///nowhere/docker.sock", "No such file or directory"),
        ("tcp://127.0.0.1:1", "Connection refused"),
    ],
)
def test_no_daemon_is_one_line(host: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(EngineError) as raised:
        connect()
    assert str(raised.value) == f"no Docker engine answers at {host}: {said}"


def test_only_one_module_imports_the_docker_sdk() -> None:
    importing = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "runner" / "gpu_casebook").rglob("*.py")
        if re.search(r"^\s*(import docker\b|from docker\b)", path.read_text(), re.MULTILINE)
    ]
    assert importing == ["runner/gpu_casebook/daemon/client.py"]


@pytest.fixture(scope="session")
def sleeper() -> bytes:
    """The root of a very small image: this machine's `sleep` with the libraries it needs, as a tar archive."""
    program = shutil.which("sleep")
    assert program
    libraries = re.findall(
        r"(/\S+)", subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    )
    files = {program: "bin/sleep"} | {library: library.lstrip("/") for library in libraries}
    return archive_of({name: Path(path).read_bytes() for path, name in files.items()}, mode=0o755)


def imported(client: DockerClient, root: bytes) -> ImageFacts:
    tag = str(os.getpid())  # other tests run beside this one
    client.api.import_image_from_data(root, repository="casebook-test/sleeper", tag=tag)
    found = find_image(client, f"casebook-test/sleeper:{tag}")
    assert found
    return found


@pytest.fixture
def own_daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A Docker daemon that may be killed."""
    top = Path(tempfile.mkdtemp(prefix="casebook-", dir="/tmp"))  # sockets want short names
    monkeypatch.setenv("DOCKER_HOST", f"unix://{top}/docker.sock")
    with started(top) as daemon:
        try:
            yield daemon
        finally:
            daemon.terminate()
    clear_up_after(top)
    shutil.rmtree(top)


def started(top: Path, storage: str = "vfs") -> "subprocess.Popen[bytes]":
    """On a busy disk its containerd may need longer to start than it is given: then once more."""
    options = ["--bridge=none", "--iptables=false", "--ip6tables=false", f"--storage-driver={storage}"]
    options += [f"--{name}={top / name}" for name in ("data-root", "exec-root", "pidfile")]
    for _ in range(3):
        with (top / "log").open("wb") as log:
            daemon = subprocess.Popen(["dockerd", *options, "-H", f"unix://{top}/docker.sock"], stdout=log, stderr=log)
        eventually(lambda one=daemon: answers() or one.poll() is not None)  # type: ignore[misc]
        if daemon.poll() is None:
            return daemon
        clear_up_after(top)
    pytest.fail((top / "log").read_text()[-2000:])


def clear_up_after(top: Path) -> None:
    """A daemon that is killed leaves its containers running, and mounts."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(str(top) in word for word in process.cmdline()):
                for one in (*process.children(recursive=True), process):
                    one.kill()
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[1].startswith(str(top)):
            subprocess.run(["umount", "--lazy", line.split()[1]], check=True)


def answers() -> bool:
    try:
        connect().close()
    except EngineError:
        return False
    return True


@pytest.mark.skipif(not shutil.which("dockerd"), reason="starts a Docker daemon of its own, and there is no dockerd")
def test_a_daemon_that_dies_is_one_line(own_daemon: "subprocess.Popen[bytes]", sleeper: bytes) -> None:
    client = connect()
    image = imported(client, sleeper)
    prepared = Prepared(key=image.id, python="/bin/sleep", image=image)
    request = TrialRequest(files={"x": b""}, arguments=["600"])

    def kill_when_it_runs() -> None:
        eventually(client.containers.list)
        client.close()
        own_daemon.kill()

    killer = threading.Thread(target=kill_when_it_runs, daemon=True)
    with pytest.raises(EngineError) as raised, DockerEngine(connect(), ROOT) as engine:  # noqa: PT012
        killer.start()
        pytest.fail(f"it went on: {engine.run(prepared, request)}")
    killer.join()
    assert str(raised.value).startswith("could not run a trial: ")
    assert "\n" not in str(raised.value)


class TestLeaving:
    @pytest.fixture
    def left(self, docker_client: DockerClient, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """What each attempt to remove all will do: whether the daemon answers."""
        answers: list[bool] = []

        def remove(*_: object) -> list[str]:
            if not answers.pop(0):
                raise EngineError("could not remove containers and volumes: no daemon")
            return []

        monkeypatch.setattr(made, "remove", remove)
        return answers

    def test_a_daemon_that_comes_back_is_cleared(self, left: list[bool]) -> None:
        left += [False, False, True]
        with DockerEngine(connect(), ROOT):
            pass
        assert left == []

    @pytest.mark.parametrize("why", [KeyboardInterrupt, None])
    def test_what_could_not_be_removed_is_said(
        self, left: list[bool], monkeypatch: pytest.MonkeyPatch, why: type[BaseException] | None
    ) -> None:
        monkeypatch.setattr(made, "RESTART_S", 0.0)
        left += [False]
        with pytest.raises(EngineError, match="could not remove"):
            DockerEngine(connect(), ROOT).__exit__(why)


def test_pulling_says_which_image(docker_client: DockerClient) -> None:
    notes: list[str] = []
    with pytest.raises(BuildError, match=r"casebook\.invalid/no/such"):
        pull(docker_client, "casebook.invalid/no/such", notes.append)
    assert notes == ["pulling casebook.invalid/no/such"]


def test_files_of_a_payload_may_be_read_by_all_and_changed_by_none() -> None:
    archive = archive_of({"b/c/d.py": b"1", "a.py": b"22"})
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        entries = {entry.name: (entry.mode, entry.uid, entry.size) for entry in opened}
    assert entries == {"b": (0o755, 0, 0), "b/c": (0o755, 0, 0), "b/c/d.py": (0o644, 0, 1), "a.py": (0o644, 0, 2)}


@pytest.mark.parametrize(
    ("files", "blocks"), [({}, 0), ({"a.py": b"1"}, 2), ({"b/c.py": b"1" * 513, "d": b""}, 1 + 3 + 1)]
)
def test_a_payload_has_no_padding_behind_its_end(files: dict[str, bytes], blocks: int) -> None:
    archive = archive_of(files)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert [entry.name for entry in opened if entry.isfile()] == sorted(files)
    assert len(archive) == (blocks + 2) * tarfile.BLOCKSIZE
