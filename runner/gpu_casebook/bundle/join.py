"""Join evidence from a host without a network with our own."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpu_casebook.bundle.document import Returned
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Evidence, evidence_path, load
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.report.pages import publish


class Joined(NamedTuple):
    page: Path | None  # the case's page; None where the evidence that is here is later and was kept
    warnings: list[str]


def join(returned: Returned, case: Case, reports: Path) -> Joined:
    """Put the evidence into `reports`, and render the case's page and the index again.

    Raises CasebookError where the parts of the file do not belong together, or nothing was run there.
    """
    evidence, bundle = returned.evidence, returned.bundle
    if evidence is None:
        raise CasebookError(f"{bundle.case} was not run there: {'; '.join(returned.skipped) or 'no reason is given'}")
    there = (evidence.case.id, evidence.environment.name, evidence.case.digest)
    if there != (bundle.case, bundle.environment, bundle.case_digest):
        raise CasebookError(f"the evidence is not of the bundle that it names: {bundle.case}, {bundle.environment}")
    path = evidence_path(reports, evidence)
    if path.is_file() and load(path).started > evidence.started:
        return Joined(None, [f"{path.name}: is of a later run, and was kept"])
    warnings = list(_changes(evidence, case))
    return Joined(publish(reports, evidence, warnings.append), warnings)


def _changes(evidence: Evidence, case: Case) -> Iterator[str]:
    """Yield what of the case has changed since the bundle was packed."""
    if evidence.case.digest != case.digest():
        yield f"{case.id}: manifest or scripts have changed since the bundle was packed"
    name = evidence.environment.name
    if name not in case.manifest.environments:
        yield f"{case.id}: it has no environment {name} any more"
        return
    for path in dict.fromkeys(case.lock_path(name, variant) for variant in Variant):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        if evidence.environment.locks.get(path.name) != sha256:
            yield f"{case.id}: locks/{path.name} has changed since the bundle was packed"
