"""Draw the README's picture from committed evidence: memory in each trial of a leak's case, repro against fixed.

`python -m tests.picture` writes docs/tokenizers-long-string-leak.svg. The same evidence gives the same bytes.
"""

import io
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from gpu_casebook.corpus.report.plots import FAINT, FIXED, INK, LINE, REPRO, STYLE
from gpu_casebook.evidence import Evidence
from gpu_casebook.kinds import Variant

ROOT = Path(__file__).resolve().parents[1]
CASE, SERIES = "tokenizers-long-string-leak", "resident_bytes"
EVIDENCE = ROOT / "reports" / "evidence" / CASE / "cpu.venv.cpu.json"
PICTURE = ROOT / "docs" / f"{CASE}.svg"
MEGABYTE = 1e6


def picture(evidence: Evidence) -> bytes:
    """Return an SVG with a line for each trial: texts that were encoded across, megabytes of resident memory up."""
    with mpl.rc_context(STYLE | {"font.size": 9.0}):
        figure = Figure(figsize=(7.6, 2.5), layout="constrained", facecolor="white")
        axes = figure.subplots()
        for variant, colour in ((Variant.REPRO, REPRO), (Variant.FIXED, FIXED)):
            trials = [each.observation.series[SERIES] for each in evidence.trials if each.variant is variant]
            for points in trials:
                axes.plot([step for step, _ in points], [size / MEGABYTE for _, size in points], color=colour, lw=1.2)
            (release,) = evidence.environment.variant_requirements[variant]
            text = f" {variant}, {len(trials)} trials:\n {release}"
            step, size = trials[0][-1]
            axes.text(step, size / MEGABYTE, text, color=INK, va="center")
        axes.set(xlabel="texts of 160 kB that were encoded, none of them kept", xlim=(0, 78), ylim=0)
        axes.set_ylabel("memory of the process, MB")
        axes.set_xticks(range(0, 61, 10))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=LINE, linewidth=0.5)
        axes.tick_params(color=FAINT, labelcolor=INK)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    return out.getvalue()


if __name__ == "__main__":
    PICTURE.write_bytes(picture(Evidence.model_validate_json(EVIDENCE.read_bytes())))
