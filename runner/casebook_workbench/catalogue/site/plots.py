"""Figures that people would rather look at, as inline SVG: rates with intervals, figures of both variants, series.

Colours are classes of the site's style sheet, so that they follow light and dark; the variants differ in shape too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from failure_signature.judging.description import number
from failure_signature.kinds import Variant
from failure_signature.trials import Outcome, Rate, Trial
from gpu_casebook.evidence import Evidence
from gpu_casebook.report.markdown import Markdown
from gpu_casebook.report.words import interval, share

WIDTH = 640
FIGURES_SHOWN = 6
LINES_SHOWN = 3
"""Trials of a variant whose series is drawn."""
_LEFT, _RIGHT, _ROW = 12, 28, 34
_LOGARITHMIC = 50.0
"""From this ratio of the largest to the smallest value on, the axis is logarithmic."""


class _Scale(NamedTuple):
    """From values to pixels; `ticks` are the values to write at the axis."""

    place: Callable[[float], float]
    ticks: Sequence[float]
    words: str


def rates(runs: Sequence[Evidence]) -> Markdown:
    """Return how often the variants did what is declared, with the 95 % interval, in runs where not every trial did.

    Of runs where each did, the numbers say as much as a picture: nothing then.
    """
    varied = [run for run in runs if run.demand or any(0 < rate.k < rate.n for rate in run.rates.values())]
    rows = [
        (run, variant, rate) for run in varied for variant in Variant if (rate := run.rates.get(variant)) and rate.n
    ]
    if not rows:
        return Markdown("")
    at = _linear(0.0, 1.0)
    drawn = list[str]()
    for row, (run, variant, rate) in enumerate(rows):
        y = 30 + row * _ROW
        label = f"{variant}, {run.environment.name} on {run.device}: {share(rate)} as declared"
        drawn += [_text(_LEFT, y - 8, label), *_bar(at.place, rate, y, variant)]
    told = "; ".join(f"{variant} {share(rate)} as declared ({interval(rate)})" for _, variant, rate in rows)
    foot = 30 + len(rows) * _ROW
    ticks = [(value, f"{100 * value:.0f} %") for value in (0.0, 0.5, 1.0)]
    return _svg("Runs as declared", told, [*drawn, *_axis(at.place, ticks, foot)], foot + 22)


def _bar(place: Callable[[float], float], rate: Rate, y: float, variant: Variant) -> list[str]:
    left, right, end = place(rate.low), place(rate.high), place(rate.k / rate.n)
    bar = f'<rect class="cb-bar cb-{variant}" x="{place(0):.1f}" y="{y}" width="{end - place(0):.1f}" height="10"/>'
    whisker = f"M{left:.1f} {y + 5}H{right:.1f}M{left:.1f} {y + 1}v8M{right:.1f} {y + 1}v8"
    return [bar, f'<path class="cb-whisker" d="{whisker}"/>']


def figures(run: Evidence) -> Markdown:
    """Return each figure that both variants print with different values; nothing if there is none.

    Those that are declared come first: they are what tells the variants apart.
    """
    values = {variant: _figures(run.trials_of(variant)) for variant in Variant}
    said = {variant: {name: set(map(number, each)) for name, each in values[variant].items()} for variant in Variant}
    fixed = said[Variant.FIXED]
    both = [name for name, seen in said[Variant.REPRO].items() if fixed.get(name, seen) != seen]
    bounds = {variant: _bounds(run, variant) for variant in Variant}
    shown = sorted(both, key=lambda name: not any(name in declared for declared in bounds.values()))
    drawn = [_figure(name, {variant: values[variant][name] for variant in Variant}, bounds) for name in shown]
    return Markdown("".join(drawn[:FIGURES_SHOWN]))


def _figures(trials: Sequence[Trial]) -> dict[str, list[float]]:
    """Return by name what trials printed that count and are finite."""
    found = dict[str, list[float]]()
    for trial in trials:
        if trial.outcome is not Outcome.INFRA:
            for name, value in trial.observation.figures.items():
                found.setdefault(name, []).append(value)
    return found


def _bounds(run: Evidence, variant: Variant) -> dict[str, str]:
    lines = (line.partition(": ") for line in run.case.signature.get(variant, []))
    return {what.removeprefix("figure "): bound for what, _, bound in lines if what.startswith("figure ")}


def _figure(
    name: str, values: Mapping[Variant, Sequence[float]], bounds: Mapping[Variant, Mapping[str, str]]
) -> Markdown:
    """Return one figure: both variants on the same axis, repro's marks a little higher."""
    scale = _scale([value for each in values.values() for value in each if math.isfinite(value)])
    drawn, told = list[str](), list[str]()
    for row, (variant, each) in enumerate(values.items()):
        ordered = sorted(each, key=lambda value: (math.isnan(value), value))
        seen = " to ".join(dict.fromkeys(map(number, (ordered[0], ordered[-1]))))
        declared = f" (declared {bounds[variant][name]})" if name in bounds[variant] else ""
        told.append(f"{variant} {seen}{declared}")
        drawn += [_mark(variant, _LEFT + row * WIDTH / 2, 12), _text(_LEFT + 14 + row * WIDTH / 2, 16, told[-1])]
        y = 34 + 12 * row
        drawn += [_mark(variant, scale.place(value), y) for value in dict.fromkeys(each) if math.isfinite(value)]
    ticks = [(value, number(value)) for value in scale.ticks]
    return _svg(f"{name}{scale.words}", "; ".join(told), [*drawn, *_axis(scale.place, ticks, 56)], 78)


def _mark(variant: Variant, x: float, y: float) -> str:
    if variant is Variant.REPRO:
        return f'<path class="cb-mark cb-repro" d="M{x - 6:.1f} {y - 6}l12 12m0 -12l-12 12"/>'
    return f'<circle class="cb-mark cb-fixed" cx="{x:.1f}" cy="{y}" r="6"/>'


def _scale(values: Sequence[float]) -> _Scale:
    """Return an axis for values of any sign and size: logarithmic if they are positive and far apart."""
    if not values:
        return _linear(0.0, 1.0)
    low, high = min(values), max(values)
    positive = [value for value in values if value > 0]
    if low >= 0 and positive and high / min(positive) >= _LOGARITHMIC:
        return _logarithmic(min(positive), high, zero=low == 0)
    return _linear(min(low, 0.0), max(high, 0.0))


def _linear(low: float, high: float) -> _Scale:
    width = (high - low) or 1.0
    ticks = [low, high] if low != high else [low]
    return _Scale(lambda value: _LEFT + (value - low) / width * (WIDTH - _LEFT - _RIGHT), ticks, "")


def _logarithmic(low: float, high: float, *, zero: bool) -> _Scale:
    """Return a logarithmic axis between powers of ten; zero has a place of its own at its left end."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    begin = _LEFT + (60 if zero else 0)
    width = (WIDTH - begin - _RIGHT) / max(1, last - first)
    step = max(1, math.ceil((last - first) / 6))
    powers = [10.0**power for power in range(first, last + 1, step)]

    def place(value: float) -> float:
        return _LEFT if value <= 0 else begin + (math.log10(value) - first) * width

    return _Scale(place, [*([0.0] if zero else []), *powers], ", logarithmic")


def series(run: Evidence) -> Markdown:
    """Return each series of both variants over its steps, a line for each trial; nothing if there is none."""
    names = dict.fromkeys(name for trial in run.trials for name in trial.observation.series)
    return Markdown("".join(_series(run, name) for name in names))


def _series(run: Evidence, name: str) -> Markdown:
    lines = [
        (variant, points)
        for variant in Variant
        for points in [trial.observation.series.get(name, []) for trial in run.trials_of(variant)][:LINES_SHOWN]
        if points
    ]
    every = [point for _, points in lines for point in points if math.isfinite(point[1])]
    if not every:
        return Markdown("")
    steps, values = [step for step, _ in every], [value for _, value in every]
    first, last, low, high = min(steps), max(steps), min(values), max(values)
    top, height = 34, 140
    x = _linear(first, last).place

    def y(value: float) -> float:
        return top + height - (value - low) / ((high - low) or 1) * height

    drawn, told = list[str](), list[str]()
    for variant in dict.fromkeys(variant for variant, _ in lines):
        ends = [(points[0][1], points[-1][1]) for one, points in lines if one is variant]
        told.append(f"{variant}: from {number(ends[0][0])} to {number(ends[0][1])}")
        mark = _mark(variant, _LEFT + 6 + WIDTH / 2 * (len(told) - 1), 14)
        drawn += [mark, _text(_LEFT + 20 + WIDTH / 2 * (len(told) - 1), 18, told[-1])]
    for variant, points in lines:
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points if math.isfinite(value))
        drawn.append(f'<polyline class="cb-line cb-{variant}" points="{path}"/>')
    ticks = [(float(first), f"step {first:.0f}"), (float(last), f"{last:.0f}")]
    return _svg(name, "; ".join(told), [*drawn, *_axis(x, ticks, top + height + 8)], top + height + 30)


def _axis(place: Callable[[float], float], ticks: Sequence[tuple[float, str]], y: float) -> list[str]:
    line = f'<path class="cb-axis" d="M{_LEFT} {y}H{WIDTH - _RIGHT}"/>'
    return [line, *(_tick(place(value), y, label) for value, label in ticks)]


def _tick(x: float, y: float, label: str) -> str:
    anchor = "start" if x < 40 else "end" if x > WIDTH - 80 else "middle"
    at = f'<path class="cb-axis" d="M{x:.1f} {y}v5"/>'
    return f'{at}<text class="cb-tick" x="{x:.1f}" y="{y + 17}" text-anchor="{anchor}">{escape(label)}</text>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _svg(name: str, told: str, drawn: Sequence[str], height: float) -> Markdown:
    """Return a picture with its name above. Who can't see it is told the same in words."""
    label = escape(f"{name}. {told}", quote=True)
    head = f'<svg class="cb-plot" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {height:.0f}">'
    caption = f"<figcaption>{escape(name)}</figcaption>"
    return Markdown(f'<figure class="cb-figure">{caption}{head}{"".join(drawn)}</svg></figure>\n')
