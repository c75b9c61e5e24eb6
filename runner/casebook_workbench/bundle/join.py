"""Join evidence from hosts without a network with our own."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from casebook_workbench.bundle.document import Returned
from casebook_workbench.corpus import merge
from casebook_workbench.corpus.model import Run
from casebook_workbench.corpus.report import files as report
from failure_signature.kinds import Variant
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Evidence, evidence_path, keep, load
from gpu_casebook.manifest.case import find, known_images
from gpu_casebook.report.pages import render


def join(brought: Sequence[Returned], root: Path, reports: Path, warn: Callable[[str], object]) -> tuple[Run, Path]:
    """Put evidence and runs into `reports`, and write their pages and the index; return the runs as one, and its page.

    `warn` is told of evidence that is older than what is here, which stays, and of cases that have changed since.
    Raises CasebookError for evidence of something else than its bundle.
    """
    for each in brought:
        packed = {(job.case, job.environment, each.bundle.digests.get(job.case)) for job in each.bundle.jobs}
        for evidence in each.evidence:
            if (evidence.case.id, evidence.environment.name, evidence.case.digest) not in packed:
                named = f"{evidence.case.id}, {evidence.environment.name}"
                raise CasebookError(f"the evidence is not of the bundle that it names: {named}")
    every = [evidence for each in brought for evidence in each.evidence]
    for evidence in every:
        path = evidence_path(reports, evidence)
        if path.is_file() and load(path).started > evidence.started:
            warn(f"{evidence.case.id}: {path.name} is of a later run, and was kept")
            continue
        for line in (keep(reports, evidence), *_changes(evidence, root)):
            if line:
                warn(f"{evidence.case.id}: {line}")
    run = merge.write(reports, [each.run for each in brought], "; ".join({each.run.selection: 0 for each in brought}))
    render(reports, {evidence.case.id for evidence in every}, warn)
    return run, report.write(reports, run)


def _changes(evidence: Evidence, root: Path) -> Iterator[str]:
    """Yield what of the case has changed since the bundle was packed."""
    try:
        case = find(root, evidence.case.id, known_images(root))
    except CasebookError as error:
        yield str(error)
        return
    if evidence.case.digest != case.digest():
        yield "manifest or scripts have changed since the bundle was packed"
    name = evidence.environment.name
    if name not in case.manifest.environments:
        yield f"it has no environment {name} any more"
        return
    for path in dict.fromkeys(case.lock_path(name, variant) for variant in Variant):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        if evidence.environment.locks.get(path.name) != sha256:
            yield f"locks/{path.name} has changed since the bundle was packed"
