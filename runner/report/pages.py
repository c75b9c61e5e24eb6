"""Evidence on disk -> pages on disk. The only part of the reports that touches files."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from filelock import FileLock

from runner.evidence import Evidence, evidence_path, load
from runner.files import write_whole
from runner.report.index import index
from runner.report.markdown import case_page
from runner.report.words import page_name
from runner.upstream.watch.record import all_watched

INDEX = "README.md"


def publish(reports: Path, run: Evidence) -> Path:
    """Write the evidence of a run, then its case's page, which is returned, and the index.

    Raises CasebookError where older evidence can't be read; the new evidence is safe by then.
    """
    run.write(evidence_path(reports, run))
    page, _ = render(reports, [run.case.id])
    return page


def render_all(reports: Path) -> list[Path]:
    """Write every page and the index again from the evidence, with nothing run.

    Raises CasebookError where evidence can't be read; then no page is written.
    """
    return render(reports, None)


def render(reports: Path, cases: Collection[str] | None) -> list[Path]:
    """Write the pages of these cases, of all where that is None, and the index last. Raises as `render_all`.

    One process at a time does that, and it holds one case's evidence at a time.
    """
    with _alone(reports):
        pages, rows = dict[str, str](), list[Evidence]()
        paths = sorted(reports.glob("evidence/*/[!.]*.json"))
        for _, of_case in groupby(paths, key=lambda path: path.parent):
            runs = [load(path) for path in of_case]
            pages |= {page_name(id_): case_page(of) for id_, of in _by_case(runs) if cases is None or id_ in cases}
            rows += map(_without_trials, runs)
        pages[INDEX] = index(rows, all_watched(reports))
        return [write_whole(reports / name, text) for name, text in pages.items()]


def _by_case(runs: list[Evidence]) -> list[tuple[str, list[Evidence]]]:
    ids = sorted({run.case.id for run in runs})
    return [(id_, [run for run in runs if run.case.id == id_]) for id_ in ids]


def _without_trials(run: Evidence) -> Evidence:
    """All that the index shows: a corpus of a thousand cases has gigabytes of output."""
    return run.model_copy(update={"trials": [], "sanitized": [], "probes": []})


@contextmanager
def _alone(reports: Path) -> Iterator[None]:
    """Two runs that end at once would write the index of one over that of the other."""
    directory = reports / "runs"
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / ".pages.lock"):
        yield
