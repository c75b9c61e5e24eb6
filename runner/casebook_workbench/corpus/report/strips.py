"""Durations and rates of every case over the runs kept, and who used which GPU when: a strip for each job."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, NamedTuple

from casebook_workbench.corpus.model import End, Finished, Run
from casebook_workbench.corpus.report.changes import judged
from failure_signature.kinds import Variant
from failure_signature.text import date, one_line, seconds, utc
from gpu_casebook.report.markdown import render_template

FEWEST_SLOTS = 15  # each strip has room for so many runs: a few leave the rest of it empty
ONE_COLUMN = 20  # rows up to which one column is enough
MOST_ROWS = 200  # the most that still make a picture
NAME_LIMIT = 44
COLOURS = 4  # of GPUs, in the template

# What one job came to, by the number of the run among the runs kept; runs without a verdict are not there.
Verdicts = Mapping[int, Finished]


class Strip(NamedTuple):
    """A row of a picture: a name, what happened from left to right, and a value. Kinds are classes of the template."""

    name: str
    value: str
    boxes: Sequence[tuple[float, float, str]] = ()  # from, to, kind
    lines: Sequence[tuple[Sequence[tuple[float, float]], str]] = ()  # points, of which y is a share from 0 to 1; kind


class Kept(NamedTuple):
    """The jobs of the last run that ever came to a verdict, by name."""

    jobs: dict[str, Verdicts]
    left_out: int  # jobs that there is no room for


def durations(runs: Sequence[Run]) -> str:
    """Draw how long each job took, on a scale from 0 to its longest time. `runs`: the oldest first."""
    legend = {"how long it took, from 0 to the longest of its row; at the right the last": "took"}
    return _picture(runs, legend, _duration)


def rates(runs: Sequence[Run]) -> str:
    """Draw for each job and run whether it was confirmed, and the shares of trials that went as declared."""
    legend = {
        "confirmed": "confirmed",
        "share of repro's trials that failed as declared": "repro",
        "not confirmed; white: no verdict": "wrong",
        "share of fixed's that gave their proof; at the right the last": "fixed",
    }
    return _picture(runs, legend, _rate)


def gpus(run: Run) -> str:
    """Draw when each job of the run had trials on which GPU. Trials at once make a strip darker."""
    jobs = [done for done in run.finished if done.trials]
    jobs.sort(key=lambda done: (done.on_gpus, utc(done.started) + timedelta(seconds=done.trials[0].after_s)))
    kinds = {of: f"gpu{at % COLOURS}" for at, of in enumerate(sorted({done.on_gpus for done in jobs[:MOST_ROWS]}))}
    rows = [_on_gpu(done, (utc(done.started) - utc(run.started)).total_seconds(), kinds) for done in jobs[:MOST_ROWS]]
    legend = {f"on GPU {', '.join(map(str, indices))}": kind for indices, kind in kinds.items()}
    last = max((end for row in rows for _, end, _ in row.boxes), default=0.0) or 1.0
    step = 10.0 ** math.floor(math.log10(last / 2))
    ticks = [at * step for at in range(0, int(last / step) + 1, 1 if last / step < 8 else 2)]
    told = "seconds from the start of the run; at the right the sum of the trials"
    return _svg(rows, (0.0, last), legend, foot=told, ticks=ticks)


def _on_gpu(done: Finished, began: float, kinds: Mapping[tuple[int, ...], str]) -> Strip:
    spans = [(began + trial.after_s, began + trial.after_s + trial.duration_s) for trial in done.trials]
    boxes = [(begin, end, kinds[done.on_gpus]) for begin, end in spans]
    return Strip(done.job.name, seconds(sum(trial.duration_s for trial in done.trials)), boxes)


def kept(runs: Sequence[Run]) -> Kept:
    """Return what to draw: of too many jobs, those that take longest."""
    jobs: dict[str, dict[int, Finished]] = {job.name: {} for job in (runs[-1].jobs if runs else ())}
    for number, run in enumerate(runs):
        for done in run.finished:
            if done.job.name in jobs and judged(done):
                jobs[done.job.name][number] = done
    names = [name for name, verdicts in jobs.items() if verdicts]
    longest = sorted(names, key=lambda name: (-max(_took(jobs[name]).values(), default=0.0), name))[:MOST_ROWS]
    return Kept({name: jobs[name] for name in sorted(longest)}, len(names) - len(longest))


def _picture(runs: Sequence[Run], legend: Mapping[str, str], strip: Callable[[str, Verdicts], Strip]) -> str:
    jobs, left_out = kept(runs)
    return _svg(
        [strip(name, verdicts) for name, verdicts in jobs.items()],
        (-0.5, max(len(runs), FEWEST_SLOTS) - 0.5),
        legend,
        columns=1 if len(jobs) <= ONE_COLUMN else 2,
        head=" to ".join(dict.fromkeys([date(runs[0].started), date(runs[-1].started)])) if runs else "",
        foot=f"{left_out} shorter ones are left out" if left_out else "",
    )


def _took(verdicts: Verdicts) -> dict[int, float]:
    """Return the seconds of each run in which the job ran, so that no evidence was reused."""
    return {number: done.duration_s for number, done in verdicts.items() if done.end is End.RAN}


def _duration(name: str, verdicts: Verdicts) -> Strip:
    took = _took(verdicts)
    top = max(took.values(), default=0.0) or 1.0
    points = [(number, value / top) for number, value in took.items()]
    return Strip(name, seconds(took[max(took)]) if took else "", lines=[(points, "took")] if took else [])


def _rate(name: str, verdicts: Verdicts) -> Strip:
    last = [_share(verdicts[max(verdicts)], variant) for variant in Variant]
    value = " / ".join("-" if share is None else f"{100 * share:.0f}" for share in last) + " %"
    boxes = list[tuple[float, float, str]]()
    # One box for runs that follow one another keeps the picture small.
    for (confirmed, _), group in groupby(enumerate(verdicts), lambda at: (verdicts[at[1]].confirmed, at[1] - at[0])):
        numbers = [number for _, number in group]
        boxes.append((numbers[0] - 0.5, numbers[-1] + 0.5, "confirmed" if confirmed else "wrong"))
    drawn = (Variant.FIXED, Variant.REPRO)  # the latter may lie on the former
    lines = [(steps, variant.value) for variant in drawn if (steps := _steps(verdicts, variant))]
    return Strip(name, value, boxes, lines)


def _steps(verdicts: Verdicts, variant: Variant) -> list[tuple[float, float]]:
    shares = {number: _share(done, variant) for number, done in verdicts.items()}
    return [(number + aside, share) for number, share in shares.items() if share is not None for aside in (-0.5, 0.5)]


def _share(done: Finished, variant: Variant) -> float | None:
    rate = done.rates.get(variant)
    return rate.k / rate.n if rate and rate.n else None


def _svg(rows: Sequence[Strip], span: tuple[float, float], legend: Mapping[str, str], **values: Any) -> str:
    """Return the picture. `span`: what the width of a strip stands for; `legend`: kinds by what is said of them."""
    named = [row._replace(name=_name(row.name)) for row in rows]
    common: dict[str, Any] = {"columns": 1, "head": "", "ticks": (), "low": span[0], "high": span[1], "legend": legend}
    return render_template("strips.svg.j2", package="casebook_workbench.corpus.report", rows=named, **common | values)


def _name(text: str) -> str:
    """Return a name in characters that every font has, cut in the middle if it is too long."""
    plain = "".join(each if " " <= each <= "~" else "?" for each in one_line(text, 1000))
    half = (NAME_LIMIT - 3) // 2
    return plain if len(plain) <= NAME_LIMIT else f"{plain[:half]}...{plain[-half:]}"
