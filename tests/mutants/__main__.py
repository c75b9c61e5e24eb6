"""`nox -s mutants [-- TEXT]`: run the whole matrix, or what has TEXT in its name, and print what came of it."""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.mutants.matrix import left_out, matrix
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
    return 0 if outcomes and all(outcome.right for outcome in outcomes) else 1


def row(outcome: Outcome) -> str:
    verdict = outcome.verdict or "no verdict"
    line = f"{'ok   ' if outcome.right else 'WRONG'} {verdict:<14} {outcome.mutant.name}"
    return line if outcome.right else f"{line}\n      right: {outcome.mutant.right or 'no verdict'}; {outcome.told}"


def summary(outcomes: list[Outcome], took_s: float) -> str:
    count = Counter(str(outcome.verdict or "no verdict") for outcome in outcomes)
    told = ", ".join(f"{times} {verdict}" for verdict, times in count.most_common())
    wrong = sum(not outcome.right for outcome in outcomes)
    return f"{len(outcomes)} combinations in {took_s:.0f} s: {told}; {wrong} wrong"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
