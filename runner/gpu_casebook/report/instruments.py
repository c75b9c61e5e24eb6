"""What instruments showed of one run, for the report: sanitized trials, probes, the kernel log. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpu_casebook.evidence import Evidence, LaunchBlockingProbe, SanitizerProbe, SanitizerReport, SourceLine, Variant
from gpu_casebook.judging.description import ending
from gpu_casebook.judging.launch_blocking import Effect, effect
from gpu_casebook.reading.findings import Finding, Kind, sentence
from gpu_casebook.report.markdown import Markdown, code, prose
from gpu_casebook.text import tail

FINDINGS_SHOWN = 5
RAW_LINES = 120
RAW_WIDTH = 240
XIDS_SHOWN = 5
CACHED = (
    "with PyTorch's caching allocator, without which no CUDA graph can be captured: "
    "the tool sees the allocator's blocks, and not the tensors in them"
)
_OWN_FRAME = re.compile(r"(\S+) in ((?:repro|fixed)\.py:\d+)")
"""compute-sanitizer names Python's frames too, the innermost first."""


@dataclass(frozen=True)
class Look:
    """What one tool of compute-sanitizer saw: sentences, and the raw text behind them."""

    title: str
    lines: Sequence[str]
    raw: str


@dataclass(frozen=True)
class Blocking:
    """Launch blocking: rows of (what, line, code), and what follows from them."""

    rows: Sequence[tuple[str, Markdown, Markdown]]
    said: str


@dataclass(frozen=True)
class Instruments:
    """All of it; `anything` says whether there is something to show."""

    looks: Sequence[Look]
    blocking: Blocking | None
    xids: Sequence[Markdown]

    @property
    def anything(self) -> bool:
        return bool(self.looks or self.blocking or self.xids)


def instruments(run: Evidence) -> Instruments:
    probe = next((probe for probe in run.probes if isinstance(probe, LaunchBlockingProbe)), None)
    return Instruments(looks=list(_looks(run)), blocking=_blocking(probe) if probe else None, xids=list(_xids(run)))


def seen_in(report: SanitizerReport) -> str:
    """One cell of a table: what is most telling, or that there was nothing."""
    if report.declared is not None:
        return sentence(report.findings[report.declared])
    if report.findings:
        return sentence(report.findings[0])
    return "nothing" if report.summary else report.missing or "no report"


def _looks(run: Evidence) -> Iterator[Look]:
    for trial in run.sanitized:
        if trial.sanitizer:
            title = f"{trial.sanitizer.tool} on {trial.variant}, run {trial.number}: {trial.outcome}"
            yield _look(title, trial.sanitizer, trial.infra, trial.stdout)
    for probe in run.probes:
        if isinstance(probe, SanitizerProbe):
            yield _look(f"{probe.report.tool} on {probe.variant}, a probe", probe.report, probe.note, probe.stdout)


def _look(title: str, report: SanitizerReport, note: str | None, stdout: str) -> Look:
    telling = [finding for finding in report.findings if finding.kind is not Kind.TOOL]
    lines = [_told(finding) for finding in telling[:FINDINGS_SHOWN]]
    if len(telling) > FINDINGS_SHOWN:
        lines.append(f"and {len(telling) - FINDINGS_SHOWN} more kinds of finding")
    if report.summary and not telling:
        lines.append(f"nothing: {report.summary.errors} errors")
    lines += [finding.title for finding in report.findings if finding.kind is Kind.TOOL]
    if note:
        lines.append(f"says nothing: {note}")
    elif report.cached:
        lines.append(CACHED)
    return Look(title=title, lines=lines, raw=tail(_raw(report) or stdout, RAW_LINES, RAW_WIDTH))


def _raw(report: SanitizerReport) -> str:
    return "\n\n".join(finding.text for finding in report.findings)


def _told(finding: Finding) -> str:
    launch = next(filter(None, map(_OWN_FRAME.fullmatch, finding.host_frames)), None)
    return f"{sentence(finding)}{f'; launched in {launch[1]} at {launch[2]}' if launch else ''}"


def _blocking(probe: LaunchBlockingProbe) -> Blocking:
    surfaced, launched = probe.surfaced, probe.launched
    rows = [("in an ordinary run", *_cells(surfaced)), ("with CUDA_LAUNCH_BLOCKING=1", *_cells(launched))]
    return Blocking(rows=rows if surfaced or launched else [], said=_said(probe))


def _cells(at: SourceLine | None) -> tuple[Markdown, Markdown]:
    if at is None:
        return Markdown("-"), Markdown("-")
    return code(f"{at.file}:{at.line}"), code(at.text or "") or Markdown("-")


def _said(probe: LaunchBlockingProbe) -> str:
    match effect(probe):
        case None:
            return f"Launch blocking says nothing: {probe.note or 'it was not run'}."
        case Effect.GONE:
            return f"With CUDA_LAUNCH_BLOCKING=1 {probe.error} is gone: it is a matter of timing."
        case Effect.OTHER:
            how = ending(probe.seen) if probe.seen else "unknown"
            return f"With CUDA_LAUNCH_BLOCKING=1 it fails in another way: {how}."
        case Effect.SAME_LINE:
            return f"{probe.error} is raised at the line that causes it."
        case Effect.MOVED:
            return f"{probe.error} surfaces at one line, and comes of a launch at another."
        case Effect.UNPLACED:
            return f"{probe.error} comes with CUDA_LAUNCH_BLOCKING=1 too; not every traceback names a line of the case."


def _xids(run: Evidence) -> Iterator[Markdown]:
    own = [(trial.variant, xid) for trial in [*run.trials, *run.sanitized] for xid in trial.xids]
    count = Counter((variant, xid.number, xid.process or "") for variant, xid in own)
    for (variant, number, process), times in count.most_common(XIDS_SHOWN):
        text = next(
            xid.text for owner, xid in own if (owner, xid.number, xid.process or "") == (variant, number, process)
        )
        runs = f"{times} time{'s' if times != 1 else ''}"
        yield Markdown(f"Xid {number} during {prose(Variant(variant).value)}, {runs}: {code(text)}")
