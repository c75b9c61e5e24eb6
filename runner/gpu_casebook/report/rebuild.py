"""Every page again, from the evidence and the bisections on disk."""

from pathlib import Path

from gpu_casebook.files import write_whole
from gpu_casebook.records.bisection import finished
from gpu_casebook.report.bisection import page
from gpu_casebook.report.pages import render


def render_all(reports: Path) -> list[Path]:
    """Write every page and the index, with nothing run. Return the files written.

    Raises CasebookError where evidence can't be read; then no page is written.
    """
    bisections = {path.with_suffix(".md"): page(found) for path, found in finished(reports).items()}
    rendered = render(reports, None)
    return [*(write_whole(path, text) for path, text in bisections.items()), *rendered]
