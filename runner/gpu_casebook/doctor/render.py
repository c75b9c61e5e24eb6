"""Shortcomings as lines for a person, and as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from gpu_casebook.doctor.facts import Facts, Need
from gpu_casebook.doctor.rules import Shortcoming
from gpu_casebook.errors import Severity

_ABOUT_SHOWN = 3


def lines(facts: Facts, needs: Sequence[Need], findings: Sequence[Shortcoming]) -> Iterator[str]:
    """What is here, then two lines for each finding: what is wrong, and what fixes it; then how many there are."""
    yield f"Python {facts.python}; uv {facts.uv or 'not installed'}; {_docker(facts)}; {_gpus(facts)}"
    for finding in findings:
        yield f"{finding.severity + ':':<8} {_about(finding.about)}{finding.what}"
        yield f"    fix: {finding.fix}"
    yield f"{_looked_at(needs)}: {_counted(findings)}"


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


def _looked_at(needs: Sequence[Need]) -> str:
    return f"{len(needs)} environment{'s' * (len(needs) != 1)} looked at"


def _counted(findings: Sequence[Shortcoming]) -> str:
    counts = [(severity, sum(each.severity is severity for each in findings)) for severity in Severity]
    return ", ".join(f"{count} {severity}{'s' * (count != 1)}" for severity, count in counts if count) or "all is well"


def as_json(facts: Facts, needs: Sequence[Need], findings: Sequence[Shortcoming]) -> str:
    """Everything, for programs."""
    table = {
        "facts": asdict(facts),
        "environments": [asdict(need) | {"spec": need.spec.model_dump(mode="json")} for need in needs],
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(table, indent=1)
