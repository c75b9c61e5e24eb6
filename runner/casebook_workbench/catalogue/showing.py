"""All that is known of one case, for a person or a program."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from casebook_workbench.catalogue.entry import Entry
from failure_signature.judging.outcome import lines as expected_lines
from failure_signature.kinds import Variant
from failure_signature.text import plural
from gpu_casebook.evidence import Evidence
from gpu_casebook.manifest.case import Case
from gpu_casebook.places import as_command, grading_of, reports_of
from gpu_casebook.report.provenance import what_ran
from gpu_casebook.report.readme import mechanism
from gpu_casebook.report.words import share


def shown_case(top: Path, case: Case) -> dict[str, Any]:
    """Return what there is to show of a case of the corpus at `top`, with the evidence there and of the user's runs.

    `saw`, `why` and `yours` (how to tell whether a failure is this one) are from the README.
    """
    entry = Entry.read(case, reports_of(top), top / "reports")
    upstream, readme = case.manifest.upstream, entry.readme
    graded = {"grade a fix of your own": f"casebook grade {case.id} candidate.py"}
    links = {"issue": upstream.issue, "introduced": upstream.introduced, "fixed": upstream.fixed}
    files = [case.directory / "README.md", *map(case.script, Variant)]
    return entry.facts | {
        "links": {name: value for name, value in links.items() if value},
        "ran": what_ran(case.manifest.provenance, upstream.project),
        "saw": readme.saw,
        "why": mechanism(readme.why),
        "yours": readme.yours,
        "environments": [_environment(case, name) for name in case.manifest.environments],
        "files": [str(path) for path in files if path.is_file()],
        "commands": {
            "run both scripts and judge them": as_command(f"nox -s case-{case.id}"),
            "judge a run of your own": f"casebook judge {case.id} -- COMMAND",
            "run the failing script alone": f"uv run {case.script(Variant.REPRO)}",
            **(graded if grading_of(top, case.id).is_file() else {}),
        },
        "evidence": [_evidence(path, run) for path, run in entry.runs.items()],
    }


def lines(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for a person."""
    yield f"{case['id']}: {case['title']}"
    if case["symptom"]:
        yield f"  {case['symptom']}"
    yield f"  {case['failure']} in {case['project']}, {case['status']} upstream. {case['ran']}"
    yield from (f"  {name}: {value}" for name, value in case["links"].items())
    for heading, key in (("What users saw", "saw"), ("Why", "why"), ("Is your failure this one?", "yours")):
        if case[key]:
            yield from ("", heading, *(f"  {line}".rstrip() for line in case[key].splitlines()))
    yield from ("", "Environments")
    for each in case["environments"]:
        needs = f"{plural(each['gpus'], 'GPU')} {each['compute_capability'] or ''}".rstrip() if each["gpus"] else "CPU"
        yield f"  {each['name']}: {needs}, {each['grade']}; {', '.join(each['requirements']) or 'Python alone'}"
        yield f"    fails with {'; '.join(each['signature'])}"
    yield from ("", "Files", *(f"  {path}" for path in case["files"]))
    yield from ("", "To run it", *(f"  {command}  # {what}" for what, command in case["commands"].items()))
    yield from ("", "Evidence")
    for seen in case["evidence"]:
        packages = "as locked" if seen["exact"] else "drifted"
        where = f"{seen['environment']} on {seen['device']}, {seen['engine']}"
        yield f"  {seen['verdict']}: {where}, packages {packages}, {seen['date']}"
        yield f"    repro as expected in {seen['repro']} runs, fixed in {seen['fixed']}; {seen['path']}"
    if not case["evidence"]:
        yield "  none yet"


def _environment(case: Case, name: str) -> dict[str, Any]:
    """Return an environment; `signature` is what repro must show there, one "aspect: value" each."""
    spec = case.environment(name)
    return {
        "name": name,
        "grade": spec.grade.value,
        "gpus": spec.gpus,
        "compute_capability": str(spec.compute_capability) if spec.compute_capability else None,
        "image": spec.image,
        "requirements": [*spec.requirements, *(one for each in Variant for one in case.variant(each).requirements)],
        "signature": expected_lines(case.expectation(name, Variant.REPRO)),
    }


def _evidence(path: Path, run: Evidence) -> dict[str, Any]:
    repro, fixed = (share(run.rates.get(variant)) for variant in Variant)
    return {
        "verdict": run.verdict.value,
        "environment": run.environment.name,
        "device": run.device,
        "engine": run.engine.name,
        "repro": repro,
        "fixed": fixed,
        "exact": run.environment.exact,
        "date": f"{run.started:%Y-%m-%d}",
        "path": str(path),
    }
