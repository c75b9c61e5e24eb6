"""A run of the corpus as Markdown: its page, a job summary for CI, and a table for a comment. Summary in, text out."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from casebook_workbench.corpus.model import End
from casebook_workbench.corpus.report.model import JobCounts, Line, RunSummary, Shift, Standing
from failure_signature.kinds import Grade
from failure_signature.text import counted
from failure_signature.trials import Verdict
from gpu_casebook.report.markdown import Markdown, prose, render_template

JOB_SUMMARY_BYTES = 1_000_000  # GitHub takes 1 MiB of job summary from a step
COMMENT_BYTES = 65_536  # GitHub takes as many characters in a comment, and no text has more characters than bytes
LONGEST_SHOWN = 15
REASON = 200  # characters of a reason that a table or a list has room for

_render = partial(render_template, package="casebook_workbench.corpus.report")


class Picture(NamedTuple):
    """A file beside the page, and what it shows."""

    file: str
    title: str


def page(summary: RunSummary, pictures: Sequence[Picture] = ()) -> str:
    """Return the run's page, README.md in its directory."""
    return _render("page.md.j2", pictures=pictures, **_parts(summary, linked=True))


def job_summary(summary: RunSummary, limit: int = JOB_SUMMARY_BYTES) -> str:
    """Return what a CI job shows when it is done: the page without its links to files, at most `limit` bytes."""
    return _bounded("job.md.j2", limit, _parts(summary))


def comment(summary: RunSummary, limit: int = COMMENT_BYTES) -> str:
    """Return a comment for a pull request, at most `limit` bytes: what asks for attention, then all cases."""
    return _bounded("comment.md.j2", limit, _parts(summary))


def _parts(summary: RunSummary, *, linked: bool = False) -> dict[str, Any]:
    """Return what the templates lay out. Rows are rendered once: several tables show them, and `_bounded` again."""
    rendered = _lines("rows.md.j2", summary.lines, linked=linked, remarks=_remarks)
    rows = {line.name: row for line, row in zip(summary.lines, rendered, strict=True)}
    longest = sorted(summary.lines, key=lambda line: (-line.duration_s, line.name))
    ran = [line for line in longest if line.end in {End.RAN, End.BROKE} and line.duration_s > 0]
    attention = [*summary.of(Standing.FAILING), *summary.of(Standing.BROKE)]
    return {
        "run": summary,
        "headline": headline(summary.tally),
        "changed": {shift: _lines("changes.md.j2", found) for shift in Shift if (found := summary.shifted(shift))},
        "rows": list(rows.values()),
        "attention": [rows[line.name] for line in attention],
        "trouble": _lines("trouble.md.j2", summary.lines),
        "longest": [rows[line.name] for line in ran[:LONGEST_SHOWN]],
        "limit": None,
    }


def _lines(template: str, of: Sequence[Any], **values: Any) -> list[Markdown]:
    """Render a template that writes lines about each of `of`, and return the lines."""
    return [Markdown(line) for line in _render(template, of=of, most=REASON, **values).splitlines()]


def _remarks(line: Line) -> list[str]:
    """Return what else there is to say of a job, in a word or its reason."""
    words = {"reused": line.end is End.REUSED, "simulated": line.grade is Grade.SIMULATED, "drifted": line.drifted}
    reason = [prose(line.reason, REASON)] if line.reason and line.standing is not Standing.CONFIRMED else []
    return [*(word for word, holds in words.items() if holds), *reason]


def headline(tally: JobCounts) -> Markdown:
    """Return how many are confirmed of how many; jobs without a verdict are counted apart."""
    first = f"**{tally.confirmed} of {tally.judged} confirmed**" if tally.judged else "**No verdict**"
    others = counted({verdict: n for verdict, n in tally.verdicts.items() if verdict is not Verdict.CONFIRMED})
    among = counted({"reused": tally.reused, "drifted": tally.drifted})
    apart = counted({Standing.BROKE: tally.broke, Standing.SKIPPED: tally.skipped, Standing.LEFT: tally.left})
    text = f"{first}, {others}" if others else first
    text += f" ({among})." if among else "."
    return Markdown(f"{text} Without a verdict: {apart}." if apart else text)


def _bounded(template: str, limit: int, parts: dict[str, Any]) -> str:
    """Render with as many rows of each table as there is room for in `limit` bytes."""

    def size(rows: int | None) -> int:
        return len(_render(template, **parts | {"limit": rows}).encode())

    rows = None if size(None) <= limit else max(bisect_right(range(limit), limit, key=size) - 1, 0)
    return _render(template, **parts | {"limit": rows})
