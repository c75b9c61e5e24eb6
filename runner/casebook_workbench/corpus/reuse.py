"""May evidence that is there stand in for a run? Only where a run would do the same again, and it is young enough.

The same: the case (manifest, scripts, locks), the environment (image or lock), how it is run (engine, trials, time,
probes), what verdicts mean (`gpu_casebook.revision.SEMANTICS`), and the hardware.
"""

import hashlib
import platform
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from casebook_workbench.corpus.model import End, Finished, Job, Settings, facts
from failure_signature.kinds import Variant
from failure_signature.text import instant, seconds, utc
from failure_signature.trials import Verdict
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.evidence import Evidence, Gpu, evidence_files
from gpu_casebook.manifest.case import Case
from gpu_casebook.revision import SEMANTICS
from gpu_casebook.run.plan import Plan, recipe
from gpu_casebook.trial import Limits, Recipe

NONE_YET = "no evidence yet"


@dataclass(frozen=True, kw_only=True)
class Here:
    """What a run made now would have: hardware, engine, time."""

    now: datetime
    max_age_s: float
    """How old evidence may be at most: 0 for none."""
    devices: Collection[HostGpu] = ()
    image: Callable[[Recipe, str], str | None] = lambda _recipe, _base: None
    """Names what it would run a recipe in, given the base that the evidence stands on."""
    machine: str = platform.machine()
    """The processor's architecture, such as x86_64."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the evidence of a job would look like if it were made now. `locks`: file name -> sha256 of its text."""

    digest: str
    locks: Mapping[str, str]
    recipe: Recipe
    gpus: int
    command: Callable[[str], str]
    engine: str | None


def reuse(case: Case, job: Job, settings: Settings, here: Here) -> Job | Finished:
    """Return the job's end if evidence can be reused, else the job with the reason why not in `because`.

    Raises ManifestError for a lock that is missing.
    """
    if here.max_age_s <= 0:
        return job.model_copy(update={"because": "all are to be run again"})
    wanted, reports = _wanted(case, job.environment, settings), Path(settings.reports)
    reasons: list[tuple[datetime, str]] = []
    for path, evidence in _there(reports, job):
        reason = why_not(evidence, wanted, here)
        if reason is None:
            return _reused(job, evidence, path.relative_to(reports).as_posix())
        reasons.append((utc(evidence.started), reason))
    return job.model_copy(update={"because": max(reasons)[1] if reasons else NONE_YET})


def why_not(evidence: Evidence, wanted: Wanted, here: Here) -> str | None:  # noqa: PLR0911
    """Return why this evidence can't stand in for a run, or None. Pure."""
    if evidence.verdict is not Verdict.CONFIRMED:
        return f"it was {evidence.verdict}"
    if evidence.semantics != SEMANTICS:
        return "verdicts mean something else since"
    if evidence.case.digest != wanted.digest:
        return "the case changed"
    if evidence.environment.locks != wanted.locks:
        return "the lock changed"
    engine = evidence.engine.name
    if wanted.engine not in {None, engine}:
        return f"it ran on the {engine} engine"
    if evidence.command != wanted.command(engine):
        return "it ran with other options"
    if reason := _image_changed(evidence, wanted, here) or _hardware_changed(evidence, wanted, here):
        return reason
    # A clock that jumped says nothing about age.
    age_s = (here.now - utc(evidence.started)).total_seconds()
    if age_s < 0:
        return "its date lies in the future"
    return f"it is older than {seconds(here.max_age_s)}" if age_s >= here.max_age_s else None


def _image_changed(evidence: Evidence, wanted: Wanted, here: Here) -> str | None:
    image = evidence.engine.image
    if image is None:
        return None
    now = here.image(wanted.recipe, image.base or "")
    return None if now in {image.name, image.id} else "the image changed"


def _hardware_changed(evidence: Evidence, wanted: Wanted, here: Here) -> str | None:
    attested = evidence.environment.attestation
    if attested is None:
        return "nothing looked at what it ran on"
    if here.machine not in attested.platform.split("-"):
        return "it ran on another kind of processor"
    if not wanted.gpus:
        return None
    if len(attested.gpus) < wanted.gpus or not all(_is_here(gpu, here.devices) for gpu in attested.gpus):
        return "it ran on another GPU or driver"
    return None


def _is_here(gpu: Gpu, devices: Collection[HostGpu]) -> bool:
    return any(
        (device.name, device.compute_capability) == (gpu.name, gpu.compute_capability)
        and device.driver in {"", gpu.driver}
        for device in devices
    )


def _wanted(case: Case, environment: str, settings: Settings) -> Wanted:
    options = replace(settings.options, environment=environment)
    plan = Plan(case=case, environment=environment, gpus=(), trials=1, limits=Limits(), options=options)
    recipes = {variant: recipe(case, environment, variant, settings.options) for variant in Variant}
    return Wanted(
        digest=case.digest(),
        locks={
            case.lock_path(environment, variant).name: hashlib.sha256(each.lock.encode()).hexdigest()
            for variant, each in recipes.items()
        },
        recipe=recipes[Variant.REPRO],
        gpus=case.environment(environment).gpus,
        command=plan.command,
        engine=settings.engine,
    )


def _there(reports: Path, job: Job) -> Iterator[tuple[Path, Evidence]]:
    """Return the readable evidence of the case in this environment."""
    return Evidence.read_all(evidence_files(reports, job.case, job.environment), lambda _: None)


def _reused(job: Job, evidence: Evidence, path: str) -> Finished:
    came = facts(evidence)
    came["reason"] = f"of {instant(evidence.started)}: {came['reason']}"
    timed = job.model_copy(update={"expected_s": evidence.durations.total_s})
    return Finished(job=timed, end=End.REUSED, evidence=path, started=datetime.now(UTC), **came)
