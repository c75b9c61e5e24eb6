"""Draw the README's picture from committed evidence: memory in each trial of a leak's case, repro against fixed.

`python -m tests.picture` writes docs/tokenizers-long-string-leak.svg. The same evidence gives the same bytes.
"""

from pathlib import Path

from failure_signature.kinds import Variant
from gpu_casebook.evidence import Evidence

ROOT = Path(__file__).resolve().parents[1]
CASE, SERIES = "tokenizers-long-string-leak", "resident_bytes"
EVIDENCE = ROOT / "reports" / "evidence" / CASE / "cpu.venv.cpu.json"
PICTURE = ROOT / "docs" / f"{CASE}.svg"
MEGABYTE = 1e6
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 608, 200, 40, 24, 164
A_TEXT, STEP_MB = 7.0, 100
"""Pixels to the right for each text that was encoded, and what the lines across are apart."""


STYLE = """
text { font: 10px "DejaVu Sans", sans-serif; fill: #1f2328; }
.faint { fill: #6e7781; }
.end { text-anchor: end; }
.rule { stroke: #d0d7de; }
polyline { fill: none; stroke-width: 1.2; }
.repro { stroke: #bc4c00; }
.fixed { stroke: #54aeff; }
"""


def text(x: float, y: float, said: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{said}</text>'


def picture(evidence: Evidence) -> str:
    """Return an SVG with a line for each trial: texts that were encoded across, megabytes of resident memory up."""
    series = [(each.variant, each.observation.series[SERIES]) for each in evidence.trials]
    most = max(size for _, points in series for _, size in points) / MEGABYTE

    def place(step: float, size: float) -> tuple[float, float]:
        return LEFT + step * A_TEXT, BOTTOM - size / MEGABYTE / most * (BOTTOM - TOP)

    drawn = [text(LEFT, 12, "memory of the process, MB")]
    for megabytes in range(0, int(most) + 1, STEP_MB):
        _, y = place(0, megabytes * MEGABYTE)
        drawn.append(f'<path class="rule" d="M{LEFT} {y:.1f}H{LEFT + 60 * A_TEXT}"/>')
        drawn.append(text(LEFT - 8, y + 4, f"{megabytes}", "faint end"))
    steps = range(0, 61, 10)
    drawn += [text(LEFT + step * A_TEXT - 5 * (step > 0), BOTTOM + 16, f"{step}", "faint") for step in steps]
    drawn.append(text(LEFT, BOTTOM + 30, "texts of 160 kB that were encoded, none of them kept"))
    for variant, points in series:
        places = " ".join("{:.1f},{:.1f}".format(*place(*each)) for each in points)
        drawn.append(f'<polyline class="{variant}" points="{places}"/>')
    for variant in Variant:
        trials = [points for each, points in series if each is variant]
        (release,) = evidence.environment.variant_requirements[variant]
        x, y = place(*trials[0][-1])
        drawn += [text(x + 8, y - 2, f"{variant}, {len(trials)} trials:"), text(x + 8, y + 11, release)]
    size = f'width="{1.2 * WIDTH:.0f}" height="{1.2 * HEIGHT:.0f}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    paper = '<rect width="100%" height="100%" fill="#fff"/>'  # for pages with a dark background
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>{paper}'
    return "\n".join([head, *drawn, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(picture(Evidence.model_validate_json(EVIDENCE.read_bytes())))
