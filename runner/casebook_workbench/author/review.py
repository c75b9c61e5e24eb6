"""The reviewer: all that `check` says, what a maintainer would complain about, both variants for real, and the swap."""

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from casebook_workbench.author import complaints
from casebook_workbench.author.check import check_all
from casebook_workbench.author.complaints import line_of, warning
from failure_signature.bounds import Bound
from failure_signature.judging.signature import Sign, Signature
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Outcome, Verdict
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, ManifestError, Problem, Severity
from gpu_casebook.evidence import Evidence, evidence_files, load
from gpu_casebook.manifest.case import MANIFEST, Case, find, known_images
from gpu_casebook.manifest.document import read
from gpu_casebook.manifest.model import VariantSpec
from gpu_casebook.report.headline import headline, plain
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.run.plan import Skipped

SLOW_S = 60.0
_NEAR = 0.1
"""A figure that is nearer to its bound than this part of it: another machine may be on the other side."""


@dataclass(frozen=True)
class Review:
    """What was found in a case."""

    problems: Sequence[Problem]
    done: Sequence[str]  # lines on what was tried

    def count(self, severity: Severity) -> int:
        return sum(each.severity is severity for each in self.problems)


def static(root: Path, name: str) -> tuple[Case | None, list[Problem]]:
    """Return the case if its manifest is one, and all that is wrong with it without running anything."""
    problems = check_all(root, [name])
    try:
        case = find(root, name, known_images(root))
    except ManifestError:
        return None, problems
    return case, problems + list(_complaints(case, f"cases/{name}", root / "reports"))


def review(root: Path, name: str, options: Options, engine: Engine, console: Console) -> Review:
    """Say everything. Trials are run only if no error was found before: they would show it again, more slowly."""
    case, problems = static(root, name)
    if case is None or any(each.severity is Severity.ERROR for each in problems):
        done = ["not tried: the errors come first"]
    else:
        found, done = _tried(case, options, engine, console)
        problems += found
    order = list(Severity)
    problems.sort(key=lambda each: (order.index(each.severity), each.path, each.line))
    return Review(problems, done)


def _complaints(case: Case, shown: str, reports: Path) -> Iterator[Problem]:
    manifest = f"{shown}/{MANIFEST}"
    yield from complaints.of_manifest(case.manifest, manifest, _lines(case))
    text = (case.directory / MANIFEST).read_text(encoding="utf-8")
    yield from complaints.of_links("\n".join(line.partition(" #")[0] for line in text.splitlines()), manifest)
    yield from complaints.of_privacy(text, manifest)
    scripts = ""
    for variant in Variant:
        try:
            script = case.script(variant).read_text(encoding="utf-8")
            yield from complaints.of_script(script, f"{shown}/{variant}.py")
        except (OSError, SyntaxError, ValueError):
            continue  # `check` has said so
        scripts += script
        yield from complaints.of_privacy(script, f"{shown}/{variant}.py")
    readme = case.directory / "README.md"
    if readme.is_file():
        text = readme.read_text(encoding="utf-8", errors="replace")
        yield from complaints.of_readme(text, f"{shown}/README.md", lambda path: (case.directory / path).exists())
        yield from complaints.of_privacy(text, f"{shown}/README.md")
        yield from complaints.of_title(text, f"{shown}/README.md", case.manifest.title)
        yield from complaints.of_figures(text, f"{shown}/README.md", _known_figures(case, reports), scripts)


def _known_figures(case: Case, reports: Path) -> Mapping[str, list[float | Bound]]:
    """Return what the evidence has of each figure, and how the manifest bounds it in any environment."""
    known: dict[str, list[float | Bound]] = defaultdict(list)
    for name in case.manifest.environments:
        for variant in Variant:
            for figure, bound in case.expectation(name, variant).figures.items():
                known[figure].append(bound)
    for path in evidence_files(reports, case.id):
        with suppress(CasebookError):
            for trial in load(path).trials:
                for figure, value in trial.observation.figures.items():
                    known[figure].append(value)
    return known


def _lines(case: Case) -> Mapping[str, int]:
    """Return the line of everything in the manifest, by its dotted place."""
    with (case.directory / MANIFEST).open("rb") as file:
        document = read(file)
    return {".".join(map(str, location)): spot.line for location, spot in document.spots.items()}


def _tried(case: Case, options: Options, engine: Engine, console: Console) -> tuple[list[Problem], list[str]]:
    """Run both variants, and exchanged: return what is wrong, and lines on what was done."""
    path, lines = f"cases/{case.id}/{MANIFEST}", _lines(case)
    run = run_case(case, options, engine, console)
    if isinstance(run, Skipped):
        line, reasons = line_of(lines, "environments"), [f"not tried here: {why}" for why in run.reasons]
        notes = [Problem(path, line, "", reason, Severity.NOTE) for reason in reasons]
        return notes, ["not tried: no environment can run here"]
    problems = [*_of_run(case, run, path, lines), *_of_the_other(case, run, path, lines)]
    done = [f"tried in environment {run.environment.name}: {run.verdict}"]
    if run.verdict is not Verdict.CONFIRMED:
        return problems, done
    console.say("exchanged: repro.py as fixed.py, fixed.py as repro.py")
    environment = run.environment.name
    with tempfile.TemporaryDirectory(prefix="casebook-swap-") as scratch:
        swapped = replace(options, environment=environment)
        run = run_case(exchanged(case, Path(scratch)), swapped, engine, console)
    if isinstance(run, Skipped):
        return problems, done
    if run.verdict is Verdict.CONFIRMED:
        what = "with repro.py and fixed.py exchanged it is confirmed too, so the expectations do not tell them apart"
        problems.append(Problem(path, line_of(lines, "repro.expect"), "", what))
    return problems, [*done, f"exchanged: {run.verdict}"]


def _of_run(case: Case, run: Evidence, path: str, lines: Mapping[str, int]) -> Iterator[Problem]:
    if run.verdict is not Verdict.CONFIRMED:
        variant = Variant.FIXED if run.verdict is Verdict.FIX_FAILS else Variant.REPRO
        line = line_of(lines, f"{variant}.expect")
        yield Problem(path, line, "", f"{run.verdict} in environment {run.environment.name}: {plain(headline(run))}")
        mismatches = dict.fromkeys(each for trial in run.trials_of(variant) for each in trial.mismatches)
        yield from (Problem(path, line, f"{variant}.expect", each) for each in mismatches)
    for variant in Variant:
        trials = [trial for trial in run.trials_of(variant) if trial.outcome is Outcome.AS_EXPECTED]
        slowest = max((trial.duration_s for trial in trials), default=0.0)
        script = path.replace(MANIFEST, f"{variant}.py")
        if slowest > SLOW_S:
            yield warning(script, 1, f"a trial took {slowest:.0f} s; whoever looks at a bug has less patience")
        for name, bound in case.expectation(run.environment.name, variant).figures.items():
            values = [trial.observation.figures[name] for trial in trials if name in trial.observation.figures]
            if near := near_to(bound, values):
                where = f"{variant}.expect.figures.{name}"
                what = f"{near:.4g} was seen, which is near to the bound {bound}; leave more room"
                yield Problem(path, line_of(lines, where), where, what, Severity.WARNING)


def _of_the_other(case: Case, run: Evidence, path: str, lines: Mapping[str, int]) -> Iterator[Problem]:
    """Say which script's output is also what the manifest expects of the other one, whatever the verdict."""
    repro, fixed = (case.expectation(run.environment.name, variant) for variant in Variant)
    # What shows over several runs, or under a tool, is not in the output of one; a race passes now and then.
    over_runs = repro.differs or repro.sanitizer
    others = {Variant.FIXED: None if over_runs else repro, Variant.REPRO: None if over_runs or repro.rate else fixed}
    for variant, expected in others.items():
        for trial in run.trials_of(variant) if expected else ():
            printed = TrialResult(
                stdout=trial.stdout, stderr=trial.stderr, duration_s=trial.duration_s, infra=trial.infra
            )
            if expected and Signature(expected).read(printed, trial.observation).sign is Sign.SHOWS:
                where = f"{Variant.REPRO if variant is Variant.FIXED else Variant.FIXED}.expect"
                what = f"the output of {variant}.py is as this expects too, so it does not tell the scripts apart"
                yield Problem(path, line_of(lines, where), where, what)
                break


def exchanged(case: Case, scratch: Path) -> Case:
    """Copy the case below `scratch`, and give each variant the other's script, packages and locks."""
    directory = scratch / "cases" / case.id
    shutil.copytree(case.directory, directory, ignore=shutil.ignore_patterns("__pycache__"))
    for variant in Variant:
        other = Variant.FIXED if variant is Variant.REPRO else Variant.REPRO
        shutil.copyfile(case.script(other), directory / f"{variant}.py")
        for name in case.manifest.environments:
            lock = case.lock_path(name, other)
            if lock.is_file():
                shutil.copyfile(lock, directory / "locks" / case.lock_path(name, variant).name)
    manifest = case.manifest
    repro, fixed = (
        VariantSpec(expect=own.expect, requirements=other.requirements, sources=other.sources)
        for own, other in ((manifest.repro, manifest.fixed), (manifest.fixed, manifest.repro))
    )
    return Case(directory, manifest.model_copy(update={"repro": repro, "fixed": fixed}))


def near_to(bound: Bound, values: list[float]) -> float | None:
    """Return a value that holds only just: by less than a tenth of the room that the bound leaves, or of its limit.

    Whole numbers are exact. None if there is no such value.
    """
    sides = {sign[0]: limit for sign, limit in bound.parts}
    width = sides["<"] - sides[">"] if "<" in sides and ">" in sides else None
    for value in values:
        for sign, limit in bound.parts:
            scale = abs(limit) if width is None else width
            if sign[0] in "<>" and not value.is_integer() and abs(value - limit) < _NEAR * scale:
                return value
    return None
