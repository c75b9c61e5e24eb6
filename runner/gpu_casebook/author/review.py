"""The reviewer: all that `check` says, what a maintainer would complain about, both variants for real, and the swap."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpu_casebook.author import complaints
from gpu_casebook.author.check import check_all
from gpu_casebook.author.complaints import note, warning
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import ManifestError, Problem, Severity
from gpu_casebook.evidence import Evidence, Outcome, Trial, Variant, Verdict
from gpu_casebook.manifest.bounds import Bound
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

    problems: tuple[Problem, ...]
    done: tuple[str, ...] = ()  # lines on what was tried

    def count(self, severity: Severity) -> int:
        return sum(each.severity is severity for each in self.problems)


def static(root: Path, name: str) -> tuple[Case | None, list[Problem]]:
    """All that can be said without running anything, and the case if its manifest is one."""
    checked = check_all(root, [name])
    problems = [*checked.problems, *checked.warnings]
    try:
        case = find(root, name, known_images(root))
    except ManifestError:
        return None, problems
    return case, problems + list(_complaints(case, f"cases/{name}"))


def review(root: Path, name: str, options: Options, engine: Engine, console: Console) -> Review:
    """Everything. Trials are run only where no error was found before: they would show it again, more slowly."""
    case, problems = static(root, name)
    if case is None or any(each.severity is Severity.ERROR for each in problems):
        return Review(tuple(_sorted(problems)), ("not tried: the errors come first",))
    tried = Tried(case, options, engine, console)
    problems += tried.problems()
    return Review(tuple(_sorted(problems)), tuple(tried.done))


def _sorted(problems: list[Problem]) -> list[Problem]:
    order = list(Severity)
    return sorted(problems, key=lambda each: (order.index(each.severity), each.path, each.line))


def _complaints(case: Case, shown: str) -> Iterator[Problem]:
    manifest, lines = f"{shown}/{MANIFEST}", _lines(case)
    yield from complaints.of_manifest(case.manifest, manifest, lines)
    text = (case.directory / MANIFEST).read_text(encoding="utf-8")
    yield from complaints.of_links("\n".join(line.partition(" #")[0] for line in text.splitlines()), manifest)
    yield from complaints.of_privacy(text, manifest)
    for variant in Variant:
        try:
            script = case.script(variant).read_text(encoding="utf-8")
            yield from complaints.of_script(script, f"{shown}/{variant}.py")
        except (OSError, SyntaxError, ValueError):
            continue  # `check` has said so
        yield from complaints.of_privacy(script, f"{shown}/{variant}.py")
    readme = case.directory / "README.md"
    if readme.is_file():
        text = readme.read_text(encoding="utf-8", errors="replace")
        yield from complaints.of_readme(text, f"{shown}/README.md", lambda path: (case.directory / path).exists())
        yield from complaints.of_privacy(text, f"{shown}/README.md")


def _lines(case: Case) -> Mapping[str, int]:
    """Line by dotted place, of what stands in the manifest."""
    with (case.directory / MANIFEST).open("rb") as file:
        document = read(file)
    return {".".join(map(str, location)): spot.line for location, spot in document.spots.items()}


@dataclass(frozen=True)
class Tried:
    """Both variants by real runs, and exchanged."""

    case: Case
    options: Options
    engine: Engine
    console: Console
    done: list[str] = field(default_factory=list)

    @property
    def _path(self) -> str:
        return f"cases/{self.case.id}/{MANIFEST}"

    def problems(self) -> list[Problem]:
        run = run_case(self.case, self.options, self.engine, self.console)
        if isinstance(run, Skipped):
            self.done.append("not tried: no environment can run here")
            return [note(self._path, self._line("environments"), f"not tried here: {why}") for why in run.reasons]
        self.done.append(f"tried in environment {run.environment.name}: {run.verdict}")
        found = list(self._of_run(run))
        if run.verdict is Verdict.CONFIRMED:
            found += self._of_swap(run.environment.name)
        return found

    def _line(self, *places: str) -> int:
        lines = _lines(self.case)
        return next((lines[place] for place in places if place in lines), 1)

    def _of_run(self, run: Evidence) -> Iterator[Problem]:
        if run.verdict is not Verdict.CONFIRMED:
            variant = Variant.FIXED if run.verdict is Verdict.FIX_FAILS else Variant.REPRO
            line = self._line(f"{variant}.expect", variant)
            what = f"{run.verdict} in environment {run.environment.name}: {plain(headline(run))}"
            yield Problem(self._path, line, "", what)
            mismatches = dict.fromkeys(each for trial in run.trials_of(variant) for each in trial.mismatches)
            yield from (Problem(self._path, line, f"{variant}.expect", each) for each in mismatches)
        for variant in Variant:
            yield from self._of_trials(variant, run)

    def _of_trials(self, variant: Variant, run: Evidence) -> Iterator[Problem]:
        trials = [trial for trial in run.trials_of(variant) if trial.outcome is Outcome.AS_EXPECTED]
        slowest = max((trial.duration_s for trial in trials), default=0.0)
        script = self._path.replace(MANIFEST, f"{variant}.py")
        if slowest > SLOW_S:
            yield warning(script, 1, f"a trial took {slowest:.0f} s; whoever looks at a bug has less patience")
        bounds = self.case.expectation(run.environment.name, variant).figures
        for name, bound in bounds.items():
            values = [trial.observation.figures[name] for trial in trials if name in trial.observation.figures]
            if near := near_to(bound, values):
                where = f"{variant}.expect.figures.{name}"
                done = f"{near:.4g} was seen, which is near to the bound {bound}; leave more room"
                yield warning(self._path, self._line(where, f"{variant}.expect"), done, where)
        yield from self._of_noise(variant, trials, script)

    def _of_noise(self, variant: Variant, trials: list[Trial], script: str) -> Iterator[Problem]:
        longest = max((len(trial.stdout) for trial in trials), default=0)
        if longest > 10_000:
            yield warning(script, 1, f"{variant} prints {longest} characters to stdout; what matters drowns in them")

    def _of_swap(self, environment: str) -> Iterator[Problem]:
        """repro.py in fixed.py's place and the other way round must not be confirmed."""
        self.console.say("exchanged: repro.py as fixed.py, fixed.py as repro.py")
        trials = None if self.case.expectation(environment, Variant.REPRO).rate else 1
        options = replace(self.options, environment=environment, trials=trials)
        with tempfile.TemporaryDirectory(prefix="casebook-swap-") as scratch:
            run = run_case(exchanged(self.case, Path(scratch)), options, self.engine, self.console)
        if isinstance(run, Skipped):
            return
        self.done.append(f"exchanged: {run.verdict}")
        if run.verdict is Verdict.CONFIRMED:
            what = (
                "with repro.py and fixed.py exchanged it is confirmed too, so the expectations do not tell them apart"
            )
            yield Problem(self._path, self._line("repro.expect", "repro"), "", what)


def exchanged(case: Case, scratch: Path) -> Case:
    """A copy of the case, below `scratch`, in which each variant has the other's script, packages and locks."""
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
        VariantSpec(expect=own.expect, requirements=other.requirements)
        for own, other in ((manifest.repro, manifest.fixed), (manifest.fixed, manifest.repro))
    )
    return Case(directory, manifest.model_copy(update={"repro": repro, "fixed": fixed}))


def near_to(bound: Bound, values: list[float]) -> float | None:
    """A value that holds only just: by less than a tenth of the room that the bound leaves, or else of its limit.

    Whole numbers are exact.
    """
    sides = {sign[0]: limit for sign, limit in bound.parts}
    width = sides["<"] - sides[">"] if "<" in sides and ">" in sides else None
    for value in values:
        for sign, limit in bound.parts:
            scale = abs(limit) if width is None else width
            if sign[0] in "<>" and not value.is_integer() and abs(value - limit) < _NEAR * scale:
                return value
    return None
