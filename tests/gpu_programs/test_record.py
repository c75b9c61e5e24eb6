"""The recorder's table names every program; what it writes can be read back."""

from collections import Counter
from pathlib import Path

import pytest

from tests.gpu_programs import record
from tests.recordings import Recording

RUNS = [*record.cuda_runs(), *record.python_runs()]
NO_PROGRAMS = {"record.py", "test_record.py", "raw_kernels.cu"}


def test_every_program_is_run_and_every_run_is_of_a_program() -> None:
    programs = {path.name for pattern in ("*.cu", "*.py") for path in record.HERE.glob(pattern)} - NO_PROGRAMS
    assert {run.program for run in RUNS} == programs


def test_no_recording_overwrites_another() -> None:
    assert [name for name, times in Counter(run.name for run in RUNS).items() if times > 1] == []


@pytest.fixture
def script(tmp_path: Path) -> record.Run:
    text = "import os, sys; print(os.environ['SAID'], flush=True); print('no', file=sys.stderr, flush=True); os.abort()"
    (tmp_path / "speak.py").write_text(text)
    return record.Run(label="bare", program="speak.py", variables={"SAID": f"{tmp_path} {record.HERE}"})


def test_a_recording_can_be_read_back(tmp_path: Path, script: record.Run) -> None:
    path = tmp_path / f"{script.name}.txt"
    path.write_text(record.record(script, tmp_path))
    found = Recording.read(path)
    assert (found.name, found.exit_status, found.tool) == ("speak.bare", -6, None)
    assert (found.stdout.strip(), found.stderr.strip()) == ("<scratch> <programs>", "no")
    assert str(tmp_path) not in path.read_text()


def test_a_run_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wait.py").write_text("import time; print('here', flush=True); time.sleep(600)")
    monkeypatch.setattr(record, "PYTHON_TIMEOUT_S", 1.0)
    text = record.record(record.Run(label="bare", program="wait.py"), tmp_path)
    assert "exit status: none: ended after 1 s" in text


def test_a_tool_that_is_not_there_loses_only_its_own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "SANITIZER", (str(tmp_path / "nowhere"),))
    path = tmp_path / "clean.memcheck.txt"
    path.write_text(
        record.record(record.Run(label="memcheck", program="clean.cu", tool=["--tool", "memcheck"]), tmp_path)
    )
    assert Recording.read(path).exit_status is None
