"""What was planned, found and seen -> Evidence."""

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.evidence import (
    Attestation,
    CaseFacts,
    Durations,
    EngineFacts,
    EnvironmentFacts,
    Evidence,
    LaunchBlockingProbe,
    SanitizerProbe,
    Trial,
    UpstreamFacts,
    Variant,
)
from gpu_casebook.judging.decision import decide
from gpu_casebook.judging.expectation import lines
from gpu_casebook.judging.sanitized import settled, signature
from gpu_casebook.manifest.case import MANIFEST, Case
from gpu_casebook.revision import SEMANTICS, own_revision
from gpu_casebook.run.plan import Plan


@dataclass(frozen=True)
class Place:
    """A prepared environment and what was found in it."""

    prepared: Prepared
    lock: str
    attestation: Attestation
    drift: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that one run of a case gave. `places` has the environment of each variant, often the same."""

    plan: Plan
    places: Mapping[Variant, Place]
    trials: Sequence[Trial]
    sanitized: Sequence[Trial] = ()
    probes: Sequence[SanitizerProbe | LaunchBlockingProbe] = ()
    started: datetime
    durations: Durations


def evidence(record: Record, engine: Engine) -> Evidence:
    """Judge the trials, and put everything into one document."""
    plan = record.plan
    decision = settled(decide(record.trials, plan.terms), record.trials, record.sanitized)
    return Evidence(
        case=case_facts(plan.case, plan.environment),
        environment=_environment_facts(plan, record.places),
        engine=EngineFacts(
            name=engine.name.value,
            version=engine.version,
            isolation=list(engine.isolation),
            gpu_access=engine.gpu_access() if plan.gpus else None,
            image=record.places[Variant.REPRO].prepared.image,
        ),
        verdict=decision.verdict,
        reasons=list(decision.reasons),
        rates=decision.rates,
        demand=decision.demand,
        trials=list(record.trials),
        sanitized=list(record.sanitized),
        probes=list(record.probes),
        started=record.started,
        durations=record.durations,
        command=plan.command(engine.name),
        runner=own_revision(),
        semantics=SEMANTICS,
    )


def case_facts(case: Case, environment: str) -> CaseFacts:
    """The part of the manifest and scripts that a report shows."""
    manifest = case.manifest
    return CaseFacts(
        id=manifest.id,
        title=manifest.title,
        failure=manifest.failure.value,
        provenance=manifest.provenance.value,
        upstream=UpstreamFacts(**manifest.upstream.model_dump()),
        signature=_signature(case, environment),
        fix_diff=fix_diff(case),
        digest=digest(case),
    )


def _signature(case: Case, environment: str) -> dict[Variant, list[str]]:
    declared = case.expectation(environment, Variant.REPRO).sanitizer
    return {
        variant: [*lines(case.expectation(environment, variant)), *signature(declared, variant)] for variant in Variant
    }


def fix_diff(case: Case) -> str:
    """Unified diff from repro.py to fixed.py."""
    before, after = (case.script(variant) for variant in (Variant.REPRO, Variant.FIXED))
    texts = [path.read_text(encoding="utf-8").splitlines(keepends=True) for path in (before, after)]
    return "".join(difflib.unified_diff(texts[0], texts[1], before.name, after.name))


def payload(directory: Path) -> dict[str, bytes]:
    """What a trial gets to see of a case: everything but the manifest, the locks and the README."""
    found = (path for path in sorted(directory.rglob("*")) if path.is_file())
    inside = {path.relative_to(directory): path for path in found}
    return {
        relative.as_posix(): path.read_bytes()
        for relative, path in inside.items()
        if relative.name not in {MANIFEST, "README.md"} and not {"locks", "__pycache__"} & set(relative.parts)
    }


def digest(case: Case) -> str:
    """sha256 over the manifest and all that a trial gets to see."""
    total = hashlib.sha256((case.directory / MANIFEST).read_bytes())
    for name, content in payload(case.directory).items():
        total.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def _environment_facts(plan: Plan, places: Mapping[Variant, Place]) -> EnvironmentFacts:
    spec, case = plan.spec, plan.case
    locks = {case.lock_path(plan.environment, variant).name: places[variant].lock for variant in Variant}
    own = {Variant.REPRO: case.manifest.repro.requirements, Variant.FIXED: case.manifest.fixed.requirements}
    return EnvironmentFacts(
        name=plan.environment,
        grade=spec.grade,
        image=spec.image,
        python=spec.python,
        requirements=spec.requirements,
        variant_requirements={variant: requirements for variant, requirements in own.items() if requirements},
        locks={name: hashlib.sha256(text.encode()).hexdigest() for name, text in locks.items()},
        attestation=places[Variant.REPRO].attestation,
        drift=_drift(places),
    )


def _drift(places: Mapping[Variant, Place]) -> list[str]:
    if places[Variant.REPRO] is places[Variant.FIXED]:
        return list(places[Variant.REPRO].drift)
    return [f"{variant}: {line}" for variant in Variant for line in places[variant].drift]
