"""`nox -s mutants [-- TEXT]`: run the whole matrix, or what has TEXT in its name, and print what came of it."""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.mutants.matrix import left_out, matrix
from tests.mutants.mutations import Mutation
from tests.mutants.stage import Outcome, judge_all


def main(words: list[str]) -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="casebook-mutants-") as directory:
        place = Path(directory)
        chosen = [mutant for mutant in matrix(place / "cases") if " ".join(words) in mutant.name]
        outcomes = []
        for outcome in judge_all(chosen, place / "trials"):
            outcomes.append(outcome)
            print(row(outcome), flush=True)
    for line in left_out():
        print(line)
    print(summary(outcomes, time.monotonic() - begun))
    for line in totals(outcomes):
        print(line)
    return 0 if outcomes and all(outcome.right for outcome in outcomes) else 1


def row(outcome: Outcome) -> str:
    asked = outcome.mutant.mutation
    line = f"{'ok   ' if outcome.right else 'WRONG'} {came_out(outcome):<14} {asked.part:<13} {outcome.mutant.name}"
    if not outcome.right:
        said = f"; check: {' | '.join(outcome.said) or 'nothing'}" if asked.for_a_reader else ""
        return f"{line}\n      right: {expected(asked)}; {outcome.told}{said}"
    if asked.said:
        return f"{line}\n      check: {outcome.said[0]}"
    return f"{line}\n      {asked.why_not}" if asked.why_not else line


def came_out(outcome: Outcome) -> str:
    return "refused" if outcome.refused else outcome.verdict or "no verdict"


def expected(asked: Mutation) -> str:
    verdict = "refused" if asked.refused else asked.right or "no verdict"
    exact = {None: "", True: ", exact", False: ", not exact"}[asked.exact]
    return f"{verdict}{exact}" + (f", with {asked.told!r}" if asked.told else "")


def summary(outcomes: list[Outcome], took_s: float) -> str:
    count = Counter(came_out(outcome) for outcome in outcomes)
    told = ", ".join(f"{times} {verdict}" for verdict, times in count.most_common())
    wrong = sum(not outcome.right for outcome in outcomes)
    return f"{len(outcomes)} combinations in {took_s:.0f} s: {told}; {wrong} wrong"


def totals(outcomes: list[Outcome]) -> list[str]:
    """Return how many there are, and of how many the runner, a rule and a reader had the last word."""
    parts = Counter(outcome.mutant.mutation.part for outcome in outcomes)
    changed = ", ".join(f"{times} {part}" for part, times in parts.most_common())
    left = [outcome for outcome in outcomes if outcome.mutant.mutation.for_a_reader]
    warned = sum(bool(outcome.said) for outcome in left)
    return [
        f"total: {len(outcomes)} ({changed})",
        f"false confirmed by the runner's fault: {sum(outcome.false for outcome in outcomes)}",
        f"refused by rule: {sum(outcome.refused for outcome in outcomes)}",
        f"left to the reader: {len(left)} ({warned} with a word of check, {len(left) - warned} that no rule can see)",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
