"""Candidates that are no fix, for every case that can be graded: each must be refused, and the known fix accepted.

    python -m tests.grade_table [--engine NAME] [CASE]...

prints the table, and exits with 1 if one of them got through or a known fix did not.
"""

import argparse
import ast
import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from casebook_workbench.grade import rules
from casebook_workbench.grade.graded import Graded, gradable, load
from casebook_workbench.grade.grading import Mark, Rounds
from failure_signature.kinds import Variant
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.engines.guard import guarded
from gpu_casebook.engines.registry import choose
from gpu_casebook.errors import CasebookError
from gpu_casebook.manifest.case import find, known_images
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Skipped, make_plan, recipe

ROOT = Path(__file__).parents[1]
FIX = "the known fix"

_HALF = """
def _half(value):
    if hasattr(value, "shape") and len(value.shape):
        return value[: (len(value) + 1) // 2]
    if isinstance(value, (list, str)):
        return value[: (len(value) + 1) // 2]
    if isinstance(value, dict):
        return {key: _half(each) for key, each in value.items()}
    return value if isinstance(value, bool) or not isinstance(value, (int, float)) else type(value)(value / 2)

"""


def graded_cases() -> list[str]:
    return gradable(ROOT)


def of(case: str) -> Graded:
    return load(ROOT, find(ROOT, case, known_images(ROOT)))


def with_solve(text: str, body: str, before: str = "") -> str:
    """Return a script whose solve has this body; the old one is there as `_known`, and `given` are its arguments."""
    (solve,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == "solve"]
    given = ", ".join(f"{each.arg}={each.arg}" for each in solve.args.args)
    new = f"def solve({ast.unparse(solve.args)}):\n    given = dict({given})\n"
    lines = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    return f"{text.replace('def solve(', 'def _known(', 1)}\n{before}\n{new}{lines}"


def degenerate(graded: Graded) -> dict[str, str]:
    """Return candidates by what they do. Those that are refused before they run are among them."""
    subject, fixed, check = (graded.texts[name] for name in ("subject.py", "fixed.py", "check.py"))
    dead = "".join(f"\n    given.{name}" for name in graded.grading.keeps)
    recorded = json.dumps({"rounds": [], "ended": None})
    return {
        "as it was": subject,
        "prints the proof": with_solve(
            subject, f"print('accepted: equal to the reference')\nprint({recorded!r}, flush=True)\nif not given:{dead}"
        ),
        "catches and passes": with_solve(
            subject, "try:\n    return _known(**given)\nexcept BaseException:\n    return {}"
        ),
        "smaller input": with_solve(
            fixed, "return _known(**{name: _half(each) for name, each in given.items()})", _HALF
        ),
        "slower path": with_solve(
            fixed,
            "import time\nbegun = time.perf_counter()\nout = _known(**given)\n"
            "time.sleep(10 * (time.perf_counter() - begun) + 1)\nreturn out",
        ),
        "imports the reference": with_solve(
            subject, f"if not given:{dead}\nfrom check import reference\nreturn reference(**given)"
        ),
        "copies the reference": _without_known(subject, check),
        "other inputs": with_solve(fixed, "return _known(**given)").replace("def inputs(seed):", "def inputs(seed=0):"),
    }


REFUSED_UNRUN = ("copies the reference", "other inputs")
"""What breaks a rule that the text alone shows."""


def _without_known(subject: str, check: str) -> str:
    """Return a candidate that has the text of check.py, and leaves the package aside."""
    tree = ast.parse(subject)
    (solve,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "solve"]
    lines = subject.splitlines()
    arguments = ", ".join(f"{each.arg}={each.arg}" for each in solve.args.args)
    new = [f"def solve({ast.unparse(solve.args)}):", f"    return reference({arguments})"]
    kept = [*lines[: solve.lineno - 1], *new, *lines[solve.end_lineno :]]
    checks = [node for node in ast.parse(check).body if getattr(node, "module", None) != "subject"]
    taken = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    added = [ast.unparse(node) for node in checks if not isinstance(node, ast.FunctionDef) or node.name not in taken]
    functions = [each for each in added if not each.startswith(("'", '"'))]
    return "\n".join([*kept, *functions, ""])


def constants(values: Any) -> str:
    """Return the body of a solve that hands out what was right for another seed."""
    return (
        f"import json\nvalues = json.loads({json.dumps(values)!r})\n"
        "def back(value):\n"
        "    if isinstance(value, dict) and set(value) == {'dtype', 'shape', 'values'}:\n"
        "        import torch\n"
        "        made = torch.tensor(value['values'], dtype=getattr(torch, value['dtype'], torch.float32))\n"
        "        return made.reshape(value['shape'])\n"
        "    if isinstance(value, dict):\n        return {key: back(each) for key, each in value.items()}\n"
        "    return [back(each) for each in value] if isinstance(value, list) else value\n"
        "return back(values)"
    )


def rows(graded: Graded, engine: Engine, console: Console) -> Iterator[tuple[str, bool, str]]:
    """Yield each candidate, whether it was accepted, and why not; what is right and the fix's times are taken once."""
    plan = make_plan(graded.case, Options(environment=graded.grading.environment), engine)
    if isinstance(plan, Skipped):
        raise CasebookError(f"can't run here: {'; '.join(plan.reasons)}")
    with guarded(engine, plan.gpus, console.say, share=plan.share) as guard, guard.hold_gpus(console.say):
        prepared = engine.prepare(recipe(graded.case, plan.environment, Variant.REPRO), lambda _: None)
        seed = secrets.randbelow(2**31)
        once = Once(graded, plan, guard, prepared, seed, again=0)
        known = graded.texts["fixed.py"]
        mark = once.mark(known)
        yield FIX, mark.verdict is Verdict.CONFIRMED, mark.against[0] if mark.against else ""
        if mark.verdict is Verdict.INCONCLUSIVE:
            return
        other = Rounds(graded, plan, guard, prepared, seed + 1000)
        values = other.run({"subject.py": known}, "subject", "solve")[0]["rounds"][0]["values"]
        dead = "".join(f"\n    given.{name}" for name in graded.grading.keeps)
        all_ = degenerate(graded) | {
            "constants": with_solve(graded.texts["subject.py"], f"if not given:{dead}\n{constants(values)}")
        }
        for name, text in all_.items():
            against = rules.breaches(graded.texts["subject.py"], text, graded.rules)
            mark = Mark(verdict=Verdict.FIX_FAILS, against=against) if against else once.mark(text)
            yield name, mark.verdict is Verdict.CONFIRMED, mark.against[0] if mark.against else ""


class Once(Rounds):
    """Rounds that take the reference, and those of the known fix, once for all candidates."""

    def run(self, files: dict[str, str], module: str, function: str) -> tuple[dict[str, Any], str]:
        if module == "subject" and files["subject.py"] != self.graded.texts["fixed.py"]:
            return super().run(files, module, function)
        if module not in _KEPT.setdefault(id(self), {}):
            _KEPT[id(self)][module] = super().run(files, module, function)
        return _KEPT[id(self)][module]


_KEPT: dict[int, dict[str, tuple[dict[str, Any], str]]] = {}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default="venv")
    parser.add_argument("cases", nargs="*")
    asked = parser.parse_args(arguments)
    console, wrong, refused, accepted = Console(sys.stderr), 0, 0, 0
    with choose(asked.engine, ROOT, console.say) as engine:
        for case in asked.cases or graded_cases():
            print(f"{case}", flush=True)
            try:
                for name, passed, why in rows(of(case), engine, console):
                    right = passed == (name == FIX)
                    wrong += not right
                    accepted, refused = accepted + passed, refused + (not passed)
                    said = "accepted" if passed else f"refused: {why}"
                    print(f"  {'' if right else 'WRONG '}{name}: {said}", flush=True)
            except CasebookError as error:
                wrong += 1
                print(f"  WRONG {error}", flush=True)
    print(f"{accepted} accepted, {refused} refused, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
