"""Facts of the evidence as a person reads them. Pure."""

from gpu_casebook.evidence import EnvironmentFacts, Evidence, Gpu, Rate, Verdict, slug
from gpu_casebook.kinds import Grade
from gpu_casebook.words import size, utc

SIMULATED = (
    "simulated: not on the device that the bug lives on. The scripts were compiled only, interpreted, or run on a "
    "model of it: this says something about the code, and nothing about what the device makes of it."
)


DRIFTED = (
    "drifted: what was installed is not what the case locks, so this shows what these packages do, "
    "which need not be what the locked ones do."
)


UNATTESTED = "not attested: nothing looked at what was really installed."


def share(rate: Rate | None) -> str:
    return f"{rate.k} of {rate.n}" if rate and rate.n else "none"


def interval(rate: Rate) -> str:
    return f"95 % interval {100 * rate.low:.0f} to {100 * rate.high:.0f} %"


def packages(environment: EnvironmentFacts) -> str:
    """Return in a word whether what was installed is what was declared."""
    if environment.attestation is None:
        return "not attested"
    return "exact" if environment.exact else "drifted"


def cautions(environment: EnvironmentFacts) -> list[str]:
    """Return what makes evidence from this environment worth less, in sentences."""
    found = [SIMULATED] if environment.grade is Grade.SIMULATED else []
    if environment.attestation is None:
        return [*found, UNATTESTED]
    return [*found, DRIFTED] if environment.drift else found


def page_name(case: str) -> str:
    """Return the name of a case's page in the reports directory."""
    return f"{slug(case)}.md"


def gpu(found: Gpu) -> str:
    memory = [size(found.memory_bytes)] if found.memory_bytes else []
    return ", ".join([found.name, f"compute capability {found.compute_capability}", *memory])


def newest_hardware_first(runs: list[Evidence]) -> list[Evidence]:
    """Sort: runs before skipped ones, hardware before simulated, newest first; ties by environment, engine, device."""
    named = sorted(runs, key=lambda run: (run.environment.name, run.engine.name, run.device))
    newest = sorted(named, key=lambda run: utc(run.started), reverse=True)
    return sorted(newest, key=lambda run: (run.verdict is Verdict.SKIPPED, run.environment.grade is Grade.SIMULATED))
