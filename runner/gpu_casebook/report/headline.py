"""The first line of a report, and what the terminal shows of a run. Pure.

For a GPU fault the headline says what happened, and where it showed: this replaces the "how it fails" part of the
verdict's own headline. It is the fault of an ordinary trial: what compute-sanitizer found is told of it only where the
case declares that, or where both come of one launch. Where no CUDA error shows, an undeclared finding stands after what
is declared. Phrases for CUDA errors are here; those for what it found are in `failure_signature.reading.findings`,
those for how a trial ended in `failure_signature.judging`.
"""

import math
import re

from failure_signature.judging.description import SourceLine, failing, surfaced
from failure_signature.kinds import Variant
from failure_signature.reading import cuda_errors
from failure_signature.reading.findings import BAD_ACCESS, Finding, alike, brief, telling
from failure_signature.statistics import left_open
from failure_signature.text import one_line
from failure_signature.trials import Observation, Outcome, SanitizerReport, Trial, Verdict
from gpu_casebook.evidence import Evidence, SanitizerProbe
from gpu_casebook.report.figures import same_figures
from gpu_casebook.report.markdown import Markdown, code, with_names
from gpu_casebook.report.worth import cautions
from gpu_casebook.run.probes import Words, words

_HEADLINE = re.compile(r"(?P<rate>Reproduces in [^:]+): (?P<how>.*); (?P<fix>[^;]*\.)")
_SILENT = ("exit status 0", "ran to its end")
_SHORT = 100
LINE_LIMIT = 400
DRIFT_SHOWN = 5
_WORDS = {
    "cudaErrorIllegalAddress": "illegal memory access",
    "cudaErrorMisalignedAddress": "misaligned address",
    "cudaErrorAssert": "device-side assertion that does not hold",
    "cudaErrorLaunchFailure": "unspecified launch failure",
    "cudaErrorMemoryAllocation": "out of device memory",
    "cudaErrorInvalidConfiguration": "invalid launch configuration",
    "cudaErrorLaunchTimeout": "launch timeout",
    "cudaErrorHardwareStackError": "stack overflow on the device",
    "cudaErrorIllegalInstruction": "illegal instruction",
}


# Stands before and after what is code in a headline, such as a kernel's name. Removed from what programs printed.
_MARK = "\0"


def headline(run: Evidence) -> str:
    """Return the report's first line, for `plain` or `markdown`: the verdict's, unless a GPU fault reproduces."""
    said = plain(run.reasons[0]) if run.reasons else ""
    match = _HEADLINE.fullmatch(said)
    if not match:
        return said
    fix, clean = match["fix"], run.rates[Variant.FIXED].n if Variant.FIXED in run.rates else 0
    if run.verdict is Verdict.CONFIRMED and clean > 0:
        fix = f"{fix.removesuffix('.')} ({_left_open(run, clean)})."
    return f"{match['rate']}: {_fault(run, match['how']) or match['how']}; {fix}"


def _left_open(run: Evidence, clean: int) -> str:
    """Return what clean runs of fixed do not rule out, and whether the runs of a variant gave the very same figures."""
    share = f"fails in at most {math.ceil(100 * left_open(clean))} % of runs at 95 % confidence"
    same = same_figures([trial for trial in run.trials if trial.outcome is Outcome.AS_EXPECTED])
    return f"{share}; figures equal to the last digit" if same else share


def plain(line: str) -> str:
    """Return a headline as the terminal shows it."""
    return line.replace(_MARK, "")


def markdown(line: str) -> Markdown:
    """Return a headline as a page shows it: what is code there is code here."""
    parts = line.split(_MARK)
    return Markdown("".join(code(part) if at % 2 else with_names(part) for at, part in enumerate(parts)))


def _code(text: str) -> str:
    return f"{_MARK}{plain(text)}{_MARK}"


def summary(run: Evidence) -> list[str]:
    """Return what the terminal shows: verdict, headline, other reasons, what makes the evidence worth less."""
    first = f"{run.verdict}: {run.case.id}, environment {run.environment.name} on {run.device}"
    relevant = len(run.environment.relevant_drift)
    shown = enumerate(run.environment.drift[:DRIFT_SHOWN])
    drift = [f"{'drift' if at < relevant else 'drift aside'}: {line}" for at, line in shown]
    if len(run.environment.drift) > DRIFT_SHOWN:
        drift.append(f"drift: {len(run.environment.drift) - DRIFT_SHOWN} more, which the report lists")
    details = [plain(headline(run)), *run.reasons[1:], *cautions(run), *drift]
    return [one_line(first, LINE_LIMIT), *(f"  {one_line(line, LINE_LIMIT)}" for line in details)]


def _fault(run: Evidence, how: str) -> str:
    """Return how it fails; empty if neither a CUDA error nor a finding says more than the verdict does."""
    trial, found = failing(run.trials), finding_of(run)
    if trial:
        told = found if found and _of_one_launch(run, found) else None
        return f"{_error(trial.observation, told)}{_assertion(trial)}{_place(run, trial)}"
    if found:
        shows = "no error shows" if how.startswith(_SILENT) and _is_declared(run) else how
        return f"{shows}, and {found.tool} finds {_marked(found)}"
    return ""


def _of_one_launch(run: Evidence, found: Finding) -> bool:
    """Return whether a finding is declared, or was launched at the line where launch blocking has the error."""
    if _is_declared(run):
        return True
    at = next((said.launched for said in map(words, run.probes) if said.launched), None)
    inside = [frame for frame in found.host_frames if at and f" in {at.file}:" in frame]
    return bool(at and inside and inside[0].endswith(f" in {at.file}:{at.line}"))


def _is_declared(run: Evidence) -> bool:
    return any(report.declared is not None for report in _reports(run))


def _reports(run: Evidence) -> list[SanitizerReport]:
    return [trial.sanitizer for trial in run.sanitized if trial.sanitizer and trial.variant is Variant.REPRO]


def finding_of(run: Evidence) -> Finding | None:
    """Return the most telling finding of compute-sanitizer in repro; one that the case declares comes first.

    What it found in fixed as well is left out: both have it, and only one fails.
    """
    probes = [probe for probe in run.probes if isinstance(probe, SanitizerProbe)]
    reports = _reports(run)
    reports += [probe.report for probe in probes if probe.variant is Variant.REPRO]
    harmless = [found for probe in probes if probe.variant is Variant.FIXED for found in probe.report.findings]
    for report in reports:
        if report.declared is not None:
            return report.findings[report.declared]
        found = telling([its for its in report.findings if not any(alike(its, other) for other in harmless)])
        if found:
            return found
    return None


def _error(seen: Observation, found: Finding | None) -> str:
    name = seen.cuda_error or ""
    words = _WORDS.get(name)
    if found is None:
        return f"{words} ({_code(name)})" if words else _code(name)
    if found.kind in BAD_ACCESS and found.kernel_name:
        return f"{words or _code(name)} in {_code(found.kernel_name)}, {brief(found)}"
    return f"{words or _code(name)}: {found.tool} finds {_marked(found)}"


def _marked(found: Finding) -> str:
    """Return the finding in a few words, with the kernel's name as code."""
    words, name = brief(found), found.kernel_name
    if not name:
        return words
    if found.kind in BAD_ACCESS:
        return f"{words} in {_code(name)}"
    return re.sub(rf"\b{re.escape(name)}\b", lambda match: _code(match[0]), words, count=1)


def _assertion(trial: Trial) -> str:
    found = cuda_errors.find_assertion(f"{trial.stdout}\n{trial.stderr}")
    if not found:
        return ""
    after = "" if trial.observation.cuda_error == "cudaErrorAssert" else "after a device-side assertion "
    return f", {after}{_code(one_line(found.condition, _SHORT))} at {found.place.rpartition('/')[2]}"


def _place(run: Evidence, trial: Trial) -> str:
    said = next((said for said in map(words, run.probes) if said.launched or said.gone_with), Words())
    text = ""
    if at := surfaced(trial.stderr):
        text = f"; {'raised' if said.raised else 'surfaced'} at {_line(at)}"
    elif trial.observation.signal:
        text = f"; ends in {trial.observation.signal}"
    if said.moved and said.launched:
        text += f", launched at {_line(said.launched)}"
    if said.gone_with:
        text += f"; gone with {_code(said.gone_with)}, so it is a matter of timing"
    return text


def _line(at: SourceLine) -> str:
    place = f"{at.file}:{at.line}"
    text = re.split(r"\s{2}#\s", at.text or "")[0]
    return f"{_code(one_line(text, _SHORT))} ({place})" if text else place
