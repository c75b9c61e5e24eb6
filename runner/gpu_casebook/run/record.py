"""What was planned, found and seen -> Evidence; and what is really installed against what the lock says. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
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


def evidence(
    plan: Plan,
    engine: Engine,
    places: Mapping[Variant, AttestedEnvironment],
    *,
    trials: Sequence[Trial],
    sanitized: Sequence[Trial],
    probes: Sequence[ProbeRecord],
    started: datetime,
    durations: Durations,
) -> Evidence:
    """Judge the trials, and put everything into one document. `places` has what each variant ran in."""
    decision = settled(decide(trials, plan.terms), trials, sanitized)
    return Evidence(
        case=case_facts(plan.case, plan.environment),
        environment=_environment_facts(plan, places),
        engine=EngineFacts(
            name=engine.name,
            version=engine.version,
            isolation=list(engine.isolation),
            gpu_access=engine.gpu_access() if plan.gpus else None,
            image=places[Variant.REPRO].prepared.image,
        ),
        verdict=decision.verdict,
        reasons=list(decision.reasons),
        rates=decision.rates,
        demand=decision.demand,
        trials=list(trials),
        sanitized=list(sanitized),
        probes=list(probes),
        started=started,
        durations=durations,
        command=plan.command(engine.name),
        runner=own_revision(),
        semantics=SEMANTICS,
    )


def case_facts(case: Case, environment: str) -> CaseFacts:
    """Return the part of the manifest and scripts that a report shows."""
    manifest = case.manifest
    expected = {variant: case.expectation(environment, variant) for variant in Variant}
    declared = expected[Variant.REPRO].sanitizer
    return CaseFacts(
        id=manifest.id,
        title=manifest.title,
        failure=manifest.failure.value,
        provenance=manifest.provenance.value,
        upstream=UpstreamFacts(**manifest.upstream.model_dump()),
        signature={variant: [*lines(each), *signature(declared, variant)] for variant, each in expected.items()},
        fix_diff=case.fix_diff(),
        digest=case.digest(),
    )


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
    """Parse what attest.py printed, ignoring what an image's start-up printed around it. Raises EngineError."""
    for line in reversed(stdout.splitlines()):
        if line.startswith("{"):
            try:
                return Attestation.model_validate_json(line)
            except ValidationError as error:
                why = error.errors()[0]["msg"]
                raise EngineError(f"the environment can't be inspected: its attestation is broken: {why}") from None
    raise EngineError("the environment can't be inspected: it printed no attestation")


def drift(lock_text: str, python: str, attestation: Attestation) -> list[str]:
    """Return the differences of what was found from what is locked, one line each. Empty means exact."""
    found: dict[str, str] = {canonicalize_name(name): version for name, version in attestation.packages.items()}
    differences = [_difference(locked, found.get(locked.name)) for locked in read_lock(lock_text).pins]
    if not attestation.python.startswith(f"{python}."):
        differences.insert(0, f"Python: {python} declared, {attestation.python} found")
    return list(filter(None, differences))


def _difference(locked: Pin, found: str | None) -> str | None:
    if found is None:
        return f"{locked.name}: {locked.version} locked, none found"
    if same_version(locked.version, found):
        return None
    build = ", another build of it" if same_version(locked.version, found.split("+")[0]) else ""
    return f"{locked.name}: {locked.version} locked, {found} found{build}"
