"""A run of the corpus -> its summary. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

from casebook_workbench.corpus.model import End, Finished, Job, Run, RunFacts
from casebook_workbench.corpus.report.changes import changes, judged
from casebook_workbench.corpus.report.model import JobCounts, Line, RunDurations, RunSummary, Standing
from failure_signature.text import utc
from failure_signature.trials import Verdict

NO_DEVICE = "none"  # where jobs that never got to a device are counted


def summarise(run: Run, earlier: Sequence[Run] = (), unreadable: Sequence[str] = ()) -> RunSummary:
    """Summarise a run. `earlier`: runs before it, oldest first; `unreadable`: why others can't be compared with."""
    lines = _lines(run)
    facts = {name: getattr(run, name) for name in RunFacts.model_fields}
    return RunSummary(
        **facts | {"workers": _workers(run)},
        tally=_tally("", lines),
        by_device=_grouped(lines, lambda line: line.device or NO_DEVICE),
        by_environment=_grouped(lines, lambda line: line.environment),
        compared_with=earlier[-1].id if earlier else None,
        changes=changes(run, earlier),
        durations=_durations(run),
        unreadable=list(unreadable),
        lines=lines,
    )


def _lines(run: Run) -> list[Line]:
    """Sort by standing, what asks for attention first; then by name."""
    order = [Standing.FAILING, Standing.BROKE, Standing.CONFIRMED, Standing.SKIPPED, Standing.LEFT]
    lines = [*(_line(done.job, done) for done in run.finished), *(_line(job, None) for job in run.left)]
    return sorted(lines, key=lambda line: (order.index(line.standing), line.name))


def _line(job: Job, done: Finished | None) -> Line:
    """Make a line of a job and its end; fields of the same name are taken over."""
    known = {name: getattr(it, name) for it in (job, done) for name in Line.model_fields if hasattr(it, name)}
    return Line(standing=standing(done) if done else Standing.LEFT, **known)


def standing(done: Finished) -> Standing:
    if done.end is End.SKIPPED or done.verdict is Verdict.SKIPPED:
        return Standing.SKIPPED
    if not judged(done):
        return Standing.BROKE
    return Standing.CONFIRMED if done.confirmed else Standing.FAILING


def _tally(name: str, lines: Sequence[Line]) -> JobCounts:
    count = Counter(line.standing for line in lines)
    with_verdict = [line for line in lines if line.judged]
    verdicts = Counter(line.verdict for line in with_verdict)
    return JobCounts(
        name=name,
        jobs=len(lines),
        judged=len(with_verdict),
        confirmed=count[Standing.CONFIRMED],
        reused=sum(line.end is End.REUSED for line in with_verdict),
        drifted=sum(line.drifted for line in with_verdict),
        broke=count[Standing.BROKE],
        skipped=count[Standing.SKIPPED],
        left=count[Standing.LEFT],
        verdicts={verdict: verdicts[verdict] for verdict in Verdict if verdicts[verdict]},
    )


def _grouped(lines: Sequence[Line], key: Callable[[Line], str]) -> list[JobCounts]:
    """Count the lines of each key, by name; those without a device last."""
    ordered = sorted(lines, key=lambda line: (key(line) == NO_DEVICE, key(line)))
    return [_tally(name, list(group)) for name, group in groupby(ordered, key=key)]


def _durations(run: Run) -> RunDurations:
    ran = [done for done in run.finished if done.end in {End.RAN, End.BROKE}]
    spans = [_span(done) for done in ran]
    ended = utc(run.ended) if run.ended else max((end for _, end in spans), default=utc(run.started))
    wall_s = max((ended - utc(run.started)).total_seconds(), 0.0)
    built_s = sum(done.built_s for done in run.finished)
    work_s = sum((end - start).total_seconds() for start, end in spans) + built_s
    workers = _workers(run)
    busy_s = sum(_covered(_span(done) for done in ran if done.worker == each) for each in {*workers, ""}) + built_s
    counts = bool(spans) and wall_s > 0
    return RunDurations(
        wall_s=wall_s,
        work_s=work_s,
        lost_s=sum(lost.after_s for done in run.finished for lost in done.lost),
        gpu_s=sum(done.duration_s * done.job.gpus for done in ran),
        busy=min(busy_s / (wall_s * len(workers)), 1.0) if counts and workers else None,
        at_once=work_s / wall_s if counts else None,
    )


Span = tuple[datetime, datetime]


def _span(done: Finished) -> Span:
    start = utc(done.started)
    return start, start + timedelta(seconds=max(done.duration_s, 0.0))


def _workers(run: Run) -> list[str]:
    """Return the workers on record, and those that only jobs name: a run that was killed recorded no workers."""
    return sorted({*run.workers, *(done.worker for done in run.finished if done.worker)})


def _covered(spans: Iterable[Span]) -> float:
    """Return the seconds covered by at least one span: a worker may have several jobs at once."""
    total, reached = 0.0, datetime.min.replace(tzinfo=UTC)
    for start, end in sorted(spans):
        total += max((end - max(start, reached)).total_seconds(), 0.0)
        reached = max(reached, end)
    return total
