"""What comes back from a host without a network: one JSON file, checked, and joined with our evidence."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from gpu_casebook.bundle.document import Bundle
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.evidence import Evidence, Variant, Verdict, evidence_path, load
from gpu_casebook.manifest.case import Case
from gpu_casebook.report import publish
from gpu_casebook.run.record import digest


class Returned(BaseModel):
    """`bundle` is what was packed, without its list of members; `console` what was said there, line by line.

    Without `evidence` nothing was run there, and `skipped` says why.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    schema_version: Literal[1] = 1
    bundle: Bundle
    evidence: Evidence | None = None
    skipped: list[str] = []
    console: str = ""

    @property
    def verdict(self) -> Verdict:
        return self.evidence.verdict if self.evidence else Verdict.SKIPPED

    @property
    def exit_status(self) -> int:
        return self.verdict.exit_status

    def write(self, path: Path) -> None:
        """Whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises CasebookError with the file, what is wrong with it, and what to do."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise UsageError(f"{path}: can't be read: {error.strerror}") from None
        except ValidationError as error:
            first, *more = error.errors()
            where = ".".join(map(str, first["loc"]))
            others = f" (and {len(more)} more)" if more else ""
            told = f"{where}: {first['msg']}" if where else first["msg"]
            raise CasebookError(f"{path}: is no file that bundle-run wrote, or it is damaged: {told}{others}") from None


class Joined(NamedTuple):
    """`page` is the case's page; None where the evidence that is here is later and was kept."""

    page: Path | None
    warnings: list[str]


def join(returned: Returned, case: Case, reports: Path) -> Joined:
    """Put the evidence into `reports`, and render the case's page and the index again.

    Raises CasebookError where the parts of the file do not belong together, or nothing was run there.
    """
    evidence = _evidence(returned)
    path = evidence_path(reports, evidence)
    if path.is_file() and load(path).started > evidence.started:
        return Joined(None, [f"{path.name}: is of a later run, and was kept"])
    return Joined(publish(reports, evidence), list(changes(evidence, case)))


def _evidence(returned: Returned) -> Evidence:
    evidence, bundle = returned.evidence, returned.bundle
    if evidence is None:
        raise CasebookError(f"{bundle.case} was not run there: {'; '.join(returned.skipped) or 'no reason is given'}")
    there = (evidence.case.id, evidence.environment.name, evidence.case.digest)
    if there != (bundle.case, bundle.environment, bundle.case_digest):
        raise CasebookError(f"the evidence is not of the bundle that it names: {bundle.case}, {bundle.environment}")
    return evidence


def changes(evidence: Evidence, case: Case) -> Iterator[str]:
    """What of the case is not as it was when the bundle was packed."""
    if evidence.case.digest != digest(case):
        yield f"{case.id}: manifest or scripts have changed since the bundle was packed"
    name = evidence.environment.name
    if name not in case.manifest.environments:
        yield f"{case.id}: it has no environment {name} any more"
        return
    for path in dict.fromkeys(case.lock_path(name, variant) for variant in Variant):
        if evidence.environment.locks.get(path.name) != _sha256(path):
            yield f"{case.id}: locks/{path.name} has changed since the bundle was packed"


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
