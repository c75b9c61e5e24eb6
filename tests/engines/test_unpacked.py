"""Archives of images become directories; and what Charliecloud does otherwise than every engine must."""

import io
import json
import os
import socket
import sys
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from casebook_rootless import charliecloud as module
from casebook_rootless import unpacked
from casebook_rootless.apptainer import ApptainerEngine
from casebook_rootless.archive import unpack
from casebook_rootless.charliecloud import CharliecloudEngine
from gpu_casebook.devices.driver import HostFacts
from gpu_casebook.engines.base import VARIABLES
from gpu_casebook.errors import BuildError, EngineError, UsageError
from gpu_casebook.images.bases import Base
from gpu_casebook.images.stages import plan
from gpu_casebook.trial import Recipe, TrialRequest, Watch
from tests.engines.subjects import ROOT, Bench, CharliecloudSubject

MIB = 2**20


def entry(name: str, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.mode = 0o644
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def layer(*members: tarfile.TarInfo | tuple[str, str]) -> bytes:
    """Return a layer; a file is its name and what is in it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                archive.addfile(entry(member[0], size=len(member[1])), io.BytesIO(member[1].encode()))
    return buffer.getvalue()


def saved(path: Path, *layers: bytes, names: Sequence[str] = ("x:1",), labels: Mapping[str, str] | None = None) -> Path:
    """Write an archive of one image, as `docker save` does."""
    config = json.dumps({"config": {"Env": ["A=b=c"], "Labels": labels}}).encode()
    files = {f"{number}/layer.tar": data for number, data in enumerate(layers)} | {"config.json": config}
    listed = [{"Config": "config.json", "RepoTags": list(names), "Layers": list(files)[:-1]}]
    files["manifest.json"] = json.dumps(listed).encode()
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            archive.addfile(entry(name, size=len(data)), io.BytesIO(data))
    return path


@pytest.fixture
def engine(tmp_path: Path) -> CharliecloudEngine:
    return CharliecloudEngine(ROOT, tmp_path / "store", tmp_path / "scratch")


class TestArchive:
    def unpacked(self, tmp_path: Path, *layers: bytes) -> Path:
        (image,) = unpack(saved(tmp_path / "image.tar", *layers), tmp_path / "store")
        return tmp_path / "store" / image.id.removeprefix("sha256:")[:16] / "root"

    def test_an_image_is_named_by_its_configuration_as_the_daemon_does(self, tmp_path: Path) -> None:
        archive = saved(tmp_path / "image.tar", layer(("x", "12345")), labels={"k": "v"})
        (image,) = unpack(archive, tmp_path / "store")
        with tarfile.open(archive) as opened:
            config = opened.extractfile("config.json")
            assert config is not None
            assert image.id == f"sha256:{sha256(config.read()).hexdigest()}"
        assert (image.names, image.labels, image.variables) == (["x:1"], {"k": "v"}, {"A": "b=c"})
        assert image.size_bytes == 5

    def test_a_layer_takes_away_and_puts_in_the_place(self, tmp_path: Path) -> None:
        root = self.unpacked(
            tmp_path,
            layer(("gone", "1"), ("kept", "1"), ("d/old", "1"), ("tree/a", "1"), ("one", "1"), ("target", "1")),
            layer(
                entry("two", type=tarfile.LNKTYPE, linkname="one"),
                entry("link", type=tarfile.SYMTYPE, linkname="target"),
                entry("place", type=tarfile.SYMTYPE, linkname="d"),
            ),
            layer(
                ("d/new", "2"),
                ("d/.wh..wh..opq", ""),
                (".wh.gone", ""),
                (".wh.tree", ""),
                ("two", "2"),
                ("link", "2"),
                entry("place", type=tarfile.DIRTYPE),
            ),
        )
        assert not (root / "gone").exists()
        assert not (root / "tree").exists()
        assert [path.name for path in (root / "d").iterdir()] == ["new"]
        read = {name: (root / name).read_text() for name in ("kept", "one", "two", "link", "target")}
        assert read == {"kept": "1", "one": "1", "two": "2", "link": "2", "target": "1"}
        assert (root / "place").is_dir()
        assert not (root / "place").is_symlink()

    def test_files_are_the_users_own_and_can_be_removed(self, tmp_path: Path) -> None:
        root = self.unpacked(
            tmp_path,
            layer(entry("d", type=tarfile.DIRTYPE, mode=0o555, uid=12345), ("d/x", "1")),
            layer(entry("s", mode=0o6777, uid=12345), entry("dev/sda", type=tarfile.BLKTYPE), ("d/y", "2")),
        )
        assert [(root / name).stat().st_mode & 0o7777 for name in ("d", "s")] == [0o755, 0o755]
        assert {(root / name).stat().st_uid for name in ("d", "s")} == {os.getuid()}
        assert not (root / "dev" / "sda").exists()

    @pytest.mark.parametrize(
        "bad",
        [
            [entry("out", type=tarfile.SYMTYPE, linkname="/etc"), ("out/passwd", "")],
            [entry("out", type=tarfile.SYMTYPE, linkname="../../.."), (".wh.x", ""), ("out/.wh.outside", "")],
            [
                entry("out", type=tarfile.SYMTYPE, linkname="../.."),
                entry("x", type=tarfile.LNKTYPE, linkname="out/../outside"),
            ],
        ],
    )
    def test_nothing_leads_out_of_it(self, tmp_path: Path, bad: Sequence[tarfile.TarInfo | tuple[str, str]]) -> None:
        (tmp_path / "outside").write_text("mine")
        with suppress(EngineError):
            root = self.unpacked(tmp_path, layer(*bad[:1]), layer(*bad[1:]))
            assert "mine" not in [path.read_text() for path in root.glob("*") if path.is_file()]
        assert (tmp_path / "outside").read_text() == "mine"

    def test_a_path_through_a_link_that_leads_out_is_refused(self, tmp_path: Path) -> None:
        first = layer(entry("out", type=tarfile.SYMTYPE, linkname=str(tmp_path)))
        with pytest.raises(EngineError, match=r"image.tar: no archive of images that is complete.*out/x leads out of"):
            self.unpacked(tmp_path, first, layer(("out/x", "1")))
        assert not (tmp_path / "x").exists()
        with pytest.raises(EngineError, match="leads out of"):
            self.unpacked(tmp_path, first, layer(("out/.wh.store", "")))
        assert (tmp_path / "store").exists()

    def test_dots_stay_inside(self, tmp_path: Path) -> None:
        root = self.unpacked(tmp_path, layer(("../../../../x", "1")))
        assert (root / "x").read_text() == "1"

    def test_again_it_only_gets_another_name(self, tmp_path: Path) -> None:
        root = self.unpacked(tmp_path, layer(("x", "1")))
        before = (root / "x").stat().st_ino
        (image,) = unpack(saved(tmp_path / "again.tar", layer(("x", "1")), names=["y:2"]), tmp_path / "store")
        assert image.names == ["x:1", "y:2"]
        assert (root / "x").stat().st_ino == before

    def test_what_is_no_archive_is_one_line(self, tmp_path: Path) -> None:
        path = tmp_path / "image.tar"
        whole = saved(path, layer(("x", "1" * 99999))).read_bytes()
        for data in (b"", b"no archive", whole[:20000], layer(("x", "1")), layer(("manifest.json", "{"))):
            path.write_bytes(data)
            with pytest.raises(EngineError, match=r"image.tar: no archive of images that is complete"):
                unpack(path, tmp_path / "store")


class TestImages:
    @pytest.fixture(autouse=True)
    def no_trial(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(CharliecloudEngine, "_python", lambda *_: "/usr/bin/python3")

    def test_our_own_are_found_by_their_key(self, engine: CharliecloudEngine, tmp_path: Path) -> None:
        recipe = Recipe(image="cpu", lock="")
        base = "bootstrapped from Debian's packages, 0123456789ab"
        name = plan(ROOT, recipe, Base(base, base)).reference
        store = tmp_path / "store"
        with pytest.raises(BuildError, match=rf"\(cpu\) is not here; .*nox -s bundle.* mv NAME.tar {store}"):
            engine.prepare(recipe, print)
        assert engine.absent([recipe, Recipe(image="nosuch", lock="")]) == [recipe]
        saved(store / "a.tar", layer(("x", "1")), names=[name], labels={"casebook.base": base})
        prepared = engine.prepare(recipe, print)
        assert prepared.image is not None
        assert (prepared.image.name, prepared.image.base) == (name, base)
        assert prepared.image.id == engine.image_id(name)
        assert engine.absent([recipe]) == []
        assert engine.prepare(Recipe(image="cpu", lock="", use_image=name), print).key == prepared.key

    def test_one_that_was_changed_is_not_used(self, engine: CharliecloudEngine, tmp_path: Path) -> None:
        archive = saved(tmp_path / "image.tar", layer(("lib/x.py", "1")))
        recipe = Recipe(image="cpu", lock="", use_image=str(archive))
        assert engine.prepare(recipe, print).key == engine.prepare(recipe, print).key
        (changed,) = (tmp_path / "store").glob("*/root/lib/x.py")
        changed.write_text("2")
        with pytest.raises(EngineError, match=r"changed since it was unpacked: lib/x.py; rm -rf .*take it in again"):
            engine.prepare(recipe, print)

    def test_a_directory_of_the_sites_own(self, engine: CharliecloudEngine, tmp_path: Path) -> None:
        root = tmp_path / "site"
        (root / "ch").mkdir(parents=True)
        (root / "ch" / "environment").write_text("A=b=c\n\n")
        recipe = Recipe(image="cpu", lock="", use_image=str(root))
        first = engine.prepare(recipe, print)
        assert first.image is not None
        assert (first.image.name, first.image.size_bytes) == (str(root), 7)
        orders = engine._orders(tmp_path, engine._made[first.key], "python3", TrialRequest(files={}, arguments=[]))
        assert "A=b=c" in orders["command"]
        (root / "more").touch()
        assert engine.prepare(recipe, print).key != first.key

    def test_what_is_no_image_is_one_line(self, engine: CharliecloudEngine) -> None:
        with pytest.raises(
            UsageError, match=r"--image my/image:1: no image in .*, no directory, and no archive of one"
        ):
            engine.prepare(Recipe(image="cpu", lock="", use_image="my/image:1"), print)


class TestConnecting:
    def test_without_the_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(EngineError, match=r"^no ch-run on PATH: sudo apt-get install charliecloud$"):
            CharliecloudEngine.connect(ROOT)

    def test_where_users_may_make_no_namespaces(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "ch-run").write_text("#!/bin/sh\necho 0.38 >&2\n")
        (tmp_path / "ch-run").chmod(0o755)
        (tmp_path / "max").write_text("0\n")
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(module, "_NAMESPACES", tmp_path / "max")
        with pytest.raises(EngineError, match=r"no namespaces here: sudo sysctl user.max_user_namespaces"):
            CharliecloudEngine.connect(ROOT)
        (tmp_path / "max").write_text("9\n")
        assert CharliecloudEngine.connect(ROOT).name == "charliecloud"


class TestApptainer:
    """Apptainer was not at hand: a program of its name writes down its words, and runs the trial itself."""

    @pytest.fixture
    def engine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApptainerEngine:
        program = tmp_path / "bin" / "apptainer"
        program.parent.mkdir()
        program.write_text(
            "#!/bin/sh\n"
            f'printf "%s\\n" "$@" >{tmp_path}/words\n'
            '[ "$1" = --version ] && echo apptainer version 1.3.4-dev && exit\n'
            f'[ -e {tmp_path}/broken ] && echo "FATAL:   no" >&2 && exit 255\n'
            'while [ "$1" != /usr/bin/env ]; do shift; done\n'
            'exec "$@"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setitem(unpacked._NEEDED, "PATH", os.environ["PATH"])
        return ApptainerEngine(ROOT, tmp_path / "store", tmp_path / "scratch")

    @pytest.fixture
    def bench(self, engine: ApptainerEngine, tmp_path: Path) -> Bench:
        (tmp_path / "site" / "ch").mkdir(parents=True)
        (tmp_path / "site" / "ch" / "environment").write_text(f"PATH={Path(sys.executable).parent}\n")
        return Bench(engine, engine.prepare(Recipe(image="cpu", lock="", use_image=str(tmp_path / "site")), print))

    def words(self, tmp_path: Path) -> list[str]:
        """Return its words up to the trial's own; the scratch directory is X."""
        words = (tmp_path / "words").read_text().splitlines()
        (scratch,) = {word.split("=")[1].rpartition("/case:")[0] for word in words if word.endswith("/case:/case")}
        return [word.replace(scratch, "X") for word in words[: words.index("/usr/bin/env")]]

    def test_its_command_line(self, bench: Bench, tmp_path: Path) -> None:
        result = bench.run(
            "import os; print(os.environ['A'], os.environ.get('PYTEST_CURRENT_TEST'))", variables={"A": "a,b"}
        )
        assert (result.stdout, result.exit_status) == ("a,b None\n", 0), result.stderr
        contained = ["--containall", "--cleanenv", "--no-home", "--no-privs", "--net", "--network=none"]
        binds = ["--bind=X/case:/case", "--bind=X/home:/home/case", "--bind=X/tmp:/tmp"]
        image = str(tmp_path / "site")
        assert self.words(tmp_path) == ["--silent", "exec", *contained, *binds, "--pwd=/case", image]

    def test_with_gpus(self, bench: Bench, tmp_path: Path) -> None:
        script = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['LD_LIBRARY_PATH'])"
        assert bench.run(script, gpus=[2], variables={"LD_LIBRARY_PATH": "/x"}).stdout == "2 /.singularity.d/libs:/x\n"
        assert "--nv" in self.words(tmp_path)

    def test_that_it_can_not_be_run_is_no_outcome(self, bench: Bench, tmp_path: Path) -> None:
        (tmp_path / "broken").touch()
        result = bench.run("pass")
        assert (result.exit_status, result.infra) == (None, "FATAL:   no")

    def test_what_is_said_of_it(self, engine: ApptainerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        assert engine.version == "Apptainer 1.3.4-dev"
        assert "the runner's authors have not run it" in engine.isolation[0]
        assert ApptainerEngine.connect(ROOT).name == "apptainer"
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(EngineError, match=r"^no apptainer on PATH: install it as its Admin Guide says"):
            ApptainerEngine.connect(ROOT)


@pytest.mark.docker  # its image comes from there
class TestTrial:
    def test_what_the_isolation_line_says(self, charliecloud_bench: Bench, tmp_path: Path) -> None:
        script = """
import os, socket, sys
runner, *paths = sys.argv[1:]
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "NoNewPrivs")):
        print(*line.split())
print(os.getuid(), os.path.expanduser("~"), os.environ["TMPDIR"], list(filter(os.path.exists, paths)))
print([name for _, name in socket.if_nameindex()] == {interfaces}, os.stat("/dev").st_ino == {devices})
print(os.path.exists(f"/proc/{runner}"))
for place in ("/x", "/opt/env/x", f"/proc/{runner}/root", "/proc/1/root"):
    try:
        print(os.listdir(place) if "proc" in place else open(place, "w"))
    except OSError as error:
        print(error.strerror)
"""
        script = script.replace("{interfaces}", repr([name for _, name in socket.if_nameindex()]))
        script = script.replace("{devices}", repr(Path("/dev").stat().st_ino))
        lines = charliecloud_bench.run(script, str(os.getpid()), str(tmp_path), str(ROOT)).stdout.splitlines()
        assert lines == [
            "CapEff: 0000000000000000",
            "NoNewPrivs: 1",
            "1000 /home/case /tmp []",
            "True True",
            "True",
            *["Read-only file system"] * 2,
            *["Permission denied"] * 2,
        ]
        said = " ".join(charliecloud_bench.engine.isolation)
        assert "host's network, its devices and its other processes are within reach" in said
        assert "host's files are out of its reach" in said
        assert "without capabilities, no new privileges" in said

    def test_variables_are_the_images_and_ours_alone(self, charliecloud_bench: Bench) -> None:
        awkward = {"A": "it's $HOME, 'so'", "TMPDIR": "/nowhere", "PATH": "/usr/bin:/x"}
        script = "import json, os; print(json.dumps(dict(os.environ)))"
        given = json.loads(charliecloud_bench.run(script, variables=awkward).stdout)
        assert given["A"] == awkward["A"]
        assert (given["TMPDIR"], given["HOME"], given["PATH"]) == ("/tmp", "/home/case", "/usr/bin:/x")
        assert set(given) - {*VARIABLES, "CUDA_VISIBLE_DEVICES"} == {"A", "TMPDIR", "HOME", "PATH", "VIRTUAL_ENV"}

    @pytest.mark.parametrize("place", ["/dev/shm", "/tmp", "/home/case", "/case"])
    def test_files_count_as_memory(self, charliecloud_bench: Bench, place: str) -> None:
        script = """
import os, sys, tempfile, time
with tempfile.NamedTemporaryFile(dir=sys.argv[1]) as file:
    for _ in range(100):
        file.write(bytes(2**20))
        file.flush()
    time.sleep(60)
"""
        result = charliecloud_bench.run(script, place, limits={"memory_bytes": 64 * MIB})
        assert (result.out_of_memory, result.signal) == (True, "SIGKILL")
        for path in Path("/dev/shm").glob("tmp*") if place == "/dev/shm" else ():
            path.unlink(missing_ok=True)

    def test_that_it_can_not_be_run_is_no_outcome(
        self, charliecloud_bench: Bench, charliecloud_subject: CharliecloudSubject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(CharliecloudEngine, "command", lambda *_: ["ch-run", "--bind=/nowhere:/x", "/", "--"])
        result = charliecloud_bench.run("print(1)")
        assert (result.exit_status, result.signal) == (None, None)
        assert result.infra
        assert result.infra.startswith("ch-run[")
        with charliecloud_subject.make() as engine, pytest.raises(EngineError, match=r"can't run a trial: ch-run\["):
            engine.prepare(charliecloud_subject.recipe, print)

    def test_the_drivers_files_lie_over_empty_ones(
        self, charliecloud_subject: CharliecloudSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """There is no GPU in this: the files are others."""
        for name in ("libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"):
            (tmp_path / name).write_text(f"this is {name}")
        libraries = {name: tmp_path / name for name in ("libcuda.so.1", "libnvidia-ml.so.1")}
        host = HostFacts(libraries=libraries, programs={"nvidia-smi": tmp_path / "nvidia-smi"})
        script = """
import os
from pathlib import Path
for path in sorted(Path("/usr/local/nvidia").glob("*/*")):
    print(path, path.read_text())
for name in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
    print(os.environ[name])
"""
        with charliecloud_subject.make() as engine:
            monkeypatch.setattr(engine, "_host", host)
            ready = Bench(engine, engine.prepare(charliecloud_subject.recipe, print))
            result = ready.run(script, gpus=[1, 0], variables={"LD_LIBRARY_PATH": "/mine"})
        assert result.stdout.splitlines() == [
            "/usr/local/nvidia/bin/nvidia-smi this is nvidia-smi",
            "/usr/local/nvidia/lib64/libcuda.so this is libcuda.so.1",
            "/usr/local/nvidia/lib64/libcuda.so.1 this is libcuda.so.1",
            "/usr/local/nvidia/lib64/libnvidia-ml.so.1 this is libnvidia-ml.so.1",
            "/usr/local/nvidia/lib64:/mine",
            "1,0",
            "PCI_BUS_ID",
        ], result.stderr

    def test_where_it_hangs_is_seen_from_outside(self, charliecloud_bench: Bench) -> None:
        """All of test_hangs.py passes too; what is special is that the trial is in namespaces of its own."""
        result = charliecloud_bench.run("import time\ndef stuck(): time.sleep(600)\nstuck()", watch=Watch(after_s=1.0))
        assert result.hung
        assert any("in stuck" in stack.text for stack in result.stacks if stack.source == "faulthandler")

    def test_evidence_names_it(self, charliecloud_bench: Bench) -> None:
        assert (charliecloud_bench.engine.name, charliecloud_bench.engine.version.split()[0]) == (
            "charliecloud",
            "Charliecloud",
        )
