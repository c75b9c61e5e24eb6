import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_casebook.bundle.document import Bundle, Returned
from gpu_casebook.bundle.join import join
from gpu_casebook.console import Console
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Evidence, Verdict, evidence_path, load
from gpu_casebook.manifest.case import Case
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from tests.fakes import FIXED, REPRO, FakeEngine


@pytest.fixture
def bundle(case: Case) -> Bundle:
    return Bundle(
        case="tiny",
        title="A sum",
        environment="interpreter",
        engine="docker",
        python="3.11",
        case_digest=case.digest(),
        runner="0.1.0",
        pythons={},
    )


@pytest.fixture
def evidence(case: Case) -> Evidence:
    engine = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
    found = run_case(case, Options(environment="interpreter"), engine, Console())
    assert isinstance(found, Evidence)
    return found


@pytest.fixture
def returned(bundle: Bundle, evidence: Evidence) -> Returned:
    return Returned(bundle=bundle, evidence=evidence, console="said\n")


def test_it_is_read_as_it_was_written(returned: Returned, tmp_path: Path) -> None:
    returned.write(tmp_path / "x.json")
    assert Returned.read(tmp_path / "x.json") == returned
    assert [path.name for path in tmp_path.glob("*x.json*")] == ["x.json"]


def test_evidence_joins_the_index(returned: Returned, case: Case, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    joined = join(returned, case, reports)
    assert joined == (reports / "tiny.md", [])
    assert returned.evidence
    assert load(evidence_path(reports, returned.evidence)) == returned.evidence
    assert "tiny" in (reports / "README.md").read_text()
    assert returned.verdict.exit_status == 0


def test_a_case_that_has_changed_since_is_warned_of(returned: Returned, case: Case, tmp_path: Path) -> None:
    (case.directory / "repro.py").write_text("print('rel_err=0.25')\n")
    (case.directory / "locks" / "interpreter.txt").write_text("")
    page, warnings = join(returned, case, tmp_path)
    assert page
    assert warnings == [
        "tiny: manifest or scripts have changed since the bundle was packed",
        "tiny: locks/interpreter.txt has changed since the bundle was packed",
    ]


def test_an_environment_that_is_gone_is_warned_of(returned: Returned, case: Case, tmp_path: Path) -> None:
    left = {name: spec for name, spec in case.manifest.environments.items() if name != "interpreter"}
    changed = replace(case, manifest=case.manifest.model_copy(update={"environments": left}))
    assert join(returned, changed, tmp_path).warnings == ["tiny: it has no environment interpreter any more"]


def test_a_later_run_that_is_here_is_kept(returned: Returned, case: Case, tmp_path: Path) -> None:
    assert returned.evidence
    later = returned.evidence.model_copy(update={"started": returned.evidence.started + timedelta(seconds=1)})
    later.write(evidence_path(tmp_path, later))
    page, warnings = join(returned, case, tmp_path)
    assert (page, warnings) == (None, ["interpreter.venv.cpu.json: is of a later run, and was kept"])
    assert load(evidence_path(tmp_path, later)) == later


@pytest.mark.parametrize("change", [{"case": "other"}, {"environment": "current"}, {"case_digest": "0"}])
def test_evidence_of_something_else_is_refused(
    returned: Returned, case: Case, tmp_path: Path, change: dict[str, str]
) -> None:
    wrong = returned.model_copy(update={"bundle": returned.bundle.model_copy(update=change)})
    with pytest.raises(CasebookError, match="the evidence is not of the bundle that it names"):
        join(wrong, case, tmp_path / "reports")
    assert not (tmp_path / "reports").exists()


def test_where_nothing_was_run_it_says_why(bundle: Bundle, case: Case, tmp_path: Path) -> None:
    skipped = Returned(bundle=bundle, skipped=["interpreter: 1 GPU is needed, and there is none"])
    assert (skipped.verdict, skipped.verdict.exit_status) == (Verdict.SKIPPED, 14)
    with pytest.raises(CasebookError, match="tiny was not run there: interpreter: 1 GPU is needed, and there is none"):
        join(skipped, case, tmp_path)


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
    data["evidence"]["verdict"] = "splendid"
    path.write_text(json.dumps(data))
    with pytest.raises(CasebookError, match=r"evidence\.verdict: Input should be"):
        Returned.read(path)
    returned.write(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CasebookError, match="it is no JSON"):
        Returned.read(path)
