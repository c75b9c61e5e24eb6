"""Durations and rates of every case over the runs kept, and who used which GPU when, as SVG: a strip for each job.

Drawn by matplotlib, which is an extra. The same runs give the same bytes.
"""

import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_casebook.corpus.model import End, Finished, Run
from gpu_casebook.corpus.report.changes import judged
from gpu_casebook.kinds import Variant
from gpu_casebook.text import date, one_line, seconds, utc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches. A page on GitHub shows 9.4 of them: so the text keeps its size.
WIDTH, ROW, HEAD, FOOT = 9.4, 0.25, 0.8, 0.25
NAMES, VALUES = 2.7, 0.75  # left of a column's strips and right of them
POINTS = 72  # to an inch: widths of lines are in points
FEWEST_SLOTS = 15  # each strip has room for so many runs: a few leave the rest of it empty
ONE_COLUMN = 20  # rows up to which one column is enough
MOST_ROWS = 200  # the most that still make a picture
NAME_LIMIT = 44

INK, FAINT, LINE = "#1f2328", "#6e7781", "#d0d7de"
REPRO, FIXED = "#bc4c00", "#54aeff"
CONFIRMED, WRONG = "#dafbe1", "#ff8182"
GPUS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df")

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "casebook",
    "svg.fonttype": "none",  # text stays text: a tenth of the size, and it can be searched
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 7.5,
    "text.parse_math": False,
    "path.simplify": False,
}

# What one job came to, by the number of the run among the runs kept; runs without a verdict are not there.
Verdicts = Mapping[int, Finished]
# Draws a job's strip into the row of this number, and returns what stands at its right.
Draw = Callable[["Axes", int, Verdicts], str]


class Kept(NamedTuple):
    """The jobs of the last run that ever came to a verdict, by name."""

    jobs: dict[str, Verdicts]
    left_out: int  # jobs that there is no room for


def durations(runs: Sequence[Run]) -> bytes:
    """Draw how long each job took, on a scale from 0 to its longest time. `runs`: the oldest first."""
    legend = {"how long it took, from 0 to the longest of its row; at the right the last": INK}
    return _picture(runs, legend, _duration)


def rates(runs: Sequence[Run]) -> bytes:
    """Draw for each job and run whether it was confirmed, and the shares of trials that went as declared."""
    legend = {
        "confirmed": CONFIRMED,
        "not confirmed; white: no verdict": WRONG,
        "share of repro's trials that failed as declared": REPRO,
        "share of fixed's that gave their proof; at the right the last": FIXED,
    }
    return _picture(runs, legend, _rate)


def gpus(run: Run) -> bytes:
    """Draw when each job of the run had trials on which GPU. Trials at once make a strip darker."""
    import matplotlib as mpl  # noqa: PLC0415 an extra, and slow to import

    start = utc(run.started)
    jobs = [done for done in run.finished if done.trials]
    jobs.sort(key=lambda done: (done.on_gpus, utc(done.started) + timedelta(seconds=done.trials[0].after_s)))
    jobs = jobs[:MOST_ROWS]
    colours = dict(zip(sorted({done.on_gpus for done in jobs}), itertools.cycle(GPUS), strict=False))
    legend = {f"on GPU {', '.join(map(str, indices))}": colour for indices, colour in colours.items()}
    height = HEAD + len(jobs) * ROW + 2 * FOOT
    with mpl.rc_context(STYLE):
        figure = _figure(height, legend)
        box = (NAMES / WIDTH, 2 * FOOT / height, 1 - (NAMES + VALUES) / WIDTH, len(jobs) * ROW / height)
        axes = figure.add_axes(box)
        beside = axes.get_yaxis_transform()
        for row, done in enumerate(jobs):
            began = (utc(done.started) - start).total_seconds()
            spans = [(began + trial.after_s, trial.duration_s) for trial in done.trials]
            axes.broken_barh(spans, (row + 0.16, 0.68), facecolors=colours[done.on_gpus], alpha=0.35, linewidth=0)
            axes.text(-0.02, row + 0.52, _name(done.job.name), color=INK, ha="right", va="center", transform=beside)
            total = seconds(sum(trial.duration_s for trial in done.trials))
            axes.text(1.02, row + 0.52, total, color=INK, va="center", transform=beside)
        axes.set(ylim=(len(jobs), 0), xlabel="seconds from the start of the run; at the right the sum of the trials")
        axes.set_xlim(left=0)
        axes.tick_params(left=False, labelleft=False, colors=FAINT)
        axes.spines[["left", "right", "top"]].set_visible(False)
        return _svg(figure)


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


def _took(verdicts: Verdicts) -> dict[int, float]:
    """Return the seconds of each run in which the job ran, so that no evidence was reused."""
    return {number: done.duration_s for number, done in verdicts.items() if done.end is End.RAN}


def _duration(axes: "Axes", row: int, verdicts: Verdicts) -> str:
    took = _took(verdicts)
    if not took:
        return ""
    top = max(took.values()) or 1.0
    _line(axes, row, {number: value / top for number, value in took.items()}, INK, 0.9)
    return seconds(took[max(took)])


def _rate(axes: "Axes", row: int, verdicts: Verdicts) -> str:
    seen = [verdicts[number].confirmed if number in verdicts else None for number in range(max(verdicts) + 1)]
    # One box for runs that follow one another keeps the picture small.
    alike = [list(group) for _, group in groupby(range(len(seen)), key=seen.__getitem__)]
    boxes = [group for group in alike if seen[group[0]] is not None]
    lefts, rights = [group[0] - 0.5 for group in boxes], [group[-1] + 0.5 for group in boxes]
    colours = [CONFIRMED if seen[group[0]] else WRONG for group in boxes]
    axes.hlines([row + 0.5] * len(boxes), lefts, rights, colours, linewidth=0.84 * ROW * POINTS)
    for variant, colour, width in ((Variant.FIXED, FIXED, 2.6), (Variant.REPRO, REPRO, 0.9)):
        _line(axes, row, _shares(verdicts, variant), colour, width, drawstyle="steps-mid")
    newest = max(verdicts)
    last = [_shares(verdicts, variant).get(newest) for variant in Variant]
    return " / ".join("-" if share is None else f"{100 * share:.0f}" for share in last) + " %"


def _shares(verdicts: Verdicts, variant: Variant) -> dict[int, float]:
    rates = {number: done.rates.get(variant) for number, done in verdicts.items()}
    return {number: rate.k / rate.n for number, rate in rates.items() if rate and rate.n}


def _line(axes: "Axes", row: int, shares: Mapping[int, float], colour: str, width: float, **style: Any) -> None:
    """Draw a line through a row, 0 near the floor and 1 near the ceiling, with a dot at its end."""
    heights = [row + 0.84 - 0.62 * share for share in shares.values()]
    if heights:
        dot: dict[str, Any] = {"marker": "o", "markevery": [-1], "markersize": width + 1.4, "markeredgewidth": 0}
        axes.plot(list(shares), heights, color=colour, linewidth=width, **dot, **style)


def _figure(height: float, legend: Mapping[str, str]) -> "Figure":
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    figure = Figure(figsize=(WIDTH, height), facecolor="white")  # opaque, for pages with a dark background
    handles = [Patch(color=colour, label=text) for text, colour in legend.items()]
    figure.legend(handles=handles, loc="upper left", ncols=2, frameon=False, handlelength=1, handleheight=1)
    return figure


def _svg(figure: "Figure") -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    return out.getvalue()


def _picture(runs: Sequence[Run], legend: Mapping[str, str], draw: Draw) -> bytes:
    import matplotlib as mpl  # noqa: PLC0415

    jobs, left_out = kept(runs)
    columns = 1 if len(jobs) <= ONE_COLUMN else 2
    rows = max(-(-len(jobs) // columns), 1)
    height = HEAD + rows * ROW + FOOT
    with mpl.rc_context(STYLE):
        figure = _figure(height, legend)
        for column in range(columns):
            left = column / columns + NAMES / WIDTH
            width = (WIDTH / columns - NAMES - VALUES) / WIDTH
            axes = figure.add_axes((left, FOOT / height, width, rows * ROW / height))
            axes.set(xlim=(-0.5, max(len(runs), FEWEST_SLOTS) - 0.5), ylim=(rows, 0))
            _column(axes, runs, list(jobs.items())[column * rows : (column + 1) * rows], draw)
        if left_out:
            figure.text(0.99, 0.07 / height, f"{left_out} shorter ones are left out", color=FAINT, ha="right")
        return _svg(figure)


def _column(axes: "Axes", runs: Sequence[Run], jobs: Sequence[tuple[str, Verdicts]], draw: Draw) -> None:
    """Draw these jobs: one unit to the right is a run, one unit down is a job."""
    axes.set_axis_off()
    beside = axes.get_yaxis_transform()
    for row, (name, verdicts) in enumerate(jobs):
        axes.text(-0.02, row + 0.52, _name(name), color=INK, ha="right", va="center", transform=beside)
        value = draw(axes, row, verdicts)
        axes.text(1.02, row + 0.52, value, color=INK, va="center", transform=beside)
    axes.hlines(range(1, len(jobs) + 1), 0, 1, colors=LINE, linewidths=0.5, transform=beside)
    if jobs:
        days = dict.fromkeys([date(runs[0].started), date(runs[-1].started)])
        axes.text(0, -0.3, " to ".join(days), color=FAINT, transform=beside)


def _name(text: str) -> str:
    """Return a name in characters that every font has, cut in the middle if it is too long."""
    plain = "".join(each if " " <= each <= "~" else "?" for each in one_line(text, 1000))
    half = (NAME_LIMIT - 3) // 2
    return plain if len(plain) <= NAME_LIMIT else f"{plain[:half]}...{plain[-half:]}"
