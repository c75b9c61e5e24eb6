"""Evidence on disk -> pages on disk, and the index: every case on every machine it was run on.

The only part of the reports that touches files.
"""

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from filelock import FileLock

from failure_signature.kinds import Area
from failure_signature.text import counted
from failure_signature.trials import Verdict
from gpu_casebook.evidence import CaseFacts, Evidence, evidence_files, keep, load
from gpu_casebook.files import write_whole
from gpu_casebook.manifest.case import MANIFEST
from gpu_casebook.places import cases_of
from gpu_casebook.report.case_page import case_page
from gpu_casebook.report.markdown import Markdown, render_template
from gpu_casebook.report.placement import Placed, placed, unseen
from gpu_casebook.report.readme import Readme
from gpu_casebook.report.words import page_name
from gpu_casebook.report.worth import newest, newest_hardware_first

INDEX = "README.md"


def on_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def publish(reports: Path, run: Evidence, say: Callable[[str], None] = on_stderr) -> Path:
    """Write the evidence of a run, then its case's page, which is returned, and the index. Raises OSError.

    A run with fewer trials than the case asks for does not replace one that has more; `say` takes a line on that.
    """
    if instead := keep(reports, run):
        say(instead)
    return render(reports, [run.case.id])[0]


def render(reports: Path, cases: Collection[str] | None, unread: Callable[[str], object] = on_stderr) -> list[Path]:
    """Write the pages of these cases, or of all where that is None, then the index. Return the files written.

    One process at a time does so, and it holds one case's evidence at a time. `unread` is told of each file that can't
    be read; it is left out.
    """
    (directory := reports / "runs").mkdir(parents=True, exist_ok=True)
    with FileLock(directory / ".pages.lock"):  # two runs that end at once would overwrite each other's index
        rows, paths = list[Evidence](), defaultdict[str, list[Path]](list)
        for path, found in Evidence.read_all(evidence_files(reports), unread):
            # All that the index shows: a corpus of a thousand cases has gigabytes of output.
            rows.append(found.model_copy(update={"trials": [], "sanitized": [], "probes": []}))
            paths[found.case.id].append(path)
        wanted = [case for case in sorted(paths) if cases is None or case in cases]
        written, up = [], os.path.relpath(cases_of(reports).parent, reports)
        for case in wanted:
            files = cases_of(reports) / case
            why, place = Readme.read(files).why, placed(files / MANIFEST)
            page = case_page([load(path) for path in paths[case]], why, place.capable, f"{up}/")
            written.append(write_whole(reports / page_name(case), page))
        places = {path.parent.name: placed(path) for path in cases_of(reports).glob(f"*/{MANIFEST}")}
        return [*written, write_whole(reports / INDEX, index(rows, places, _of_newer_releases(reports, unread)))]


def _of_newer_releases(reports: Path, unread: Callable[[str], object]) -> str:
    """Return what `watch` has to say on the index, if it was ever used."""
    if not (reports / "watch").is_dir():
        return ""
    from gpu_casebook.report.watched import all_watched, section  # noqa: PLC0415 no case that is run needs it

    return section(all_watched(reports, unread))


def index(runs: Sequence[Evidence], places: Mapping[str, Placed] = MappingProxyType({}), newer: str = "") -> str:
    """Return the page over all cases: a row for each, by what breaks and by id; then what `newer` releases changed.

    `places` are those of all cases of the checkout; a case that is in none stands under "Others".
    """
    by_case = defaultdict[str, list[Evidence]](list)
    for run in newest_hardware_first(runs):
        by_case[run.case.id].append(run)
    count = Counter(run.verdict for run in runs)
    return render_template(
        "index.md.j2",
        runs=runs,
        groups=_groups(by_case, places),
        cases=len(by_case),
        unseen=unseen(places, by_case),
        tally=counted({verdict: count[verdict] for verdict in Verdict}),
        newer=Markdown(newer),
    )


def _groups(
    by_case: Mapping[str, Sequence[Evidence]], places: Mapping[str, Placed]
) -> list[tuple[str, list[tuple[CaseFacts, Placed, Sequence[Evidence]]]]]:
    """Return heading and rows of each group that has any: a case, its place, and its runs."""
    rows = defaultdict[Area | None, list[tuple[CaseFacts, Placed, Sequence[Evidence]]]](list)
    for id_, runs in sorted(by_case.items()):
        case, place = newest(runs).case, places.get(id_, Placed())
        rows[place.area].append((case, place, runs))
    return [(area.heading if area else "Others", rows[area]) for area in [*Area, None] if area in rows]
