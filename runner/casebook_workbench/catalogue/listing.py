"""The cases of one corpus or of several, in rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from casebook_workbench.catalogue.entry import facts
from casebook_workbench.corpus.model import End, Job
from casebook_workbench.corpus.selection import Selection, select
from gpu_casebook.errors import UsageError
from gpu_casebook.manifest.case import Case


def listed(
    tops: Sequence[Path], selection: Selection, status: str | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the selected cases by their ids, and a line for each manifest that can't be read.

    Where two corpora have a case of the same id, that of the first counts. Raises UsageError where nothing is selected.
    """
    rows, broken, nothing = dict[str, dict[str, Any]](), list[str](), list[UsageError]()
    for top in tops:
        here = dict[str, dict[str, Any]]()

        def look(case: Case, job: Job, here: dict[str, dict[str, Any]] = here) -> Job:
            of: dict[str, Any] = {
                "issue": case.manifest.upstream.issue,
                "environments": [],
                "directory": str(case.directory),
            }
            here.setdefault(case.id, facts(case) | of)["environments"].append(job.environment)
            return job

        try:
            broken += [each.reason for each in select(top, selection, look).ended if each.end is End.BROKE]
        except UsageError as error:
            nothing.append(error)
        else:
            rows = here | rows
    chosen = [row for _, row in sorted(rows.items()) if status in {None, row["status"]}]
    if chosen or broken:
        return chosen, broken
    raise nothing[0] if nothing else UsageError(f"--status {status}: no case that is selected")
