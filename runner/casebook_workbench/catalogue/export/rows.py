"""One case as one row. Every row has the same keys, and nested values the same types, as tables want it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from casebook_workbench.catalogue.entry import Entry
from failure_signature.judging.outcome import lines
from failure_signature.kinds import Variant
from gpu_casebook.evidence import Evidence
from gpu_casebook.files import read_text
from gpu_casebook.manifest.case import MAX_CASE_BYTES, Case
from gpu_casebook.report.provenance import what_ran
from gpu_casebook.report.readme import Readme

LICENCE = "Apache-2.0"
CANARY = (
    "Data of Casebook, for evaluation only: a model that was trained on it can't be judged by it. "
    "Canary c4a595b6-c294-47a8-9a75-fcac97b29276"
)
SPLITS = ("development", "test")
_DEVELOPMENT = 0.2
"""Projects whose hash, as a fraction, lies below this are for development."""
_OWN = {f"{variant.value}.py" for variant in Variant}

Row = dict[str, Any]


def row(top: Path, case: Case) -> Row:
    """Return the row of a case of the corpus at `top`. Raises ManifestError where a lock is missing."""
    manifest, upstream, digest, reports = case.manifest, case.manifest.upstream, case.digest(), top / "reports"
    entry = Entry.read(case, reports)  # of the user's own runs there is nothing here
    readme = Readme.of(read_text(case.directory / "README.md", MAX_CASE_BYTES))
    scripts = {variant: read_text(case.script(variant), MAX_CASE_BYTES) for variant in Variant}
    return {
        "id": case.id,
        "split": split_of(upstream.project),
        "title": manifest.title,
        "failure": manifest.failure.value,
        "area": manifest.area.value if manifest.area else None,
        "symptom": manifest.symptom,
        "problem_statement": readme.saw or manifest.symptom or manifest.title,
        "readme": readme.text,
        "project": upstream.project,
        "status": upstream.status,
        "introduced": upstream.introduced,
        "fixed_in": upstream.fixed,
        "links": [link for link in (upstream.issue, *upstream.links) if link],
        "provenance": manifest.provenance,
        "ran": what_ran(manifest.provenance, upstream.project),
        "repro": scripts[Variant.REPRO],
        "fixed": scripts[Variant.FIXED],
        "patch": patch(case),
        "because": manifest.because,
        "files": json.dumps(dict(_files(case)), ensure_ascii=False),
        "environments": [_environment(case, name) for name in manifest.environments],
        "timeout_s": manifest.timeout,
        "trials": manifest.trials,
        "evidence": [_evidence(run, digest, path.relative_to(reports).as_posix()) for path, run in entry.runs.items()],
        "digest": digest,
        "licence": LICENCE,
        "canary": CANARY,
    }


def split_of(project: str) -> str:
    """Return the split of a project's cases: all of a project are in one, and stay there."""
    fraction = int(hashlib.sha256(project.lower().encode()).hexdigest()[:8], 16) / 2**32
    return SPLITS[fraction >= _DEVELOPMENT]


def patch(case: Case) -> str:
    """Return the fix as a diff that `git apply` and `patch -p1` take: it turns repro.py into fixed.py."""
    head, _, hunks = case.fix_diff().partition("\n+++ fixed.py\n")
    return f"--- a/repro.py\n+++ b/repro.py\n{hunks}" if head else ""


def _files(case: Case) -> Iterator[tuple[str, str]]:
    """Yield what the scripts have beside them, as far as it is text."""
    for name, content in case.payload().items():
        if name not in _OWN:
            with suppress(UnicodeDecodeError):
                yield name, content.decode()


def _environment(case: Case, name: str) -> Row:
    spec = case.environment(name)
    repro, fixed = (case.lock(name, variant) for variant in Variant)
    return {
        "name": name,
        "image": spec.image,
        "python": spec.python,
        "grade": spec.grade.value,
        "gpus": spec.gpus,
        "compute_capability": str(spec.compute_capability) if spec.compute_capability else None,
        "variables": [f"{key}={value}" for key, value in spec.variables.items()],
        "requirements_repro": case.requirements(name, Variant.REPRO),
        "requirements_fixed": case.requirements(name, Variant.FIXED),
        "sources": [
            f"{each.url}/blob/{each.commit}/{each.path}"
            for variant in Variant
            for each in case.sources(name, variant)
            if variant is Variant.REPRO or each not in case.sources(name, Variant.REPRO)
        ],
        "lock_repro": repro,
        "lock_fixed": fixed if fixed != repro else None,  # None: the same
        "expect_repro": lines(case.expectation(name, Variant.REPRO)),
        "expect_fixed": lines(case.expectation(name, Variant.FIXED)),
    }


def _evidence(run: Evidence, digest: str, path: str) -> Row:
    """Return a summary of a run. `digest`: the case's now; `path`: of the evidence, in the reports."""
    repro, fixed = (run.rates.get(variant) for variant in Variant)
    return {
        "environment": run.environment.name,
        "verdict": run.verdict.value,
        "headline": run.reasons[0] if run.reasons else None,
        "device": run.device,
        "engine": run.engine.name,
        "grade": run.environment.grade.value,
        "exact": run.environment.exact,
        "of_these_scripts": run.case.digest == digest,
        "repro_as_expected": repro.k if repro else 0,
        "repro_trials": repro.n if repro else 0,
        "fixed_as_expected": fixed.k if fixed else 0,
        "fixed_trials": fixed.n if fixed else 0,
        "date": f"{run.started:%Y-%m-%d}",
        "runner": run.runner,
        "path": path,
    }
