"""The verb for real: `casebook corpus`, with worker processes, the venv engine, and cases without packages."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from casebook_workbench.corpus import journal, summary
from casebook_workbench.corpus.cli import EPILOG, age
from casebook_workbench.corpus.model import End, Run
from gpu_casebook import cli
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import load
from tests.conftest import Checkout
from tests.fakes import locked

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0

MANIFEST = """\
id: {id}
title: A program that fails
failure: exception
upstream: {{project: owner/name, status: open}}
provenance: distilled
environments:
  plain: {{image: cpu, requirements: []}}
repro:
  expect: {{exception: ValueError, message: as declared}}
fixed:
  expect: {{message: all good}}
timeout: {timeout}
"""

FAILS = "import pathlib\n{before}\nraise ValueError('as declared')\n"
COUNTS = "with open({counter!r}, 'a') as file: print('run', file=file, flush=True)\n"
WAITS = "import time\nwhile not pathlib.Path({gate!r}).exists(): time.sleep(0.05)\n"


class Corpus:
    """A checkout whose cases leave a line for each trial of repro in a file of theirs."""

    def __init__(self, checkout: Checkout, cache: Path, place: Path) -> None:
        self.root, self.place = checkout.root, place
        self.reports = self.root / "local"
        self.environ = os.environ | {
            "XDG_CACHE_HOME": str(cache),
            "PYTHONPATH": f"{ROOT}:{ROOT}/runner",
            "PYTHONUNBUFFERED": "1",
        }
        self.started: list[subprocess.Popen[str]] = []

    def add(self, id_: str, repro: str | None = None, fixed: str = "print('all good')\n", timeout: str = "60s") -> Path:
        """A case that is confirmed, unless it has another script."""
        directory = self.root / "cases" / id_
        (directory / "locks").mkdir(parents=True)
        (directory / "locks" / "plain.txt").write_text(f"{locked([])}# download-bytes: 0\n")
        (directory / "case.yaml").write_text(MANIFEST.format(id=id_, timeout=timeout))
        (directory / "repro.py").write_text(
            COUNTS.format(counter=str(self.counter(id_))) + (repro or FAILS.format(before=""))
        )
        (directory / "fixed.py").write_text(fixed)
        return directory

    def add_waiting(self, id_: str) -> None:
        self.add(id_, FAILS.format(before=WAITS.format(gate=str(self.gate(id_)))))

    def counter(self, id_: str) -> Path:
        return self.place / f"{id_}.count"

    def gate(self, id_: str) -> Path:
        return self.place / f"{id_}.gate"

    def runs_of(self, id_: str) -> int:
        """How often its repro began: three times in a run that ends."""
        return len(self.counter(id_).read_text().splitlines()) if self.counter(id_).exists() else 0

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "gpu_casebook", "corpus", "--engine", "venv", *words]
        if "--resume" in words:
            command.remove("--engine")
            command.remove("venv")
        process = subprocess.Popen(
            command, cwd=self.root, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.started.append(process)
        return process

    def __call__(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        said, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said

    @property
    def run(self) -> Run:
        """The newest one."""
        return journal.read(journal.find(self.reports, None))

    def ends(self) -> dict[str, End]:
        return {each.job.name: each.end for each in self.run.finished}


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def corpus(checkout: Checkout, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    (checkout.root / "cases").mkdir()
    made = Corpus(checkout, cache, tmp_path_factory.mktemp("place"))
    yield made
    for process in made.started:
        process.kill()
        process.wait()


def test_all_that_can_run_here_runs_and_the_rest_is_told_apart(corpus: Corpus) -> None:
    corpus.add("good")
    corpus.add("passes", "print('no failure')\n")
    corpus.add("broken").joinpath("case.yaml").write_text("id: broken\n")
    manifest = corpus.add("no-gpu") / "case.yaml"
    manifest.write_text(manifest.read_text().replace("requirements: []", "requirements: [], gpus: 64"))
    status, said = corpus("--jobs", "2")
    assert status == summary.NOT_CONFIRMED, said
    assert "1 of 2 confirmed (1 skipped, 1 broke)" in said
    assert "  not-reproduced: passes/plain: " in said
    assert "  broke: broken: cases/broken/case.yaml:1: " in said
    assert "  skipped: 1, 64 GPUs are needed, and there " in said
    assert "Traceback" not in said
    assert corpus.ends() == {
        "good/plain": End.RAN,
        "passes/plain": End.RAN,
        "broken": End.BROKE,
        "no-gpu/plain": End.SKIPPED,
    }
    assert corpus.run.ended
    assert load(corpus.reports / "evidence/good/plain.venv.cpu.json").verdict.value == "confirmed"
    assert {path.name for path in corpus.reports.glob("*.md")} == {"README.md", "good.md", "passes.md"}
    page = re.search(r"^report: (.*)$", said, re.MULTILINE)
    assert page
    assert "passes" in (corpus.root / page[1]).read_text()


def test_a_second_run_reuses_and_only_what_changed_runs_again(corpus: Corpus) -> None:
    corpus.add("same")
    changes = corpus.add("changes")
    assert corpus()[0] == 0
    (changes / "fixed.py").write_text("print('still all good')\n")
    status, said = corpus()
    assert (status, corpus.runs_of("same"), corpus.runs_of("changes")) == (0, 3, 6)
    assert "2 of 2 confirmed (1 reused)" in said
    assert "  run: 1, the case changed: changes/plain" in said
    assert "  reused: 1: same/plain" in said
    assert corpus("--max-age", "0")[0] == 0
    assert (corpus.runs_of("same"), corpus.runs_of("changes")) == (6, 9)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_ended_goes_on_and_repeats_nothing_that_was_finished(
    corpus: Corpus, how: signal.Signals
) -> None:
    corpus.add("first")
    corpus.add_waiting("second")
    process = corpus.start("--jobs", "2")
    until(lambda: corpus.runs_of("second") == 1 and bool(journal.ids(corpus.reports)) and bool(corpus.run.finished))
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(how)
    said, _ = process.communicate(timeout=PATIENCE_S)
    until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family))
    run = corpus.run
    assert (process.returncode, [each.job.case for each in run.finished]) == (
        -9 if how is signal.SIGKILL else 130,
        ["first"],
    )
    if how is not signal.SIGKILL:
        assert f"1 of 2 jobs are finished and safe; go on with: casebook corpus --resume {run.id}\n" in said
        assert "Traceback" not in said
    corpus.gate("second").touch()
    status, said = corpus("--resume", run.id)
    assert status == 0, said
    assert "1 of 2 finished, 1 left" in said
    assert "2 of 2 confirmed" in said
    assert (corpus.runs_of("first"), corpus.runs_of("second")) == (3, 4)
    assert (corpus.reports / "first.md").is_file()
    assert corpus.run.id == run.id
    status, said = corpus("--resume")
    assert (status, "2 of 2 finished, 0 left" in said) == (0, True)
    assert (corpus.runs_of("first"), corpus.runs_of("second")) == (3, 4)


def test_a_checkout_may_be_moved_before_its_run_goes_on(corpus: Corpus) -> None:
    corpus.add("a-fails", "print('no failure')\n")
    corpus.add("b-good")
    assert corpus("--jobs", "1", "--fail-fast")[0] == summary.NOT_CONFIRMED
    moved = corpus.root.with_name("moved")
    corpus.root.rename(moved)
    corpus.root, corpus.reports = moved, moved / "local"
    status, said = corpus("--resume")
    assert (status, "1 of 2 confirmed" in said) == (summary.NOT_CONFIRMED, True)
    assert (moved / "local" / "b-good.md").is_file()
    assert corpus.run.settings.root == str(moved)


def test_a_disk_that_will_not_do_stops_before_anything_starts(corpus: Corpus) -> None:
    directory = corpus.add("huge")
    (directory / "locks" / "plain.txt").write_text(
        f"{locked([])}# download-bytes: 999999999999999\nx==1 \\\n    --hash=sha256:{'0' * 64}\n"
    )
    status, said = corpus()
    assert status == 6
    assert "casebook: the disk is too small for this run: " in said
    assert " needs 1e+03 TB for environments; " in said
    assert corpus.runs_of("huge") == 0
    assert journal.ids(corpus.reports) == []


@pytest.mark.parametrize(("place", "options"), [("local", []), ("reports", ["--publish"])])
def test_fail_fast_leaves_the_rest_to_a_resume(corpus: Corpus, place: str, options: list[str]) -> None:
    corpus.reports = corpus.root / place
    corpus.add("a-fails", "print('no failure')\n")
    corpus.add("b-good")
    status, said = corpus("--jobs", "1", "--fail-fast", *options)
    assert status == summary.NOT_CONFIRMED
    assert f"go on with: {' '.join(['casebook corpus --resume', corpus.run.id, *options])}\n" in said
    assert corpus.runs_of("b-good") == 0
    assert "1 of 2 confirmed" in corpus("--resume", *options)[1]
    assert corpus.runs_of("a-fails") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing-*"], "no case is called 'nothing-*' (there are: good)"),
        (["--failure", "hangs"], "'hangs' is not one of 'compile-error',"),
        (["--failure", "hang"], "nothing is selected by --failure hang; the case looked at has failure: exception"),
        (["--changed-since", "nowhere"], "--changed-since nowhere: "),
        (["--max-age", "soon"], "--max-age soon: write 12h, 7d, or 0 to run all again"),
        (["--gpu", "first"], "--gpu first: write an index such as 0"),
        (["--jobs", "0"], "--jobs"),
        (["--engine", "dokcer"], "no engine 'dokcer' (did you mean docker?)"),
        (["--resume"], "no run to go on with: there is none in "),
        (["--resume", "--trials", "3"], "--trials: with --resume the run's record says that; leave it out"),
        (["--resume", "--failure", "hang"], "--failure: with --resume the run's record says that; leave it out"),
        (["--resume", "one", "two"], "--resume one two: name one run, or none for the newest"),
    ],
)
def test_a_mistake_in_the_command_is_one_clear_line(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, words: Sequence[str], said: str
) -> None:
    corpus.add("good")
    monkeypatch.chdir(corpus.root)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(corpus.root.parent))
    engine = [] if {"--engine", "--resume"} & set(words) else ["--engine", "venv"]
    result = CliRunner().invoke(cli.app, ["corpus", *engine, *words], catch_exceptions=False)
    assert (result.exit_code, said in result.output) == (2, True), result.output
    assert "Traceback" not in result.output
    assert not (corpus.reports / "runs").exists()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("90s", 90.0), ("12h", 43200.0), ("7d", 604800.0), ("1d12h", 129600.0), ("1.5d", 129600.0)],
)
def test_ages(text: str, seconds: float) -> None:
    assert age(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "7w", "-1d", "7d!", "7 d"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(UsageError):
        age(text)


def test_help_and_docs_tell_every_status_and_option() -> None:
    page = (ROOT / "docs" / "corpus.md").read_text()
    for status in (summary.NOT_CONFIRMED, summary.BROKE):
        assert f"{status} " in EPILOG
        assert re.search(rf"\b{status}\b", page)
    said = CliRunner().invoke(cli.app, ["corpus", "--help"]).output
    options = (
        "failure",
        "project",
        "environment",
        "grade",
        "changed-since",
        "jobs",
        "gpu",
        "engine",
        "image",
        "trials",
    )
    for option in (*options, "timeout", "no-probes", "reports", "resume", "max-age", "fleet", "fail-fast"):
        assert f"--{option}" in said


def test_the_record_says_how_the_run_was_asked_for(corpus: Corpus) -> None:
    corpus.add("good")
    assert corpus("good", "--trials", "4")[0] == 0
    record = json.loads((journal.find(corpus.reports, None) / journal.RUN).read_text())
    assert (record["selection"], record["settings"]["engine"], record["settings"]["trials"]) == ("good", "venv", 4)
    assert record["command"] == "casebook corpus --engine venv good --trials 4"
    assert record["workers"] == ["w1"]
    assert record["disk_before_bytes"] > 0
