"""What was planned, found and seen -> Evidence. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from failure_signature.expectation import SanitizerFinding
from failure_signature.judging.decision import Decision
from failure_signature.judging.outcome import Judgement, lines
from failure_signature.kinds import Variant
from failure_signature.reading.findings import EXECUTABLE
from failure_signature.result import TrialResult
from failure_signature.trials import Observation, SanitizerReport, Trial, Xid
from gpu_casebook.engines.base import Engine
from gpu_casebook.evidence import (
    CaseFacts,
    Durations,
    EngineFacts,
    EnvironmentFacts,
    Evidence,
    ProbeRecord,
    Sharing,
    UpstreamFacts,
)
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages.lock import pins
from gpu_casebook.revision import SEMANTICS
from gpu_casebook.run.attesting import AttestedEnvironment, Loaded, by_relevance, drift
from gpu_casebook.run.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a run found out. `places` has what each variant ran in."""

    places: Mapping[Variant, AttestedEnvironment]
    trials: Sequence[Trial]
    sharing: Sharing | None
    loaded: Mapping[Variant, Loaded]
    sanitized: Sequence[Trial]
    decision: Decision
    probes: Sequence[ProbeRecord]


def evidence(
    plan: Plan, engine: Engine, found: Findings, *, started: datetime, durations: Durations, runner: str
) -> Evidence:
    """Put everything into one document."""
    places, decision = found.places, found.decision
    return Evidence(
        case=case_facts(plan.case, plan.environment),
        environment=_environment_facts(plan, places, found.loaded),
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
        trials=list(found.trials),
        sharing=found.sharing,
        short=plan.trials < plan.case.manifest.trials,
        sanitized=list(found.sanitized),
        probes=list(found.probes),
        started=started,
        durations=durations,
        command=plan.command(engine.name),
        runner=runner,
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
        signature={variant: [*lines(each), *sanitizer_lines(declared, variant)] for variant, each in expected.items()},
        fix_diff=case.fix_diff(),
        because=manifest.because,
        digest=case.digest(),
    )


def _environment_facts(
    plan: Plan, places: Mapping[Variant, AttestedEnvironment], loaded: Mapping[Variant, Loaded]
) -> EnvironmentFacts:
    spec, case = plan.spec, plan.case
    locks = {case.lock_path(plan.environment, variant).name: places[variant].recipe.lock for variant in Variant}
    own = {Variant.REPRO: case.manifest.repro.requirements, Variant.FIXED: case.manifest.fixed.requirements}
    repro, fixed = (places[variant] for variant in Variant)
    pinned = pins([*spec.requirements, *chain(*own.values())])
    relevant, aside = by_relevance(drift(plan, places, loaded), own=pinned)
    return EnvironmentFacts(
        name=plan.environment,
        grade=spec.grade,
        image=spec.image,
        python=spec.python,
        requirements=spec.requirements,
        variant_requirements={variant: requirements for variant, requirements in own.items() if requirements},
        sources={each: list(files) for each in Variant if (files := case.sources(plan.environment, each))},
        build=list(spec.special.build),
        without_dependencies=list(spec.special.without_dependencies),
        only_files=list(spec.special.only),
        variables=spec.variables,
        locks={name: hashlib.sha256(text.encode()).hexdigest() for name, text in locks.items()},
        attestation=repro.attestation,
        fixed_attestation=None if fixed is repro else fixed.attestation,
        loaded={variant: sorted(seen.libraries) for variant, seen in loaded.items() if seen.libraries},
        drift=[*relevant, *aside],
        aside=len(aside),
    )


def sanitizer_lines(declared: SanitizerFinding | None, variant: Variant) -> list[str]:
    """Return what a variant must show under the tool, as a line "compute-sanitizer: ..."; none if none is declared."""
    if declared is None:
        return []
    named = {"": declared.kind, "access ": declared.access, "size ": declared.size, "kernel ": declared.kernel}
    finding = ", ".join(f"{key}{value}" for key, value in named.items() if value is not None)
    return [f"{EXECUTABLE}: {declared.tool} finds {finding if variant is Variant.REPRO else 'nothing'}"]


def judged(
    variant: Variant,
    number: int,
    result: TrialResult,
    seen: Observation,
    judgement: Judgement,
    *,
    growth: float | None = None,
    xids: Sequence[Xid] = (),
    sanitizer: SanitizerReport | None = None,
) -> Trial:
    """Return the record of one trial."""
    return Trial(
        variant=variant,
        number=number,
        outcome=judgement.outcome,
        mismatches=list(judgement.mismatches),
        infra=judgement.infra,
        growth=growth,
        observation=seen,
        started=result.started,
        duration_s=result.duration_s,
        stdout=result.stdout,
        stderr=result.stderr,
        sanitizer=sanitizer,
        xids=list(xids),
    )


def summary_of(trial: Trial) -> str:
    """Return a trial on one line, for the console."""
    which = f"under {trial.instrument}" if trial.instrument else f"trial {trial.number}"
    reason = trial.infra or next(iter(trial.mismatches), "")
    outcome = f"{trial.variant} {which}: {trial.outcome} ({trial.duration_s:.1f} s)"
    return f"{outcome}: {reason}" if reason else outcome
