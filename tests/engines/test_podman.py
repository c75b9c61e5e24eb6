"""What is Podman's alone; what every engine must do is in test_conformance.py."""

import dataclasses
import io
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gpu_casebook.daemon import buildkit, podman
from gpu_casebook.daemon.client import ClientAt, DockerClient, load, only_if_present, save, tags
from gpu_casebook.daemon.podman import PodmanClient
from gpu_casebook.devices.driver import CDI_KIND, HostFacts
from gpu_casebook.engines import registry
from gpu_casebook.engines.docker.engine import DockerEngine
from gpu_casebook.engines.podman import memory
from gpu_casebook.engines.podman.engine import PodmanEngine
from gpu_casebook.errors import EngineError, MachineError
from gpu_casebook.images import bases
from gpu_casebook.packages.settings import BuildSettings
from gpu_casebook.trial import Recipe
from tests.engines.subjects import ROOT, Bench, DockerSubject

HERE = [pytest.mark.docker, pytest.mark.podman]
IDNA = "idna==3.10 --hash=sha256:946d195a0d259cbba61165e88e65941f16e9b36ea6ddb97f00452bae8b1287d3\n"


@pytest.fixture(scope="module")
def bench(podman_subject: DockerSubject) -> Iterator[Bench]:
    with podman_subject.make() as engine:
        yield Bench(engine, engine.prepare(podman_subject.recipe, print))


class TestTrial:
    pytestmark = HERE

    def test_seen_from_inside(self, bench: Bench) -> None:
        script = """
import os, socket
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "NoNewPrivs", "Seccomp:")):
        print(*line.split())
print(os.getuid(), os.path.expanduser("~"), [name for _, name in socket.if_nameindex()])
try:
    open("/x", "w")
except OSError as error:
    print(error.strerror)
"""
        lines = bench.run(script).stdout.splitlines()
        assert lines == [
            "CapEff: 0000000000000000",
            "NoNewPrivs: 1",
            "Seccomp: 2",
            "1000 /home/trial ['lo']",
            "Read-only file system",
        ]

    def test_what_is_killed_otherwise_did_not_run_out_of_memory(self, bench: Bench) -> None:
        result = bench.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        assert (result.signal, result.out_of_memory) == ("SIGKILL", False)

    def test_evidence_names_it(self, bench: Bench) -> None:
        assert (bench.engine.name, bench.engine.version.split()[0]) == ("podman", "Podman")


class TestChoice:
    @pytest.mark.docker
    @pytest.mark.podman
    def test_where_no_docker_answers(self, podman_client: PodmanClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
        monkeypatch.setenv("CONTAINER_HOST", podman_client.address)
        notes: list[str] = []
        with registry.choose(None, ROOT, notes.append) as engine:
            assert engine.name == "podman"
        reason = "no Docker engine answers at unix:///nowhere/docker.sock: No such file or directory"
        assert notes == [f"engine: podman ({reason})"]
        with closing(podman.connect_any()) as client:
            assert isinstance(client, PodmanClient)

    @pytest.mark.docker
    @pytest.mark.podman
    def test_it_is_no_docker(self, podman_client: PodmanClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", podman_client.address)
        with pytest.raises(EngineError, match=r"is Podman \S+, no engine of the kind docker$"):
            DockerEngine.connect(ROOT)

    def test_where_it_does_not_answer_a_line_says_how_to_start_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CONTAINER_HOST", "unix:///nowhere/podman.sock")
        with pytest.raises(
            EngineError,
            match=r"^could not reach Podman at unix:///nowhere/podman.sock \(systemctl start podman\.socket",
        ):
            PodmanEngine.connect(ROOT)

    def test_ssh_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CONTAINER_HOST", "ssh://user@box/run/podman/podman.sock")
        with pytest.raises(EngineError, match=r"reached by unix:// or tcp:// here$"):
            podman.connect()


def engine_of(monkeypatch: pytest.MonkeyPatch, version: str, host: HostFacts, **info: object) -> PodmanEngine:
    """An engine that answers so."""
    made = PodmanEngine(cast("DockerClient", SimpleNamespace(api=SimpleNamespace(base_url="http://localhost"))), ROOT)
    for name, value in (("version", f"Podman {version}"), ("_host", host), ("_info", info)):
        monkeypatch.setitem(made.__dict__, name, value)
    return made


GPU = HostFacts(devices=["/dev/nvidia0", "/dev/nvidiactl"], libraries={"libcuda.so.1": Path("/usr/lib64/libcuda.so.1")})


@pytest.mark.parametrize(
    ("version", "kinds", "mode"),
    [
        ("5.4.0", [CDI_KIND], "cdi"),
        ("5.10.1", [CDI_KIND], "cdi"),
        ("4.3.1", [CDI_KIND], "passthrough"),  # its Docker API takes none
        ("5.4.0", [], "passthrough"),
    ],
)
def test_a_gpu_comes_by_cdi_where_the_api_takes_it(
    monkeypatch: pytest.MonkeyPatch, version: str, kinds: list[str], mode: str
) -> None:
    access = engine_of(monkeypatch, version, dataclasses.replace(GPU, cdi_kinds=kinds)).gpu_access()
    assert access
    assert access.mode == mode
    assert engine_of(monkeypatch, version, HostFacts()).gpu_access() is None


@pytest.mark.parametrize(
    ("info", "limits"),
    [
        ({"Rootless": False, "CgroupVersion": "1"}, "limits on memory, processes, time and output"),
        ({"Rootless": True, "CgroupVersion": "2"}, "limits on memory, processes, time and output"),
        (
            {"Rootless": True, "CgroupVersion": "1"},
            "limits on time and output; none on memory and processes (Podman without root on cgroup v1)",
        ),
    ],
)
def test_isolation_claims_no_limits_that_do_not_hold(
    monkeypatch: pytest.MonkeyPatch, info: dict[str, object], limits: str
) -> None:
    assert engine_of(monkeypatch, "4.3.1", HostFacts(), **info).isolation[-1] == limits


def test_without_a_container_nothing_ran_out_of_memory() -> None:
    assert memory.watch(None)() is False
    assert memory.watch(2**22 + 1)() is False  # no process has it


def test_images_go_by_the_names_that_they_were_given() -> None:
    names = ["localhost/casebook/cpu:1", "docker.io/casebook/base:2", "casebook/cpu:3"]
    assert tags({"RepoTags": names}) == ["casebook/cpu:1", "casebook/base:2", "casebook/cpu:3"]
    assert tags({"RepoTags": None}) == []


class TestBuild:
    def context(self, **files: str) -> io.BytesIO:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        made.seek(0)
        return made

    def built(self, client: DockerClient, dockerfile: str, script: str, tag: str) -> list[str]:
        return list(
            buildkit.build(
                client,
                self.context(Dockerfile=dockerfile, data="of the context"),
                dockerfile="Dockerfile",
                tag=tag,
                labels={"casebook.part": "test"},
                arguments={},
                settings=BuildSettings(script),
            )
        )

    def test_without_the_command_a_line_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        client = PodmanClient.__new__(PodmanClient)
        client.address = "unix:///nowhere"
        with pytest.raises(MachineError, match=r"^no podman command is on the PATH, .*: apt-get install podman$"):
            self.built(client, "FROM scratch", "", "casebook-test/none:1")

    @pytest.mark.docker
    @pytest.mark.podman
    def test_settings_are_a_secret_and_no_part_of_the_image(
        self, podman_client: PodmanClient, podman_subject: DockerSubject
    ) -> None:
        tag = "casebook-test/secret:1"
        dockerfile = f"""
FROM {podman_subject.recipe.use_image}
USER 0:0
RUN --mount=type=bind,target=/mnt --mount=type=tmpfs,target=/run --mount=type=secret,id=settings \\
    . /run/secrets/settings && echo "given: $GIVEN" && cat /mnt/data
"""
        try:
            said = self.built(podman_client, dockerfile, "export GIVEN=yes\n", tag)
            assert "given: yes" in said
            assert any("of the context" in line for line in said)
            assert "GIVEN=yes" not in str(podman_client.images.get(tag).history())
        finally:
            with only_if_present():
                podman_client.images.remove(tag)

    @pytest.mark.docker
    @pytest.mark.podman
    def test_a_command_that_fails_is_one_line(self, podman_client: PodmanClient, podman_subject: DockerSubject) -> None:
        dockerfile = f"FROM {podman_subject.recipe.use_image}\nRUN exit 7\n"
        with pytest.raises(
            Exception, match=r"^could not build casebook-test/bad:1: a command ended with exit status 7$"
        ):
            self.built(podman_client, dockerfile, "", "casebook-test/bad:1")

    @pytest.mark.docker
    @pytest.mark.podman
    @pytest.mark.slow
    def test_an_image_is_built_once_and_found_again(
        self, podman_subject: DockerSubject, docker_client: DockerClient, podman_client: ClientAt
    ) -> None:
        """On the base that Docker has."""
        base = bases.bootstrapped(docker_client)[0].reference
        load(podman_client, save(docker_client, [base]))
        with podman_subject.make() as engine:
            recipe = Recipe(image="cpu", lock=IDNA)  # a lock of comments alone would be the image of all other tests
            prepared = engine.prepare(recipe, print)
            assert prepared.image
            notes: list[str] = []
            assert engine.prepare(recipe, notes.append).image == prepared.image
            assert not [note for note in notes if "building" in note]
            assert Bench(engine, prepared).run("print(6 * 7)").stdout == "42\n"
            podman_client.api.remove_image(prepared.image.name, force=True)
