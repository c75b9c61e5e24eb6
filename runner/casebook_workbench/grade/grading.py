"""One candidate: its trials, those of the case's own fix, the reference, and what comes of comparing them."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from casebook_workbench.grade import rules
from casebook_workbench.grade.graded import Graded
from failure_signature.kinds import Variant
from failure_signature.text import one_line
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.guard import Guard, guarded
from gpu_casebook.errors import CasebookError, MachineError, UsageError
from gpu_casebook.files import read_text, unreadable
from gpu_casebook.guest import script
from gpu_casebook.manifest.case import MAX_SCRIPT_BYTES
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan, recipe
from gpu_casebook.trial import TrialRequest

AGAIN = 2
"""A candidate that is too slow is run so often again, with fixed.py: something else may have had the machine."""
_OUTPUT_BYTES = 2**26
_MORE_S = 60.0  # a trial of the case has one call, and a process here has several


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What came of grading a candidate: accepted if nothing stands against it.

    `against` are sentences, the first of them the one to show. `verdict` is the one of `casebook case` that says the
    same: confirmed, fix-fails; inconclusive where the case's own fix fails here. Seconds are of the fastest round.
    """

    verdict: Verdict
    against: Sequence[str] = ()
    seconds: float | None = None
    fixed_seconds: float | None = None
    stderr: str = ""


def candidate_text(path: Path, graded: Graded) -> str:
    """Return a candidate's text: the file itself, or subject.py with a diff applied. Raises UsageError."""
    try:
        text = read_text(path, MAX_SCRIPT_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: {unreadable(error)}") from None
    return _patched(path, text, graded) if path.suffix in {".diff", ".patch"} else text


def _patched(path: Path, diff: str, graded: Graded) -> str:
    targets = {line[4:].split("\t")[0].strip() for line in diff.splitlines() if line.startswith("+++ ")}
    if len(targets) != 1 or Path(*targets).name != "subject.py":
        raise UsageError(f"{path}: changes {', '.join(sorted(targets)) or 'no file'}; it must change subject.py alone")
    strip = str(Path(*targets)).count("/")
    with tempfile.TemporaryDirectory() as place:
        subject = Path(place, "subject.py")
        subject.write_text(graded.texts["subject.py"], encoding="utf-8")
        command = ["git", "apply", f"-p{strip}", "--whitespace=nowarn", "-"]
        # without a repository around it, git takes the diff's paths from this directory
        known = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(Path(place).parent)}
        try:
            done = subprocess.run(
                command, input=diff, cwd=place, env=known, capture_output=True, text=True, check=False, timeout=60
            )
        except FileNotFoundError:
            raise MachineError("there is no git, which applies a diff; install it, or give the whole file") from None
        if done.returncode:
            reason = one_line(done.stderr.strip(), 200)
            raise UsageError(f"{path}: does not apply to cases/{graded.case.id}/grade/subject.py: {reason}")
        return subject.read_text(encoding="utf-8")


def grade(graded: Graded, text: str, engine: Engine, console: Console, seed: int) -> Mark | Skipped:
    """Grade a candidate's text on inputs from this seed. What it may not change is looked at before anything runs."""
    if found := rules.breaches(graded.texts["subject.py"], text, graded.rules):
        return Mark(verdict=Verdict.FIX_FAILS, against=found)
    plan = make_plan(graded.case, Options(environment=graded.grading.environment), engine)
    if isinstance(plan, Skipped):
        return plan
    wanted = recipe(graded.case, plan.environment, Variant.REPRO)
    with guarded(engine, plan.gpus, console.say, share=plan.share) as guard:
        with console.step(f"preparing {wanted.image}") as note:
            prepared = engine.prepare(wanted, note)
        with guard.hold_gpus(console.say):
            return Rounds(graded, plan, guard, prepared, seed).mark(text)


@dataclass(frozen=True)
class Rounds:
    """Trials of `guest/rounds.py` in the environment that has the defect, each with one script and subject.py alone."""

    graded: Graded
    plan: Plan
    guard: Guard
    prepared: Prepared
    seed: int
    again: int = AGAIN

    def mark(self, text: str) -> Mark:
        """Return what comes of a candidate that keeps to the rules. Each side has a trial of its own, in its place."""
        known, texts = self.graded.rules, self.graded.texts
        ours, stderr = self.run({"subject.py": text}, "subject", "solve")
        theirs, _ = self.run({"subject.py": texts["fixed.py"]}, "subject", "solve")
        apart = {name: texts[name] for name in ("subject.py", "check.py")}
        checked, why = self.run(apart, "check", "reference")
        reference = [each["values"] for each in checked["rounds"]]
        if len(reference) < self.graded.grading.rounds:
            why = f"{checked['ended'] or 'it ended too early'}: {_last(why)}"
            return Mark(verdict=Verdict.INCONCLUSIVE, against=[f"the reference can't be computed: {why}"])
        if unfit := rules.wrong(theirs, reference, known) + rules.grows(theirs, known):
            return Mark(verdict=Verdict.INCONCLUSIVE, against=[f"the case's own fixed.py fails here: {unfit[0]}"])
        found = rules.wrong(ours, reference, known)
        ended = str(ours["ended"])
        if found and ended.startswith("exit status") and found[0].endswith(ended):  # a signal leaves no last word
            found[0] = f"{found[0]}: {_last(stderr)}"
        found = found or rules.grows(ours, known)
        if found:
            return Mark(verdict=Verdict.FIX_FAILS, against=found, stderr=stderr)
        candidate, fixed = [ours], [theirs]
        slow = rules.slow(candidate, fixed, known)
        for _ in range(self.again):
            if slow:
                candidate.append(self.run({"subject.py": text}, "subject", "solve")[0])
                fixed.append(self.run({"subject.py": texts["fixed.py"]}, "subject", "solve")[0])
                complete = all(each["rounds"] for each in (*candidate, *fixed))
                slow = rules.slow(candidate, fixed, known) if complete else "does not come to its end each time"
        takes, should = rules.seconds(candidate), rules.seconds(fixed)
        verdict = Verdict.FIX_FAILS if slow else Verdict.CONFIRMED
        return Mark(verdict=verdict, against=[slow] if slow else [], seconds=takes, fixed_seconds=should, stderr=stderr)

    def run(self, files: dict[str, str], module: str, function: str) -> tuple[dict[str, Any], str]:
        """Return what rounds.py says of one process, and what that process printed. Raises MachineError for infra."""
        rounds = script("rounds")
        payload = {name: text.encode() for name, text in files.items()} | {rounds.name: rounds.read_bytes()}
        seeds = [str(self.seed + number) for number in range(self.graded.grading.rounds)]
        limits = self.plan.limits
        request = TrialRequest(
            files=payload,
            arguments=[rounds.name, module, function, *seeds],
            limits=replace(limits, timeout_s=2 * limits.timeout_s + _MORE_S, output_bytes=_OUTPUT_BYTES),
            variables=self.plan.spec.variables,
            gpus=self.plan.gpus,
        )
        result = self.guard.run(self.prepared, request)
        if result.infra:
            raise MachineError(f"a trial can't be run: {result.infra}")
        if result.timed_out or result.out_of_memory or result.exit_status != 0:
            ended = "ran out of time" if result.timed_out else "ran out of memory" if result.out_of_memory else "died"
            return {"rounds": [], "ended": ended}, result.stderr
        try:
            return json.loads(result.stdout) | {"whole": result.duration_s}, result.stderr
        except json.JSONDecodeError:
            raise CasebookError(f"rounds.py printed no JSON: {one_line(result.stdout, 100)}") from None


def _last(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return one_line(lines[-1], 200) if lines else "it printed nothing"
