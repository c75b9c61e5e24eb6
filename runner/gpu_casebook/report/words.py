"""Facts of the evidence as a person reads them. Pure."""

import re
from collections.abc import Sequence
from datetime import datetime

from gpu_casebook.evidence import EnvironmentFacts, Evidence, Gpu, Rate, Verdict, slug
from gpu_casebook.kinds import Grade, Variant
from gpu_casebook.revision import SEMANTICS
from gpu_casebook.text import size, utc

SIMULATED = (
    "simulated: not on the device that the bug lives on. The scripts were compiled only, interpreted, or run on a "
    "model of it: this says something about the code, and nothing about what the device makes of it."
)


DRIFTED = (
    "drifted: what ran is not what the case locks, in something that the failure can depend on, so this shows what "
    "these packages do, which need not be what the locked ones do."
)


ASIDE = "drifted aside: what ran is not all as locked, but in nothing that the failure is likely to depend on."


BY_VERSION = (
    "by version: packages have the locked versions; nobody looked whether their files are the ones that belong to them."
)


OLDER = "older rules: judged by version {} of what a verdict means, and this runner has version {}."


UNATTESTED = "not attested: nothing looked at what was really installed."
_NOT_OF_A_CARD = re.compile(r"^(?:(?:NVIDIA|Tesla|GeForce) )+|[ -](?:\d+ ?GB|SXM|PCIe|HBM|NVL).*$")


_RAN = {
    "release": "Releases of {} ran, one with the defect and one without it.",
    "release-workaround": "A release of {} ran, with the defect; the fixed script goes round it.",
    "sources": "Files of {} ran, as they are at a commit.",
    "distilled": "No code of {} ran: the scripts are minimal code with the same defect, written for this corpus.",
    "pattern": "No code of {} ran: the scripts illustrate a mechanism.",
}
_TOLD_SINCE = 3
"""The semantics from which on evidence has these words; before, it had two of them for everything."""


def what_ran(provenance: str, project: str, semantics: int = SEMANTICS) -> str:
    """Return what of the accused project ran, in a sentence. `semantics` is that of the evidence, if it is from any."""
    if semantics < _TOLD_SINCE or provenance not in _RAN:
        return f"Recorded as {provenance}, before the record said what of {project} ran."
    return _RAN[provenance].format(project)


def share(rate: Rate | None) -> str:
    return f"{rate.k} of {rate.n}" if rate and rate.n else "none"


def interval(rate: Rate) -> str:
    return f"95 % interval {100 * rate.low:.0f} to {100 * rate.high:.0f} %"


def packages(environment: EnvironmentFacts) -> str:
    """Return in a word whether what was installed is what was declared."""
    if environment.attestation is None:
        return "not attested"
    if environment.drift:
        return "drifted" if environment.relevant_drift else "drifted aside"
    return "exact" if environment.exact else "by version"


def worth(run: Evidence) -> tuple[bool, bool, bool, bool, bool, bool, datetime]:
    """Return by what one run says more than another, for `max`."""
    environment, rate = run.environment, run.rates.get(Variant.REPRO)
    return (
        run.verdict is Verdict.CONFIRMED,
        rate is not None and rate.k > 0,
        environment.grade is Grade.HARDWARE,
        environment.exact,
        environment.by_version or not environment.relevant_drift,
        run.semantics >= SEMANTICS,
        utc(run.started),
    )


def seen_on(runs: Sequence[Evidence]) -> list[str]:
    """Return for each card, and for the CPU, its name and what the best evidence from there is worth."""
    best = {run.device: run for run in sorted(runs, key=worth)}
    devices = dict.fromkeys(run.device for run in runs)
    return [f"{_NOT_OF_A_CARD.sub('', device)} {_worth(best[device])}" for device in devices]


def _worth(run: Evidence) -> str:
    if run.verdict is not Verdict.CONFIRMED:
        return run.verdict
    simulated = ["simulated"] if run.environment.grade is Grade.SIMULATED else []
    return ", ".join([*simulated, packages(run.environment), *(["older rules"] if run.semantics < SEMANTICS else [])])


def cautions(run: Evidence) -> list[str]:
    """Return what makes this evidence worth less, in sentences."""
    told = {"not attested": UNATTESTED, "drifted": DRIFTED, "drifted aside": ASIDE, "by version": BY_VERSION}
    word = packages(run.environment)
    found = [SIMULATED] if run.environment.grade is Grade.SIMULATED else []
    found += [told[word]] if word in told else []
    return found if run.semantics >= SEMANTICS else [*found, OLDER.format(run.semantics, SEMANTICS)]


def page_name(case: str) -> str:
    """Return the name of a case's page in the reports directory."""
    return f"{slug(case)}.md"


def gpu(found: Gpu) -> str:
    memory = [size(found.memory_bytes)] if found.memory_bytes else []
    return ", ".join([found.name, f"compute capability {found.compute_capability}", *memory])


def newest(runs: Sequence[Evidence]) -> Evidence:
    return max(runs, key=lambda run: utc(run.started))


def newest_hardware_first(runs: Sequence[Evidence]) -> list[Evidence]:
    """Sort: runs before skipped ones, hardware before simulated, newest first; ties by environment, engine, device."""
    named = sorted(runs, key=lambda run: (run.environment.name, run.engine.name, run.device))
    latest = sorted(named, key=lambda run: utc(run.started), reverse=True)
    return sorted(latest, key=lambda run: (run.verdict is Verdict.SKIPPED, run.environment.grade is Grade.SIMULATED))
