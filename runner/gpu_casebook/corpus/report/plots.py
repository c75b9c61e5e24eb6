"""Durations and rates of every case over the runs kept, as SVG: one small panel for each, all in one picture.

Drawn by matplotlib, which is an extra. The same history gives the same bytes. The background is white and opaque, so
that a page with a dark one shows the same picture; the width is that of a page, so that the text keeps its size.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gpu_casebook.corpus.report.history import History, Series
from gpu_casebook.text import one_line
from gpu_casebook.words import date, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, MARGIN, HEAD, ROW = 9.4, 0.15, 0.72, 0.25
"""Inches, and so is everything else here: 9.4 is as wide as a page on GitHub shows."""
NAME, VALUE, GAP = 2.6, 0.68, 0.3
WIDEST_SLOT = 0.3
"""What one run takes at most: few runs leave the rest of their strip empty."""
ONE_COLUMN = 20
"""Rows up to which one column is enough."""
NAME_LIMIT = 44

INK, FAINT, LINE = "#1f2328", "#6e7781", "#d0d7de"
REPRO, FIXED = "#bc4c00", "#54aeff"
CONFIRMED, WRONG = "#dafbe1", "#ff8182"

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "casebook",
    "svg.fonttype": "none",  # text stays text: a tenth of the size, and it can be searched
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 7.5,
    "text.parse_math": False,
    "path.simplify": False,
}


@dataclass(frozen=True)
class _Panel:
    """Where one series is drawn: its runs from `left` on, `end` the right edge of its row, `top` the upper one."""

    left: float
    end: float
    top: float
    runs: int

    @property
    def slot(self) -> float:
        return min((self.end - VALUE - self.left) / max(self.runs, 1), WIDEST_SLOT)

    @property
    def right(self) -> float:
        return self.left + self.runs * self.slot

    def x(self, run: float) -> float:
        """The middle of a run's slot."""
        return self.left + (run + 0.5) * self.slot

    def y(self, share: float) -> float:
        """Downwards: near the row's floor for 0, near its ceiling for 1."""
        return self.top + ROW * (0.84 - 0.62 * share)


@dataclass(frozen=True)
class _Canvas:
    """Boxes are gathered by colour, and drawn as one path each: thousands of them stay small and fast."""

    axes: "Axes"
    boxes: dict[str, list[tuple[float, float, float, float]]] = field(default_factory=dict)

    def text(self, x: float, y: float, text: str, colour: str = INK, **more: Any) -> None:
        self.axes.text(x, y, text, color=colour, **{"va": "center"} | more)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float, *, stepped: bool = False) -> None:
        """With a dot at its end, which is all there is of a line of one point."""
        if points:
            xs, ys = zip(*points, strict=True)
            self.axes.plot(
                xs,
                ys,
                color=colour,
                linewidth=width,
                drawstyle="steps-mid" if stepped else "default",
                marker="o",
                markevery=[-1],
                markersize=width + 1.4,
                markeredgewidth=0,
            )

    def box(self, left: float, right: float, top: float, bottom: float, colour: str) -> None:
        self.boxes.setdefault(colour, []).append((left, right, top, bottom))

    def draw_boxes(self) -> None:
        from matplotlib.patches import PathPatch  # noqa: PLC0415
        from matplotlib.path import Path  # noqa: PLC0415

        for colour, boxes in self.boxes.items():
            corners = [corner for a, b, c, d in boxes for corner in ((a, c), (b, c), (b, d), (a, d), (a, c))]
            codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(boxes)
            self.axes.add_patch(PathPatch(Path(corners, codes), facecolor=colour, linewidth=0, zorder=0))


Draw = Callable[[_Canvas, _Panel, Series], str]
"""Draws a series into its panel, and says what stands at its right."""


def durations(history: History) -> bytes:
    """How long each job took, each on a scale of its own from 0 to its longest."""
    legend = [("how long it took, from 0 to the longest of its row; at the right the last", INK)]
    return _picture(history, legend, _duration)


def rates(history: History) -> bytes:
    """For each job and run whether it was confirmed, and the shares of trials that did what the case declares."""
    legend = [
        ("confirmed", CONFIRMED),
        ("not confirmed; white: no verdict", WRONG),
        ("share of repro's trials that failed as declared", REPRO),
        ("share of fixed's that gave their proof; at the right the last", FIXED),
    ]
    return _picture(history, legend, _rate)


def _duration(canvas: _Canvas, panel: _Panel, series: Series) -> str:
    points = [(point.run, point.duration_s) for point in series.points if point.duration_s is not None]
    if not points:
        return ""
    top = series.longest_s or 1.0
    canvas.line([(panel.x(run), panel.y(value / top)) for run, value in points], INK, 0.9)
    return seconds(points[-1][1])


def _rate(canvas: _Canvas, panel: _Panel, series: Series) -> str:
    for confirmed, group in groupby(series.points, key=lambda point: point.confirmed):
        for first, last in _stretches([point.run for point in group]):
            left, right = panel.x(first - 0.5), panel.x(last + 0.5)
            canvas.box(left, right, panel.top + 0.02, panel.top + ROW - 0.02, CONFIRMED if confirmed else WRONG)
    for name, colour, width in (("fixed", FIXED, 2.6), ("repro", REPRO, 0.9)):
        shares = [(panel.x(point.run), getattr(point, name)) for point in series.points]
        known = [(x, panel.y(share)) for x, share in shares if share is not None]
        canvas.line(known, colour, width, stepped=True)
    newest = series.points[-1]
    return " / ".join("-" if share is None else f"{100 * share:.0f}" for share in (newest.repro, newest.fixed)) + " %"


def _stretches(runs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each row of numbers that follow one another."""
    for _, group in groupby(enumerate(runs), key=lambda pair: pair[1] - pair[0]):
        numbers = [run for _, run in group]
        yield numbers[0], numbers[-1]


def _picture(history: History, legend: Sequence[tuple[str, str]], draw: Draw) -> bytes:
    import matplotlib as mpl  # noqa: PLC0415 an extra, and slow to import

    with mpl.rc_context(_STYLE):
        out = io.BytesIO()
        nothing: dict[str, Any] = {"Date": None, "Creator": None}
        _figure(history, legend, draw).savefig(out, format="svg", metadata=nothing, facecolor="white")
    return out.getvalue()


def _figure(history: History, legend: Sequence[tuple[str, str]], draw: Draw) -> "Figure":
    from matplotlib.figure import Figure  # noqa: PLC0415

    columns = 1 if len(history.series) <= ONE_COLUMN else 2
    rows, runs = -(-len(history.series) // columns), len(history.started)
    height = HEAD + rows * ROW + MARGIN
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.set_axis_off()
    canvas = _Canvas(axes)
    _head(canvas, history, legend)
    for number, series in enumerate(history.series):
        panel = _panel(number, rows, columns, runs)
        middle, floor = panel.top + ROW * 0.52, panel.top + ROW
        canvas.box(panel.left - NAME, panel.end, floor - 0.006, floor, LINE)
        canvas.text(panel.left - NAME, middle, _name(series.name))
        canvas.text(panel.end, middle, draw(canvas, panel, series), ha="right")
    for column in range(columns if history.series else 0):
        _dates(canvas, _panel(column * rows, rows, columns, runs), history)
    canvas.draw_boxes()
    return figure


def _panel(number: int, rows: int, columns: int, runs: int) -> _Panel:
    width = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns
    left = MARGIN + (number // rows) * (width + GAP)
    return _Panel(left + NAME, left + width, HEAD + (number % rows) * ROW, runs)


def _head(canvas: _Canvas, history: History, legend: Sequence[tuple[str, str]]) -> None:
    left = MARGIN
    for text, colour in legend:
        if len(legend) > 1:
            canvas.box(left, left + 0.1, 0.13, 0.23, colour)
            left += 0.16
        canvas.text(left, 0.18, text)
        left += 0.25 + 0.056 * len(text)
    if history.left_out:
        canvas.text(WIDTH - MARGIN, 0.36, f"{history.left_out} shorter ones are left out", FAINT, ha="right")


def _dates(canvas: _Canvas, panel: _Panel, history: History) -> None:
    """Of the first and the last run, above a column."""
    first, last = date(history.started[0]), date(history.started[-1])
    narrow = panel.right - panel.left < 1.6
    canvas.text(panel.left, HEAD - 0.14, first if last == first or not narrow else f"{first} to {last}", FAINT)
    if last != first and not narrow:
        canvas.text(panel.right, HEAD - 0.14, last, FAINT, ha="right")


def _name(text: str) -> str:
    """What every font has, and not too long for its place: the middle gives way."""
    plain = "".join(each if " " <= each <= "~" else "?" for each in one_line(text, 1000))
    half = (NAME_LIMIT - 3) // 2
    return plain if len(plain) <= NAME_LIMIT else f"{plain[:half]}...{plain[-half:]}"
