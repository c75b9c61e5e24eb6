import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from casebook_workbench.corpus import journal
from casebook_workbench.corpus.journal import Journal, find, ids, new_id, read
from casebook_workbench.corpus.model import End, Finished, Job, Lost, Run, Settings
from failure_signature.kinds import Grade, Variant
from failure_signature.trials import Rate, Verdict
from gpu_casebook.errors import CasebookError, UsageError

NOW = datetime(2026, 11, 21, 15, 40, 41, 123456, tzinfo=UTC)


def job(name: str, **changed: object) -> Job:
    whole = {"case": name, "environment": "e", "failure": "hang", "project": "o/n", "grade": Grade.SIMULATED}
    return Job.model_validate(whole | changed)


def finished(of: Job, **changed: object) -> Finished:
    whole = {"job": of, "end": End.RAN, "verdict": Verdict.CONFIRMED, "started": NOW, "duration_s": 1.5}
    return Finished.model_validate(whole | changed)


def run(reports: Path, jobs: int = 3) -> Run:
    settings = Settings(root="/checkout", reports=str(reports))
    return Run(id=new_id(reports, NOW), started=NOW, settings=settings, jobs=[job(f"case-{n}") for n in range(jobs)])


@pytest.fixture
def whole(tmp_path: Path) -> Run:
    return run(tmp_path)


def test_what_was_appended_is_read_again(tmp_path: Path, whole: Run) -> None:
    rate = Rate(k=3, n=3, low=0.4, high=1.0)
    ends = [
        finished(whole.jobs[1], rates={Variant.REPRO: rate}, lost=[Lost(worker="w1", reason="killed", after_s=2.0)]),
        finished(whole.jobs[0], end=End.BROKE, verdict=None, reason="no lock"),
    ]
    with Journal.create(tmp_path, whole) as record:
        record.append(ends[:1])
        record.append(ends[1:])
    again = read(tmp_path / "runs" / whole.id)
    assert again.finished == ends
    assert again.jobs == whole.jobs
    assert again.left == [whole.jobs[2]]


def test_each_end_is_on_disk_when_append_returns(tmp_path: Path, whole: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync

    def fsync(file: int) -> None:
        synced.append(os.fstat(file).st_size)
        sync(file)

    with Journal.create(tmp_path, whole) as record:
        monkeypatch.setattr(os, "fsync", fsync)
        record.append([finished(whole.jobs[0])])
        assert synced == [(record.directory / journal.JOURNAL).stat().st_size]
        assert read(record.directory).finished == [finished(whole.jobs[0])]


@pytest.mark.parametrize("torn", [b'{"job": {"case": "case-1", "env', b"\0\0\0\0\0\0", b"{}", b"x" * 5000])
def test_a_torn_last_line_is_as_good_as_not_there(tmp_path: Path, whole: Run, torn: bytes) -> None:
    with Journal.create(tmp_path, whole) as record:
        record.append([finished(whole.jobs[0])])
    path = tmp_path / "runs" / whole.id / journal.JOURNAL
    path.write_bytes(path.read_bytes() + torn)
    assert [job.case for job in read(path.parent).left] == ["case-1", "case-2"]
    with Journal.resume(tmp_path, whole.id) as record:
        record.append([finished(whole.jobs[1])])
    assert [each.job.case for each in read(path.parent).finished] == ["case-0", "case-1"]


def test_a_line_that_lacks_but_its_end_is_torn_too(tmp_path: Path, whole: Run) -> None:
    """For whoever reads it and for whoever writes on alike."""
    with Journal.create(tmp_path, whole) as record:
        record.append([finished(whole.jobs[0]), finished(whole.jobs[1])])
    path = tmp_path / "runs" / whole.id / journal.JOURNAL
    path.write_bytes(path.read_bytes()[:-1])
    with Journal.resume(tmp_path, whole.id) as record:
        assert [each.job.case for each in record.run.finished] == ["case-0"]
    assert [each.job.case for each in read(path.parent).finished] == ["case-0"]


def test_a_journal_that_is_one_torn_line_is_empty(tmp_path: Path, whole: Run) -> None:
    Journal.create(tmp_path, whole).close()
    (tmp_path / "runs" / whole.id / journal.JOURNAL).write_bytes(b'{"job"')
    with Journal.resume(tmp_path, None) as record:
        assert record.run.finished == []
        record.append([finished(whole.jobs[2])])
    assert read(tmp_path / "runs" / whole.id).finished == [finished(whole.jobs[2])]


def test_a_job_that_stands_there_twice_ended_once(tmp_path: Path, whole: Run) -> None:
    with Journal.create(tmp_path, whole) as record:
        record.append([finished(whole.jobs[0]), finished(whole.jobs[0], reason="again"), finished(job("stranger"))])
    assert read(tmp_path / "runs" / whole.id).finished == [finished(whole.jobs[0])]


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def torn_by_a_full_disk(write: Callable[[int, bytes, int], int]) -> Callable[[int, bytes, int], int]:
    """The first write takes but a few bytes, and then there is no room."""
    done: list[int] = []

    def pwrite(file: int, data: bytes, at: int) -> int:
        if done:
            full()
        done.append(write(file, data[:10], at))
        return done[0]

    return pwrite


def test_a_full_disk_leaves_what_was_finished_whole(
    tmp_path: Path, whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.create(tmp_path, whole) as record:
        record.append([finished(whole.jobs[0])])
        path = record.directory / journal.JOURNAL
        before = path.read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", torn_by_a_full_disk(os.pwrite))
            with pytest.raises(OSError, match="No space left") as caught:
                record.append([finished(whole.jobs[1])])
        assert caught.value.filename == str(path)
        assert path.read_bytes() == before
        assert record.run.finished == [finished(whole.jobs[0])]
        record.append([finished(whole.jobs[1])])
    assert len(read(path.parent).finished) == 2


def test_ids_sort_by_time_and_differ_within_one_moment(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    later = new_id(tmp_path, NOW + timedelta(microseconds=1))
    next_day = new_id(tmp_path, NOW + timedelta(days=1))
    made = [first.id, second.id, later, next_day]
    assert len(set(made)) == 4
    assert sorted(made) == made


def test_ids_are_in_utc(tmp_path: Path) -> None:
    elsewhere = NOW.astimezone(datetime.now(UTC).astimezone().tzinfo)
    assert new_id(tmp_path, elsewhere).startswith("20261121-154041")


def test_the_newest_run_is_found_and_what_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run to go on with: there is none in"):
        find(tmp_path, None)
    for _ in range(2):
        Journal.create(tmp_path, run(tmp_path)).close()
    new_id(tmp_path, NOW + timedelta(days=1))  # its process was killed before it wrote the record
    assert find(tmp_path, None).name == ids(tmp_path)[-1]
    assert find(tmp_path, ids(tmp_path)[0]).name == ids(tmp_path)[0]
    with pytest.raises(UsageError, match=rf"no run 'x' in .*the newest are: {ids(tmp_path)[1]}, {ids(tmp_path)[0]}"):
        find(tmp_path, "x")


def test_the_whole_run_can_be_changed_in_its_record(tmp_path: Path, whole: Run) -> None:
    with Journal.create(tmp_path, whole) as record:
        record.append([finished(whole.jobs[0])])
        record.update(ended=NOW, workers=["w1"])
        assert record.run.finished == [finished(whole.jobs[0])]
    again = read(tmp_path / "runs" / whole.id)
    assert (again.ended, again.workers, len(again.finished)) == (NOW, ["w1"], 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "it is no JSON"), ('{"schema_version": 2}', "schema_version"), ("{}", "Field required")],
)
def test_a_record_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, whole: Run, text: str, said: str) -> None:
    Journal.create(tmp_path, whole).close()
    path = tmp_path / "runs" / whole.id / journal.RUN
    path.write_text(text)
    with pytest.raises(CasebookError, match=said) as caught:
        Journal.resume(tmp_path, None)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    path.write_text(json.dumps(json.loads(whole.model_dump_json())))
    Journal.resume(tmp_path, None).close()  # it was not left locked


HOLDER = """
import sys
from pathlib import Path
from casebook_workbench.corpus.journal import Journal
with Journal.resume(Path(sys.argv[1]), None):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_that_a_living_process_has_is_refused_and_a_killed_one_has_none(tmp_path: Path, whole: Run) -> None:
    Journal.create(tmp_path, whole).close()
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"run {whole.id} is still going on: process {holder.pid} has it"):
            Journal.resume(tmp_path, None)
        holder.kill()
        holder.wait(60)
        with Journal.resume(tmp_path, None) as record:
            assert record.run.jobs == whole.jobs
