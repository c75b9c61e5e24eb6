"""The tools of compute-sanitizer as probes: what they find in repro, and in fixed where repro ends without an error."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from failure_signature.judging.description import failing
from failure_signature.judging.sanitized import report
from failure_signature.kinds import Failure, Variant
from failure_signature.reading import sanitizer
from failure_signature.reading.findings import EXECUTABLE, Finding, Kind, Tool, sentence, telling
from failure_signature.result import TrialResult
from failure_signature.text import tail
from failure_signature.trials import SanitizerReport, Trial
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import ProbeRecord, SanitizerProbe
from gpu_casebook.guest import script
from gpu_casebook.run.plan import Plan
from gpu_casebook.run.probes import Bench, Words, ran_kernels
from gpu_casebook.trial import Limits

NOT_THERE = f"{EXECUTABLE} is not in this environment"
CACHED = (
    "with PyTorch's caching allocator, without which no CUDA graph can be captured: "
    "the tool sees the allocator's blocks, and not the tensors in them"
)
FINDINGS_SHOWN = 5
RAW_LINES = 120
RAW_WIDTH = 240
_SUGGESTED = {
    Tool.MEMCHECK: set(Failure),
    Tool.RACECHECK: {Failure.RACE},
    Tool.INITCHECK: {Failure.WRONG_NUMBERS, Failure.NON_FINITE},
    Tool.SYNCCHECK: set[Failure](),
}
_OWN_FRAME = re.compile(r"(\S+) in ((?:repro|fixed)\.py:\d+)")
"""compute-sanitizer names Python's frames too, the innermost first."""


@dataclass(frozen=True)
class Sanitizer:
    """Satisfies `gpu_casebook.run.probes.Probe`."""

    tool: Tool
    record = SanitizerProbe

    def suggested(self, failure: Failure) -> bool:
        return failure in _SUGGESTED[self.tool]

    def applies(self, plan: Plan, trials: Sequence[Trial], sanitized: Sequence[Trial]) -> bool:
        return ran_kernels(plan, trials) and self.tool not in [trial.instrument for trial in sanitized]

    def run(self, bench: Bench, trials: Sequence[Trial], limits: Limits) -> Iterator[SanitizerProbe]:
        yield (found := self._look(bench, Variant.REPRO, limits))
        if failing(trials) is None and telling(found.report.findings):
            yield self._look(bench, Variant.FIXED, limits)

    def _look(self, bench: Bench, variant: Variant, limits: Limits) -> SanitizerProbe:
        try:
            run = under(bench, self.tool, variant, limits)
        except (CasebookError, OSError) as error:
            return SanitizerProbe(variant=variant, report=SanitizerReport(tool=self.tool), note=str(error))
        found = report(run.result, self.tool, run.version, None, cached=run.cached)
        return SanitizerProbe(
            variant=variant,
            report=found,
            note=found.missing,
            duration_s=run.result.duration_s,
            stdout=run.result.stdout,
            stderr=run.result.stderr,
        )

    def words(self, record: ProbeRecord) -> Words:
        assert isinstance(record, SanitizerProbe)
        title = f"{record.report.tool} on {record.variant}, a probe"
        return _words_of(title, record.report, record.note, record.stdout)

    def words_of_trial(self, trial: Trial) -> Words:
        """Return what the tool said in a trial that counts for the verdict."""
        assert trial.sanitizer
        title = f"{self.tool} on {trial.variant}, run {trial.number}: {trial.outcome}"
        return _words_of(title, trial.sanitizer, trial.infra, trial.stdout)


MEMCHECK, RACECHECK, INITCHECK, SYNCCHECK = map(Sanitizer, Tool)


class SanitizedRun(NamedTuple):
    result: TrialResult
    version: str | None  # compute-sanitizer's own word for it
    cached: bool  # with PyTorch's caching allocator


def under(bench: Bench, tool: Tool, variant: Variant, limits: Limits) -> SanitizedRun:
    """Run a script under a tool. If it captures a CUDA graph, run it again, with PyTorch's caching allocator."""
    program = _program(bench.ask(variant, script("locate")))
    if program is None:
        return SanitizedRun(TrialResult(stdout="", stderr="", duration_s=0.0, infra=NOT_THERE), None, cached=False)
    path, version = program
    _, *options = sanitizer.command(tool, ())
    uncached = bench.run(variant, limits, sanitizer.VARIABLES, (path, *options))
    if not sanitizer.at_odds_with_capture(f"{uncached.stdout}\n{uncached.stderr}"):
        return SanitizedRun(uncached, version, cached=False)
    return SanitizedRun(bench.run(variant, limits, {}, (path, *options)), version, cached=True)


def _program(printed: str) -> tuple[str, str] | None:
    """Return path and version of compute-sanitizer from what guest/locate.py printed; None if none runs."""
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads(printed)
        return str(found["path"]), str(found["version"])
    return None


def _words_of(title: str, report: SanitizerReport, note: str | None, stdout: str) -> Words:
    """Return what a report of the tool says, for a probe or a sanitized trial."""
    findings = [finding for finding in report.findings if finding.kind is not Kind.TOOL]
    lines = [_sentence(finding) for finding in findings[:FINDINGS_SHOWN]]
    if len(findings) > FINDINGS_SHOWN:
        lines.append(f"and {len(findings) - FINDINGS_SHOWN} more kinds of finding")
    if report.summary and not findings:
        lines.append(f"nothing: {report.summary.errors} errors")
    lines += [finding.title for finding in report.findings if finding.kind is Kind.TOOL]
    if note:
        lines.append(f"says nothing: {note}")
    elif report.cached:
        lines.append(CACHED)
    raw = "\n\n".join(finding.text for finding in report.findings) or stdout
    return Words(title=title, lines=lines, raw=tail(raw, RAW_LINES, RAW_WIDTH), instrument=EXECUTABLE)


def _sentence(finding: Finding) -> str:
    launch = next(filter(None, map(_OWN_FRAME.fullmatch, finding.host_frames)), None)
    return f"{sentence(finding)}{f'; launched in {launch[1]} at {launch[2]}' if launch else ''}"
