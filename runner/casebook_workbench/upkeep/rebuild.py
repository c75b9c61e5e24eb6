"""Every page again, from the evidence and the bisections on disk."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from casebook_workbench.releases.page import page
from casebook_workbench.releases.records import finished
from failure_signature.text import utc
from gpu_casebook.evidence import Evidence, evidence_files
from gpu_casebook.files import write_whole
from gpu_casebook.report.pages import on_stderr, render


def render_all(reports: Path, unread: Callable[[str], object] = on_stderr) -> list[Path]:
    """Write every page and the index, with nothing run. Return the files written.

    `unread` is told of each file that can't be read; it is left out.
    """
    bisections = {path.with_suffix(".md"): page(found) for path, found in finished(reports, unread).items()}
    rendered = render(reports, None, unread)
    return [*(write_whole(path, text) for path, text in bisections.items()), *rendered]


def remove_overtaken(reports: Path) -> list[Path]:
    """Remove evidence that drifted where later, exact evidence of the same is there. Return the files removed.

    The same: case, environment, verdict and card, whatever the engine.
    """
    exact, drifted = dict[tuple[str, ...], datetime](), list[tuple[Path, tuple[str, ...], datetime]]()
    for path, run in Evidence.read_all(evidence_files(reports), lambda _: None):
        key, when = (run.case.id, run.environment.name, run.verdict, run.device), utc(run.started)
        if run.environment.exact:
            exact[key] = max(when, exact.get(key, when))
        elif run.environment.drift:
            drifted.append((path, key, when))
    overtaken = [path for path, key, when in drifted if key in exact and exact[key] > when]
    for path in overtaken:
        path.unlink()
    return overtaken
