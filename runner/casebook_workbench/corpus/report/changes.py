"""What changed since earlier runs. Pure.

A job is compared with its latest verdict on the same device in the same environment, however long ago: a night in
which a machine broke hides nothing, and a fleet whose GPUs take turns does not make a case fail by moving it. Where
there is no such verdict, it is compared with its latest one, and a difference counts as one of place.
"""

from collections.abc import Iterable, Iterator, Sequence

from casebook_workbench.corpus.model import End, Finished, Run
from casebook_workbench.corpus.report.model import JobChange, Shift
from failure_signature.trials import Verdict

Earlier = tuple[str, Finished]  # the id of an earlier run, and what the job came to in it


def changes(run: Run, earlier: Sequence[Run]) -> list[JobChange]:
    """Return the changes in the order of `Shift`, each kind by name. `earlier`: runs before this one, oldest first."""
    history = _verdicts(earlier)
    known = {job.name for each in earlier for job in each.jobs}
    found = [change for done in run.finished for change in _of_job(done, history.get(done.job.name, []))]
    found += [_change(Shift.NEW, None, done) for done in run.finished if earlier and done.job.name not in known]
    found += _gone(run, earlier)
    order = list(Shift)
    return sorted(found, key=lambda change: (order.index(change.shift), change.name))


def _verdicts(earlier: Iterable[Run]) -> dict[str, list[Earlier]]:
    """Return the verdicts of each job, newest first."""
    seen: dict[str, list[Earlier]] = {}
    for run in earlier:
        for done in run.finished:
            if judged(done):
                seen.setdefault(done.job.name, []).insert(0, (run.id, done))
    return seen


def judged(done: Finished) -> bool:
    return done.end in {End.RAN, End.REUSED} and done.verdict not in {None, Verdict.SKIPPED}


def _of_job(now: Finished, history: Sequence[Earlier]) -> Iterator[JobChange]:
    if not history:
        return
    _, latest = history[0]
    alike = next(((id_, done) for id_, done in history if not _differs(done, now)), None)
    if not judged(now):
        yield _change(Shift.UNSEEN, alike or history[0], now)
    elif alike is None:
        if latest.verdict is not now.verdict:
            yield _change(Shift.ELSEWHERE, history[0], now)
    elif alike[1].verdict is not now.verdict:
        yield _change(_shift(alike[1], now), alike, now)


def _shift(before: Finished, now: Finished) -> Shift:
    if now.confirmed:
        return Shift.NEWLY_CONFIRMED
    return Shift.NEWLY_FAILING if before.confirmed else Shift.FAILS_OTHERWISE


def _change(shift: Shift, earlier: Earlier | None, now: Finished) -> JobChange:
    since, before = earlier or ("", None)
    return JobChange(
        shift=shift,
        case=now.job.case,
        environment=now.job.environment,
        before=str(before.verdict) if before else "",
        now=str(now.verdict or now.end),
        where="; ".join(_differs(before, now)) if before and shift is Shift.ELSEWHERE else now.device,
        reason=now.reason,
        since=since,
    )


def _differs(before: Finished, now: Finished) -> list[str]:
    """Return in what device and environment differ. What is not known differs from nothing."""
    differences = []
    if before.device and now.device and before.device != now.device:
        differences.append(f"{now.device}, before {before.device}")
    keys = before.job.environment_key, now.job.environment_key
    if all(keys) and keys[0] != keys[1]:
        differences.append("another lock, image or Python")
    if before.drifted != now.drifted and judged(now):
        differences.append("drifted, before exact" if now.drifted else "exact, before drifted")
    return differences


def _gone(run: Run, earlier: Sequence[Run]) -> Iterator[JobChange]:
    """Yield the jobs that only the last run of the same selection had."""
    last = next((each for each in reversed(earlier) if each.selection == run.selection), None)
    here = {job.name for job in run.jobs}
    for job in last.jobs if last else ():
        if job.name not in here:
            yield JobChange(shift=Shift.GONE, case=job.case, environment=job.environment, since=last.id if last else "")
