"""Content keys, what a build is told and tells, and which images go: without an engine."""

import hashlib
import io
import itertools
import os
import re
import shutil
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from casebook_workbench.upkeep.usage import remove_unused, usage
from gpu_casebook.daemon.client import DockerClient
from gpu_casebook.errors import BuildError, EngineError, MachineError, UsageError
from gpu_casebook.guest import only
from gpu_casebook.images import build as images
from gpu_casebook.images.bases import BOOTSTRAPPED, Base, BasePin, read_pin
from gpu_casebook.images.build import absent, build_all, ensure, progress, reference
from gpu_casebook.images.stages import Stage, normalised, plan
from gpu_casebook.manifest.case import known_images
from gpu_casebook.packages.index import UnreachableError
from gpu_casebook.packages.settings import BuildSettings
from gpu_casebook.trial import Recipe
from tests.fake_docker import FakeDocker, Image, image

ROOT = Path(__file__).parents[2]
BASE = Base("debian@sha256:1", "debian@sha256:1")
OTHER = Base("casebook/base:x", f"{BOOTSTRAPPED}, 123456789abc")


def in_full(text: str) -> str:
    """Return the text with hashes of the length they have."""
    return re.sub(r"sha256:([0-9a-f]{2})\b", lambda match: f"sha256:{match[1] * 32}", text)


LOCK = in_full("""\
# Written by `nox -s lock`, not by hand.
# download-bytes: 1000000000
b==2 \\
    --hash=sha256:bb \\
    --hash=sha256:cc
a==1 --hash=sha256:aa
""")
RECIPE = Recipe(image="cpu", lock=LOCK)
SETTINGS = BuildSettings("export SECRET=1\n")


def silent(_line: str) -> None:
    pass


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the checkout's images that a test may change."""
    shutil.copytree(ROOT / "images", tmp_path / "images")
    return tmp_path


@pytest.fixture(autouse=True)
def no_files_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Logs and locks of the code under test stay in the test's directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def pin() -> BasePin:
    return read_pin(ROOT / "images")


def pinned() -> Base:
    return Base(pin().reference, pin().reference)


def on_engine(stage: Stage, *, created: int = 1) -> Image:
    return image(
        stage.reference, part=stage.part, created=created, image=stage.image, key=stage.key, base=stage.base.identity
    )


# What a run of many cases asks beforehand


def test_the_reference_of_today_is_that_of_the_plan_and_a_base_of_old_has_none() -> None:
    for base in (pinned(), OTHER):
        assert reference(ROOT, RECIPE, base.identity) == plan(ROOT, RECIPE, base).reference
    assert reference(ROOT, RECIPE, "debian@sha256:1") is None
    assert reference(ROOT, RECIPE, "") is None


def test_what_is_absent_is_what_would_be_built() -> None:
    there, other = plan(ROOT, RECIPE, pinned()), Recipe(image="cpu", lock=LOCK.replace("b==2", "b==3"))
    gpu, newer = Recipe(image="cuda13", lock=LOCK), Recipe(image="cpu", lock=LOCK, python="3.12")
    engine = FakeDocker([image(pinned().reference, part="base"), *map(on_engine, there.chain())])
    assert absent(engine.client, ROOT, [RECIPE]) == []
    assert absent(engine.client, ROOT, [RECIPE, other, newer]) == [other]
    assert absent(engine.client, ROOT, [other, gpu]) == [other, gpu]
    assert absent(FakeDocker([]).client, ROOT, [RECIPE]) == [RECIPE]


# The key


def test_the_same_again_has_the_same_tag() -> None:
    assert plan(ROOT, RECIPE, BASE).reference == plan(ROOT, Recipe(image="cpu", lock=LOCK), BASE).reference


def test_the_tag_names_the_image_and_is_one_the_engine_takes() -> None:
    assert re.fullmatch(r"casebook/cuda13:[0-9a-f]{20}", plan(ROOT, Recipe(image="cuda13", lock=""), BASE).reference)


def test_comments_order_and_line_breaks_of_a_lock_dont_count() -> None:
    other = in_full("a==1 \\\r\n  --hash=sha256:aa\n\n# a comment\nb==2   --hash=sha256:bb --hash=sha256:cc\n")
    assert normalised(LOCK) == normalised(other)
    assert plan(ROOT, RECIPE, BASE).key == plan(ROOT, Recipe(image="cpu", lock=other), BASE).key


def test_what_gets_installed_is_the_lock_without_its_comments() -> None:
    expected = in_full("a==1 --hash=sha256:aa\nb==2 --hash=sha256:bb --hash=sha256:cc\n").encode()
    assert plan(ROOT, RECIPE, BASE).files["lock.txt"] == expected


@pytest.mark.parametrize("old_new", [("b==2", "b==3"), ("sha256:cc", "sha256:cd"), ("b==2", "b[x]==2")])
def test_another_lock_is_another_image(old_new: tuple[str, str]) -> None:
    changed = Recipe(image="cpu", lock=LOCK.replace(*old_new))
    assert plan(ROOT, changed, BASE).key != plan(ROOT, RECIPE, BASE).key


def test_another_base_is_another_image() -> None:
    assert plan(ROOT, RECIPE, OTHER).key != plan(ROOT, RECIPE, BASE).key


@pytest.mark.parametrize(
    "path",
    ["cpu/Dockerfile", "common/system.Dockerfile", "common/installer.Dockerfile", "common/environment.Dockerfile"],
)
def test_a_change_in_any_dockerfile_is_another_image(path: str, root: Path) -> None:
    before = plan(root, RECIPE, BASE).key
    (root / "images" / path).write_text((root / "images" / path).read_text() + "# more\n")
    assert plan(root, RECIPE, BASE).key != before


def test_everything_in_an_images_directory_counts_for_that_image_alone(root: Path) -> None:
    recipes = [Recipe(image=name, lock=LOCK) for name in ("cuda12", "cuda13")]
    before = [plan(root, recipe, BASE).key for recipe in recipes]
    (root / "images" / "cuda13" / "deeper").mkdir()
    (root / "images" / "cuda13" / "deeper" / "file").touch()
    after = [plan(root, recipe, BASE).key for recipe in recipes]
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_environments_of_one_image_stand_on_the_same_stages_and_images_on_the_same_system() -> None:
    one, other = (plan(ROOT, Recipe(image="cuda13", lock=lock), BASE) for lock in ("", LOCK))
    assert [each.reference for each in one.chain()][1:] == [each.reference for each in other.chain()][1:]  # no torch
    cpu = {each.reference for each in plan(ROOT, RECIPE, BASE).chain() if each.part == "system"}
    assert cpu == {each.reference for each in one.chain() if each.part == "system"}


TORCH = """\
nvidia-cublas-cu12==12 --hash=sha256:05
pytorch-x==1 --hash=sha256:06
torch==2.2.2 \\
    --hash=sha256:01 \\
    --hash=sha256:02
torchvision==0.17 --hash=sha256:03
triton==2.2.0 --hash=sha256:04  # via torch
"""


def torch_stage(lock: str, image: str = "cpu", base: Base = BASE) -> Stage:
    (stage,) = [each for each in plan(ROOT, Recipe(image=image, lock=lock), base).chain() if each.part == "torch"]
    return stage


def test_torch_has_a_stage_of_its_own_with_triton_and_nvidias_libraries() -> None:
    assert torch_stage(TORCH).files["lock.txt"].decode().splitlines() == [
        "nvidia-cublas-cu12==12 --hash=sha256:05",
        "torch==2.2.2 --hash=sha256:01 --hash=sha256:02",
        "triton==2.2.0 --hash=sha256:04",
    ]
    assert torch_stage(LOCK).files["lock.txt"] == b""
    assert torch_stage("torch[opt-einsum]==2 --hash=sha256:01\n").files["lock.txt"].startswith(b"torch[opt-einsum]==2 ")


def test_only_torch_itself_and_what_it_stands_on_decide_which_stage_it_is() -> None:
    stage = torch_stage(TORCH).reference
    assert torch_stage(TORCH + LOCK).reference == stage
    assert torch_stage(TORCH.replace("torchvision==0.17", "torchvision==0.18")).reference == stage
    assert torch_stage(TORCH.replace("torch==2.2.2", "torch==2.2.3")).reference != stage
    assert torch_stage(TORCH.replace("sha256:02", "sha256:20")).reference != stage
    assert torch_stage(TORCH, "cuda13").reference != stage
    assert torch_stage(TORCH, base=OTHER).reference != stage


def test_an_image_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="no image 'cuda14'; images/ has cpu, cuda12, cuda13"):
        plan(ROOT, Recipe(image="cuda14", lock=""), BASE)


def test_a_python_that_the_images_dont_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Python 3\.12 .* only Debian's 3\.11"):
        plan(ROOT, Recipe(image="cpu", lock="", python="3.12"), BASE)


def test_the_manifest_knows_the_same_images() -> None:
    assert known_images(ROOT) == ["cpu", "cuda12", "cuda13"]


# The files in images/


def dockerfiles() -> list[Path]:
    return sorted((ROOT / "images").rglob("*Dockerfile"))


@pytest.mark.parametrize("path", dockerfiles(), ids=lambda path: str(path.relative_to(ROOT / "images")))
def test_every_image_says_its_part_and_no_layer_gets_a_mount_point(path: Path) -> None:
    *_, last = re.split(r"(?m)^FROM ", path.read_text())
    assert "LABEL casebook.part=" in last
    for line in last.splitlines():
        if "type=secret" in line:
            assert "--mount=type=tmpfs,target=/run " in line  # or an empty /run/secrets would stay in the layer


@pytest.mark.parametrize("path", dockerfiles(), ids=lambda path: str(path.relative_to(ROOT / "images")))
def test_nothing_is_pulled_for_a_dockerfile(path: Path) -> None:
    assert "syntax=" not in path.read_text()
    below = re.findall(r"(?m)^FROM (\S+)", path.read_text())
    assert all(re.fullmatch(r"\$\{\w+\}", name) for name in below)


@pytest.mark.parametrize("path", sorted((ROOT / "images").rglob("*.txt")), ids=lambda path: path.name)
def test_what_an_image_installs_is_pinned_with_hashes(path: Path) -> None:
    lines = normalised(path.read_text()).splitlines()
    assert lines
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "images").rglob("*.in")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_the_hashes_are_of_the_versions_that_are_asked_for(path: Path) -> None:
    pins = [line.split(" ")[0] for line in normalised(path.with_suffix(".txt").read_text()).splitlines()]
    assert pins == normalised(path.read_text()).splitlines()


# What is on the engine already


@pytest.fixture
def no_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_more: Any) -> None:
        raise AssertionError("a build was asked for")

    monkeypatch.setattr(images, "build", refuse)
    monkeypatch.setattr("gpu_casebook.images.bases.obtain", refuse)


@pytest.mark.usefixtures("no_builds")
@pytest.mark.parametrize("base", [pinned(), OTHER], ids=["pinned", "bootstrapped"])
def test_where_nothing_changed_nothing_is_built_even_if_the_base_is_gone(base: Base) -> None:
    stage = plan(ROOT, RECIPE, base)
    facts = ensure(FakeDocker([on_engine(stage)]).client, ROOT, RECIPE, silent)
    assert (facts.name, facts.base, facts.size_bytes) == (stage.reference, base.identity, 1000)


@pytest.mark.usefixtures("no_builds")
def test_an_image_on_the_pinned_base_goes_before_one_on_a_bootstrapped_one() -> None:
    both = [on_engine(plan(ROOT, RECIPE, OTHER), created=2), on_engine(plan(ROOT, RECIPE, pinned()))]
    assert ensure(FakeDocker(both).client, ROOT, RECIPE, silent).base == pin().reference


def test_an_image_on_a_pin_that_was_replaced_is_not_used() -> None:
    old = Base("debian:bookworm-slim@sha256:0", "debian:bookworm-slim@sha256:0")
    fake = FakeDocker([on_engine(plan(ROOT, RECIPE, old))])
    assert images._find(fake.client, ROOT, RECIPE, pin()) is None


@pytest.mark.usefixtures("no_builds")
def test_two_recipes_of_one_image_are_told_once() -> None:
    fake = FakeDocker([on_engine(plan(ROOT, RECIPE, OTHER))])
    same = Recipe(image="cpu", lock=LOCK + "# of another case\n")
    assert len(build_all(fake.client, ROOT, [RECIPE, same], silent)) == 1


# Building


class Builder:
    """Stands in for the engine's builder: each build ends as a function says, and is remembered."""

    def __init__(self, fake: FakeDocker, output: list[str], error: BaseException | None = None) -> None:
        self.fake = fake
        self.tags: list[str] = []
        self.arguments: list[dict[str, str]] = []
        self.settings: list[BuildSettings] = []
        self.networks: list[str] = []
        self.contexts: list[list[str]] = []
        self.closed = 0
        self._output = output
        self._error = error

    def __call__(self, _client: DockerClient, context: Any, **how: Any) -> Iterator[str]:
        self.tags.append(how["tag"])
        self.arguments.append(how["arguments"])
        with tarfile.open(fileobj=context) as archive:
            self.contexts.append(archive.getnames())
        self.settings.append(how["settings"])
        self.networks.append(how["network"])
        try:
            yield from self._output
            if self._error:
                raise self._error
            labels = {name.removeprefix("casebook."): value for name, value in how["labels"].items()}
            self.fake.images.append(image(how["tag"], **labels))
        finally:
            self.closed += 1


def building(monkeypatch: pytest.MonkeyPatch, output: list[str], error: BaseException | None = None) -> Builder:
    fake = FakeDocker([image(OTHER.reference, part="base", id_="sha256:123456789abc")])
    builder = Builder(fake, output, error)
    monkeypatch.setattr(images, "build", builder)
    monkeypatch.setattr(images, "collect", lambda: SETTINGS)
    monkeypatch.setattr(images, "_free_bytes", lambda *_: 2**40)
    return builder


def test_stages_are_built_in_order_and_only_those_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = building(monkeypatch, ["#1 [internal] load build definition"])
    facts = ensure(builder.fake.client, ROOT, Recipe(image="cuda13", lock=LOCK), silent)
    parts = [tag.partition(":")[0] for tag in builder.tags]
    assert parts == [f"casebook/{name}" for name in ("system", "installer", "cuda13-tools", "cuda13-torch", "cuda13")]
    assert builder.tags[-1] == facts.name
    assert facts.base == OTHER.identity
    ensure(builder.fake.client, ROOT, Recipe(image="cuda13", lock=""), silent)
    assert [tag.partition(":")[0] for tag in builder.tags[5:]] == ["casebook/cuda13"]
    assert builder.arguments[4]["IMAGE"] == builder.arguments[5]["IMAGE"] == builder.tags[3]


def test_the_settings_go_in_as_secrets_and_in_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = building(monkeypatch, [])
    ensure(builder.fake.client, ROOT, RECIPE, silent)
    assert builder.settings == [SETTINGS] * 5
    assert builder.contexts[-1] == ["common/environment.Dockerfile", "lock.txt"]
    assert all(name.isupper() and "SECRET" not in value for each in builder.arguments for name, value in each.items())


def test_what_has_no_wheel_is_built_without_settings_and_network(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = building(monkeypatch, [])
    ensure(builder.fake.client, ROOT, Recipe(image="cpu", lock=f"# build: b\n{LOCK}"), silent)
    parts = [tag.partition(":")[0].partition("/")[2] for tag in builder.tags]
    assert parts == ["system", "installer", "cpu-tools", "cpu-torch", "cpu-sources", "cpu-built", "cpu"]
    told = SETTINGS.script
    assert [each.script for each in builder.settings] == [told] * 4 + [
        f"{told}export UV_CONFIG_FILE=/mnt/uv.toml\n",
        "",
        told,
    ]
    assert builder.networks == ["host"] * 5 + ["none", "host"]


def test_pytorchs_own_index_is_asked_unless_a_directory_or_a_mirror_has_its_builds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = tmp_path / "torch-2.0+cpu-py3-none-any.whl"
    wheel.write_bytes(b"torch")
    lock = f"# index: pytorch-cpu\ntorch==2.0+cpu --hash=sha256:{hashlib.sha256(b'torch').hexdigest()}\n{LOCK}"
    told = {}
    for name in ("UV_INDEX", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, "")
    for place, variable in {
        "UV_FIND_LINKS": str(tmp_path),
        "UV_INDEX": "pytorch-cpu=https://mirror.test",
        "": "",
    }.items():
        with monkeypatch.context() as patched:
            patched.setenv("PIP_CONFIG_FILE", os.devnull)
            patched.delenv("PIP_FIND_LINKS", raising=False)
            if place:
                patched.setenv(place, variable)
            builder = building(patched, [])
            ensure(builder.fake.client, ROOT, Recipe(image="cpu", lock=lock), silent)
        more = [each.script.removeprefix(SETTINGS.script) for each in builder.settings]
        told[place] = builder.tags, more, [wheel.name in each for each in builder.contexts]
    (tags, links, has), (_, mirror, _), (same, index, without) = told.values()
    assert tags == same, "what decides is the hash"
    assert links == [""] * 3 + ['export UV_FIND_LINKS="${UV_FIND_LINKS:+$UV_FIND_LINKS,}/mnt"\n'] * 2
    assert has == [False] * 3 + [True] * 2
    assert mirror == [""] * 5
    assert index == [""] * 3 + ["export UV_TORCH_BACKEND=cpu\n"] * 2
    assert without == [False] * 5


def test_an_index_that_is_away_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = f"# index: pytorch-cpu\ntorch==2.0+cpu --hash=sha256:{'a' * 64}\n"
    words = [
        "#9 1.0 error: Request failed after 3 retries",
        "#9 1.0   cause: Failed to fetch: https://x.test/cpu/torch/",
    ]
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    builder = building(monkeypatch, words)
    ensure(builder.fake.client, ROOT, RECIPE, silent)
    builder._error = BuildError("could not build it")
    with pytest.raises(UnreachableError, match=r"^[^\n]*the index pytorch-cpu can't be reached[^\n]*full log: \S+$"):
        ensure(builder.fake.client, ROOT, Recipe(image="cpu", lock=lock), silent)


def test_only_a_lock_with_packages_to_be_built_has_stages_for_them() -> None:
    environment = plan(ROOT, Recipe(image="cpu", lock=f"# build: b\n{LOCK}"), BASE)
    built, sources = environment.below, environment.below.below  # type: ignore[union-attr]
    assert environment.files["lock.txt"] == plan(ROOT, RECIPE, BASE).files["lock.txt"]
    assert isinstance(sources, Stage)
    assert [text.partition(b" ")[0] for text in (sources.files["lock.txt"], sources.files["sources.txt"])] == [
        b"a==1",
        b"b==2",
    ]
    assert isinstance(built, Stage)
    assert built.files["lock.txt"] == sources.files["sources.txt"]
    assert sources.below == plan(ROOT, RECIPE, BASE).below


def test_what_depends_on_nothing_is_told_to_the_installer_and_is_another_image() -> None:
    stage = plan(ROOT, Recipe(image="cpu", lock=f"# without-dependencies: b\n{LOCK}"), BASE)
    assert stage.files["uv.toml"] == b'[[dependency-metadata]]\nname = "b"\nrequires-dist = []\n'
    assert stage.key != plan(ROOT, RECIPE, BASE).key
    assert stage.below == plan(ROOT, RECIPE, BASE).below
    assert "uv.toml" not in plan(ROOT, RECIPE, BASE).files


def test_where_only_some_files_stay_the_context_says_which_and_it_is_an_environment() -> None:
    lock = f"# without-dependencies: b\n{{}}{LOCK}"
    stages = [
        plan(ROOT, Recipe(image="cpu", lock=lock.format(told)), BASE) for told in ("", "# only-files: b/a.so b/*.py\n")
    ]
    assert [stage.part for stage in stages] == ["environment", "environment"]
    assert stages[0].key != stages[1].key
    assert stages[0].below == stages[1].below
    assert stages[1].dockerfile == "common/files.Dockerfile"
    assert (stages[1].files["packages.txt"], stages[1].files["only.txt"]) == (b"b", b"b/a.so b/*.py")
    assert stages[1].files["uv.toml"] == stages[0].files["uv.toml"]
    assert stages[1].files["only.py"] == Path(only.__file__).read_bytes()


def test_a_build_that_fails_says_its_last_lines_and_where_the_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"line {number}" for number in range(30)]
    chatter = ["#5 sha256:0123", *(f"#5 {number}.25 {line}" for number, line in enumerate(lines)), "#5 ERROR: failed"]
    builder = building(monkeypatch, chatter, BuildError("could not build: a command ended with exit status 1"))
    with pytest.raises(BuildError) as caught:
        ensure(builder.fake.client, ROOT, RECIPE, silent)
    first, _, *last, where = str(caught.value).splitlines()
    assert first == "could not build: a command ended with exit status 1"
    assert last == [f"  {line}" for line in lines[-20:]]
    assert Path(where.removeprefix("full log: ")).read_text() == "\n".join([*chatter, ""])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EngineError("the engine went away"), MachineError("full")])
def test_however_a_build_ends_it_is_closed(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = building(monkeypatch, [], error)
    with pytest.raises(type(error)):
        ensure(builder.fake.client, ROOT, RECIPE, silent)
    assert builder.closed == 1


def test_ctrl_c_while_a_line_is_shown_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = building(monkeypatch, ["#5 [2/3] RUN sleep", "more"])

    def interrupt(line: str) -> None:
        if line.startswith("step"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure(builder.fake.client, ROOT, RECIPE, interrupt)
    assert builder.closed == 1


def test_a_second_build_on_this_machine_waits_and_then_finds_it_done(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = building(monkeypatch, [])
    waiting = threading.Event()
    told: list[str] = []

    def note(line: str) -> None:
        told.append(line)
        waiting.set()

    with ThreadPoolExecutor() as pool:
        with images.one_at_a_time(silent):
            second = pool.submit(ensure, builder.fake.client, ROOT, RECIPE, note)
            assert waiting.wait(60)
            builder.fake.images.append(on_engine(plan(ROOT, RECIPE, OTHER)))
        assert second.result(60).name == plan(ROOT, RECIPE, OTHER).reference
    assert told == ["waiting for another build on this machine to end"]
    assert builder.tags == []


def archive(files: dict[str, bytes]) -> io.BytesIO:
    file = io.BytesIO()
    images._archive(files, file)
    return file


def test_the_context_is_the_same_for_the_same_files() -> None:
    one, other = (archive(dict(order)).getvalue() for order in itertools.permutations([("b", b"2"), ("a/x", b"1")]))
    assert one == other
    with tarfile.open(fileobj=archive({"a/x": b"1"})) as read:
        content = read.extractfile("a/x")
        assert content is not None
        assert content.read() == b"1"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "#5 [2/3] RUN --mount=type=bind,target=/mnt     --mount=type=tmpfs,target=/run     apt-get   update && x",
            "step 2/3: RUN apt-get update && x",
        ),
        ("#6 [stage-1 3/3] COPY common /", "step 3/3: COPY common /"),
        ("#7 [stage-1 1/2] FROM docker.io/casebook/system:1", None),
        ("#1 [internal] load build definition from Dockerfile", None),
        ("#5 DONE 0.3s", None),
        ("#5 12.345 Downloading torch (506.0MiB)", "Downloading torch (506.0MiB)"),
        ("#12 0.2 Installed 29 packages in 327ms", "Installed 29 packages in 327ms"),
        ("#5 1.2 Selecting previously unselected package gcc.", None),
    ],
)
def test_of_a_builds_output_what_shows_progress_is_told(line: str, shown: str | None) -> None:
    assert progress(line) == shown


# Room


def test_a_disk_that_is_too_full_is_told_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = building(monkeypatch, [])
    monkeypatch.setattr(images, "_free_bytes", lambda *_: 5 * 2**30)
    with pytest.raises(MachineError, match=r"has 5\.37 GB free, and building on cpu takes up to 6\.15 GB") as caught:
        ensure(builder.fake.client, ROOT, RECIPE, silent)
    assert "\n" not in str(caught.value)
    assert builder.tags == []


def test_a_disk_with_room_enough_or_of_unknown_room_is_built_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for free in (6 * 2**30, None):
        builder = building(monkeypatch, [])
        monkeypatch.setattr(images, "_free_bytes", lambda *_, free=free: free)
        assert ensure(builder.fake.client, ROOT, RECIPE, silent).name == builder.tags[-1]


# Use


def engine_with(*recipes: Recipe, base: Base = OTHER, in_use: tuple[str, ...] = ()) -> FakeDocker:
    stages = {stage.reference: stage for recipe in recipes for stage in plan(ROOT, recipe, base).chain()}
    own_base = image(OTHER.reference, part="base", id_="sha256:123456789abc")
    return FakeDocker([*map(on_engine, stages.values()), own_base], in_use)


OLD = Recipe(image="cpu", lock="old==1 --hash=sha256:00\n")
CUDA = Recipe(image="cuda13", lock=LOCK)


def test_usage_tells_of_each_image_its_cases_and_what_it_shares() -> None:
    fake = engine_with(RECIPE, CUDA, OLD)
    fake.images.append(image("someone/else:1"))
    uses = usage(fake.client, ROOT, {"one": [RECIPE, CUDA], "two": [RECIPE]})
    told = {use.name.partition(":")[0] if use.part != "environment" else use.name: use for use in uses}
    assert told[plan(ROOT, RECIPE, OTHER).reference].cases == ("one", "two")
    assert told[plan(ROOT, CUDA, OTHER).reference].cases == ("one",)
    assert told[plan(ROOT, OLD, OTHER).reference].cases == ()
    assert told["casebook/system"].cases == told["casebook/base"].cases == ("one", "two")
    assert told["casebook/cuda13-tools"].cases == ("one",)
    assert (told["casebook/system"].size_bytes, told["casebook/system"].shared_bytes) == (1000, 400)
    assert [use.part for use in uses][:3] == ["environment"] * 3
    assert "someone/else:1" not in {use.name for use in uses}


def test_only_what_no_case_uses_is_removed() -> None:
    fake = engine_with(RECIPE, CUDA, OLD)
    told: list[str] = []
    lines = remove_unused(fake.client, ROOT, {"one": [RECIPE]}, told.append)
    gone = [plan(ROOT, each, OTHER).reference for each in (OLD, CUDA)]
    torch, tools = (
        next(stage.reference for stage in plan(ROOT, CUDA, OTHER).chain() if stage.part == part)
        for part in ("torch", "tools")
    )
    assert fake.removed == lines == [*sorted(gone), torch, tools]
    assert told == ["4.29 GB freed"]
    assert fake.pruned == [{"dangling": True, "label": ["casebook.part"]}, {"type": "regular"}]


def test_images_on_a_base_that_is_used_no_more_go_with_it() -> None:
    fake = engine_with(RECIPE)
    fake.images += [image(pin().reference), *(on_engine(stage) for stage in plan(ROOT, RECIPE, pinned()).chain())]
    remove_unused(fake.client, ROOT, {"one": [RECIPE]}, silent)
    left = {tag for each in fake.images for tag in each["RepoTags"]}
    assert left == {pin().reference, *(stage.reference for stage in plan(ROOT, RECIPE, pinned()).chain())}
    assert fake.removed[-1] == OTHER.reference


def test_what_stages_a_case_will_need_stay_before_its_environment_is_built() -> None:
    fake = engine_with(OLD)
    remove_unused(fake.client, ROOT, {"one": [RECIPE]}, silent)
    assert fake.removed == [plan(ROOT, OLD, OTHER).reference]


def test_an_image_in_use_stays_and_is_told() -> None:
    old = plan(ROOT, OLD, OTHER).reference
    fake = engine_with(RECIPE, OLD, in_use=(old,))
    told: list[str] = []
    assert remove_unused(fake.client, ROOT, {"one": [RECIPE]}, told.append) == []
    assert "is used by a running container" in told[0]


def test_an_unused_image_goes_with_its_name_in_a_registry() -> None:
    unused = image("casebook/cpu:old", part="environment", key="1")
    unused["RepoTags"].append("registry.example/owner/casebook/cpu:old")
    fake = FakeDocker([unused])
    assert [use.name for use in usage(fake.client, ROOT, {})] == ["casebook/cpu:old"]
    assert remove_unused(fake.client, ROOT, {}, silent) == ["casebook/cpu:old"]
    assert fake.removed == ["registry.example/owner/casebook/cpu:old", "casebook/cpu:old"]
