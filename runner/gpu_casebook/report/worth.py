"""What evidence is worth: which run says most, where a case was seen, and what to be careful about."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from failure_signature.kinds import Grade, Variant
from failure_signature.text import utc
from failure_signature.trials import Verdict
from gpu_casebook.evidence import CaseFacts, EnvironmentFacts, Evidence
from gpu_casebook.revision import SEMANTICS

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


def packages(environment: EnvironmentFacts) -> str:
    """Return in a word whether what was installed is what was declared."""
    if environment.attestation is None:
        return "not attested"
    if environment.drift:
        return "drifted" if environment.relevant_drift else "drifted aside"
    return "exact" if environment.exact else "by version"


class Worth(NamedTuple):
    """Sort key of evidence: what comes first decides, and more is better."""

    confirmed: bool
    reproduced: bool
    on_hardware: bool
    exact_packages: bool
    no_relevant_drift: bool
    current_rules: bool
    started: datetime


def worth(run: Evidence) -> Worth:
    environment, rate = run.environment, run.rates.get(Variant.REPRO)
    return Worth(
        confirmed=run.verdict is Verdict.CONFIRMED,
        reproduced=rate is not None and rate.k > 0,
        on_hardware=environment.grade is Grade.HARDWARE,
        exact_packages=environment.exact,
        no_relevant_drift=environment.by_version or not environment.relevant_drift,
        current_rules=run.semantics >= SEMANTICS,
        started=utc(run.started),
    )


def seen_on(runs: Sequence[Evidence]) -> list[str]:
    """Return for each card, and for the CPU, its name and what the best evidence from there is worth."""
    if not runs:
        return []
    case = newest(runs).case
    best = {run.device: run for run in sorted(runs, key=lambda run: (_scripts(run.case) == _scripts(case), worth(run)))}
    devices = dict.fromkeys(run.device for run in runs)
    return [f"{card(device)} {_worth(best[device], case)}" for device in devices]


def card(device: str) -> str:
    """Return a device's name without its vendor and its memory: H100; CPU stays."""
    return _NOT_OF_A_CARD.sub("", device)


def _scripts(case: CaseFacts) -> tuple[str, ...]:
    """Return what tells the scripts of a case from earlier ones: what evidence has of them."""
    return case.provenance, case.fix_diff


def _worth(run: Evidence, case: CaseFacts) -> str:
    if run.verdict is not Verdict.CONFIRMED:
        return run.verdict
    simulated = ["simulated"] if run.environment.grade is Grade.SIMULATED else []
    older = ["older rules"] if run.semantics < SEMANTICS else []
    if _scripts(run.case) != _scripts(case) and not older:
        older = ["earlier scripts"]
    return ", ".join([*simulated, packages(run.environment), *older])


def cautions(run: Evidence) -> list[str]:
    """Return what makes this evidence worth less, in sentences."""
    told = {"not attested": UNATTESTED, "drifted": DRIFTED, "drifted aside": ASIDE, "by version": BY_VERSION}
    word = packages(run.environment)
    found = [SIMULATED] if run.environment.grade is Grade.SIMULATED else []
    found += [told[word]] if word in told else []
    return found if run.semantics >= SEMANTICS else [*found, OLDER.format(run.semantics, SEMANTICS)]


def newest(runs: Sequence[Evidence]) -> Evidence:
    return max(runs, key=lambda run: utc(run.started))


def newest_hardware_first(runs: Sequence[Evidence]) -> list[Evidence]:
    """Sort: runs before skipped ones, hardware before simulated, newest first; ties by environment, engine, device."""
    named = sorted(runs, key=lambda run: (run.environment.name, run.engine.name, run.device))
    latest = sorted(named, key=lambda run: utc(run.started), reverse=True)
    return sorted(latest, key=lambda run: (run.verdict is Verdict.SKIPPED, run.environment.grade is Grade.SIMULATED))
