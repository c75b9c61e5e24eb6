import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import pytest

from casebook_workbench.bundle import there
from casebook_workbench.bundle.document import Returned
from casebook_workbench.bundle.pack import PackOptions, pack
from casebook_workbench.bundle.there import Asked
from casebook_workbench.corpus import jobs, journal
from casebook_workbench.corpus import run as corpus_run
from casebook_workbench.corpus.begin import Request
from casebook_workbench.corpus.events import Start
from casebook_workbench.corpus.model import Finished, Run
from casebook_workbench.corpus.selection import Selection, select
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, EngineError, MachineError, UsageError
from gpu_casebook.guest import starter
from gpu_casebook.run.options import Options
from gpu_casebook.trial import Note
from tests.bundle.conftest import Daemon
from tests.conftest import Checkout

pytestmark = pytest.mark.usefixtures("no_index", "case")


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run changes in here is put back."""
    monkeypatch.setattr(os, "environ", os.environ.copy())


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    on = Daemon()
    monkeypatch.setattr(there, "choose", lambda *_: on)
    monkeypatch.setattr(registry, "choose", lambda *_: on)
    return on


@dataclass
class Corpus:
    """A run of the corpus in this process. It is killed after as many jobs as it is told."""

    killed_after: int = 9
    asked: list[Request] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)

    def start(self, request: Request, _out: TextIO) -> int:
        self.asked.append(request)
        reports = Path(request.settings.reports)
        run = Run(
            id=journal.new_id(reports, datetime.now(UTC)),
            started=datetime.now(UTC),
            settings=request.settings,
            selection=str(request.selection),
            jobs=select(Path(request.settings.root), request.selection).jobs,
        )
        with journal.Journal.create(reports, run) as record:
            self._go_on(record)
        return 0

    def resume(self, request: Request, id_: str, _out: TextIO) -> int:
        self.resumed.append(id_)
        with journal.Journal.resume(Path(request.settings.reports), id_) as record:
            self._go_on(record)
        return 0

    def _go_on(self, record: journal.Journal) -> None:
        left = record.run.left
        for job in left[: self.killed_after]:
            ended = jobs.run_job(Start(job=job), record.run.settings, Console(io.StringIO()))
            assert isinstance(ended, Finished)
            record.append([ended])
        if self.killed_after < len(left):
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def corpus(monkeypatch: pytest.MonkeyPatch) -> Corpus:
    fake = Corpus()
    monkeypatch.setattr(corpus_run, "start", fake.start)
    monkeypatch.setattr(corpus_run, "resume", fake.resume)
    return fake


def laid_out(checkout: Checkout, options: PackOptions, into: Path, engine: Engine | None = None) -> Path:
    into.mkdir()
    pack(checkout.root, options, engine, into / "x.casebook.tar", print)
    return starter.opened([into / "x.casebook.tar"])


@pytest.fixture
def home(checkout: Checkout, options: PackOptions, tmp_path: Path) -> Path:
    return laid_out(checkout, options, tmp_path / "there")


@pytest.fixture
def home_of_two(checkout: Checkout, options: PackOptions, tmp_path: Path) -> Path:
    """Two environments of one case."""
    options = replace(options, jobs=select(checkout.root, Selection()).jobs)
    return laid_out(checkout, options, tmp_path / "two")


def run(home: Path, options: Options | None = None, **asked: str | Sequence[str]) -> str:
    said = io.StringIO()
    assert there.run(home, Asked(options=options or Options(), **asked), said) == 0  # type: ignore[arg-type]
    return said.getvalue()


def test_what_was_run_comes_back_in_one_file(home: Path, engine: Daemon, corpus: Corpus) -> None:
    said = run(home, words=["--gpu", "0"])
    path = home.parent / "tiny.interpreter.evidence.json"
    assert f"bring back: {path} (" in said
    returned = Returned.read(path)
    assert [evidence.verdict for evidence in returned.evidence] == [Verdict.CONFIRMED]
    assert [job.name for job in returned.run.jobs] == ["tiny/interpreter"]  # the case has another environment
    assert not returned.bundle.members
    assert (home / "checkout" / "runner" / "REVISION").read_text() == f"{returned.bundle.runner}\n"
    (asked,) = corpus.asked
    assert asked.command == "python3 casebook-bundle/run.py --gpu 0"


def test_some_of_it_can_be_named(home_of_two: Path, engine: Daemon) -> None:
    run(home_of_two, environments=["inter*"])
    returned = Returned.read(home_of_two.parent / "tiny.current+1.evidence.json")
    assert [job.name for job in returned.run.jobs] == ["tiny/interpreter"]
    with pytest.raises(UsageError, match="no case is called 'tinny'"):
        run(home_of_two, cases=["tinny"])


def test_killed_and_run_again_it_goes_on(home_of_two: Path, engine: Daemon, corpus: Corpus) -> None:
    corpus.killed_after = 1
    with pytest.raises(KeyboardInterrupt):
        run(home_of_two)
    path = home_of_two.parent / "tiny.current+1.evidence.json"
    early = Returned.read(path).run
    assert (len(early.finished), len(early.left)) == (1, 1)
    run(home_of_two)
    assert corpus.resumed == [early.id]
    assert Returned.read(path).run.left == []
    assert len(corpus.asked) == 1


def test_with_other_options_it_begins_anew(home_of_two: Path, engine: Daemon, corpus: Corpus) -> None:
    corpus.killed_after = 1
    with pytest.raises(KeyboardInterrupt):
        run(home_of_two)
    corpus.killed_after = 9
    run(home_of_two, Options(trials=1))
    run(home_of_two, Options(trials=1))
    assert (len(corpus.asked), corpus.resumed) == (3, [])


def test_options_reach_the_run(home: Path, engine: Daemon, corpus: Corpus) -> None:
    run(home, Options(trials=1, image="other:2", probes=False, gpus=[1]))
    (evidence,) = Returned.read(home.parent / "tiny.interpreter.evidence.json").evidence
    assert len(evidence.trials) == 2
    assert engine.recipes[0].use_image == "other:2"
    assert "--environment interpreter" in evidence.command
    assert "--image other:2" in evidence.command
    assert corpus.asked[0].gpus == [1]


def test_another_engine_can_run_the_images(home: Path, engine: Daemon, corpus: Corpus) -> None:
    run(home, engine="charliecloud")
    assert corpus.asked[0].settings.engine == "charliecloud"


def test_an_engine_that_has_no_images_can_not(
    home: Path, engine: Daemon, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Daemon, "has_images", False)
    with pytest.raises(UsageError, match="--engine venv: the bundle was packed for docker; pack it for venv"):
        run(home, engine="venv")
    assert not corpus.asked


def test_an_image_that_the_host_lacks_is_never_pulled(home: Path, engine: Daemon) -> None:
    engine.images.clear()
    with pytest.raises(MachineError, match="has no image host/image:1, and there is no network to pull it from"):
        run(home)
    assert not list(home.parent.glob("*.evidence.json"))


class TestPackedImage:
    @pytest.fixture
    def home(self, checkout: Checkout, options: PackOptions, tmp_path: Path) -> Path:
        return laid_out(checkout, replace(options, image=None), tmp_path / "image", Daemon())

    def test_it_is_loaded_and_used_as_built(self, home: Path, engine: Daemon) -> None:
        said = run(home)
        assert engine.loaded == b"layers"
        assert engine.recipes[0].use_image is None
        assert "loading the bundle's environments ..." in said

    def test_not_where_it_is_already(self, home: Path, engine: Daemon) -> None:
        engine.images.add("casebook/cpu:1")
        run(home)
        assert engine.loaded == b""

    def test_not_where_another_is_named(self, home: Path, engine: Daemon) -> None:
        run(home, Options(image="other:2"))
        assert engine.loaded == b""

    def test_an_engine_that_does_not_take_it_is_one_line(self, home: Path, engine: Daemon) -> None:
        engine.brings.clear()
        with pytest.raises(MachineError, match="has no image casebook/cpu:1"):
            run(home)

    def test_layers_that_the_host_lacks_after_all_are_one_line(
        self, checkout: Checkout, options: PackOptions, tmp_path: Path, engine: Daemon, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def lacks(_packed: Path, _note: Note) -> None:
            raise EngineError("could not load the images: no such file")

        monkeypatch.setattr(engine, "take_in", lacks)
        options = replace(options, image=None, host_has={"sha256:below"})
        with pytest.raises(MachineError, match=r"no such file; .* pack it again without --host-has"):
            run(laid_out(checkout, options, tmp_path / "less", Daemon()))


@pytest.mark.usefixtures("engine")
def test_a_case_with_a_file_more_is_not_run(home: Path) -> None:
    (home / "checkout" / "cases" / "tiny" / "helper.py").write_text("")
    with pytest.raises(CasebookError, match="tiny: the case is not as it was packed"):
        run(home)


def test_only_the_bundles_own_runner_runs_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not there.is_its_own(home)
    monkeypatch.setattr(there, "CHECKOUT", home / "checkout")
    assert there.is_its_own(home)


def test_a_broken_list_is_one_line(home: Path) -> None:
    text = (home / starter.LIST).read_text()
    (home / starter.LIST).write_text(text.replace('"engine": "docker"', '"engine": 1'))
    with pytest.raises(
        CasebookError,
        match=r"bundle\.json: .*: engine: Input should be .*; copy the bundle again",
    ):
        run(home)
