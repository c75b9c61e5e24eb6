"""Odd surroundings: closed streams, directories that are gone or can't be written, signals that come twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_casebook.evidence import load
from tests.cli.test_cli import casebook, engine, here
from tests.conftest import MANIFEST, Checkout
from tests.fakes import FakeEngine

__all__ = ["engine", "here"]
CASEBOOK = [sys.executable, "-m", "gpu_casebook"]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_a_closed_stream(stream: str) -> None:
    script = f"import sys\nfrom gpu_casebook.cli import main\nsys.argv = ['casebook', '--help']\nsys.{stream} = None\n"
    check = f"try: main()\nfinally: sys.{stream}.isatty() and sys.exit(9)"
    ended = subprocess.run([sys.executable, "-c", script + check], capture_output=True)  # noqa: PLW1510
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_terminal_without_a_titles_letters(checkout: Checkout) -> None:
    checkout.write(MANIFEST.replace("A sum", "Ein Übel"))
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    ended = subprocess.run(  # noqa: PLW1510
        [*CASEBOOK, "list"], capture_output=True, text=True, cwd=checkout.root, env=variables
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert r"Ein \xdcbel" in ended.stdout


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    order = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && "$@"', "sh", *CASEBOOK, "list"]
    ended = subprocess.run(order, capture_output=True, text=True, cwd=tmp_path)  # noqa: PLW1510
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("casebook: the working directory is gone")


@pytest.mark.parametrize("place", ["file", "file/inner"])
def test_reports_that_can_not_be_written_are_told_before_anything_runs(
    here: Path, engine: FakeEngine, place: str
) -> None:
    (here / "file").touch()
    engine.before_trial = lambda _: pytest.fail("it ran")
    status, said = casebook("case", "tiny", "--reports", str(here / place))
    assert (status, said.count("\n")) == (6, 1)
    assert "Not a directory" in said
    assert casebook("report", "--reports", str(here / place))[0] == 6


@pytest.mark.usefixtures("engine")
def test_evidence_that_finds_no_place_is_saved_elsewhere(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (here / "local" / "evidence").mkdir(parents=True)
    (here / "local" / "evidence" / "tiny").touch()
    status, said = casebook("case", "tiny")
    assert status == 6
    assert load(Path(said.strip().rpartition("the evidence is in ")[2])).case.id == "tiny"


@pytest.mark.usefixtures("engine")
def test_a_lock_that_would_block(here: Path) -> None:
    lock = here / "cases/tiny/locks/interpreter.txt"
    lock.unlink()
    os.mkfifo(lock)
    status, said = casebook("case", "tiny")
    assert (status, said) == (3, "cases/tiny/locks/interpreter.txt:1: is not a file\n")


WAITS = """
import sys, time
from gpu_casebook.cli.base import app, ends_in_one_line, main
@app.command()
@ends_in_one_line
def wait():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("ending", flush=True)
        time.sleep(1)
        print("cleaned", flush=True)
@app.command()
def other(): pass
sys.argv = ["casebook", "wait"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_stop_the_cleaning(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.stdout.readline() == "ending\n"
        for again in (number, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(again)
        assert process.stdout.readline() == "cleaned\n"
        said = process.stderr.read()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.endswith("casebook: interrupted; nothing is left running\n")


def test_nohup_holds() -> None:
    order = ["nohup", sys.executable, "-c", WAITS.replace("time.sleep(60)", "time.sleep(1)")]
    with subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert process.stdout.read() == "ending\ncleaned\n"
    assert process.returncode == 0


def test_what_the_suite_starts_takes_signals_even_if_the_suite_was_started_to_ignore_them() -> None:
    asks = "import signal; print([signal.getsignal(each).name for each in (signal.SIGTERM, signal.SIGHUP)])"
    suite = f"import subprocess, sys, tests.conftest; subprocess.run([sys.executable, '-c', {asks!r}], check=True)"
    order = ["nohup", sys.executable, "-c", suite]
    said = subprocess.run(order, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said == "['SIG_DFL', 'SIG_DFL']\n"
