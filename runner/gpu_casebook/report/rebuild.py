"""Every page again, from the evidence and the bisections on disk."""

from collections.abc import Callable
from pathlib import Path

from gpu_casebook.files import write_whole
from gpu_casebook.records.bisection import finished
from gpu_casebook.report.bisection import page
from gpu_casebook.report.pages import on_stderr, render


def render_all(reports: Path, unread: Callable[[str], object] = on_stderr) -> list[Path]:
    """Write every page and the index, with nothing run. Return the files written.

    `unread` is told of each file that can't be read; it is left out.
    """
    bisections = {path.with_suffix(".md"): page(found) for path, found in finished(reports, unread).items()}
    rendered = render(reports, None, unread)
    return [*(write_whole(path, text) for path, text in bisections.items()), *rendered]
