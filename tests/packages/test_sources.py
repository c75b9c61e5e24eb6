"""Upstream's own files in an environment: had, checked, locked, installed, compared, carried and told of."""

import dataclasses
import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from casebook_workbench.author.review import exchanged
from casebook_workbench.issue.issue import Source, compose
from failure_signature.kinds import Grade, Variant
from gpu_casebook.engines.venv import packing
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.errors import BuildError, ManifestError
from gpu_casebook.evidence import EnvironmentFacts
from gpu_casebook.guest import attest
from gpu_casebook.images import build as images
from gpu_casebook.images.stages import plan
from gpu_casebook.manifest.case import Case, load
from gpu_casebook.packages import sources
from gpu_casebook.packages.resolve import lock_text
from gpu_casebook.pins import SourceFile
from gpu_casebook.report.case_page import case_page
from gpu_casebook.run.attesting import differences, parse
from gpu_casebook.run.plan import recipe
from gpu_casebook.trial import Recipe
from tests.conftest import IMAGES, MANIFEST, Checkout, write_locks
from tests.engines.subjects import Bench, this_python
from tests.images.test_build import BASE, ROOT, building
from tests.packages.conftest import Quiet
from tests.report.example import CASE, ENVIRONMENT, evidence

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BUGGY, FIXED = b"SIGN = -1\n", b"SIGN = 1\n"
PATH = "src/kernels/ops/scan.py"


def file(content: bytes = BUGGY, path: str = PATH, url: str = "https://nowhere.invalid/owner/name") -> SourceFile:
    made = SourceFile(
        url="https://nowhere.invalid/a/b", commit=COMMIT, path=path, sha256=hashlib.sha256(content).hexdigest()
    )
    object.__setattr__(made, "url", url)  # unchecked, because the test's own host speaks no TLS
    return made


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    return tmp_path / "user-cache" / "casebook" / "sources"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a repository whose host has `BUGGY` at the commit."""
    place = tmp_path / "host/owner/name/raw" / COMMIT / PATH
    place.parent.mkdir(parents=True)
    place.write_bytes(BUGGY)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "host"))) as server:
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/owner/name"
        server.shutdown()


@pytest.fixture
def by_hand(cache: Path) -> None:
    cache.mkdir(parents=True)
    for content in (BUGGY, FIXED):
        (cache / hashlib.sha256(content).hexdigest()).write_bytes(content)


class TestHad:
    def test_a_file_is_fetched_once_and_kept(self, host: str, cache: Path, tmp_path: Path) -> None:
        assert sources.content(file(url=host)) == BUGGY
        (tmp_path / "host/owner/name/raw" / COMMIT / PATH).unlink()
        assert sources.content(file(url=host)) == BUGGY
        assert [path.name for path in cache.iterdir()] == [hashlib.sha256(BUGGY).hexdigest()]

    def test_what_has_another_hash_is_refused_and_not_kept(self, host: str, cache: Path) -> None:
        with pytest.raises(BuildError, match=r"its sha256 is .*, the manifest says .*; correct the manifest") as caught:
            sources.content(file(FIXED, url=host))
        assert len(str(caught.value).splitlines()) == 1
        assert not cache.exists()

    def test_where_it_can_not_be_reached_the_message_says_which_file_goes_where(self, cache: Path) -> None:
        wanted = file()
        with pytest.raises(BuildError) as caught:
            sources.content(wanted)
        (line,) = str(caught.value).splitlines()
        assert line.startswith(f"{PATH} of https://nowhere.invalid/owner/name at {COMMIT} can't be fetched: ")
        assert line.endswith(f"put it there by hand as {cache / wanted.sha256} (in a clone: git show {COMMIT}:{PATH})")
        cache.mkdir(parents=True)
        (cache / wanted.sha256).write_bytes(BUGGY)
        assert sources.content(wanted) == BUGGY

    def test_a_wrong_file_put_there_by_hand_is_refused(self, cache: Path) -> None:
        cache.mkdir(parents=True)
        (cache / file().sha256).write_bytes(FIXED)
        with pytest.raises(BuildError, match=f"is not {PATH} of .*; remove it, or put that file there"):
            sources.content(file())

    def test_a_host_that_refuses_gives_the_same_line(self, host: str) -> None:
        with pytest.raises(BuildError, match="can't be fetched: File not found; put it there by hand as"):
            sources.content(file(path="gone.py", url=host))


def manifest(repro: bytes = BUGGY, fixed: bytes = FIXED) -> str:
    def listed(content: bytes) -> str:
        entry = {"url": "https://nowhere.invalid/owner/name", "commit": COMMIT, "files": {PATH: file(content).sha256}}
        return f"  sources: {json.dumps([entry])}\n"

    text = MANIFEST.replace("provenance: distilled", "provenance: sources")
    return text.replace("repro:\n  expect", f"repro:\n{listed(repro)}  expect").replace(
        "fixed:\n  expect", f"fixed:\n{listed(fixed)}  expect"
    )


@pytest.fixture
def case(checkout: Checkout) -> Case:
    return load(checkout.write(manifest(), script="print(1)\n"), IMAGES, checkout.root)


class TestCase:
    def test_each_variant_has_its_own_lock_and_recipe(self, case: Case) -> None:
        write_locks(case.directory)
        found = [recipe(case, "current", variant) for variant in Variant]
        assert [each.sources for each in found] == [(file(BUGGY),), (file(FIXED),)]
        assert [case.lock_path("current", each).name for each in Variant] == ["current.repro.txt", "current.fixed.txt"]
        assert case.same_scripts() is None, "the files differ, if not the scripts"

    def test_a_lock_for_other_files_is_stale(self, case: Case, checkout: Checkout) -> None:
        write_locks(case.directory)
        changed = load(checkout.write(manifest(b"another"), script="print(1)\n"), IMAGES, checkout.root)
        with pytest.raises(
            ManifestError, match=r"was made for numpy==2.2.6 upstream-sources==0\+h\w{16}, the manifest"
        ):
            recipe(changed, "current", Variant.REPRO)

    def test_exchanged_variants_exchange_their_files(self, case: Case, tmp_path: Path) -> None:
        write_locks(case.directory)
        assert recipe(exchanged(case, tmp_path / "swap"), "current", Variant.REPRO).sources == (file(FIXED),)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (COMMIT, COMMIT[:12], "repro.sources[0].commit: '0123456789ab' is not a whole commit; write its 40 digits"),
        (f'"{file().sha256}"', "", f"repro.sources[0].files.{PATH}: is empty; it must be text"),
        (file().sha256, "0" * 63, f"repro.sources[0].files.{PATH}: '{'0' * 63}' is not a sha256; write its 64"),
        (PATH, "../outside.py", "repro.sources[0].files.../outside.py: '../outside.py' is not the path of a file in"),
        ("https://nowhere.invalid/owner/name", "http://nowhere.invalid/owner", "repro.sources[0].url: 'http://nowhere"),
        (f'{{"{PATH}": "{file().sha256}"}}', "{}", "repro.sources[0].files: "),
        (
            f'{{"{PATH}"',
            f'{{"kernels/ops/scan.py": "{file().sha256}", "{PATH}"',
            f"repro.sources[0].files.{PATH}: kernels/ops/scan.py is there twice; keep one",
        ),
    ],
)
def test_one_mistake_is_one_problem(checkout: Checkout, old: str, new: str, expected: str) -> None:
    text = manifest()
    assert old in text
    with pytest.raises(ManifestError) as caught:
        load(checkout.write(text.replace(old, new, 1)), IMAGES, checkout.root)
    (problem,) = caught.value.problems
    assert f"{problem.where}: {problem.what}".startswith(expected)


def test_a_case_of_sources_names_some(checkout: Checkout) -> None:
    with pytest.raises(ManifestError, match="provenance: a case of upstream's files names them: add sources to an"):
        load(checkout.write(MANIFEST.replace("provenance: distilled", "provenance: sources")), IMAGES, checkout.root)


def recipes(*contents: bytes) -> list[Recipe]:
    made = [(file(each), file(b"", "kernels/top.py")) for each in contents]
    return [
        Recipe(image="cpu", lock=lock_text([], this_python(), sources=each), python=this_python(), sources=each)
        for each in made
    ]


@pytest.fixture
def empty(cache: Path, by_hand: None) -> None:
    (cache / hashlib.sha256(b"").hexdigest()).touch()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VenvEngine:
    monkeypatch.setenv("UV_NO_INDEX", "1")
    return VenvEngine(cache=tmp_path / "cache", place=tmp_path / "scratch")


SIGN = "import kernels.ops.scan as s, kernels.top; print(s.SIGN, s.__file__)"


@pytest.mark.usefixtures("empty")
class TestVenv:
    def test_a_script_imports_them_by_their_path_and_other_files_are_another_environment(
        self, engine: VenvEngine
    ) -> None:
        (first, second) = (Bench(engine, engine.prepare(each, print)) for each in recipes(BUGGY, FIXED))
        assert [each.run(SIGN).stdout.split()[0] for each in (first, second)] == ["-1", "1"]
        assert first.run(SIGN).stdout.endswith("/site-packages/kernels/ops/scan.py\n")
        assert first.prepared.key != second.prepared.key
        assert engine.absent(recipes(BUGGY, FIXED)) == []

    def test_a_lock_of_other_bytes_is_refused(self, engine: VenvEngine) -> None:
        one, other = recipes(BUGGY, FIXED)
        with pytest.raises(BuildError, match="upstream-sources"):
            engine.prepare(replace(one, sources=other.sources), print)

    def test_a_trial_that_edits_one_does_not_count(self, engine: VenvEngine) -> None:
        bench = Bench(engine, engine.prepare(recipes(BUGGY)[0], print))
        spoiled = bench.run("import kernels.ops.scan as s; open(s.__file__, 'a').write('SIGN = 1')")
        assert "kernels/ops/scan.py" in (spoiled.infra or "")
        assert bench.run(SIGN).stdout.startswith("-1 ")

    def test_exact_means_these_files(self, engine: VenvEngine) -> None:
        wanted = recipes(BUGGY)[0]
        python = engine.prepare(wanted, print).python

        def found() -> list[str]:
            command = [python, "-I", "-S", str(Path(attest.__file__)), "files"]
            ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(python).parent)
            return [each.text for each in differences(wanted, parse(ended.stdout))]

        assert found() == []
        (scan,) = Path(python).parents[1].rglob("scan.py")
        scan.write_bytes(FIXED)
        assert found() == ["upstream-sources: kernels/ops/scan.py is not the file that was installed"]

    def test_a_bundle_carries_them(
        self, engine: VenvEngine, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (wanted,) = recipes(BUGGY)
        engine.pack({"lock.txt": wanted}, tmp_path / "bundle", print, ())
        for kept in cache.iterdir():
            kept.unlink()
        for name in ("UV_FIND_LINKS", "PIP_CONFIG_FILE", "UV_NO_CONFIG", "UV_OFFLINE", "UV_PYTHON_DOWNLOADS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(os, "environ", dict(os.environ))
        packing.take_in(tmp_path / "bundle")
        assert Bench(engine, engine.prepare(wanted, print)).run(SIGN).stdout.startswith("-1 ")


@pytest.mark.usefixtures("empty")
class TestDocker:
    def test_other_files_are_another_image_and_looking_for_it_takes_no_file(self, cache: Path) -> None:
        one, other = (replace(each, python="3.11") for each in recipes(BUGGY, FIXED))
        for kept in cache.iterdir():
            kept.unlink()
        assert plan(ROOT, one, BASE).reference != plan(ROOT, other, BASE).reference

    def test_the_build_gets_them_as_a_wheel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        builder = building(monkeypatch, [])
        wanted = replace(recipes(BUGGY)[0], python="3.11")
        images.ensure(builder.fake.client, ROOT, wanted, print)
        ((name, _),) = sources.wheel(wanted.sources).items()
        assert builder.contexts[-1] == ["common/environment.Dockerfile", "lock.txt", name]
        assert "UV_FIND_LINKS" not in builder.settings[-2].script
        assert builder.settings[-1].script.endswith('export UV_FIND_LINKS="${UV_FIND_LINKS:+$UV_FIND_LINKS,}/mnt"\n')


def test_the_same_files_give_the_same_wheel_in_whatever_order(empty: None) -> None:
    files = [file(), file(b"", "kernels/top.py")]
    assert sources.wheel(files) == sources.wheel(files[::-1])
    assert sources.wheel([]) == {}


TOLD = ENVIRONMENT.model_copy(
    update={
        "sources": {Variant.REPRO: [file(BUGGY)], Variant.FIXED: [dataclasses.replace(file(FIXED), commit="f" * 40)]}
    }
)
OF_SOURCES = CASE.model_copy(update={"provenance": "sources"})
HOST = "https://nowhere.invalid/owner/name"


def test_evidence_has_them() -> None:
    assert EnvironmentFacts.model_validate_json(TOLD.model_dump_json()) == TOLD


def test_the_page_shows_which_file_at_which_commit_ran_and_what_changed_in_it() -> None:
    page = case_page([evidence(case=OF_SOURCES, environment=TOLD)])
    assert f"- repro ran upstream's own [{PATH}]({HOST}/blob/{COMMIT}/{PATH}) at `{COMMIT[:12]}`\n" in page
    assert f"`{PATH}` {COMMIT[:12]} -> ffffffffffff ([what changed between them]({HOST}/compare/{COMMIT}..." in page


def test_a_run_of_less_of_the_project_does_not_lead_the_page_and_says_so() -> None:
    distilled = evidence(started=evidence().started - timedelta(days=1))
    files = TOLD.model_copy(update={"name": "files", "grade": Grade.SIMULATED})
    page = case_page([distilled, evidence(case=OF_SOURCES, environment=files)])
    assert ", environment `files`." in page.partition("## The fix")[0]
    _, _, section = page.partition(f"confirmed: `{distilled.environment.name}` on")
    assert "> Then: No code of fla-org/flash-linear-attention ran" in section
    assert page.count("> Then: ") == 1


def test_a_report_fetches_them_beside_the_script() -> None:
    run = evidence(case=OF_SOURCES, environment=TOLD)
    body = compose(Source(run=run, script="import kernels", ran="Files ran.")).body
    assert f"curl -fsSL --create-dirs -o kernels/ops/scan.py {file().address}\nuv run " in body
