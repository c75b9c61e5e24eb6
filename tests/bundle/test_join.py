import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from casebook_workbench.bundle.document import Bundle, Returned
from casebook_workbench.bundle.join import join
from casebook_workbench.corpus import journal
from casebook_workbench.corpus.model import End, Finished, Job, Run, Settings, ended, facts
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Evidence, evidence_path, load
from gpu_casebook.manifest.case import Case
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from tests.conftest import Checkout
from tests.fakes import FIXED, REPRO, FakeEngine

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def evidence(case: Case) -> Evidence:
    engine = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
    found = run_case(case, Options(environment="interpreter"), engine, Console())
    assert isinstance(found, Evidence)
    return found


def brought(case: Case, *finished: Finished, host: str = "box", **more: Evidence) -> Returned:
    names = [each.job for each in finished]
    run = Run(
        id="20261122-000000",
        started=NOW,
        host=host,
        selection="tiny",
        settings=Settings(root="/there/checkout", reports="/there/reports"),
        jobs=names,
        finished=list(finished),
    )
    bundle = Bundle(
        jobs=[{"case": job.case, "environment": job.environment} for job in names],
        engine="docker",
        digests={"tiny": case.digest()},
        needs=["3.11"],
        runner="0.1.0",
        pythons={},
    )
    return Returned(bundle=bundle, run=run, evidence=list(more.values()))


def job(environment: str) -> Job:
    return Job(case="tiny", environment=environment, failure="wrong-numbers", project="owner/name", grade="simulated")


@pytest.fixture
def returned(case: Case, evidence: Evidence) -> Returned:
    path = evidence_path(Path(), evidence).as_posix()
    ran = Finished(job=job("interpreter"), end=End.RAN, started=NOW, evidence=path, **facts(evidence))
    return brought(case, ran, evidence=evidence)


@dataclass
class Home:
    root: Path
    reports: Path
    warned: list[str] = field(default_factory=list)

    def join(self, *files: Returned) -> tuple[Run, Path]:
        return join(files, self.root, self.reports, self.warned.append)


@pytest.fixture
def home(checkout: Checkout, tmp_path: Path) -> Home:
    return Home(checkout.root, tmp_path / "reports")


def test_it_is_read_as_it_was_written(returned: Returned, tmp_path: Path) -> None:
    returned.write(tmp_path / "x.json")
    assert Returned.read(tmp_path / "x.json") == returned
    assert [path.name for path in tmp_path.glob("*x.json*")] == ["x.json"]


def test_evidence_joins_the_index_and_the_run_has_its_page(returned: Returned, home: Home) -> None:
    run, page = home.join(returned)
    (evidence,) = returned.evidence
    assert load(evidence_path(home.reports, evidence)) == evidence
    for path in (home.reports / "README.md", home.reports / "tiny.md", page):
        assert "tiny" in path.read_text()
    assert journal.read(home.reports / "runs" / run.id) == run
    assert [each.verdict for each in run.finished] == [Verdict.CONFIRMED]
    assert home.warned == []


def test_files_of_several_hosts_are_one_run(returned: Returned, case: Case, home: Home) -> None:
    skipped = ended(job("current"), End.SKIPPED, "1 GPU is needed, and there is none")
    run, page = home.join(returned, brought(case, skipped, host="other"))
    assert (run.host, [each.job.name for each in run.finished]) == ("box, other", ["tiny/current", "tiny/interpreter"])
    assert "1 GPU is needed, and there is none" in page.read_text()
    assert [path.parent.name for path in home.reports.glob("runs/*/run.json")] == [run.id]


def test_a_case_that_has_changed_since_is_warned_of(returned: Returned, case: Case, home: Home) -> None:
    (case.directory / "repro.py").write_text("print('rel_err=0.25')\n")
    (case.directory / "locks" / "interpreter.txt").write_text("")
    home.join(returned)
    assert home.warned == [
        "tiny: manifest or scripts have changed since the bundle was packed",
        "tiny: locks/interpreter.txt has changed since the bundle was packed",
    ]
    assert (home.reports / "tiny.md").is_file()


@pytest.mark.parametrize(
    ("gone", "line"), [("interpreter:", "tiny: it has no environment interpreter any more"), ("id: tiny", "no case")]
)
def test_what_is_gone_is_warned_of(returned: Returned, case: Case, home: Home, gone: str, line: str) -> None:
    manifest = case.directory / "case.yaml"
    if gone == "id: tiny":
        case.directory.rename(case.directory.with_name("other"))
    else:
        manifest.write_text(manifest.read_text().replace(gone, "renamed:"))
    home.join(returned)
    assert line in home.warned[-1]
    assert (home.reports / "tiny.md").is_file()


def test_a_later_run_that_is_here_is_kept(returned: Returned, home: Home) -> None:
    (evidence,) = returned.evidence
    later = evidence.model_copy(update={"started": evidence.started + timedelta(seconds=1)})
    later.write(evidence_path(home.reports, later))
    home.join(returned)
    assert home.warned == ["tiny: interpreter.venv.cpu.json is of a later run, and was kept"]
    assert load(evidence_path(home.reports, later)) == later


@pytest.mark.parametrize("change", [{"digests": {"other": "0"}}, {"jobs": []}, {"digests": {"tiny": "0"}}])
def test_evidence_of_something_else_is_refused(returned: Returned, home: Home, change: dict[str, object]) -> None:
    wrong = returned.model_copy(update={"bundle": returned.bundle.model_copy(update=change)})
    with pytest.raises(CasebookError, match="the evidence is not of the bundle that it names: tiny, interpreter"):
        home.join(wrong)
    assert not home.reports.exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{}", "x.json: can't be read as what bundle-run wrote: bundle: Field required"),
        ("not json", "x.json: can't be read as what bundle-run wrote: it is no JSON"),
        ("", "x.json: can't be read as what bundle-run wrote"),
    ],
)
def test_what_did_not_come_from_a_bundle_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CasebookError, match=line) as told:
        Returned.read(tmp_path / "x.json")
    assert "\n" not in str(told.value)


def test_a_file_that_was_cut_or_changed_is_refused(returned: Returned, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    returned.write(path)
    data = json.loads(path.read_text())
    data["evidence"][0]["verdict"] = "splendid"
    path.write_text(json.dumps(data))
    with pytest.raises(CasebookError, match=r"evidence\.0\.verdict: Input should be"):
        Returned.read(path)
    returned.write(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CasebookError, match="it is no JSON"):
        Returned.read(path)
