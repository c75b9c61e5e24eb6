"""Evidence on disk -> pages on disk. The only part of the reports that touches files."""

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from filelock import FileLock

from gpu_casebook.evidence import Evidence, evidence_files, evidence_path, load
from gpu_casebook.files import write_whole
from gpu_casebook.records.watched import all_watched
from gpu_casebook.report.case_page import case_page
from gpu_casebook.report.index import index
from gpu_casebook.report.words import page_name

INDEX = "README.md"


def publish(reports: Path, run: Evidence) -> Path:
    """Write the evidence of a run, then its case's page, which is returned, and the index.

    Raises CasebookError where older evidence can't be read; the new evidence is safe by then.
    """
    run.write(evidence_path(reports, run))
    page, _ = render(reports, [run.case.id])
    return page


def render(reports: Path, cases: Collection[str] | None) -> list[Path]:
    """Write the pages of these cases, or of all where that is None, then the index. Return the files written.

    One process at a time does so, and it holds one case's evidence at a time. Raises CasebookError where evidence can't
    be read; then no page is written.
    """
    directory = reports / "runs"
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / ".pages.lock"):  # two runs that end at once would overwrite each other's index
        rows, paths = list[Evidence](), defaultdict[str, list[Path]](list)
        for path in evidence_files(reports):
            # All that the index shows: a corpus of a thousand cases has gigabytes of output.
            rows.append(load(path).model_copy(update={"trials": [], "sanitized": [], "probes": []}))
            paths[rows[-1].case.id].append(path)
        wanted = [case for case in sorted(paths) if cases is None or case in cases]
        written = [write_whole(reports / page_name(case), case_page(list(map(load, paths[case])))) for case in wanted]
        return [*written, write_whole(reports / INDEX, index(rows, all_watched(reports)))]
