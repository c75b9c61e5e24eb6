"""Shortcomings as lines for a person."""

from collections import Counter
from collections.abc import Iterator, Sequence

from casebook_workbench.doctor.facts import Facts, Need
from casebook_workbench.doctor.rules import Shortcoming
from failure_signature.text import plural
from gpu_casebook.errors import Severity

_ABOUT_SHOWN = 3


def lines(facts: Facts, needs: Sequence[Need], findings: Sequence[Shortcoming]) -> Iterator[str]:
    """Yield a line on what is here, two on each finding (what is wrong, and what fixes it), and one of counts."""
    yield f"Python {facts.python}; uv {facts.uv}; {_docker(facts)}; {_gpus(facts)}"
    for finding in findings:
        yield f"{finding.severity + ':':<8} {_about(finding.about)}{finding.what}"
        yield f"    fix: {finding.fix}"
    counts = Counter(finding.severity for finding in findings)
    found = [plural(counts[severity], severity) for severity in Severity if counts[severity]]
    yield f"{plural(len(needs), 'environment')} looked at: {', '.join(found) or 'all is well'}"


def _docker(facts: Facts) -> str:
    docker = facts.docker
    if not docker.there:
        return "no Docker"
    way = f", GPUs by {docker.gpu_mode}" if docker.gpu_mode else ""
    return f"Docker {docker.version}{'' if docker.local else ' on another machine'}{way}"


def _gpus(facts: Facts) -> str:
    names = [f"{gpu.name} ({gpu.compute_capability})" for gpu in facts.gpus]
    return f"{', '.join(names)}, driver {facts.driver}" if names else "no GPU"


def _about(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = len(names) - _ABOUT_SHOWN
    return f"{', '.join(names[:_ABOUT_SHOWN])}{f' and {more} more' if more > 0 else ''}: "
