"""What will be run: the environment, its GPUs and the limits, after every choice has been made."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from failure_signature.judging.decision import Terms, terms
from failure_signature.kinds import Variant
from failure_signature.trials import Verdict
from gpu_casebook.devices import hardware
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import MachineError, ManifestError, UnfitError, UsageError
from gpu_casebook.evidence import Attestation
from gpu_casebook.manifest.case import Case
from gpu_casebook.manifest.model import EnvironmentSpec
from gpu_casebook.packages.lock import MACHINE, pins, problems
from gpu_casebook.places import as_command
from gpu_casebook.run.options import Options, check_over
from gpu_casebook.trial import Limits, Recipe, TrialRequest, Watch


@dataclass(frozen=True)
class Skipped:
    """No environment of the case can run here; `reasons` has one line for each that was looked at."""

    case: str
    reasons: Sequence[str]

    verdict = Verdict.SKIPPED


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One case in one environment."""

    case: Case
    environment: str
    gpus: Sequence[int]
    trials: int
    limits: Limits
    options: Options

    @property
    def spec(self) -> EnvironmentSpec:
        return self.case.environment(self.environment)

    @property
    def terms(self) -> Terms:
        """Return what the verdict asks of the trials."""
        repro, fixed = (self.case.expectation(self.environment, variant) for variant in Variant)
        manifest = self.case.manifest
        return terms(
            repro,
            fixed,
            trials=self.trials,
            least=manifest.trials,
            alpha=manifest.alpha,
            clean_trials=manifest.clean_trials,
            to_the_last=self.options.trials is not None,
        )

    @property
    def share(self) -> int | None:
        """Return how many bytes of each GPU a trial takes; None if nobody else may use the GPU meanwhile."""
        return None if self.case.alone(self.environment) else self.spec.gpu_memory or 0

    @property
    def watch(self) -> Watch | None:
        """Return how to look for a hang, if repro declares one. Trials of fixed are watched alike."""
        hang = self.case.expectation(self.environment, Variant.REPRO).hang
        return Watch.from_second(hang.after, gpus=bool(self.gpus)) if hang else None

    def request(self, variant: Variant, files: Mapping[str, bytes]) -> TrialRequest:
        """Return the request for one ordinary trial; `files` are the case's."""
        return TrialRequest(
            files=files,
            arguments=[f"{variant.value}.py"],
            limits=self.limits,
            variables=self.spec.variables,
            gpus=self.gpus,
            keep=self.options.keep,
            watch=self.watch,
            loaded=True,
        )

    def gpu_mismatch(self, found: Attestation) -> str | None:
        """Return why the GPUs visible inside the environment don't satisfy the manifest, or None.

        A container may see fewer than the host has.
        """
        return hardware.meets(self.spec, found.gpus)

    def refuse_unfit(self, found: Mapping[Variant, Attestation]) -> None:
        """Raise UnfitError where an environment lacks what the manifest requires.

        Its trials would only show that an import fails. A package of another version is drift, and does not count here.
        NVIDIA's images call their build of Triton pytorch-triton.
        """
        lacking = {
            name: version
            for variant, seen in found.items()
            for name, version in pins(self.case.locked(self.environment, variant)).items()
            if not {name, f"pytorch-{name}"} & set(map(canonicalize_name, seen.packages))
        }
        if lacking:
            where = f"the image {self.options.image}" if self.options.image else f"environment {self.environment}"
            wanted = ", ".join(f"{name} (the manifest requires {version})" for name, version in lacking.items())
            raise UnfitError(f"{self.case.id}: {where} is unfit for this case: it has no {wanted}; nothing was run")

    def command(self, engine: str) -> str:
        """Return the command that does the same again."""
        options = replace(self.options, environment=self.environment)
        return as_command(shlex.join(["nox", "-s", f"case-{self.case.id}", "--", *options.words(engine)]))


def recipe(case: Case, environment: str, variant: Variant, options: Options | None = None) -> Recipe:
    """Return what a variant's environment is made from. Raises ManifestError unless its lock is the manifest's."""
    spec = case.environment(environment)
    lock = case.lock(environment, variant)
    name = f"cases/{case.id}/locks/{case.lock_path(environment, variant).name}"
    again = f"write it: nox -s lock -- {case.id}"
    wanted = case.locked(environment, variant)
    if wrong := list(problems(lock, name, wanted, spec.python, again, special=spec.special)):
        raise ManifestError(wrong)
    sources = case.sources(environment, variant)
    asked = options or Options()
    made = Recipe(image=spec.image, lock=lock, python=spec.python, sources=sources)
    return replace(made, use_image=asked.image, over=tuple(asked.over), pre=asked.pre)


def recipes(case: Case) -> list[Recipe]:
    """Return every distinct recipe of a case."""
    every = (recipe(case, environment, variant) for environment in case.manifest.environments for variant in Variant)
    return list(dict.fromkeys(every))


def make_plan(case: Case, options: Options, engine: Engine) -> Plan | Skipped:
    """Choose the environment and its GPUs; return Skipped with the reasons if none can run here.

    Raises ManifestError for scripts that are the same, UsageError for an environment that the case does not have, and
    MachineError for a GPU that is not there or an engine on a machine of another architecture.
    """
    if engine.machine != MACHINE and not options.image:
        why = f"the {engine.name} engine runs on {engine.machine}, and cases are locked for {MACHINE}"
        raise MachineError(f"{why}; name an engine on such a machine: DOCKER_HOST=ssh://user@host")
    if options.over and options.image:
        raise UsageError("--with puts a package over the case's own environment; leave --image out")
    if options.over:
        if not engine.takes_over:
            raise UsageError(f"--with: the {engine.name} engine puts nothing over an environment; add --engine docker")
        check_over(options.over)
    if same := case.same_scripts():
        raise ManifestError([same])
    found = hardware.gpus() if engine.local else None
    _check_gpus_are_there(options.gpus, found)
    reasons = []
    for name in [options.environment] if options.environment else case.manifest.environments:
        reason = why_not(case.environment(name), found, engine, options.gpus)
        if reason is None:
            return _plan(case, name, options, found)
        reasons.append(f"{name}: {reason}")
    return Skipped(case.id, reasons)


def _plan(case: Case, name: str, options: Options, found: Sequence[hardware.HostGpu] | None) -> Plan:
    manifest = case.manifest
    return Plan(
        case=case,
        environment=name,
        gpus=_chosen(case.environment(name), found, options.gpus),
        trials=options.trials or manifest.trials,
        limits=Limits(timeout_s=options.timeout_s or manifest.timeout, memory_bytes=manifest.memory),
        options=options,
    )


def _chosen(
    spec: EnvironmentSpec, found: Sequence[hardware.HostGpu] | None, wanted: Sequence[int] | None
) -> Sequence[int]:
    """Return the GPUs that were named, or else the suitable ones with the most free memory.

    Of a remote engine, whose GPUs are not known, return the first ones.
    """
    if wanted is not None:
        return tuple(wanted)[: spec.gpus]
    fit = range(spec.gpus) if found is None else hardware.suitable(spec, found)
    return tuple(fit)[: spec.gpus]


def _check_gpus_are_there(wanted: Sequence[int] | None, found: Sequence[hardware.HostGpu] | None) -> None:
    if wanted is None or found is None:
        return
    there = [gpu.index for gpu in found]
    for index in wanted:
        if index not in there:
            listed = ", ".join(map(str, there)) or "none"
            raise MachineError(f"--gpu {index}: no such GPU on this machine (there are: {listed})")


def why_not(
    spec: EnvironmentSpec,
    found: Sequence[hardware.HostGpu] | None,
    engine: Engine,
    wanted: Sequence[int] | None,
) -> str | None:
    """Return why `spec` cannot run here, or None if it can.

    `found` are the GPUs of this machine; None if the engine is remote and its GPUs are unknown. `wanted` are the
    indices of those that were named, if any were.
    """
    if spec.build and not engine.has_images:
        return f"{', '.join(spec.build)} must be built from source, which the {engine.name} engine does not; use docker"
    if spec.gpus == 0:
        return None
    if found is not None:
        chosen = [gpu for gpu in found if wanted is None or gpu.index in wanted]
        if reason := hardware.meets(spec, chosen):
            return reason
    return None if engine.gpu_access() else f"the {engine.name} engine has no way to a GPU here"
