"""Numbers and facts as a person reads them. Pure."""

from datetime import UTC, datetime

from runner.evidence import EnvironmentFacts, Evidence, Gpu, Grade, Rate, Verdict, slug

SIMULATED = (
    "simulated: not on the device that the bug lives on. The scripts were compiled only, interpreted, or run on a "
    "model of it: this says something about the code, and nothing about what the device makes of it."
)
DRIFTED = (
    "drifted: what was installed is not what the case locks, so this shows what these packages do, "
    "which need not be what the locked ones do."
)
UNATTESTED = "not attested: nothing looked at what was really installed."


def seconds(value: float) -> str:
    """0.25 s, 44.6 s, 2 min 11 s, 1 h 2 min."""
    if value < 60:
        return f"{value:.2g} s" if value < 1 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(value: int) -> str:
    """Bytes in powers of 1000: 6.4 GB."""
    number = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def share(rate: Rate) -> str:
    return f"{rate.k} of {rate.n}" if rate.n else "none"


def interval(rate: Rate) -> str:
    return f"95 % interval {100 * rate.low:.0f} to {100 * rate.high:.0f} %"


def spread(values: list[float]) -> str:
    """6.8 s, or 6.8 s to 9.1 s."""
    low, high = seconds(min(values)), seconds(max(values))
    return low if low == high else f"{low} to {high}"


def date(moment: datetime) -> str:
    return f"{utc(moment):%Y-%m-%d}"


def instant(moment: datetime) -> str:
    return f"{utc(moment):%Y-%m-%d %H:%M} UTC"


def utc(moment: datetime) -> datetime:
    """A moment that names no zone is taken as UTC, never as this machine's."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def packages(environment: EnvironmentFacts) -> str:
    """Whether what was installed is what was declared, in a word."""
    if environment.attestation is None:
        return "not attested"
    return "exact" if environment.exact else "drifted"


def cautions(environment: EnvironmentFacts) -> list[str]:
    """What makes evidence from this environment worth less, in sentences."""
    told = [SIMULATED] if environment.grade is Grade.SIMULATED else []
    if environment.attestation is None:
        return [*told, UNATTESTED]
    return [*told, DRIFTED] if environment.drift else told


def page_name(case: str) -> str:
    """File name of a case's page in the reports directory."""
    return f"{slug(case)}.md"


def gpu(found: Gpu) -> str:
    memory = [size(found.memory_bytes)] if found.memory_bytes else []
    return ", ".join([found.name, f"compute capability {found.compute_capability}", *memory])


def newest_hardware_first(runs: list[Evidence]) -> list[Evidence]:
    """What ran before what was skipped, hardware before simulated, newest first; ties by what was run where."""
    named = sorted(runs, key=lambda run: (run.environment.name, run.engine.name, run.device))
    newest = sorted(named, key=lambda run: utc(run.started), reverse=True)
    return sorted(newest, key=lambda run: (run.verdict is Verdict.SKIPPED, run.environment.grade is Grade.SIMULATED))
