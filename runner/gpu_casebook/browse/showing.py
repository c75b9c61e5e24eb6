"""All that is known of one case, for a person or a program."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import evidence_files, load
from gpu_casebook.files import read_text
from gpu_casebook.judging.expectation import lines as expected_lines
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import MAX_CASE_BYTES, Case
from gpu_casebook.places import as_command, grading_of, reports_of
from gpu_casebook.report.provenance import what_ran
from gpu_casebook.report.readme import Readme, mechanism
from gpu_casebook.report.words import share
from gpu_casebook.text import plural

_SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class ShownEnvironment:
    name: str
    grade: str
    gpus: int
    compute_capability: str | None
    image: str
    requirements: list[str]
    signature: list[str]
    """What repro must show there, one "aspect: value" each."""


@dataclass(frozen=True)
class ShownEvidence:
    verdict: str
    environment: str
    device: str
    engine: str
    repro: str
    fixed: str
    exact: bool
    date: str
    path: str


@dataclass(frozen=True)
class ShownCase:
    id: str
    title: str
    symptom: str | None
    failure: str
    project: str
    status: str
    links: dict[str, str]
    ran: str
    """What of the project runs, in a sentence."""
    saw: str
    why: str
    yours: str
    """How to tell whether a failure is this one. Like `saw`, a section of the README."""
    environments: list[ShownEnvironment]
    files: list[str]
    commands: dict[str, str]
    """By what they do."""
    evidence: list[ShownEvidence]


def shown_case(top: Path, case: Case) -> ShownCase:
    """Return what there is to show of a case of the corpus at `top`, with the evidence there and of the user's runs."""
    manifest, readme = case.manifest, case.directory / "README.md"
    upstream = manifest.upstream
    sections = _sections(readme)
    graded = {"grade a fix of your own": f"casebook grade {case.id} candidate.py"}
    links = {"issue": upstream.issue, "introduced": upstream.introduced, "fixed": upstream.fixed}
    return ShownCase(
        id=case.id,
        title=manifest.title,
        symptom=manifest.symptom,
        failure=manifest.failure.value,
        project=upstream.project,
        status=upstream.status,
        links={name: value for name, value in links.items() if value},
        ran=what_ran(manifest.provenance, upstream.project),
        saw=next((text for title, text in sections.items() if title.startswith("What users")), ""),
        why=mechanism(Readme.read(case.directory).why),
        yours=next((text for title, text in sections.items() if title.startswith("Is your failure")), ""),
        environments=[_environment(case, name) for name in manifest.environments],
        files=[str(path) for path in (readme, *map(case.script, Variant)) if path.is_file()],
        commands={
            "run both scripts and judge them": as_command(f"nox -s case-{case.id}"),
            "judge a run of your own": f"casebook judge {case.id} -- COMMAND",
            "run the failing script alone": f"uv run {case.script(Variant.REPRO)}",
            **(graded if grading_of(top, case.id).is_file() else {}),
        },
        evidence=list(_evidence(top, case.id)),
    )


def lines(case: ShownCase) -> Iterator[str]:
    """Yield the lines for a person."""
    yield f"{case.id}: {case.title}"
    if case.symptom:
        yield f"  {case.symptom}"
    yield f"  {case.failure} in {case.project}, {'fixed' if case.status == 'fixed' else 'open'} upstream. {case.ran}"
    yield from (f"  {name}: {value}" for name, value in case.links.items())
    for heading, text in (("What users saw", case.saw), ("Why", case.why), ("Is your failure this one?", case.yours)):
        if text:
            yield from ("", heading, *(f"  {line}".rstrip() for line in text.splitlines()))
    yield from ("", "Environments")
    for each in case.environments:
        needs = " ".join([plural(each.gpus, "GPU"), each.compute_capability or ""]).strip() if each.gpus else "CPU"
        yield f"  {each.name}: {needs}, {each.grade}; {', '.join(each.requirements) or 'Python alone'}"
        yield f"    fails with {'; '.join(each.signature)}"
    yield from ("", "Files", *(f"  {path}" for path in case.files))
    yield from ("", "To run it", *(f"  {command}  # {what}" for what, command in case.commands.items()))
    yield from ("", "Evidence")
    for seen in case.evidence:
        packages = "as locked" if seen.exact else "drifted"
        yield f"  {seen.verdict}: {seen.environment} on {seen.device}, {seen.engine}, packages {packages}, {seen.date}"
        yield f"    repro as expected in {seen.repro} runs, fixed in {seen.fixed}; {seen.path}"
    if not case.evidence:
        yield "  none yet"


def _sections(readme: Path) -> dict[str, str]:
    with suppress(OSError):
        return {title: text.strip() for title, text in _SECTION.findall(read_text(readme, MAX_CASE_BYTES))}
    return {}


def _environment(case: Case, name: str) -> ShownEnvironment:
    spec = case.environment(name)
    own = [one for variant in Variant for one in case.variant(variant).requirements]
    return ShownEnvironment(
        name=name,
        grade=spec.grade.value,
        gpus=spec.gpus,
        compute_capability=str(spec.compute_capability) if spec.compute_capability else None,
        image=spec.image,
        requirements=[*spec.requirements, *own],
        signature=expected_lines(case.expectation(name, Variant.REPRO)),
    )


def _evidence(top: Path, case: str) -> Iterator[ShownEvidence]:
    for reports in dict.fromkeys([reports_of(top), top / "reports"]):
        for path in evidence_files(reports, case):
            with suppress(CasebookError):  # of another version, or damaged: the next run replaces it
                run = load(path)
                repro, fixed = (share(run.rates.get(variant)) for variant in Variant)
                yield ShownEvidence(
                    verdict=run.verdict.value,
                    environment=run.environment.name,
                    device=run.device,
                    engine=run.engine.name,
                    repro=repro,
                    fixed=fixed,
                    exact=run.environment.exact,
                    date=f"{run.started:%Y-%m-%d}",
                    path=str(path),
                )
