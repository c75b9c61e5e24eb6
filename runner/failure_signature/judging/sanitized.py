"""Trials under compute-sanitizer: what they show of the finding that a case declares, and the verdict. Pure.

Ordinary trials alone decide whether the failure is there and whether the fix holds. If they confirm a case that
declares a finding, the finding must be there as well, in every sanitized trial of repro. In fixed, the same tool must
come to its end without a finding. A tool that is missing, or that gives no report, says nothing about the case.
"""

import re
from collections.abc import Iterator, Sequence

from failure_signature.expectation import Expectation, SanitizerFinding
from failure_signature.judging.decision import Decision
from failure_signature.judging.outcome import Judgement, judge
from failure_signature.kinds import Variant
from failure_signature.reading.findings import EXECUTABLE, Finding, Kind, Tool, grouped, sentence, short_name
from failure_signature.reading.sanitizer import parse, summary
from failure_signature.result import TrialResult
from failure_signature.text import without_escapes
from failure_signature.trials import Observation, Outcome, SanitizerReport, Trial, Verdict

SANITIZED_TRIALS = 1
"""Trials of each variant under the tool: what it finds does not come and go as a crash may."""


def report(
    result: TrialResult,
    tool: Tool,
    version: str | None,
    declared: SanitizerFinding | None,
    *,
    cached: bool = False,
) -> SanitizerReport:
    """Return what the tool printed among the program's own output; nothing of a run that the machine spoiled."""
    printed = "" if result.infra else result.stdout
    findings, closing = grouped(parse(printed, tool)), summary(printed)
    if closing and not closing.errors:
        # Lines of the program itself can look like the tool's. If the tool counts no error, they are no finding.
        findings = [finding for finding in findings if finding.kind is not Kind.OTHER]
    positions = (at for at, finding in enumerate(findings) if declared and not mismatches(declared, finding))
    return SanitizerReport(
        tool=tool,
        version=version,
        findings=findings,
        summary=closing,
        declared=next(positions, None),
        missing=None if findings or closing else _why_missing(result, tool),
        cached=cached,
    )


def _why_missing(result: TrialResult, tool: Tool) -> str:
    if result.infra:
        return result.infra
    if result.timed_out:
        return f"{tool} was ended at the time limit, after {result.duration_s:.0f} s"
    if result.out_of_memory:
        return f"{tool} was ended at the memory limit"
    said = without_escapes(result.stderr.strip() or result.stdout.strip()).splitlines()
    return f"{tool} gave no report: {said[-1] if said else 'it said nothing'}"


def judge_repro(expected: SanitizerFinding, found: SanitizerReport) -> Judgement:
    """As expected if the finding is there. How the program ended does not count, because the tool changes that."""
    if found.declared is not None:
        return Judgement(Outcome.AS_EXPECTED)
    if found.summary is None:
        return _no_report(found)
    if found.summary.not_printed:
        why = f"{found.tool} did not print {found.summary.not_printed} reports more, and those it did are others"
        return Judgement(Outcome.INFRA, infra=why)
    unfit = next((finding for finding in found.findings if finding.kind is Kind.TOOL), None)
    if unfit and not found.summary.errors:
        return Judgement(Outcome.INFRA, infra=f"{found.tool} may have missed something: {unfit.title}")
    nearest = min((mismatches(expected, finding) for finding in found.findings), key=len, default=None)
    return Judgement(Outcome.OTHERWISE, tuple(nearest or [f"{EXECUTABLE} found nothing"]))


def mismatches(expected: SanitizerFinding, finding: Finding) -> list[str]:
    """Return what differs from the expectation, line by line."""
    seen = {name: getattr(finding, name) for name in ("tool", "kind", "access", "size", "kernel")}
    functions = [finding.kernel, finding.place.function, *(site.function for site in finding.sites)]
    if expected.kernel and any(_names(expected.kernel, function) for function in functions if function):
        seen["kernel"] = expected.kernel
    return [
        f"sanitizer {name}: expected {wanted}, found {'none' if found is None else found}"
        for name, found in seen.items()
        if (wanted := getattr(expected, name)) not in {None, found}
    ]


def _names(declared: str, function: str) -> bool:
    """Whether a function is the declared one: by its bare name, or if more is declared, by any whole part."""
    if re.fullmatch(r"\w+", declared):
        return short_name(function) == declared
    return re.search(rf"(?<!\w){re.escape(declared)}(?!\w)", function) is not None


def judge_fixed(expected: Expectation, found: SanitizerReport, result: TrialResult, seen: Observation) -> Judgement:
    """As expected if the tool came to its end, counted and printed no error, and the script does what fixed must do."""
    if found.summary is None:
        return _no_report(found)
    others = [sentence(finding) for finding in found.findings if finding.kind is not Kind.TOOL]
    if others:
        wrong = tuple(f"{found.tool}: expected no findings, found {other}" for other in others)
        return Judgement(Outcome.OTHERWISE, wrong)
    if found.findings:
        return Judgement(Outcome.INFRA, infra=f"{found.tool} may have missed something: {found.findings[0].title}")
    if found.summary.errors:
        counted = f"{found.tool}: expected no errors, its summary counts {found.summary.errors}"
        return Judgement(Outcome.OTHERWISE, (counted,))
    return judge(expected, result, seen)


def _no_report(found: SanitizerReport) -> Judgement:
    return Judgement(Outcome.INFRA, infra=found.missing or f"{found.tool} did not come to its end")


def settled(decision: Decision, trials: Sequence[Trial], sanitized: Sequence[Trial]) -> Decision:
    """Return the verdict after the sanitized trials. They can only change a verdict that would be confirmed."""
    if not sanitized:
        return decision
    verdict, headline = decision.verdict, decision.reasons[0]
    if verdict is Verdict.CONFIRMED:
        verdict, headline = _lowered(trials, sanitized) or (verdict, headline)
    rest = [line for line in decision.reasons if line != headline]
    return decision._replace(verdict=verdict, reasons=(headline, *rest, *_details(sanitized)))


def _lowered(trials: Sequence[Trial], sanitized: Sequence[Trial]) -> tuple[Verdict, str] | None:
    tool = sanitized[0].instrument
    for trial in sanitized:
        if trial.outcome is Outcome.INFRA:
            return Verdict.INCONCLUSIVE, f"Nothing can be said of what {tool} finds: {trial.infra}."
    for variant in Variant:
        own = [trial for trial in sanitized if trial.variant is variant]
        other = [trial for trial in own if trial.outcome is not Outcome.AS_EXPECTED]
        if not own:
            return Verdict.INCONCLUSIVE, f"Nothing can be said of what {tool} finds: {variant} was not run under it."
        if other:
            return _against(variant, other, trials)
    return None


def _against(variant: Variant, other: Sequence[Trial], trials: Sequence[Trial]) -> tuple[Verdict, str]:
    tool = other[0].instrument
    findings = [finding for trial in other if trial.sanitizer for finding in trial.sanitizer.findings]
    found = next((finding for finding in findings if finding.kind is not Kind.TOOL), None)
    if variant is Variant.FIXED:
        reason = f"{tool} finds {sentence(found)}" if found else other[0].mismatches[0]
        return Verdict.FIX_FAILS, f"The fix does not hold under {tool}: {reason}."
    if found:
        return Verdict.WRONG_FAILURE, f"Not the finding that is declared: in repro {tool} finds {sentence(found)}."
    if any(trial.observation.failed for trial in trials if trial.variant is Variant.REPRO):
        return Verdict.WRONG_FAILURE, f"The failure is there, but {tool} finds nothing in repro."
    return Verdict.NOT_REPRODUCED, f"Does not reproduce: {tool} finds nothing in repro."


def _details(sanitized: Sequence[Trial]) -> Iterator[str]:
    for trial in sanitized:
        under = f"{trial.variant} under {trial.instrument}"
        if trial.outcome is Outcome.INFRA:
            yield f"{under}: not counted: {trial.infra}"
        elif trial.outcome is Outcome.OTHERWISE:
            yield from (f"{under}: {line}" for line in trial.mismatches)
