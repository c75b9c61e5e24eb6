"""A run of the corpus as Markdown: its page, a job summary for CI, and a table for a comment. Summary in, text out."""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_casebook.corpus.model import End
from gpu_casebook.corpus.report.model import JobChange, JobCounts, Line, RunSummary, Shift, Standing
from gpu_casebook.evidence import Variant
from gpu_casebook.kinds import Grade
from gpu_casebook.report.markdown import Markdown, code, prose, render_template
from gpu_casebook.report.words import page_name, share
from gpu_casebook.words import seconds

JOB_SUMMARY_BYTES = 1_000_000
"""GitHub takes 1 MiB of job summary from a step."""
COMMENT_BYTES = 65_536
"""GitHub takes as many characters in a comment, and no text has more characters than bytes."""
LONGEST_SHOWN = 15
REASON = 200

_REPORTS = "../.."
"""From a run's page to the reports directory."""


@dataclass(frozen=True)
class Picture:
    """A file beside the page, and what it shows."""

    file: str
    title: str


@dataclass(frozen=True)
class JobRow:
    """One job's line of a table; every field is Markdown already."""

    name: Markdown
    verdict: Markdown
    repro: Markdown
    fixed: Markdown
    device: Markdown
    took: Markdown
    remarks: Markdown


@dataclass(frozen=True)
class Changed:
    """The changes of one kind."""

    title: str
    items: Sequence[Markdown]


def page(summary: RunSummary, pictures: Sequence[Picture] = (), no_pictures: str = "") -> str:
    """The run's page, README.md in its directory; `no_pictures` says why there are none."""
    shown = [Markdown(f"![{prose(each.title)}]({each.file})") for each in pictures]
    return _render("page.md.j2", pictures=shown, no_pictures=no_pictures, **_parts(summary, _linked))


def job_summary(summary: RunSummary, limit: int = JOB_SUMMARY_BYTES) -> str:
    """What a CI job shows when it is done: the page without what lies beside it, at most `limit` bytes."""
    return _bounded("job.md.j2", limit, _parts(summary, lambda line: code(line.name)))


def comment(summary: RunSummary, limit: int = COMMENT_BYTES) -> str:
    """What a pull request gets as a comment, at most `limit` bytes: what asks for attention, then all cases."""
    return _bounded("comment.md.j2", limit, _parts(summary, lambda line: code(line.name)))


def _parts(summary: RunSummary, name_of: Callable[[Line], Markdown]) -> dict[str, Any]:
    longest = sorted(summary.lines, key=lambda line: (-line.duration_s, line.name))
    ran = [line for line in longest if line.end in {End.RAN, End.BROKE} and line.duration_s > 0]
    attention = [*summary.of(Standing.FAILING), *summary.of(Standing.BROKE)]
    return {
        "run": summary,
        "headline": headline(summary.tally),
        "changed": _changed(summary),
        "rows": [_row(line, name_of) for line in summary.lines],
        "attention": [_row(line, name_of) for line in attention],
        "trouble": [item for line in summary.lines for item in _trouble(line)],
        "longest": [_row(line, name_of) for line in ran[:LONGEST_SHOWN]],
        "limit": None,
    }


def headline(tally: JobCounts) -> Markdown:
    """How many confirmed of how many; what says nothing about a case stands apart."""
    first = f"**{tally.confirmed} of {tally.judged} confirmed**" if tally.judged else "**No verdict**"
    others = [f"{count} {verdict}" for verdict, count in tally.verdicts.items() if verdict != "confirmed"]
    among = [f"{count} {word}" for count, word in ((tally.reused, "reused"), (tally.drifted, "drifted")) if count]
    apart = [
        f"{count} {standing}"
        for count, standing in (
            (tally.broke, Standing.BROKE),
            (tally.skipped, Standing.SKIPPED),
            (tally.left, Standing.LEFT),
        )
        if count
    ]
    text = ", ".join([first, *others])
    text += f" ({', '.join(among)})" if among else ""
    return Markdown(f"{text}. Without a verdict: {', '.join(apart)}." if apart else f"{text}.")


def _render(template: str, **values: Any) -> str:
    return render_template(template, package="gpu_casebook.corpus.report", **values)


def _bounded(template: str, limit: int, parts: dict[str, Any]) -> str:
    """Render with as many rows of each table as there is room for in `limit` bytes."""

    def size(rows: int | None) -> int:
        return len(_render(template, **parts | {"limit": rows}).encode())

    rows = None if size(None) <= limit else max(bisect_right(range(limit), limit, key=size) - 1, 0)
    return _render(template, **parts | {"limit": rows})


def _changed(summary: RunSummary) -> list[Changed]:
    kinds = ((shift, summary.shifted(shift)) for shift in Shift)
    return [
        Changed(f"{shift[0].upper()}{shift[1:]} ({len(found)})", [_change(each) for each in found])
        for shift, found in kinds
        if found
    ]


def _change(change: JobChange) -> Markdown:
    text = str(code(change.name))
    if change.now:
        text += f": **{prose(change.now)}**"
    if change.before:
        text += f", was {prose(change.before)} in run {code(change.since)}"
    if change.where:
        text += f" ({prose(change.where)})"
    if change.reason and change.now != Standing.CONFIRMED:
        text += f": {prose(change.reason, REASON)}"
    return Markdown(text)


def _row(line: Line, name_of: Callable[[Line], Markdown]) -> JobRow:
    rates = line.rates if line.judged else {}
    repro, fixed = (prose(share(rates[variant])) if variant in rates else Markdown("") for variant in Variant)
    return JobRow(
        name=name_of(line),
        verdict=Markdown(f"**{prose(line.result)}**"),
        repro=repro,
        fixed=fixed,
        device=prose(line.device),
        took=prose(seconds(line.duration_s)) if line.duration_s else Markdown(""),
        remarks=Markdown("; ".join(_remarks(line))),
    )


def _remarks(line: Line) -> list[Markdown]:
    words = {
        "reused": line.end is End.REUSED,
        "simulated": line.grade is Grade.SIMULATED,
        "drifted": line.drifted,
        prose(line.reason, REASON): bool(line.reason) and line.standing is not Standing.CONFIRMED,
    }
    return [Markdown(word) for word, holds in words.items() if holds]


def _trouble(line: Line) -> list[Markdown]:
    """What went wrong with machines, whatever the verdict."""
    name = code(line.name)
    trouble = []
    if line.standing is Standing.BROKE:
        trouble.append(Markdown(f"{name} broke: {prose(line.reason or 'no reason is known', REASON)}"))
    for lost in line.lost:
        after = prose(seconds(lost.after_s))
        trouble.append(Markdown(f"{name} lost {prose(lost.worker)} after {after}: {prose(lost.reason, REASON)}"))
    if line.infra_trials:
        trials = f"{line.infra_trials} trial{'s' * (line.infra_trials != 1)}"
        trouble.append(Markdown(f"{name}: {trials} spoiled by the machine, and not counted"))
    return trouble


def _linked(line: Line) -> Markdown:
    """The case's page and the evidence, where the job left some."""
    if not line.judged:
        return code(line.name)
    return Markdown(f"{_local(prose(line.case), page_name(line.case))} {_local(code(line.environment), line.evidence)}")


def _local(text: Markdown, path: str | None) -> Markdown:
    if path is None or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*", path):
        return text
    return Markdown(f"[{text}]({_REPORTS}/{path})")
