import json
from pathlib import Path

import pytest

from casebook_workbench.corpus import journal
from casebook_workbench.corpus.model import Run
from casebook_workbench.corpus.report import read, summarise, write
from casebook_workbench.corpus.report.files import KEPT, earlier
from casebook_workbench.corpus.report.model import RunSummary
from gpu_casebook.errors import UsageError
from tests.corpus.report.example import RWKV, TODAY, YESTERDAY, finished, run


def keep(reports: Path, *runs: Run) -> None:
    for each in runs:
        with journal.Journal.create(reports, each.model_copy(update={"finished": []})) as record:
            record.append(each.finished)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    for each in (YESTERDAY, TODAY):
        (tmp_path / "runs" / each.id).mkdir(parents=True)
    keep(tmp_path, YESTERDAY, TODAY)
    return tmp_path


def names(directory: Path) -> set[str]:
    ours = {"run.json", "journal.jsonl", "lock", "holder"}
    return {path.name for path in directory.iterdir()} - ours


def test_writes_page_json_junit_and_plots_and_nothing_else(reports: Path) -> None:
    path = write(reports, TODAY)
    assert path == reports / "runs" / TODAY.id / "README.md"
    assert names(path.parent) == {"README.md", "summary.json", "junit.xml", "durations.svg", "rates.svg"}
    assert "### Newly failing (1)" in path.read_text()
    assert "![How long each case took in each run](durations.svg)" in path.read_text()
    assert RunSummary.model_validate_json((path.parent / "summary.json").read_bytes()) == summarise(TODAY, [YESTERDAY])


def test_the_same_bytes_again(reports: Path) -> None:
    page = write(reports, TODAY)
    before = {path.name: path.read_bytes() for path in page.parent.iterdir()}
    write(reports, TODAY)
    assert {path.name: path.read_bytes() for path in page.parent.iterdir()} == before


def test_a_run_without_a_record_is_written_too(tmp_path: Path) -> None:
    assert "There is no earlier run to compare with." in write(tmp_path, TODAY).read_text()


def test_an_earlier_run_that_cannot_be_read_is_named_and_stops_nothing(reports: Path) -> None:
    (reports / "runs" / YESTERDAY.id / "run.json").write_text("{")
    page = write(reports, TODAY).read_text()
    assert f"Not compared: run {YESTERDAY.id}: " in page
    assert "There is no earlier run to compare with." in page


def test_only_so_many_earlier_runs_are_read(tmp_path: Path) -> None:
    nights = [run([finished(RWKV)], night=-number) for number in range(KEPT + 3)]
    for each in nights:
        (tmp_path / "runs" / each.id).mkdir(parents=True)
    keep(tmp_path, *nights)
    found = earlier(tmp_path, nights[0]).runs
    assert [each.id for each in found] == [each.id for each in reversed(nights[1 : KEPT + 1])]


def test_read_takes_the_newest_or_the_one_named(reports: Path) -> None:
    assert read(reports).id == TODAY.id
    assert read(reports, YESTERDAY.id).compared_with is None
    with pytest.raises(UsageError, match="no run 'x'"):
        read(reports, "x")


def test_the_record_is_enough(reports: Path) -> None:
    """`summary.json` comes from the run's own record alone, and tells the same."""
    page = write(reports, journal.read(reports / "runs" / TODAY.id))
    assert json.loads((page.parent / "summary.json").read_text())["tally"]["confirmed"] == 3
    assert read(reports) == summarise(TODAY, [YESTERDAY])
