"""The pipeline: case -> environment -> engine -> trials -> verdict -> evidence."""

import difflib
import hashlib
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from runner import __version__, hardware
from runner.case import MANIFEST, Case, EnvironmentSpec
from runner.console import Console, Task
from runner.engines.base import Engine, Limits, Prepared, Recipe, TrialRequest
from runner.environment import attestation, drift
from runner.errors import EngineError, MachineError, ManifestError, Problem
from runner.evidence import (
    Attestation,
    CaseFacts,
    Durations,
    EngineFacts,
    EnvironmentFacts,
    Evidence,
    Outcome,
    Trial,
    UpstreamFacts,
    Variant,
    Verdict,
)
from runner.expectation import judge, lines, observe
from runner.verdict import decide

INFRA_RETRIES = 2
"""How often one trial is tried again when the machine, not the case, was to blame."""

ATTEST_LIMITS = Limits(timeout_s=120.0, output_bytes=4 * 2**20)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks for; None is "as the case says"."""

    environment: str | None = None
    engine: str | None = None
    image: str | None = None
    trials: int | None = None
    timeout_s: float | None = None
    gpus: Sequence[int] | None = None
    keep: bool = False


@dataclass(frozen=True)
class Skipped:
    """No environment of the case can run here; `reasons` has one line for each that was looked at."""

    case: str
    reasons: Sequence[str]

    verdict = Verdict.SKIPPED


@dataclass(frozen=True)
class Plan:
    """What will be run, after every choice has been made."""

    case: Case
    environment: str
    gpus: Sequence[int]
    trials: int
    limits: Limits
    options: Options

    @property
    def spec(self) -> EnvironmentSpec:
        return self.case.manifest.environments[self.environment]


@dataclass(frozen=True)
class Place:
    """A prepared environment and what was found in it."""

    prepared: Prepared
    lock: str
    attestation: Attestation
    drift: Sequence[str]


def run_case(case: Case, options: Options, engine: Engine, console: Console) -> Evidence | Skipped:
    """Run one case in one environment. Nothing is written; see `runner.report` for that."""
    plan = make_plan(case, options, engine)
    if isinstance(plan, Skipped):
        return plan
    started, clock = datetime.now(UTC), time.monotonic()
    console.say(f"{case.id} in environment {plan.environment} ({engine.version})")
    with _device_locks(plan, engine, console):
        places = prepare(plan, engine, console)
        prepared_s = time.monotonic() - clock
        reason = _hardware_found_wanting(plan, places[Variant.REPRO].attestation)
        if reason:
            return Skipped(case.id, [f"{plan.environment}: {reason}"])
        trials = run_trials(plan, engine, places, console)
    ended_s = time.monotonic() - clock
    durations = Durations(prepare_s=prepared_s, trials_s=ended_s - prepared_s, total_s=ended_s)
    return assemble(plan, engine, places, trials, started, durations)


def make_plan(case: Case, options: Options, engine: Engine) -> Plan | Skipped:
    """Choose the environment and its GPUs; or say why none can run here.

    Raises UsageError for an environment that the case does not have and MachineError for a GPU that is not there.
    """
    names = [options.environment] if options.environment else list(case.manifest.environments)
    found = hardware.gpus() if engine.local else None
    _check_gpus_are_there(options.gpus, found)
    reasons = []
    for name in names:
        spec = case.environment(name)
        reason = _why_not(spec, found, engine, options.gpus)
        if reason is None:
            return Plan(
                case=case,
                environment=name,
                gpus=tuple(options.gpus if options.gpus is not None else range(spec.gpus))[: spec.gpus],
                trials=options.trials or case.manifest.trials,
                limits=Limits(
                    timeout_s=options.timeout_s or case.manifest.timeout, memory_bytes=case.manifest.memory
                ),
                options=options,
            )
        reasons.append(f"{name}: {reason}")
    return Skipped(case.id, reasons)


def _check_gpus_are_there(wanted: Sequence[int] | None, found: Sequence[hardware.HostGpu] | None) -> None:
    if wanted is None or found is None:
        return
    there = [gpu.index for gpu in found]
    for index in wanted:
        if index not in there:
            listed = ", ".join(map(str, there)) or "none"
            raise MachineError(f"--gpu {index}: no such GPU on this machine (there are: {listed})")


def _why_not(
    spec: EnvironmentSpec,
    found: Sequence[hardware.HostGpu] | None,
    engine: Engine,
    wanted: Sequence[int] | None,
) -> str | None:
    if spec.gpus == 0:
        return None
    if found is not None:
        chosen = [gpu for gpu in found if wanted is None or gpu.index in wanted]
        reason = hardware.meets(spec, chosen)
        if reason:
            return reason
    if engine.gpu_access() is None:
        return f"the {engine.name} engine has no way to a GPU here"
    return None


def _hardware_found_wanting(plan: Plan, found: Attestation) -> str | None:
    """What the environment itself sees may be less than what the host has."""
    if plan.spec.gpus == 0:
        return None
    return hardware.meets(plan.spec, found.gpus)


@contextmanager
def _device_locks(plan: Plan, engine: Engine, console: Console) -> Iterator[None]:
    held = hardware.lock_gpus(plan.gpus, console.say) if plan.gpus and engine.local else nullcontext()
    with held:
        yield


def prepare(plan: Plan, engine: Engine, console: Console) -> dict[Variant, Place]:
    """Make ready what each variant runs in: one place for both unless a release case gives each its own lock."""
    places: dict[str, Place] = {}
    result = {}
    for variant in Variant:
        lock = _read_lock(plan.case, plan.environment, variant)
        if lock not in places:
            places[lock] = _prepare_one(plan, engine, console, lock)
        result[variant] = places[lock]
    return result


def _read_lock(case: Case, environment: str, variant: Variant) -> str:
    path = case.lock_path(environment, variant)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        what = f"there is no lock for environment {environment}; write it: nox -s lock -- {case.id}"
        raise ManifestError([Problem(str(path), 1, "", what)]) from None


def _prepare_one(plan: Plan, engine: Engine, console: Console, lock: str) -> Place:
    spec = plan.spec
    recipe = Recipe(image=spec.image, lock=lock, python=spec.python, use_image=plan.options.image)
    with console.step(f"preparing {plan.options.image or spec.image}") as note:
        prepared = engine.prepare(recipe, note)
        seen = _attest(plan, engine, prepared)
    return Place(prepared, lock, seen, drift(lock, spec.python, seen))


def _attest(plan: Plan, engine: Engine, prepared: Prepared) -> Attestation:
    script = Path(__file__).with_name("attest.py").read_bytes()
    request = TrialRequest(
        files={"attest.py": script}, arguments=["attest.py"], limits=ATTEST_LIMITS, gpus=plan.gpus
    )
    result = engine.run(prepared, request)
    if result.exit_status != 0:
        last = (result.infra or result.stderr.strip() or result.stdout.strip() or "no output").splitlines()[-1]
        raise EngineError(f"the environment can't be inspected: its Python ended with {_ending(result)}: {last}")
    return attestation(result.stdout)


def _ending(result: object) -> str:
    signal = getattr(result, "signal", None)
    return signal or f"exit status {getattr(result, 'exit_status', None)}"


def run_trials(plan: Plan, engine: Engine, places: Mapping[Variant, Place], console: Console) -> list[Trial]:
    """All trials of both variants, each a fresh process."""
    files = payload(plan.case.directory)
    trials: list[Trial] = []
    with console.task(plan.case.id, 2 * plan.trials) as task:
        for variant in Variant:
            request = TrialRequest(
                files=files,
                arguments=[f"{variant.value}.py"],
                limits=plan.limits,
                variables=plan.spec.variables,
                gpus=plan.gpus,
                keep=plan.options.keep,
            )
            trials += _variant_trials(plan, engine, places[variant].prepared, variant, request, task)
    return trials


def _variant_trials(
    plan: Plan, engine: Engine, prepared: Prepared, variant: Variant, request: TrialRequest, task: Task
) -> list[Trial]:
    trials = []
    for number in range(1, plan.trials + 1):
        for _ in range(1 + INFRA_RETRIES):
            trial = _one_trial(plan, engine, prepared, variant, request, number)
            trials.append(trial)
            if trial.outcome is not Outcome.INFRA:
                break
        task.advance(_told(trial))
    return trials


def _one_trial(
    plan: Plan, engine: Engine, prepared: Prepared, variant: Variant, request: TrialRequest, number: int
) -> Trial:
    result = engine.run(prepared, request)
    observation = observe(result)
    judgement = judge(plan.case.expectation(plan.environment, variant), result)
    return Trial(
        variant=variant,
        number=number,
        outcome=judgement.outcome,
        mismatches=list(judgement.mismatches),
        infra=judgement.infra,
        observation=observation,
        duration_s=result.duration_s,
        stdout=result.stdout,
        stderr=result.stderr,
    )


def _told(trial: Trial) -> str:
    why = trial.infra or (trial.mismatches[0] if trial.mismatches else "")
    told = f"{trial.variant} trial {trial.number}: {trial.outcome} ({trial.duration_s:.1f} s)"
    return f"{told}: {why}" if why else told


def payload(directory: Path) -> dict[str, bytes]:
    """What a trial gets to see of a case: everything but the manifest, the locks and the README."""
    left_out = {MANIFEST, "README.md"}
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and path.name not in left_out
        and not {"locks", "__pycache__"} & set(path.relative_to(directory).parts)
    }


def assemble(
    plan: Plan,
    engine: Engine,
    places: Mapping[Variant, Place],
    trials: Sequence[Trial],
    started: datetime,
    durations: Durations,
) -> Evidence:
    """Put everything that was seen into the record."""
    decision = decide(trials, plan.trials)
    return Evidence(
        case=case_facts(plan.case, plan.environment),
        environment=_environment_facts(plan, places),
        engine=EngineFacts(
            name=engine.name.value,
            version=engine.version,
            isolation=list(engine.isolation),
            gpu_access=engine.gpu_access() if plan.gpus else None,
            image=places[Variant.REPRO].prepared.image,
        ),
        verdict=decision.verdict,
        reasons=list(decision.reasons),
        rates=decision.rates,
        trials=list(trials),
        started=started,
        durations=durations,
        command=command(plan, engine),
        runner=__version__,
    )


def case_facts(case: Case, environment: str) -> CaseFacts:
    """The part of the manifest and scripts that a report shows."""
    manifest = case.manifest
    upstream = manifest.upstream
    return CaseFacts(
        id=manifest.id,
        title=manifest.title,
        failure=manifest.failure.value,
        provenance=manifest.provenance.value,
        upstream=UpstreamFacts(**upstream.model_dump()),
        signature={variant: lines(case.expectation(environment, variant)) for variant in Variant},
        fix_diff=fix_diff(case),
        digest=digest(case),
    )


def fix_diff(case: Case) -> str:
    """Unified diff from repro.py to fixed.py."""
    texts = [case.script(variant).read_text(encoding="utf-8").splitlines(keepends=True) for variant in Variant]
    names = [case.script(variant).name for variant in Variant]
    return "".join(difflib.unified_diff(*texts, *names))


def digest(case: Case) -> str:
    """sha256 over the manifest and all that a trial gets to see."""
    total = hashlib.sha256((case.directory / MANIFEST).read_bytes())
    for name, content in payload(case.directory).items():
        total.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def _environment_facts(plan: Plan, places: Mapping[Variant, Place]) -> EnvironmentFacts:
    spec, case = plan.spec, plan.case
    paths = {case.lock_path(plan.environment, variant): places[variant].lock for variant in Variant}
    return EnvironmentFacts(
        name=plan.environment,
        grade=spec.grade,
        image=spec.image,
        python=spec.python,
        requirements=spec.requirements,
        variant_requirements={
            variant: own
            for variant in Variant
            if (own := (case.manifest.repro if variant is Variant.REPRO else case.manifest.fixed).requirements)
        },
        locks={path.name: hashlib.sha256(text.encode()).hexdigest() for path, text in paths.items()},
        attestation=places[Variant.REPRO].attestation,
        drift=_all_drift(places),
    )


def _all_drift(places: Mapping[Variant, Place]) -> list[str]:
    repro, fixed = places[Variant.REPRO], places[Variant.FIXED]
    if repro is fixed:
        return list(repro.drift)
    return [f"{variant}: {line}" for variant in Variant for line in places[variant].drift]


def command(plan: Plan, engine: Engine) -> str:
    """The command that does the same again."""
    options = plan.options
    words = ["nox", "-s", f"case-{plan.case.id}", "--", "--environment", plan.environment, "--engine", engine.name.value]
    if options.image:
        words += ["--image", options.image]
    if options.trials:
        words += ["--trials", str(options.trials)]
    if options.timeout_s:
        words += ["--timeout", f"{options.timeout_s:g}"]
    return shlex.join(words)


