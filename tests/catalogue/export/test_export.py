import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from casebook_workbench.catalogue.export.dataset import COLUMNS
from casebook_workbench.catalogue.export.rows import CANARY, SPLITS, split_of
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.manifest.case import discover, find, known_images
from tests.cli.test_cli import casebook
from tests.conftest import Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole corpus."""
    place = tmp_path_factory.mktemp("export") / "dataset"
    status, said = casebook("export", str(place), "--corpus", str(ROOT))
    assert status == 0, said
    return place


def rows_of(place: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for split in SPLITS
        for line in (place / "data" / f"{split}.jsonl").read_text().split("\n")[:-1]
    ]


@pytest.fixture(scope="module")
def rows(exported: Path) -> list[dict[str, Any]]:
    return rows_of(exported)


def elsewhere(script: str, *words: str, home: Path) -> Any:
    """What a script prints as JSON, in a process of its own that reaches no network: these libraries warn a lot."""
    variables = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, *words], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_there_is_a_row_for_each_case_with_every_column(rows: Sequence[Mapping[str, Any]]) -> None:
    assert sorted(row["id"] for row in rows) == discover(ROOT)
    assert {tuple(row) for row in rows} == {tuple(COLUMNS)}
    for row in rows:
        case = find(ROOT, row["id"], known_images(ROOT))
        assert row["problem_statement"]
        assert row["canary"] == CANARY
        assert row["repro"] == (case.directory / "repro.py").read_text()
        assert [each["name"] for each in row["environments"]] == list(case.manifest.environments)
        assert all(each["expect_repro"] and each["lock_repro"] for each in row["environments"])


def test_the_patch_turns_repro_into_fixed(rows: Sequence[Mapping[str, Any]], tmp_path: Path) -> None:
    for row in rows:
        place = tmp_path / row["id"]
        place.mkdir()
        (place / "repro.py").write_text(row["repro"])
        if row["patch"]:
            subprocess.run(["git", "apply", "-"], cwd=place, input=row["patch"], text=True, check=True)
        assert (place / "repro.py").read_text() == row["fixed"], row["id"]


def test_a_project_is_in_one_split_and_stays_there(rows: Sequence[Mapping[str, Any]]) -> None:
    splits = defaultdict(set)
    for row in rows:
        splits[row["project"]].add(row["split"])
    assert {len(each) for each in splits.values()} == {1}
    assert set().union(*splits.values()) == set(SPLITS)
    assert (split_of("pytorch/pytorch"), split_of("PyTorch/pytorch")) == ("development", "development")
    assert split_of("huggingface/transformers") == "test"


def test_datasets_loads_it(exported: Path, rows: Sequence[Mapping[str, Any]], tmp_path: Path) -> None:
    script = """
import json, sys
from datasets import load_dataset
loaded = load_dataset(sys.argv[1])
first = loaded["test"][0]
ids = {name: list(part["id"]) for name, part in loaded.items()}
print(json.dumps({"ids": ids, "columns": loaded["test"].column_names, "verdict": first["evidence"][0]["verdict"],
                  "lock": first["environments"][0]["lock_repro"][:1]}))
"""
    loaded = elsewhere(script, str(exported), home=tmp_path)
    assert loaded["ids"] == {split: [row["id"] for row in rows if row["split"] == split] for split in SPLITS}
    assert loaded["columns"] == list(COLUMNS)
    assert (loaded["verdict"], loaded["lock"]) == ("confirmed", "#")


def test_the_description_is_valid_and_reads_the_rows(
    exported: Path, rows: Sequence[Mapping[str, Any]], tmp_path: Path
) -> None:
    script = """
import json, sys, mlcroissant
described = mlcroissant.Dataset(jsonld=sys.argv[1])
names = [each.id for each in described.metadata.record_sets]
ids = {name: [row[f"{name}/id"].decode() for row in described.records(name)] for name in names}
print(json.dumps([ids, sorted(described.metadata.ctx.issues.errors), sorted(described.metadata.ctx.issues.warnings)]))
"""
    ids, errors, warnings = elsewhere(script, str(exported / "croissant.json"), home=tmp_path)
    assert ids == {split: [row["id"] for row in rows if row["split"] == split] for split in SPLITS}
    assert (errors, warnings) == ([], [])
    for each in json.loads((exported / "croissant.json").read_text())["distribution"]:
        content = (exported / each["contentUrl"]).read_bytes()
        assert (each["sha256"], each["contentSize"]) == (hashlib.sha256(content).hexdigest(), f"{len(content)} B")


def test_the_card_has_what_hubs_read(exported: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    _, front, text = (exported / "README.md").read_text().split("---\n", 2)
    head = yaml.safe_load(front)
    files = {each["split"]: each["path"] for each in head["configs"][0]["data_files"]}
    assert files == {split: f"data/{split}.jsonl" for split in SPLITS}
    assert (head["license"], head["pretty_name"]) == ("apache-2.0", "Casebook: GPU and training-stack failures")
    for split in SPLITS:
        assert f"| {split} | {sum(row['split'] == split for row in rows)} |" in text
    assert all(f"| `{name}` | " in text for name in COLUMNS)
    assert CANARY in text


def test_evidence_says_whether_it_is_of_these_scripts(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = checkout.write().parent
    write_locks(directory)
    (directory / "data.txt").write_text("1 2 3\n")
    monkeypatch.chdir(checkout.root)
    monkeypatch.setattr(hardware, "gpus", list)
    monkeypatch.setattr(choosing, "choose", lambda *_: FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]}))
    assert casebook("case", "tiny", "--publish")[0] == 0

    def exported() -> dict[str, Any]:
        place = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        assert casebook("export", str(place))[0] == 0
        (row,) = [json.loads((place / "data" / f"{split_of('owner/name')}.jsonl").read_text())]
        return dict(row)

    row = exported()
    (seen,) = row["evidence"]
    assert json.loads(row["files"]) == {"data.txt": "1 2 3\n"}
    assert (seen["verdict"], seen["of_these_scripts"], seen["repro_as_expected"], seen["fixed_trials"]) == (
        "confirmed",
        True,
        3,
        4,
    )
    (directory / "repro.py").write_text((directory / "repro.py").read_text() + "# later\n")
    assert exported()["evidence"][0]["of_these_scripts"] is False


def test_a_directory_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    status, said = casebook("export", str(tmp_path), "--corpus", str(ROOT))
    assert (status, said) == (2, f"casebook: {tmp_path}: there are files in it; name a new directory\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
