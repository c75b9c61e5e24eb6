"""Forked trials of a case, as many at once as a run has, against fresh ones in a row; part of tests/bench.py.

`python -m tests.bench_forked --case CASE --environment NAME --trials N`, or `nox -s bench -- forked-docker` with the
variables CASEBOOK_BENCH_CASE, CASEBOOK_BENCH_ENVIRONMENT, CASEBOOK_BENCH_TRIALS, CASEBOOK_BENCH_FRESH (as many fresh
ones, where so many would take too long), CASEBOOK_BENCH_ENGINE, CASEBOOK_BENCH_IMAGE (in the place of the case's own),
CASEBOOK_BENCH_GPU and CASEBOOK_BENCH_AT_ONCE (no more forked ones at once than so many). The variant is repro, the
rates are how often it failed as declared.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.engines.guard import guarded
from gpu_casebook.evidence import Outcome
from gpu_casebook.judging.expectation import judge, observe
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import find, known_images
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan, recipe
from gpu_casebook.run.trials import at_once
from gpu_casebook.statistics import differ, wilson
from gpu_casebook.trial import TrialResult
from tests.bench import ROOT, row

NAME = "forked-docker"
CASE = "torch-fx-trace-other-thread"
ENVIRONMENT = "cpu"
TRIALS = 20
VARIANT = Variant.REPRO


class Ran(NamedTuple):
    """Trials: the seconds for all of them with all that is around them, and outcomes."""

    wall_s: float
    at_once: int
    each_s: Sequence[float]
    failed: int
    story: str

    @property
    def n(self) -> int:
        return len(self.each_s)

    @property
    def mean_s(self) -> float:
        return self.wall_s / self.n

    @property
    def rate(self) -> str:
        low, high = wilson(self.failed, self.n)
        return f"{self.failed} of {self.n} ({100 * low:.0f} to {100 * high:.0f} %)"


def trials(plan: Plan, engine: Engine, count: int, *, forked: bool, at_once: int = 1) -> Ran:
    prepared = engine.prepare(recipe(plan.case, plan.environment, VARIANT, plan.options), lambda _line: None)
    request = replace(plan.request(VARIANT, plan.case.payload()), zygote=forked)
    expectation = plan.case.expectation(plan.environment, VARIANT)

    def timed(_number: int) -> tuple[float, TrialResult]:
        begun = time.perf_counter()
        result = guard.run(prepared, request)
        return time.perf_counter() - begun, result

    with (
        guarded(engine, plan.gpus, print, share=plan.share) as guard,
        guard.hold_gpus(print),
        ThreadPoolExecutor(at_once) as pool,
    ):
        begun = time.perf_counter()
        ran = list(pool.map(timed, range(count)))
        wall_s = time.perf_counter() - begun
    failed = 0
    for _, result in ran:
        outcome = judge(expectation, result, observe(result, f"{VARIANT}.py"), None).outcome
        if outcome is Outcome.INFRA:
            sys.exit(f"{NAME}: the machine spoiled a trial: {result.infra or result.stderr}")
        failed += outcome is Outcome.AS_EXPECTED
    stories = dict.fromkeys(result.zygote or "fresh" for _, result in ran)
    return Ran(wall_s, at_once, [each_s for each_s, _ in ran], failed, "; ".join(stories))


def told(name: str, ran: Ran) -> Ran:
    """Print it at once: the next part may take minutes."""
    each = f"{ran.mean_s:.2f} s a trial (from begin to end {statistics.median(ran.each_s):.2f} s, {ran.at_once} at once"
    row("", f"{name}: {each}, first {ran.each_s[0]:.2f} s), failed in {ran.rate}")
    return ran


def main(words: Sequence[str]) -> None:
    given = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__, prog="bench_forked")
    parser.add_argument("--case", default=given("CASEBOOK_BENCH_CASE", CASE))
    parser.add_argument("--environment", default=given("CASEBOOK_BENCH_ENVIRONMENT", ENVIRONMENT))
    parser.add_argument("--trials", type=int, default=int(given("CASEBOOK_BENCH_TRIALS", str(TRIALS))))
    parser.add_argument("--fresh", type=int, default=int(given("CASEBOOK_BENCH_FRESH", "0")))
    parser.add_argument("--engine", default=given("CASEBOOK_BENCH_ENGINE", "docker"))
    parser.add_argument("--image", default=given("CASEBOOK_BENCH_IMAGE"))
    parser.add_argument("--at-once", type=int, default=given("CASEBOOK_BENCH_AT_ONCE"))
    parser.add_argument("--gpu", type=int, default=given("CASEBOOK_BENCH_GPU"))
    asked = parser.parse_args(words)
    found = find(ROOT, asked.case, known_images(ROOT))
    with registry.kind(asked.engine).connect(ROOT) as engine:
        gpus = None if asked.gpu is None else [asked.gpu]
        options = Options(environment=asked.environment, gpus=gpus, image=asked.image, at_once=asked.at_once)
        plan = make_plan(found, options, engine)
        if isinstance(plan, Skipped):
            return row(NAME, f"not measured: {'; '.join(plan.reasons)}")
        trials(plan, engine, 1, forked=False)  # what is read from the disk is in memory then
        row(NAME, f"{asked.case}/{asked.environment} ({asked.engine})")
        fresh = told("fresh", trials(plan, engine, asked.fresh or asked.trials, forked=False))
        forked = told("forked", trials(plan, engine, asked.trials, forked=True, at_once=at_once(plan, engine)))
    ratio = fresh.mean_s / forked.mean_s
    row("", f"{forked.n} forked trials: {ratio:.1f} times faster (wanted 4)")
    apart = differ(fresh.failed, fresh.n, forked.failed, forked.n)
    row("", f"rates {'DIFFER' if apart else 'do not differ'} at 5 %; {forked.story}")
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
