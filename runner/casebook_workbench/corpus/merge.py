"""Runs of several machines, each of which had a part of the corpus, as one run: what the jobs of a CI matrix leave.

`merged` is pure; `gather` and `write` write the one run's record.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from casebook_workbench.corpus import journal
from casebook_workbench.corpus.model import End, Finished, Run, Settings
from failure_signature.text import utc
from gpu_casebook.document import MAX_BYTES
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import evidence_files
from gpu_casebook.files import read_bytes
from gpu_casebook.revision import own_revision


def merged(runs: Sequence[Run], id_: str, selection: str) -> Run:
    """Return one run with all their jobs. Of a job that several had, the end that says most, then the latest, counts.

    It has ended where all of them have. What they say of disk is about different machines, and is left out.
    """
    first = min(runs, key=lambda run: utc(run.started))
    ends = [run.ended for run in runs]
    jobs = {job.name: job for run in runs for job in run.jobs}
    ends_of = [each.model_copy(update={"worker": _worker(run, each.worker)}) for run in runs for each in run.finished]
    finished = {each.job.name: each for each in sorted(ends_of, key=_worth)}
    return first.model_copy(
        update={
            "id": id_,
            "ended": max((utc(end) for end in ends if end), default=None) if all(ends) else None,
            "host": ", ".join(sorted({run.host for run in runs if run.host})),
            "command": "",
            "selection": selection,
            "workers": sorted({_worker(run, worker) for run in runs for worker in run.workers}),
            "jobs": [jobs[name] for name in sorted(jobs)],
            "finished": [finished[name] for name in sorted(finished)],
            "disk_before_bytes": None,
            "disk_after_bytes": None,
        }
    )


def gather(reports: Path, sources: Iterable[Path], selection: str) -> Run:
    """Merge the newest run of each of these reports directories into `reports`, with the evidence it rests on.

    Raises UsageError for a directory without a run, CasebookError for a record that can't be read.
    """
    runs = []
    for source in sources:
        directory = journal.find(source, None)
        runs.append(journal.read(directory))
        for path in evidence_files(source):
            if path.resolve() != source.resolve() / path.relative_to(source):
                raise UsageError(f"{path}: is behind a symlink; put the file itself there")
            into = reports / path.relative_to(source)
            into.parent.mkdir(parents=True, exist_ok=True)
            into.write_bytes(read_bytes(path, MAX_BYTES))
    if not runs:
        raise UsageError("no reports directory is named whose run could be merged")
    return write(reports, runs, selection)


def write(reports: Path, runs: Sequence[Run], selection: str) -> Run:
    """Write these runs as one into `reports`, and return it. Their evidence is there."""
    run = merged(runs, journal.new_id(reports, min(utc(run.started) for run in runs)), selection)
    with journal.Journal.create(reports, run.model_copy(update={"finished": []})) as record:
        record.append(run.finished)
    return run


def record(root: Path, reports: Path, ends: Sequence[Finished], selection: str) -> None:
    """Write a run that came to these ends before it began: the part of the corpus that no machine was there for."""
    now = datetime.now(UTC)
    run = Run(
        id=journal.new_id(reports, now),
        started=now,
        ended=now,
        runner=own_revision(),
        selection=selection,
        settings=Settings(root=str(root), reports=str(reports.resolve())),
        jobs=[each.job for each in ends],
    )
    with journal.Journal.create(reports, run) as made:
        made.append(ends)


def _worth(finished: Finished) -> tuple[bool, float]:
    return finished.end in {End.RAN, End.REUSED}, utc(finished.started).timestamp()


def _worker(run: Run, worker: str) -> str:
    """Return the worker with its host: machines name their workers alike."""
    return f"{run.host} {worker}" if run.host and worker else worker
