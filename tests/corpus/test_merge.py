from datetime import timedelta
from pathlib import Path

import pytest

from casebook_workbench.corpus import journal
from casebook_workbench.corpus.merge import gather, merged
from casebook_workbench.corpus.model import Run
from failure_signature.trials import Verdict
from gpu_casebook.errors import UsageError
from tests.corpus.report.example import MASK, PAIR, RWKV, START, broke, finished, run, skipped


def keep(reports: Path, of: Run) -> Path:
    (reports / "runs" / of.id).mkdir(parents=True)
    with journal.Journal.create(reports, of.model_copy(update={"finished": []})) as record:
        record.append(of.finished)
    return reports


def test_all_jobs_of_all_machines() -> None:
    one = run([finished(RWKV)], host="one", ended=START + timedelta(minutes=5))
    two = run([finished(MASK)], host="two", ended=START + timedelta(minutes=9), started=START + timedelta(minutes=1))
    whole = merged([two, one], "id", "all")
    assert [job.name for job in whole.jobs] == ["rwkv6-backward/current", "rwkv6-mask/current"]
    assert [each.worker for each in whole.finished] == ["one worker 1", "two worker 1"]
    assert whole.workers == ["one worker 1", "one worker 2", "two worker 1", "two worker 2"]
    assert (whole.id, whole.selection, whole.host) == ("id", "all", "one, two")
    assert (whole.started, whole.ended) == (START, START + timedelta(minutes=9))
    assert whole.disk_before_bytes is None


def test_it_goes_on_while_one_of_them_does() -> None:
    whole = merged([run([finished(RWKV)]), run([], left=[MASK])], "id", "all")
    assert whole.ended is None
    assert [job.name for job in whole.left] == [MASK.name]


@pytest.mark.parametrize("other", [skipped(RWKV), broke(RWKV)])
def test_a_verdict_counts_before_none_whichever_came_first(other: object) -> None:
    verdict, none = run([finished(RWKV, Verdict.FIX_FAILS)]), run([other])  # type: ignore[list-item]
    for order in ([verdict, none], [none, verdict]):
        (found,) = merged(order, "id", "all").finished
        assert found.verdict is Verdict.FIX_FAILS


def test_of_two_verdicts_the_later_one_counts() -> None:
    early, late = finished(RWKV), finished(RWKV, Verdict.FIX_FAILS, started=START + timedelta(seconds=1))
    for order in ([run([early]), run([late])], [run([late]), run([early])]):
        (found,) = merged(order, "id", "all").finished
        assert found.verdict is Verdict.FIX_FAILS


def test_gathered_with_the_evidence_into_a_record_of_its_own(tmp_path: Path) -> None:
    sources = [keep(tmp_path / "a", run([finished(RWKV)])), keep(tmp_path / "b", run([skipped(PAIR)]))]
    (tmp_path / "a" / "evidence" / "x").mkdir(parents=True)
    (tmp_path / "a" / "evidence" / "x" / "y.json").write_text("{}")
    made = gather(tmp_path / "all", sources, "nightly")
    assert journal.read(tmp_path / "all" / "runs" / made.id) == made
    assert (tmp_path / "all" / "evidence" / "x" / "y.json").is_file()
    assert [job.name for job in made.jobs] == [PAIR.name, RWKV.name]


def test_a_directory_without_a_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is none"):
        gather(tmp_path / "all", [tmp_path], "all")
    with pytest.raises(UsageError, match="no reports directory"):
        gather(tmp_path / "all", [], "all")


def test_nothing_behind_a_link_gets_into_it(tmp_path: Path) -> None:
    source = keep(tmp_path / "a", run([finished(RWKV)]))
    (tmp_path / "secret").write_text("secret")
    (source / "evidence" / "x").mkdir(parents=True)
    (source / "evidence" / "x" / "y.json").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match=r"y\.json: is behind a symlink"):
        gather(tmp_path / "all", [source], "nightly")
    (source / "evidence" / "x" / "y.json").unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "y.json").write_text("secret")
    (source / "evidence" / "z").symlink_to(tmp_path / "other")
    with pytest.raises(UsageError, match=r"y\.json: is behind a symlink"):
        gather(tmp_path / "all", [source], "nightly")
    assert not (tmp_path / "all" / "evidence").exists()
