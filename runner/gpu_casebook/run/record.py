"""What was planned, found and seen -> Evidence; and what is really installed against what the lock says. Pure."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import (
    Attestation,
    CaseFacts,
    Durations,
    EngineFacts,
    EnvironmentFacts,
    Evidence,
    ProbeRecord,
    Trial,
    UpstreamFacts,
    Variant,
)
from gpu_casebook.judging.decision import decide
from gpu_casebook.judging.expectation import lines
from gpu_casebook.judging.sanitized import settled, signature
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages.lock import Pin, read_lock, same_version
from gpu_casebook.revision import SEMANTICS, own_revision
from gpu_casebook.run.plan import Plan


@dataclass(frozen=True)
class AttestedEnvironment:
    """A prepared environment and what was found in it."""

    prepared: Prepared
    lock: str
    attestation: Attestation
    drift: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """All that one run of a case gave. `places` has the environment of each variant, often the same."""

    plan: Plan
    places: Mapping[Variant, AttestedEnvironment]
    trials: Sequence[Trial]
    sanitized: Sequence[Trial] = ()
    probes: Sequence[ProbeRecord] = ()
    started: datetime
    durations: Durations


def evidence(record: RunRecord, engine: Engine) -> Evidence:
    """Judge the trials, and put everything into one document."""
    plan = record.plan
    decision = settled(decide(record.trials, plan.terms), record.trials, record.sanitized)
    return Evidence(
        case=case_facts(plan.case, plan.environment),
        environment=_environment_facts(plan, record.places),
        engine=EngineFacts(
            name=engine.name,
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
        fix_diff=case.fix_diff(),
        digest=case.digest(),
    )


def _signature(case: Case, environment: str) -> dict[Variant, list[str]]:
    declared = case.expectation(environment, Variant.REPRO).sanitizer
    return {
        variant: [*lines(case.expectation(environment, variant)), *signature(declared, variant)] for variant in Variant
    }


def _environment_facts(plan: Plan, places: Mapping[Variant, AttestedEnvironment]) -> EnvironmentFacts:
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


def _drift(places: Mapping[Variant, AttestedEnvironment]) -> list[str]:
    if places[Variant.REPRO] is places[Variant.FIXED]:
        return list(places[Variant.REPRO].drift)
    return [f"{variant}: {line}" for variant in Variant for line in places[variant].drift]


def attestation(stdout: str) -> Attestation:
    """What attest.py printed, whatever else an image's start-up printed around it. Raises EngineError."""
    for line in reversed(stdout.splitlines()):
        if line.startswith("{"):
            try:
                return Attestation.model_validate_json(line)
            except ValidationError as error:
                why = error.errors()[0]["msg"]
                raise EngineError(
                    f"the environment can't be inspected: what it tells of itself is broken: {why}"
                ) from None
    raise EngineError("the environment can't be inspected: it told nothing of itself")


def drift(lock_text: str, python: str, attestation: Attestation) -> list[str]:
    """Each difference of what is there from what is locked, one line each. Empty means exact."""
    found: dict[str, str] = {canonicalize_name(name): version for name, version in attestation.packages.items()}
    lines = (
        []
        if attestation.python.startswith(f"{python}.")
        else [f"Python: {python} declared, {attestation.python} found"]
    )
    return lines + [
        line for locked in read_lock(lock_text).pins for line in _difference(locked, found.get(locked.name))
    ]


def _difference(locked: Pin, found: str | None) -> Iterator[str]:
    if found is None:
        yield f"{locked.name}: {locked.version} locked, none found"
    elif not same_version(locked.version, found):
        build = ", another build of it" if same_version(locked.version, found.split("+")[0]) else ""
        yield f"{locked.name}: {locked.version} locked, {found} found{build}"
