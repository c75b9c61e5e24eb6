import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failure_signature.kinds import Variant
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Evidence, evidence_path, load
from tests.report.example import FIXED, REPRO, evidence, simulated


def written(tmp_path: Path, record: Evidence) -> Path:
    path = evidence_path(tmp_path, record)
    record.write(path)
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    for record in (evidence(), simulated(), evidence(trials=[], rates={})):
        assert load(written(tmp_path, record)) == record


def test_not_a_number_and_infinity_come_back(tmp_path: Path) -> None:
    record = evidence(fixed=replace(FIXED, stdout="dq_rel_err=nan\nfwd_rel_err=inf\nlow=-inf\n"))
    path = written(tmp_path, record)
    figures = load(path).trials_of(Variant.FIXED)[0].observation.figures
    assert {name: str(value) for name, value in figures.items()} == {
        "dq_rel_err": "nan",
        "fwd_rel_err": "inf",
        "low": "-inf",
    }
    assert load(path).model_dump_json() == record.model_dump_json()


def test_the_file_is_json_to_everybody(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    record = evidence(fixed=replace(FIXED, stdout="dq_rel_err=nan\n"))
    json.loads(written(tmp_path, record).read_text(), parse_constant=refuse)


def test_output_comes_back_as_it_was(tmp_path: Path) -> None:
    stdout = b"\xff\xfe half \xe2\x82 \x00 \x1b[31m \x85 \r\n".decode("utf-8", "replace") + "\u2028 \U0001f600"
    record = evidence(repro=replace(REPRO, stdout=stdout))
    assert load(written(tmp_path, record)).trials[0].stdout == stdout


def test_nothing_is_left_beside_the_file_and_a_later_run_replaces_it(tmp_path: Path) -> None:
    path = written(tmp_path, evidence())
    again = evidence(command="again")
    assert written(tmp_path, again) == path
    assert list(path.parent.iterdir()) == [path]
    assert load(path).command == "again"


def test_where_evidence_lies() -> None:
    reports = Path("reports")
    directory = reports / "evidence" / "rwkv6-backward"
    assert evidence_path(reports, evidence()) == directory / "upstream.docker.nvidia-h200.json"
    assert evidence_path(reports, simulated()) == directory / "front-end.venv.cpu.drifted.json"


def test_a_run_that_drifted_does_not_replace_an_exact_one() -> None:
    drifted = evidence().environment.model_copy(update={"drift": ["torch: 2.2.2 locked, 2.11.0 found"]})
    assert evidence_path(Path(), evidence(environment=drifted)).name == "upstream.docker.nvidia-h200.drifted.json"


def test_a_device_of_any_name_stays_a_file_name() -> None:
    attestation = evidence().environment.attestation
    assert attestation is not None
    odd = attestation.gpus[0].model_copy(update={"name": "../../NVIDIA (R) A100.80GB/PCIe™"})
    environment = evidence().environment.model_copy(
        update={"attestation": attestation.model_copy(update={"gpus": [odd]})}
    )
    assert (
        evidence_path(Path(), evidence(environment=environment)).name == "upstream.docker.nvidia-r-a100-80gb-pcie.json"
    )


def spoiled(tmp_path: Path, **changed: Any) -> Path:
    path = tmp_path / "spoiled.json"
    path.write_text(json.dumps(json.loads(evidence().model_dump_json()) | changed))
    return path


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_another_schema_is_refused(tmp_path: Path, version: object) -> None:
    path = spoiled(tmp_path, schema_version=version)
    with pytest.raises(CasebookError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}: schema_version {version!r}, and this runner knows 1; "
        "use the runner that wrote it, or run the case again, or remove the file"
    )


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\x00", "[" * 100_000])
def test_what_is_no_evidence_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(CasebookError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CasebookError, match=r"gone\.json: can't be read as evidence: No such file"):
        load(tmp_path / "gone.json")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(CasebookError, match="it is no JSON"):
        load(tmp_path / "bytes.json")


def test_older_evidence_with_forked_trials_is_read(tmp_path: Path) -> None:
    """Older runners forked trials of a case with a rate from one process."""
    data = json.loads(evidence().model_dump_json())
    data["trials"][0]["zygote"] = "forked from a process that had imported torch"
    found = load(spoiled(tmp_path, trials=data["trials"], dropped="of repro, 1 of 5 fresh trials were as expected"))
    assert [trial.forked for trial in found.trials[:2]] == [True, False]


def test_a_wrong_value_is_pointed_at(tmp_path: Path) -> None:
    path = spoiled(tmp_path, verdict="proven", surprise=1)
    with pytest.raises(CasebookError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: can't be read as evidence: verdict: Input should be 'confirmed',")
    assert str(caught.value).endswith("(and 1 more); run the case again, or remove the file")
