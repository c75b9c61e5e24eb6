"""The cases of one corpus or of several, in rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_casebook.corpus.model import End, Job
from gpu_casebook.corpus.selection import Selection, select
from gpu_casebook.errors import UsageError
from gpu_casebook.manifest.case import Case


@dataclass(frozen=True)
class Row:
    """A case; `environments` are those that were selected."""

    id: str
    title: str
    symptom: str | None
    failure: str
    project: str
    status: str
    issue: str | None
    environments: list[str]
    directory: str


def listed(tops: Sequence[Path], selection: Selection, status: str | None = None) -> tuple[list[Row], list[str]]:
    """Return the selected cases by their ids, and a line for each manifest that can't be read.

    Where two corpora have a case of the same id, that of the first counts. Raises UsageError where nothing is selected.
    """
    rows, broken, nothing = dict[str, Row](), list[str](), list[UsageError]()
    for top in tops:
        cases, environments = dict[str, Case](), dict[str, list[str]]()

        def look(case: Case, job: Job) -> Job:
            cases[case.id] = case  # noqa: B023 called before the next round
            environments.setdefault(case.id, []).append(job.environment)  # noqa: B023
            return job

        try:
            ended = select(top, selection, look).ended
        except UsageError as error:
            nothing.append(error)
            continue
        broken += [f"{each.reason}" for each in ended if each.end is End.BROKE]
        for id_, case in cases.items():
            rows.setdefault(id_, _row(case, environments[id_]))
    chosen = [row for _, row in sorted(rows.items()) if status in {None, row.status}]
    if nothing and not chosen and not broken:
        raise nothing[0]
    if not chosen and not broken:
        raise UsageError(f"--status {status}: no case that is selected")
    return chosen, broken


def _row(case: Case, environments: list[str]) -> Row:
    manifest = case.manifest
    return Row(
        id=case.id,
        title=manifest.title,
        symptom=manifest.symptom,
        failure=manifest.failure.value,
        project=manifest.upstream.project,
        status=manifest.upstream.status,
        issue=manifest.upstream.issue,
        environments=environments,
        directory=str(case.directory),
    )
