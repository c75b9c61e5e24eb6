"""Images on a real engine: what is in them, what is not, and that nothing is left over."""

import base64
import hashlib
import http.server
import io
import json
import mmap
import os
import re
import socket
import tarfile
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from casebook_workbench.upkeep.usage import usage
from gpu_casebook.daemon import registry as registries
from gpu_casebook.daemon.client import DockerClient, connect
from gpu_casebook.errors import BuildError, EngineError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.images import bases
from gpu_casebook.images import build as images
from gpu_casebook.images.bases import Base, BasePin, obtain
from gpu_casebook.images.build import ensure
from gpu_casebook.images.stages import plan
from gpu_casebook.packages import sources
from gpu_casebook.packages.settings import collect
from gpu_casebook.pins import SourceFile
from gpu_casebook.trial import Recipe
from tests.engines.subjects import eventually

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
EMPTY = Recipe(image="cpu", lock="")
MARKER = "marker-7f3a91"
"""Put into every setting of the host that a build gets; it may not be anywhere in an image."""


def silent(_line: str) -> None:
    pass


@pytest.fixture(scope="module")
def client() -> Iterator[DockerClient]:
    try:
        connected = connect()
    except EngineError as error:
        if os.environ.get("CASEBOOK_REQUIRE_DOCKER") == "1":
            pytest.fail(f"CASEBOOK_REQUIRE_DOCKER=1, and {error}")
        pytest.skip(str(error))
    yield connected
    connected.close()


@pytest.fixture
def on_this_machine() -> None:
    """For tests with a server here that builds must reach."""
    if not os.environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        pytest.skip("the engine is on another machine")


def serve(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def answer(self, body: bytes, kind: str = "text/html", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


# A package index that wants a password


def wheel(name: str, text: str, needs: str = "") -> bytes:
    """A pure Python wheel of one module."""
    buffer = io.BytesIO()
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), content)
    return buffer.getvalue()


BACKEND = """
import os, socket, sys, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    with socket.socket() as probe:
        probe.settimeout(2)
        reached = probe.connect_ex(("127.0.0.1", PORT))
    seen = [*os.listdir("/run"), *os.listdir("/srv"), *(name for name in os.environ if "MARKER" in os.environ[name])]
    name = "probe_source-1.0-py3-none-any.whl"
    lines = {"probe_source.py": f"SEEN = {seen}; REACHED = {reached == 0}; PREFIX = {sys.prefix!r}\\n",
             "probe_source-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: probe-source\\nVersion: 1.0\\n",
             "probe_source-1.0.dist-info/WHEEL":
             "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}
    record = "".join(f"{path},,\\n" for path in [*lines, "probe_source-1.0.dist-info/RECORD"])
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        for path, text in {**lines, "probe_source-1.0.dist-info/RECORD": record}.items():
            archive.writestr(path, text)
    return name
"""
"""What a source distribution is built with: it notes what it finds around it."""


def sdist(port: int) -> bytes:
    """A source distribution that brings what builds it."""
    buffer = io.BytesIO()
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    project += f'[project]\nname = "probe-source"\nversion = "1.0"\n# {uuid.uuid4()}\n'
    backend = BACKEND.replace("PORT", str(port)).replace("MARKER", MARKER)
    info = "Metadata-Version: 2.1\nName: probe-source\nVersion: 1.0\n"
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in {"pyproject.toml": project, "backend.py": backend, "PKG-INFO": info}.items():
            entry = tarfile.TarInfo(f"probe_source-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


class Index:
    """Wheels that no build has seen before, whatever the engine remembers of earlier tests."""

    def __init__(self) -> None:
        self.wheels = {
            name: wheel(name, f"ANSWER = 42  # {uuid.uuid4()}\n") for name in ("probe_wheel", "torch", "more")
        }
        self.wheels["needy"] = wheel("needy", f"ANSWER = 7  # {uuid.uuid4()}\n", "Requires-Dist: missing\n")
        self.users: set[str] = set()
        self.downloads: list[str] = []
        self.answers = threading.Event()
        self.answers.set()

    def recipe(self, *names: str) -> Recipe:
        hashes = {name: hashlib.sha256(self.wheels[name]).hexdigest() for name in names}
        lock = [f"{name.replace('_', '-')}==1.0 --hash=sha256:{found}\n" for name, found in hashes.items()]
        return Recipe(image="cpu", lock="".join(lock))


@pytest.fixture
def private_index(on_this_machine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    """Settings of this machine for builds, each with the marker in it, and the index that they name."""
    index = Index()

    class Handler(Quiet):
        def do_GET(self) -> None:
            scheme, _, token = self.headers.get("Authorization", "").partition(" ")
            if scheme != "Basic":
                return self.answer(b"", status=401, WWW_Authenticate="Basic")
            index.users.add(base64.b64decode(token).decode().partition(":")[0])
            name = re.split(r"-1\.0", self.path.strip("/").split("/")[-1])[0].replace("-", "_")
            if not self.path.endswith((".whl", ".gz")):
                file = f"{name}-1.0{'.tar.gz' if name == 'probe_source' else '-py3-none-any.whl'}"
                return self.answer(f'<a href="/{file}">{file}</a>'.encode())
            index.answers.wait(60)
            if self.command == "GET":
                index.downloads.append(name)
            forever = "max-age=365000000, immutable, public"  # as on PyPI
            return self.answer(index.wheels[name], "application/octet-stream", Cache_Control=forever)

        do_HEAD = do_GET  # noqa: N815 as the server spells it

    bundle = tmp_path / "ca.pem"
    known = collect().certificates
    bundle.write_bytes(f"# {MARKER}\n".encode() + (known.read_bytes() if known else b""))
    for port in serve(Handler):
        index.wheels["probe_source"] = sdist(port)
        for name in [
            name for name in os.environ if name.startswith(("UV_", "PIP_")) or name.lower().endswith("_proxy")
        ]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://{MARKER}:{MARKER}@127.0.0.1:{port}/simple/")
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
        monkeypatch.setenv("NO_PROXY", f"127.0.0.1,{MARKER}.invalid")
        yield index


def remove(client: DockerClient, name: str) -> None:
    client.api.remove_image(name)


@pytest.fixture
def probe_recipe(private_index: Index) -> Recipe:
    return private_index.recipe("probe_wheel")


@pytest.fixture
def probe(client: DockerClient, private_index: Index, probe_recipe: Recipe) -> Iterator[ImageFacts]:
    """An environment built with the marked settings; what it stands on is built with this machine's own before."""
    built = ensure(client, ROOT, probe_recipe, print)
    assert private_index.users == {MARKER}
    yield built
    remove(client, built.name)


@pytest.fixture(scope="module", autouse=True)
def common_stages(client: DockerClient) -> ImageFacts:
    return ensure(client, ROOT, EMPTY, print)


def run(client: DockerClient, image: str, *command: str, **more: Any) -> str:
    """Output of a command in a container that is confined as a trial's is. The command must succeed."""
    container = client.containers.run(
        image,
        list(command),
        detach=True,
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "rw,exec,nosuid,nodev,size=256m,mode=1777"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        labels={"casebook.test": "images"},
        **more,
    )
    try:
        status = container.wait()["StatusCode"]
        output = container.logs().decode()
    finally:
        container.remove(force=True)
    assert status == 0, output
    return output


def python(client: DockerClient, image: str, code: str) -> Any:
    return json.loads(run(client, image, "python", "-c", code))


def tags(client: DockerClient) -> set[str]:
    return {tag for image in client.api.images() for tag in image["RepoTags"] or ()}


# What is in an environment


def test_the_locked_package_works_for_a_user_that_is_not_root_on_a_read_only_root(
    client: DockerClient, probe: ImageFacts
) -> None:
    code = (
        "import json, os, pathlib, sys, probe_wheel as p;"
        "c = pathlib.Path(p.__cached__).read_bytes(); s = os.stat(p.__file__);"
        "print(json.dumps([p.ANSWER, os.getuid(), sys.prefix, list(sys.version_info[:2]),"
        " int.from_bytes(c[8:12], 'little') - int(s.st_mtime), int.from_bytes(c[12:16], 'little') - s.st_size]))"
    )
    assert python(client, probe.name, code) == [42, 1000, "/opt/env", [3, 11], 0, 0]  # bytecode that is up to date


def test_a_c_compiler_and_pythons_headers_are_there(client: DockerClient, probe: ImageFacts) -> None:
    script = (
        "cd /tmp && printf '#include <Python.h>\\nint main(void) { puts(PY_VERSION); }\\n' > a.c"
        " && gcc $(python3-config --includes) -o a a.c && ./a && g++ --version | head -n 1"
        " && ninja --version && openssl version"
    )
    assert run(client, probe.name, "sh", "-c", script).startswith("3.11.")


def test_nothing_of_the_hosts_settings_is_in_the_image(client: DockerClient, probe: ImageFacts, tmp_path: Path) -> None:
    exported = tmp_path / "image.tar"
    with exported.open("wb") as archive:
        archive.writelines(client.images.get(probe.name).save())
    with exported.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        assert content.find(b"ANSWER = 42") >= 0  # layers are there, and as they are
        assert content.find(MARKER.encode()) == -1
    assert MARKER not in json.dumps(client.images.get(probe.name).history())
    assert MARKER not in json.dumps(client.images.get(probe.name).attrs)


def test_nothing_of_the_hosts_settings_stays_in_the_stage_that_installs_debians_packages(
    client: DockerClient, private_index: Index
) -> None:
    """It has one stage, and gets proxies as build arguments."""
    system = next(stage for stage in plan(ROOT, EMPTY, base_of(client)).chain() if stage.part == "system")
    dockerfile = (
        f'ARG BASE\nFROM ${{BASE}}\nLABEL casebook.part=system\nRUN : {uuid.uuid4()} $no_proxy; test -n "$no_proxy"\n'
    )
    probe = replace(system, files={system.dockerfile: dockerfile.encode()})
    images.make(client, probe, base_of(client), print)
    try:
        assert MARKER not in json.dumps(client.images.get(probe.reference).history())
        assert MARKER not in json.dumps(client.images.get(probe.reference).attrs)
    finally:
        remove(client, probe.reference)


def base_of(client: DockerClient) -> Base:
    base = bases.available(client, bases.read_pin(ROOT / "images"))
    assert base is not None
    return base


def test_what_has_no_wheel_is_built_where_nothing_of_the_host_and_no_network_is(
    client: DockerClient, private_index: Index
) -> None:
    lock = private_index.recipe("probe_source", "probe_wheel").lock
    with pytest.raises(BuildError, match=r"no usable wheels|could not build"):
        ensure(client, ROOT, Recipe(image="cpu", lock=lock), print)
    recipe = Recipe(image="cpu", lock=f"# build: probe-source\n{lock}")
    try:
        built = ensure(client, ROOT, recipe, print)
        code = "import json, probe_source as s, probe_wheel; print(json.dumps([s.SEEN, s.REACHED, s.PREFIX]))"
        assert python(client, built.name, code) == [[], False, "/opt/env"]
    finally:
        stages = {stage.reference for stage in plan(ROOT, recipe, base_of(client)).chain()}
        stages |= {plan(ROOT, Recipe(image="cpu", lock=lock), base_of(client)).reference}
        kept = {stage.reference for stage in plan(ROOT, EMPTY, base_of(client)).chain()}
        for name in sorted((stages - kept) & tags(client)):
            remove(client, name)


def test_what_a_lock_leaves_out_of_dependencies_is_left_out_of_the_image(
    client: DockerClient, private_index: Index
) -> None:
    lock = private_index.recipe("needy").lock
    with pytest.raises(BuildError, match="missing"):
        ensure(client, ROOT, Recipe(image="cpu", lock=lock), print)
    built = ensure(client, ROOT, Recipe(image="cpu", lock=f"# without-dependencies: needy\n{lock}"), print)
    try:
        assert python(client, built.name, "import json, needy; print(json.dumps(needy.ANSWER))") == 7
    finally:
        remove(client, built.name)


@pytest.mark.parametrize(("named", "there"), [("needy/*.py", True), ("needy-1.0.dist-info/WHEEL", False)])
def test_files_that_a_lock_does_not_name_are_not_in_the_image(
    client: DockerClient, private_index: Index, named: str, *, there: bool
) -> None:
    lock = f"# without-dependencies: needy\n# only-files: {{}}\n{private_index.recipe('needy').lock}"
    with pytest.raises(BuildError, match="no file of needy matches needy/gone"):
        ensure(client, ROOT, Recipe(image="cpu", lock=lock.format("needy/gone")), print)
    built = ensure(client, ROOT, Recipe(image="cpu", lock=lock.format(named)), print)
    try:
        code = "import json; from importlib.util import find_spec; print(json.dumps(find_spec('needy') is not None))"
        assert python(client, built.name, code) is there
    finally:
        remove(client, built.name)


def test_upstreams_files_are_in_the_image_and_nothing_else_is_new(
    client: DockerClient, private_index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = f"ANSWER = 8  # {uuid.uuid4()}\n".encode()
    file = SourceFile(
        url="https://nowhere.invalid/o/n",
        commit="0" * 40,
        path="src/up/stream.py",
        sha256=hashlib.sha256(content).hexdigest(),
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sources.keep(content)
    lock = private_index.recipe("probe_wheel").lock + sources.locked([file])
    built = ensure(client, ROOT, Recipe(image="cpu", lock=lock, sources=(file,)), print)
    try:
        code = "import json, probe_wheel, up.stream as s; print(json.dumps([s.ANSWER, s.__file__]))"
        assert python(client, built.name, code) == [8, "/opt/env/lib/python3.11/site-packages/up/stream.py"]
        assert MARKER not in json.dumps(client.images.get(built.name).attrs)
    finally:
        remove(client, built.name)


# Nothing is done twice


def test_where_nothing_changed_the_engine_builds_nothing(
    client: DockerClient, probe: ImageFacts, probe_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_more: Any) -> None:
        raise AssertionError("a build was asked for")

    monkeypatch.setattr(images, "build", refuse)
    of_another_case = Recipe(image="cpu", lock=f"# of another case\n{probe_recipe.lock}")
    assert ensure(client, ROOT, of_another_case, silent) == probe


def test_environments_share_the_layers_of_what_they_stand_on(
    client: DockerClient, probe: ImageFacts, probe_recipe: Recipe, common_stages: ImageFacts
) -> None:
    def layers(name: str) -> list[str]:
        found: list[str] = client.images.get(name).attrs["RootFS"]["Layers"]
        return found

    assert layers(probe.name)[:-1] == layers(common_stages.name)[:-1]
    uses = {use.name: use for use in usage(client, ROOT, {"mine": [probe_recipe]})}
    assert uses[probe.name].cases == ("mine",)
    assert uses[common_stages.name].cases == ()
    own = uses[probe.name].size_bytes - uses[probe.name].shared_bytes
    assert 0 < own < 10 * 2**20 < uses[probe.name].shared_bytes


@pytest.fixture
def make(client: DockerClient, private_index: Index) -> Iterator[Callable[..., ImageFacts]]:
    """Build an environment with these packages; its stages are removed at the end."""
    common = {stage.reference for stage in plan(ROOT, EMPTY, base_of(client)).chain()}
    own: set[str] = set()

    def make(*names: str) -> ImageFacts:
        recipe = private_index.recipe(*names)
        own.update(stage.reference for stage in plan(ROOT, recipe, base_of(client)).chain())
        return ensure(client, ROOT, recipe, print)

    yield make
    for name in own - common:
        remove(client, name)


def test_no_build_downloads_again_what_another_one_did(
    client: DockerClient, private_index: Index, make: Callable[..., ImageFacts]
) -> None:
    make("probe_wheel", "torch")
    assert set(private_index.downloads) == {"probe_wheel", "torch"}
    private_index.downloads.clear()
    second = make("more", "probe_wheel", "torch")
    assert set(private_index.downloads) == {"more"}
    code = "import json, more, probe_wheel, torch; print(json.dumps([more.ANSWER, probe_wheel.ANSWER, torch.ANSWER]))"
    assert python(client, second.name, code) == [42, 42, 42]


def test_locks_with_the_same_torch_share_its_layer_and_the_rest_does_not_touch_it(
    client: DockerClient, make: Callable[..., ImageFacts]
) -> None:
    one, other = (layers_of(client, make(name, "torch").name) for name in ("probe_wheel", "more"))
    assert one[:-1] == other[:-1]
    files = [name for name, kind in one[-1] if kind == tarfile.REGTYPE]
    assert any(name.startswith(f"{PACKAGES}/probe_wheel/") for name in files)
    assert not [name for name in files if "torch" in name]
    assert f"{PACKAGES}/torch/__init__.py" in [name for name, _ in one[-2]]


PACKAGES = "opt/env/lib/python3.11/site-packages"


def layers_of(client: DockerClient, image: str) -> list[list[tuple[str, bytes]]]:
    """Name and type of everything in each layer, the base's first."""
    exported = io.BytesIO(b"".join(client.images.get(image).save()))
    found = []
    with tarfile.open(fileobj=exported) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json") or io.BytesIO())
        for path in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(path)) as layer:
                found.append([(entry.name, entry.type) for entry in layer])
    return found


# Builds that don't come to their end


def test_a_file_with_another_hash_is_a_build_error_and_leaves_nothing(
    client: DockerClient, private_index: Index
) -> None:
    wrong = Recipe(image="cpu", lock=private_index.recipe("more").lock.replace("sha256:", "sha256:0")[:-2] + "\n")
    with pytest.raises(BuildError, match=r"(?s)Hash mismatch.*full log: ") as caught:
        ensure(client, ROOT, wrong, silent)
    log = Path(str(caught.value).rpartition("full log: ")[2])
    assert "Hash mismatch" in log.read_text()
    assert MARKER not in log.read_text()
    assert plan(ROOT, wrong, base_of(client)).reference not in tags(client)


@pytest.mark.alone("no process of any build may be left")
def test_after_ctrl_c_there_is_no_image_and_no_process_left(client: DockerClient, private_index: Index) -> None:
    def interrupt(line: str) -> None:
        if "RUN" in line:
            raise KeyboardInterrupt

    recipe = private_index.recipe("probe_wheel")
    private_index.answers.clear()
    with pytest.raises(KeyboardInterrupt):
        ensure(client, ROOT, recipe, interrupt)
    private_index.answers.set()
    assert plan(ROOT, recipe, base_of(client)).reference not in tags(client)
    eventually(lambda: not [each for each in psutil.process_iter(["cmdline"]) if is_build(each.info["cmdline"] or [])])


def is_build(command: list[str]) -> bool:
    words = " ".join(command)
    return "/run/secrets/settings" in words or "--tag=casebook/" in words


# CUDA


PROGRAM = """
#include <cstdio>
#include <cuda/std/limits>
__global__ void fill(float *out) { out[threadIdx.x] = cuda::std::numeric_limits<float>::max(); }
int main() {
    float *memory = nullptr;
    if (cudaMalloc(&memory, 64 * sizeof(float)) == cudaSuccess) fill<<<1, 64>>>(memory);
    std::printf("ran: %s\\n", cudaGetErrorName(cudaDeviceSynchronize()));
}
"""


def test_cuda13_compiles_links_and_runs_a_program_of_ours(client: DockerClient) -> None:
    image = ensure(client, ROOT, Recipe(image="cuda13", lock=""), print).name
    steps = [
        "cd /tmp",
        'printf "%s" "$PROGRAM" > p.cu',
        "nvcc -arch=sm_90 -cubin -o p.cubin p.cu",
        "head -c 4 p.cubin | tail -c 3",
        "nvcc -arch=sm_90 -o static p.cu",
        "nvcc -arch=sm_90 -cudart shared -o shared p.cu",
        "./static",
        "LD_LIBRARY_PATH=$CUDA_HOME/lib64 ./shared",
    ]
    output = run(client, image, "sh", "-c", " && ".join(steps), environment={"PROGRAM": PROGRAM})
    assert output.startswith("ELF")
    assert output.count("ran: cuda") == 2  # cudaErrorInsufficientDriver where there is no driver


@pytest.mark.parametrize("name", ["cuda12", "cuda13"])
def test_compute_sanitizer_starts_its_target(name: str, client: DockerClient) -> None:
    image = ensure(client, ROOT, Recipe(image=name, lock=""), print).name
    assert "Compute Sanitizer" in run(client, image, "compute-sanitizer", "--version")
    said = run(client, image, "sh", "-c", "compute-sanitizer /bin/true; ls $CUDA_HOME/licenses")
    # Without a driver it gives up only after it has put itself into the target. It can't even start one where the
    # programs for that are missing, and then says "couldn't find exit code".
    assert "COMPUTE-SANITIZER" in said
    assert "couldn't find exit code" not in said
    assert "sanitizer_api" in said


HOST_PROGRAM = """
#include <cstdio>
#include <cuda_runtime.h>
int main() {
    int version = 0;
    cudaRuntimeGetVersion(&version);
    std::printf("runtime %d\\n", version / 1000);
}
"""
PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry nothing() { ret; }
"""


def test_cuda12_has_what_its_wheels_allow(client: DockerClient) -> None:
    image = ensure(client, ROOT, Recipe(image="cuda12", lock=""), print).name
    steps = [
        "cd /tmp",
        'printf "%s" "$HOST_PROGRAM" > p.cpp',
        "g++ -I$CUDA_HOME/include -o p p.cpp -L$CUDA_HOME/lib64 -lcudart",
        "LD_LIBRARY_PATH=$CUDA_HOME/lib64 ./p",
        'printf "%s" "$PTX" > p.ptx',
        "ptxas -arch=sm_90 -o p.cubin p.ptx",
        "head -c 4 p.cubin | tail -c 3",
    ]
    variables = {"HOST_PROGRAM": HOST_PROGRAM, "PTX": PTX}
    assert run(client, image, "sh", "-c", " && ".join(steps), environment=variables) == "runtime 12\nELF"


# Bases


def registry_files(name: str) -> tuple[dict[str, tuple[str, bytes]], str]:
    """Path -> type and content of a registry that has one image, and that image's digest."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("hello"), io.BytesIO())
    digest = {"layer": layer.getvalue()}
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [sha256(digest["layer"])]},
    }
    blobs = [json.dumps(config).encode(), digest["layer"]]
    kinds = ["application/vnd.docker.container.image.v1+json", "application/vnd.docker.image.rootfs.diff.tar"]
    described = [
        {"mediaType": kind, "size": len(blob), "digest": sha256(blob)} for kind, blob in zip(kinds, blobs, strict=True)
    ]
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": kind, "config": described[0], "layers": described[1:]}
    ).encode()
    files = {f"/v2/{name}/blobs/{sha256(blob)}": ("application/octet-stream", blob) for blob in blobs}
    for reference in ("slim", sha256(manifest)):
        files[f"/v2/{name}/manifests/{reference}"] = (kind, manifest)
    return {**files, "/v2/": ("application/json", b"{}")}, sha256(manifest)


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Registry(Quiet):
    files: ClassVar[dict[str, tuple[str, bytes]]]
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path not in self.files:
            return self.answer(b"{}", "application/json", 404)
        kind, body = self.files[self.path]
        return self.answer(body, kind, Docker_Content_Digest=sha256(body))

    do_HEAD = do_GET  # noqa: N815 as the server spells it


def build_on(client: DockerClient, base: Base) -> None:
    system = next(stage for stage in plan(ROOT, EMPTY, base).chain() if stage.part == "system")
    dockerfile = b"ARG BASE\nFROM ${BASE}\nLABEL casebook.part=system\n"
    stage = replace(system, files={system.dockerfile: dockerfile})
    images.make(client, stage, base, print)
    remove(client, stage.reference)


@pytest.fixture
def registry(on_this_machine: None) -> Iterator[BasePin]:
    """A registry on this machine, which engines take without TLS, and a pin of what it has."""
    Registry.files, digest = registry_files("debian")
    for port in serve(Registry):
        yield BasePin(image=f"127.0.0.1:{port}/debian:slim", digest=digest, suite="bookworm")


def test_the_pinned_base_is_pulled_by_its_digest(
    client: DockerClient, registry: BasePin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "bootstrapped", lambda _client: [])
    monkeypatch.setattr(bases, "_bootstrap", None)
    try:
        assert obtain(client, registry, print) == Base(registry.reference, registry.reference)
        assert bases.available(client, registry) == Base(registry.reference, registry.reference)
        monkeypatch.setattr(Registry, "asked", [])
        build_on(client, Base(registry.reference, registry.reference))
        assert Registry.asked == []  # BuildKit takes what is on the engine
    finally:
        remove(client, registry.reference)


def test_a_pin_is_refreshed_from_what_the_registry_has(client: DockerClient, registry: BasePin, tmp_path: Path) -> None:
    text = f"[debian]\nimage = '{registry.image}'\ndigest = 'sha256:{'0' * 64}'\nsuite = 'bookworm'\n"
    (tmp_path / "bases.toml").write_text(text)
    assert bases.refresh(tmp_path, print) == registry
    assert bases.read_pin(tmp_path) == registry


def test_a_registry_that_never_answers_is_given_up(
    client: DockerClient, on_this_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Base("casebook/base:x", "x")
    monkeypatch.setattr(bases, "bootstrapped", lambda _client: [])
    monkeypatch.setattr(bases, "_bootstrap", lambda *_: made)
    monkeypatch.setattr(registries, "_PATIENCE_S", 1)
    patience: list[int] = []

    def watched(seconds: int) -> DockerClient:
        patience.append(seconds)
        return connect(seconds)

    monkeypatch.setattr(registries, "connect", watched)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        port = silent_server.getsockname()[1]
        pin = BasePin(image=f"127.0.0.1:{port}/debian:slim", digest=f"sha256:{'0' * 64}", suite="bookworm")
        told: list[str] = []
        assert obtain(client, pin, told.append) == made
    assert "bootstrapping Debian instead" in told[0]
    assert patience == [1]
