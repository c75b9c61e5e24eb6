"""Evidence on disk -> pages on disk. The only part of the reports that touches files."""

from collections.abc import Sequence
from pathlib import Path

from runner.evidence import Evidence, evidence_path, load
from runner.report.index import index
from runner.report.markdown import case_page
from runner.report.words import page_name

INDEX = "README.md"


def publish(reports: Path, run: Evidence) -> Path:
    """Write the evidence of a run, then its case's page, which is returned, and the index.

    Raises CasebookError where older evidence can't be read; the new evidence is safe by then.
    """
    run.write(evidence_path(reports, run))
    page, _ = _write(reports, _load_all(reports), [run.case.id])
    return page


def render_all(reports: Path) -> list[Path]:
    """Write every page and the index again from the evidence, with nothing run.

    Raises CasebookError, before anything is written, where evidence can't be read.
    """
    runs = _load_all(reports)
    return _write(reports, runs, sorted({run.case.id for run in runs}))


def _load_all(reports: Path) -> list[Evidence]:
    return [load(path) for path in sorted(reports.glob("evidence/*/[!.]*.json"))]


def _write(reports: Path, runs: Sequence[Evidence], cases: Sequence[str]) -> list[Path]:
    """The pages of these cases, and the index last."""
    pages = {page_name(case): case_page([run for run in runs if run.case.id == case]) for case in cases}
    return [_replace(reports / name, text) for name, text in (pages | {INDEX: index(runs)}).items()]


def _replace(path: Path, text: str) -> Path:
    """Whole or not at all, and the same bytes on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)
    return path
