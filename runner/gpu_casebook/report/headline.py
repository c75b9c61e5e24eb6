"""The first line of a report, and what the terminal shows of a run. Pure.

For a GPU fault the headline says what happened, in which kernel, and where it showed: this replaces the "how it fails"
part of the verdict's own headline. Phrases for CUDA errors are here; those for what compute-sanitizer found are in
`gpu_casebook.reading.findings`, those for how a trial ended in `gpu_casebook.judging`.
"""

import re
from collections.abc import Iterator, Sequence

from gpu_casebook.evidence import Evidence, Observation, Trial, Variant
from gpu_casebook.reading import cuda_errors
from gpu_casebook.reading.findings import BAD_ACCESS, Finding, Tool, alike, brief, telling
from gpu_casebook.report.markdown import Markdown, code, with_names
from gpu_casebook.report.words import cautions
from gpu_casebook.run.probes.launch_blocking import Effect, LaunchBlockingProbe, SourceLine, effect, failing, surfaced
from gpu_casebook.run.probes.sanitizer import SanitizerProbe
from gpu_casebook.text import one_line

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


class Code(str):
    """A piece that is code: a span of its own in Markdown, as it is in the terminal."""

    __slots__ = ()


Span = str | Code


def headline(run: Evidence) -> list[Span]:
    """The report's first line, in pieces. What the verdict said, unless it is about a GPU fault that reproduces."""
    said = run.reasons[0] if run.reasons else ""
    match = _HEADLINE.fullmatch(said)
    fault = list(_fault(run, match["how"])) if match else []
    return [f"{match['rate']}: ", *fault, f"; {match['fix']}"] if match and fault else [said]


def plain(spans: Sequence[Span]) -> str:
    return "".join(spans)


def markdown(spans: Sequence[Span]) -> Markdown:
    return Markdown("".join(code(span) if isinstance(span, Code) else with_names(span) for span in spans))


def summary(run: Evidence) -> list[str]:
    """What the terminal shows at the end: the verdict and its headline, other reasons, and what lowers the worth."""
    first = f"{run.verdict}: {run.case.id}, environment {run.environment.name} on {run.device}"
    drift = [f"drift: {line}" for line in run.environment.drift[:DRIFT_SHOWN]]
    if len(run.environment.drift) > DRIFT_SHOWN:
        drift.append(f"drift: {len(run.environment.drift) - DRIFT_SHOWN} more, which the report lists")
    details = [plain(headline(run)), *run.reasons[1:], *cautions(run.environment), *drift]
    return [one_line(first, LINE_LIMIT), *(f"  {one_line(line, LINE_LIMIT)}" for line in details)]


def _fault(run: Evidence, how: str) -> Iterator[Span]:
    """How it fails; nothing where neither a CUDA error nor a finding says more than the verdict does."""
    trial, (tool, found) = failing(run.trials), finding_of(run)
    if trial:
        yield from _error(trial.observation, found)
        yield from _assertion(trial)
        yield from _place(run, trial)
    elif found and tool:
        yield "no error shows" if how.startswith(_SILENT) else how
        yield f", and {tool} finds "
        yield from _marked(found)


def finding_of(run: Evidence) -> tuple[Tool | None, Finding | None]:
    """What is most telling of all that compute-sanitizer found in repro; what the case declares comes first.

    What it found in fixed as well is left out: both have it, and only one fails.
    """
    probes = [probe for probe in run.probes if isinstance(probe, SanitizerProbe)]
    reports = [trial.sanitizer for trial in run.sanitized if trial.sanitizer and trial.variant is Variant.REPRO]
    reports += [probe.report for probe in probes if probe.variant is Variant.REPRO]
    harmless = [found for probe in probes if probe.variant is Variant.FIXED for found in probe.report.findings]
    for report in reports:
        if report.declared is not None:
            return report.tool, report.findings[report.declared]
        found = telling([its for its in report.findings if not any(alike(its, other) for other in harmless)])
        if found:
            return report.tool, found
    return None, None


def _error(seen: Observation, found: Finding | None) -> Iterator[Span]:
    name = seen.cuda_error or ""
    words = _WORDS.get(name)
    yield words or Code(name)
    if found is None:
        if words:
            yield from (" (", Code(name), ")")
    elif found.kind in BAD_ACCESS and found.kernel_name:
        yield from (" in ", Code(found.kernel_name), f", {brief(found)}")
    else:
        yield f": {found.tool} finds "
        yield from _marked(found)


def _marked(found: Finding) -> Iterator[Span]:
    """The finding in a few words, with the kernel's name as code."""
    words, name = brief(found), found.kernel_name
    if found.kind in BAD_ACCESS:
        yield from (words, " in ", Code(name)) if name else (words,)
    elif name and re.search(rf"\b{re.escape(name)}\b", words):
        before, after = re.split(rf"\b{re.escape(name)}\b", words, maxsplit=1)
        yield from (before, Code(name), after)
    else:
        yield words


def _assertion(trial: Trial) -> Iterator[Span]:
    found = cuda_errors.find_assertion(f"{trial.stdout}\n{trial.stderr}")
    if found:
        its = "" if trial.observation.cuda_error == "cudaErrorAssert" else "after a device-side assertion "
        yield from (f", {its}", Code(one_line(found.condition, _SHORT)), f" at {found.place.rpartition('/')[2]}")


def _place(run: Evidence, trial: Trial) -> Iterator[Span]:
    probe = next((probe for probe in run.probes if isinstance(probe, LaunchBlockingProbe)), None)
    became = effect(probe) if probe else None
    at = surfaced(trial.stderr)
    if at and became is not Effect.SAME_LINE:
        yield "; surfaced at "
        yield from _line(at)
    elif at:
        yield "; raised at "
        yield from _line(at)
    elif trial.observation.signal:
        yield f"; ends in {trial.observation.signal}"
    if probe and became is Effect.MOVED and probe.launched:
        yield ", launched at "
        yield from _line(probe.launched)
    if became is Effect.GONE:
        yield from ("; gone with ", Code("CUDA_LAUNCH_BLOCKING=1"), ", so it is a matter of timing")


def _line(at: SourceLine) -> Iterator[Span]:
    place = f"{at.file}:{at.line}"
    text = re.split(r"\s{2}#\s", at.text or "")[0]
    yield from (Code(one_line(text, _SHORT)), f" ({place})") if text else (place,)
