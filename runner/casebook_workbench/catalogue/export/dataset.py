"""Rows -> the files of a dataset: JSON Lines for each split, croissant.json, and the card that hubs show, README.md."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from casebook_workbench.catalogue.export.rows import CANARY, LICENCE, SPLITS, Row
from gpu_casebook.errors import UsageError
from gpu_casebook.report.markdown import render_template
from gpu_casebook.revision import own_revision

NAME = "casebook"
DESCRIPTION = (
    "Documented GPU and training-stack failures: for each a pinned environment, a script that shows the failure, "
    "the same script with the fix, what must hold of either, and evidence from runs."
)
COLUMNS = {
    "id": "The case's id.",
    "split": "development or test, by a hash of the upstream project.",
    "title": "What fails, and when, in one line.",
    "failure": "The kind of failure, such as wrong-numbers or illegal-access.",
    "area": "What breaks, such as kernels or data.",
    "symptom": "What users see, in one line.",
    "problem_statement": "What users saw.",
    "readme": "The whole story: symptom, mechanism, fix, history, what is established and what is inferred.",
    "project": "The upstream project.",
    "status": "fixed or open: whether upstream has the fix.",
    "introduced": "Commit or version that brought the failure.",
    "fixed_in": "Commit or version that has the fix.",
    "links": "The report, and further links.",
    "provenance": "What of the project runs: release, release-workaround, sources, distilled or pattern.",
    "ran": "The same in a sentence.",
    "repro": "The script that shows the failure.",
    "fixed": "The same script with the fix.",
    "patch": "A unified diff that turns repro.py into fixed.py.",
    "because": "Why the scripts differ by more than the fix.",
    "files": "Other files that the scripts need, as a JSON object of their texts by path.",
    "environments": "Pinned environments with their locks, and what must hold of both scripts there.",
    "timeout_s": "Seconds that one trial may take.",
    "trials": "Trials of each script.",
    "evidence": "Runs of the case: verdict, device, trials as expected.",
    "digest": "sha256 over the manifest and the files that a trial gets.",
    "licence": "Licence of the row, as an SPDX identifier.",
    "canary": "A string that tells this data in a training corpus.",
}
"""Every column, with what it is."""
_TYPES = {"timeout_s": "sc:Float", "trials": "sc:Integer"}
_NESTED = ("environments", "evidence")
"""Columns of records, which Croissant does not describe: its reader of JSON Lines knows no fields within a column."""
_CONTEXT = Path(__file__).with_name("context.json")
"""The JSON-LD context that Croissant 1.0 prescribes, word for word."""


def write(directory: Path, rows: Sequence[Row]) -> Iterator[tuple[Path, int | None]]:
    """Write the dataset; yield each file with the number of its rows. Raises UsageError for a directory with files."""
    if directory.is_dir() and any(directory.iterdir()):
        raise UsageError(f"{directory}: there are files in it; name a new directory")
    (directory / "data").mkdir(parents=True, exist_ok=True)
    parts = {split: [each for each in rows if each["split"] == split] for split in SPLITS}
    parts = {split: part for split, part in parts.items() if part}
    for split, part in parts.items():
        path = directory / "data" / f"{split}.jsonl"
        path.write_text("".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in part), encoding="utf-8")
        yield path, len(part)
    described = json.dumps(croissant(directory, list(parts)), indent=1, ensure_ascii=False)
    for name, text in (("croissant.json", f"{described}\n"), ("README.md", card(parts))):
        (directory / name).write_text(text, encoding="utf-8")
        yield directory / name, None


def card(parts: dict[str, list[Row]]) -> str:
    """Return the dataset's card: front matter that hubs read, then text."""
    rows = [each for part in parts.values() for each in part]
    return render_template(
        "card.md.j2",
        package="casebook_workbench.catalogue.export",
        parts=parts,
        columns=COLUMNS,
        failures=Counter(each["failure"] for each in rows).most_common(),
        projects=Counter(each["project"] for each in rows).most_common(),
        description=DESCRIPTION,
        canary=CANARY,
        licence=LICENCE.lower(),
        revision=own_revision(),
    )


def croissant(directory: Path, splits: Sequence[str]) -> dict[str, Any]:
    """Return the dataset's description in Croissant 1.0: its files, and the columns of each split."""
    return {
        "@context": json.loads(_CONTEXT.read_text(encoding="utf-8")),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": NAME,
        "description": f"{DESCRIPTION} {CANARY}",
        "license": f"https://spdx.org/licenses/{LICENCE}.html",
        "citeAs": f"The Casebook maintainers: Casebook, {own_revision()}",
        "version": own_revision().partition(" ")[0],
        "datePublished": f"{datetime.now(UTC):%Y-%m-%d}",
        "creator": {"@type": "sc:Organization", "name": "The Casebook maintainers"},
        "keywords": ["bugs", "GPU", "CUDA", "PyTorch", "Triton", "program repair", "reproducibility"],
        "distribution": [_file(directory, split) for split in splits],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": split,
                "name": split,
                "description": f"The cases of the split {split}. Rows have {' and '.join(_NESTED)} too: see the card.",
                "key": {"@id": f"{split}/id"},
                "field": [_field(split, name, what) for name, what in COLUMNS.items() if name not in _NESTED],
            }
            for split in splits
        ],
    }


def _file(directory: Path, split: str) -> dict[str, str]:
    content = (directory / "data" / f"{split}.jsonl").read_bytes()
    return {
        "@type": "cr:FileObject",
        "@id": f"{split}.jsonl",
        "name": f"{split}.jsonl",
        "contentUrl": f"data/{split}.jsonl",
        "contentSize": f"{len(content)} B",
        "encodingFormat": "application/jsonlines",
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _field(split: str, name: str, what: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{split}/{name}",
        "name": name,
        "description": what,
        "dataType": _TYPES.get(name, "sc:Text"),
        **({"repeated": True} if name == "links" else {}),
        "source": {"fileObject": {"@id": f"{split}.jsonl"}, "extract": {"column": name}},
    }
