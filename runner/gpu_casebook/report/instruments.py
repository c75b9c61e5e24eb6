"""The section "Under instruments" of a case page: sanitized trials, probes, the kernel log. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpu_casebook.evidence import Evidence, SanitizerReport, Variant
from gpu_casebook.reading.findings import sentence
from gpu_casebook.report.markdown import Markdown, code, prose
from gpu_casebook.run.probes import Words, words
from gpu_casebook.run.probes.sanitizer import words_of

XIDS_SHOWN = 5


@dataclass(frozen=True)
class InstrumentsSection:
    """What instruments showed: tables with what follows from them first."""

    looks: Sequence[Words]
    xids: Sequence[Markdown]

    @property
    def anything(self) -> bool:
        return bool(self.looks or self.xids)


def instruments(run: Evidence) -> InstrumentsSection:
    looks = [*_sanitized(run), *map(words, run.probes)]
    return InstrumentsSection(looks=sorted(looks, key=lambda look: not look.conclusion), xids=list(_xids(run)))


def seen_in(report: SanitizerReport) -> str:
    """Return the most telling finding for a cell of a table, or that there was none."""
    if report.declared is not None:
        return sentence(report.findings[report.declared])
    if report.findings:
        return sentence(report.findings[0])
    return "nothing" if report.summary else report.missing or "no report"


def _sanitized(run: Evidence) -> Iterator[Words]:
    for trial in run.sanitized:
        if trial.sanitizer:
            title = f"{trial.sanitizer.tool} on {trial.variant}, run {trial.number}: {trial.outcome}"
            yield words_of(title, trial.sanitizer, trial.infra, trial.stdout)


def _xids(run: Evidence) -> Iterator[Markdown]:
    own = [(trial.variant, xid) for trial in [*run.trials, *run.sanitized] for xid in trial.xids]
    count = Counter((variant, xid.number, xid.process or "") for variant, xid in own)
    for (variant, number, process), times in count.most_common(XIDS_SHOWN):
        text = next(
            xid.text for owner, xid in own if (owner, xid.number, xid.process or "") == (variant, number, process)
        )
        runs = f"{times} time{'s' if times != 1 else ''}"
        yield Markdown(f"Xid {number} during {prose(Variant(variant).value)}, {runs}: {code(text)}")
