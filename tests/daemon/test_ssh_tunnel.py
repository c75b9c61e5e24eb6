"""A Docker engine on another machine: what is asked of ssh, and all of it for real with a second daemon here."""

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpu_casebook.daemon import ssh_tunnel
from gpu_casebook.daemon.client import DockerClient, connect, find_image, load, save
from gpu_casebook.daemon.ssh_tunnel import Tunnel, ssh_command
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.docker.engine import DockerEngine
from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import Evidence
from gpu_casebook.trial import Limits, TrialRequest
from tests.conftest import PLAIN
from tests.daemon import remote
from tests.daemon.remote import SshServer
from tests.engines.subjects import ROOT, eventually
from tests.fakes import locked


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ssh://box", ["--", "box", "docker system dial-stdio"]),
        ("ssh://me@box:2222", ["-l", "me", "-p", "2222", "--", "box", "docker system dial-stdio"]),
        ("ssh://box/run/my.sock", ["--", "box", "docker --host unix:///run/my.sock system dial-stdio"]),
        ("ssh://box/a b", ["--", "box", "docker --host 'unix:///a b' system dial-stdio"]),
        ("ssh://[::1]/", ["--", "::1", "docker system dial-stdio"]),
    ],
)
def test_what_ssh_is_asked_for(address: str, words: list[str]) -> None:
    command = ssh_command(address)
    assert command[0] == "ssh"
    assert command[-len(words) :] == words
    assert "-oBatchMode=yes" in command  # nobody is there to type a password


@pytest.mark.parametrize(
    "address",
    ["ssh://", "ssh://-oProxyCommand=x", "ssh://-l@box", "ssh://me:secret@box", "ssh://box:port", "ssh://b?x"],
)
def test_an_address_that_is_none_is_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(EngineError, match=r"write ssh://\[USER@\]HOST\[:PORT\], without a password$"):
        connect()


def test_without_ssh_the_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "ssh://box")
    with pytest.raises(EngineError, match=r"^no Docker engine answers at ssh://box: there is no ssh on this machine"):
        connect()


def test_a_place_too_long_for_a_socket_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(EngineError, match="set TMPDIR to a shorter path"):
        Tunnel("ssh://box")
    assert not list(long.iterdir())


@pytest.fixture(scope="module")
def second(docker_client: DockerClient, python_image: str) -> Iterator[str]:
    """The address of a daemon of its own, which has the image with Python."""
    if reason := remote.missing():
        pytest.skip(reason)
    with remote.daemon() as address:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", address)
            client = connect()
        load(client, save(docker_client, [python_image]))
        client.close()
        yield address


@pytest.fixture
def server(second: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    """In front of that daemon; this process is set up as a client of it."""
    with remote.ssh_server(second) as server:
        monkeypatch.setenv("PATH", server.variables["PATH"])
        monkeypatch.setenv("DOCKER_HOST", server.address)
        yield server


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkout with one case in two environments."""
    case = tmp_path / "cases" / "plain"
    (case / "locks").mkdir(parents=True)
    shutil.copytree(ROOT / "images", tmp_path / "images")
    (case / "case.yaml").write_text(PLAIN)
    (case / "repro.py").write_text("import helper\nraise ValueError('sizes differ')\n")
    (case / "fixed.py").write_text("import helper\nprint('all good')\n")
    (case / "helper.py").touch()
    for environment in ("one", "two"):
        (case / "locks" / f"{environment}.txt").write_text(locked([]))
    return tmp_path


def casebook(place: Path, *words: str) -> str:
    command = [sys.executable, "-m", "gpu_casebook", *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.docker
@pytest.mark.slow
class TestElsewhere:
    def test_trials_run_in_the_engine_that_is_named_with_nothing_of_this_machine_mounted(
        self, second: str, place: Path, python_image: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DOCKER_HOST", second)
        words = ["case", "plain", "--engine", "docker", "--image", python_image, "--keep"]
        assert "confirmed: plain, environment one on CPU" in casebook(place, *words)
        client = connect()
        kept = client.containers.list(all=True)
        assert kept
        mounts = [mount for container in kept for mount in container.attrs["Mounts"]]
        assert {mount["Type"] for mount in mounts} <= {"volume", "tmpfs"}
        assert not any(container.attrs["HostConfig"]["Binds"] for container in kept)
        for container in kept:
            container.remove(force=True, v=True)
        client.close()

    @pytest.mark.usefixtures("server")
    def test_a_run_of_the_corpus_through_ssh(self, place: Path, python_image: str) -> None:
        words = ["corpus", "--engine", "docker", "--image", python_image, "--jobs", "2", "--no-probes"]
        casebook(place, *words)
        for environment in ("one", "two"):
            found = list(place.glob(f"local/evidence/plain/{environment}.docker.cpu*.json"))
            assert len(found) == 1
            assert Evidence.read(found[0]).verdict == "confirmed"

    @pytest.mark.usefixtures("server")
    def test_it_is_not_here_and_leaves_nothing_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ssh_tunnel, "_KEPT_S", 3600)  # nothing goes by itself
        client = connect()
        socket = Path(client.api.adapters["http+docker://"].socket_path)  # type: ignore[attr-defined]
        with DockerEngine(client, ROOT) as engine:
            assert not engine.local
            assert engine.version
            assert processes_of(socket.parent)
        assert not socket.parent.exists()
        eventually(lambda: not processes_of(socket.parent))

    def test_ssh_s_own_words_say_why_it_fails(self, server: SshServer) -> None:
        server.take_key_away()
        with pytest.raises(EngineError) as raised:
            connect()
        assert str(raised.value).startswith(f"no Docker engine answers at {server.address}: ")
        assert "Permission denied (publickey)" in str(raised.value)

    def test_a_connection_that_is_lost_is_one_line(self, server: SshServer, python_image: str) -> None:
        client = connect()
        image = find_image(client, python_image)
        assert image
        prepared = Prepared(key=image.id, python="python3", image=image)
        request = TrialRequest(
            files={"x.py": b"import time; time.sleep(600)"}, arguments=["x.py"], limits=Limits(timeout_s=600.0)
        )
        watching = connect()

        def hang_up_when_it_runs() -> None:
            eventually(watching.containers.list)
            watching.close()
            server.take_key_away()
            server.hang_up()

        killer = threading.Thread(target=hang_up_when_it_runs)
        killer.start()
        with pytest.raises(EngineError) as raised, DockerEngine(client, ROOT) as engine:
            engine.run(prepared, request)
        killer.join()
        assert "\n" not in str(raised.value)


def processes_of(place: Path) -> list[int]:
    """Of any ssh that has something there: the one that keeps the connection is nobody's child."""
    found = psutil.process_iter(["pid", "cmdline"])
    return [each.pid for each in found if f"{place}/" in " ".join(each.info["cmdline"] or ())]


def test_nothing_is_written_by_a_tunnel_that_was_never_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tunnel = ssh_tunnel.Tunnel("ssh://box.invalid")
    assert (tunnel.said, tunnel.socket.exists()) == ("", True)
    tunnel.close()
    tunnel.close()
    assert not list(tmp_path.iterdir())


def test_a_tunnel_that_nobody_closed_goes_with_its_process(tmp_path: Path) -> None:
    code = "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
    code += "from gpu_casebook.daemon.ssh_tunnel import Tunnel\nassert Tunnel('ssh://box.invalid').socket.exists()"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert not list(tmp_path.iterdir())
