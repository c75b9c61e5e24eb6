"""What sharing a GPU gains, and whether it changes anything; part of tests/bench.py, for a machine with a GPU.

Variables say what is measured: CASEBOOK_BENCH_CASES (patterns, with blanks between), CASEBOOK_BENCH_GPU (its index;
with several, "0 1", those take parts of what runs without sharing, and the first is shared), CASEBOOK_BENCH_ALONE (so
many trials of each variant alone stand for all: enough for the seconds, where there is no time for more),
CASEBOOK_BENCH_LIMIT_S (what runs without sharing is ended then), CASEBOOK_BENCH_IMAGE (run all in this image as it
stands; cases that need more than is in it are left out) and CASEBOOK_BENCH_KEEP (a directory for evidence and logs:
what is there from an earlier call, on the same machine, is not run again). Run the cases once before, so that images
and their files are in memory.
"""

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from failure_signature.kinds import Variant
from failure_signature.trials import Outcome, Trial
from gpu_casebook.devices import hardware, ledger
from gpu_casebook.evidence import Evidence, load
from gpu_casebook.manifest.case import discover, find, known_images
from gpu_casebook.run.needs import needs
from tests.bench import ROOT, RUNNER, row

ENVIRONMENT = "current"
ENDED = (0, 20, 21)  # all confirmed, some not, something broke
SINGLE = 5
"""So many cases that share are timed by themselves."""


class Ran(NamedTuple):
    """A run of the corpus: its seconds, the evidence of each case that came to an end, and how busy the cores were.

    `busy` is a share of all cores of the host: near 1, no more trials fit, whatever the GPU has left.
    """

    wall_s: float
    evidence: dict[str, Evidence]
    busy: float = math.nan


def corpus(
    place: Path, gpu: int, cases: Sequence[str], options: Sequence[str] = (), limit_s: float | None = None
) -> Ran:
    """Run the cases, unless `place` has all that came of them."""
    took = place / "seconds"
    if not took.exists():
        command = [*RUNNER, "corpus", *cases, "--environment", ENVIRONMENT, "--gpu", str(gpu), "--no-probes"]
        if image := os.environ.get("CASEBOOK_BENCH_IMAGE"):
            command += ["--image", image]
        place.mkdir(parents=True, exist_ok=True)
        begun, cores = time.perf_counter(), psutil.cpu_times()
        with (place / "log").open("a") as log:
            process = subprocess.Popen(
                [*command, "--max-age", "0", "--reports", str(place), *options], cwd=ROOT, stdout=log, stderr=log
            )
            try:
                status = process.wait(limit_s)
                wall_s = time.perf_counter() - begun
                if status not in ENDED:
                    sys.exit(f"gpu-share: corpus ended with exit status {status}: see {log.name}")
                took.write_text(f"{wall_s} {busy(cores, psutil.cpu_times())}")
            except subprocess.TimeoutExpired:
                process.terminate()  # SIGINT is ignored in what a shell began in the background
                process.wait()
    wall_s, cores_busy = map(float, took.read_text().split()) if took.exists() else (math.inf, math.nan)
    return Ran(wall_s, kept(place), cores_busy)


def busy(before: Any, after: Any) -> float:
    """Return how busy the cores were between two readings of psutil.cpu_times()."""
    total_s = sum(after) - sum(before)
    return float(1 - (after.idle + after.iowait - before.idle - before.iowait) / total_s)


def kept(place: Path) -> dict[str, Evidence]:
    found = [load(path) for path in sorted((place / "evidence").rglob("*.json"))]
    return {each.case.id: each for each in found}


def alone(place: Path, gpus: Sequence[int], cases: Sequence[str], limit_s: float | None) -> dict[str, Evidence]:
    """Run each trial alone on a GPU; return the evidence of each case that ended before the limit."""
    options = ["--jobs", "1", "--at-once", "1"]
    if trials := os.environ.get("CASEBOOK_BENCH_ALONE"):
        options += ["--trials", trials]

    def part(number: int, gpu: int) -> dict[str, Evidence]:
        there = place / str(gpu)
        left = [case for case in cases[number :: len(gpus)] if case not in kept(there)]
        return corpus(there, gpu, left, options, limit_s).evidence if left else kept(there)

    with ThreadPoolExecutor(len(gpus)) as pool:
        parts = list(pool.map(part, *zip(*enumerate(gpus), strict=True)))
    return {case: each for found in parts for case, each in found.items()}


def seconds_of(evidence: Evidence) -> float:
    """Return the seconds from the first trial's start to the last one's end."""
    starts = [(trial.started.timestamp(), trial.duration_s) for trial in evidence.trials if trial.started]
    return max(start + took for start, took in starts) - min(start for start, _ in starts)


def outcomes(evidence: Evidence) -> dict[tuple[Variant, int], list[Outcome]]:
    """Return what came of each trial, with its tries that the machine spoiled."""
    found: dict[tuple[Variant, int], list[Outcome]] = {}
    for trial in evidence.trials:
        found.setdefault((trial.variant, trial.number), []).append(trial.outcome)
    return found


def alike(alone: Evidence, shared: Evidence) -> bool:
    """Return whether all trials that ran alone came to the same side by side, without a repetition."""
    repeated = shared.sharing and shared.sharing.repeated
    return not repeated and outcomes(alone).items() <= outcomes(shared).items()


def alone_s(alone: Evidence, shared: Evidence) -> float:
    """Return how long the trials that ran side by side would have taken in all, had each run alone."""
    return _each_alone_s(alone.trials, shared.trials) + _each_alone_s(alone.sanitized, shared.sanitized)


def _each_alone_s(alone: Sequence[Trial], shared: Sequence[Trial]) -> float:
    mean_s = {
        variant: statistics.fmean(trial.duration_s for trial in alone if trial.variant is variant)
        for variant in {trial.variant for trial in alone}
    }
    return sum(mean_s[trial.variant] for trial in shared)


def share(case: str, gpu: int) -> float:
    """Return which part of the GPU's slots a trial takes."""
    size = next(each.memory_bytes for each in hardware.gpus() if each.index == gpu)
    found = find(ROOT, case, known_images(ROOT))
    if found.alone(ENVIRONMENT):
        return 1.0
    memory = max(found.environment(ENVIRONMENT).gpu_memory or 0, needs(found, ENVIRONMENT).memory_bytes)
    return ledger.share(memory, size) / ledger.slots(size)


def sharing(patterns: Sequence[str], gpu: int) -> list[str]:
    """Return the cases that share: what wants a GPU alone is the same in both runs, and would use up the limit."""
    images = known_images(ROOT)
    ids = [id_ for id_ in discover(ROOT) if any(fnmatch(id_, each) for each in patterns)]
    return [id_ for id_ in ids if ENVIRONMENT in find(ROOT, id_, images).manifest.environments and share(id_, gpu) < 1]


def gpu_share() -> None:
    """The same cases with every trial alone, and side by side: seconds, and whether a trial came to anything else."""
    if not hardware.gpus():
        return row("gpu-share", "not measured: this machine has no GPU")
    gpus = [int(index) for index in os.environ.get("CASEBOOK_BENCH_GPU", "0").split()]
    cases = sharing(os.environ.get("CASEBOOK_BENCH_CASES", "*").split(), gpus[0])
    limit_s = float(os.environ["CASEBOOK_BENCH_LIMIT_S"]) if "CASEBOOK_BENCH_LIMIT_S" in os.environ else None
    with tempfile.TemporaryDirectory() as directory:
        place = Path(os.environ.get("CASEBOOK_BENCH_KEEP", directory))
        shared = corpus(place / "shared", gpus[0], cases)
        took = f"{shared.wall_s:.0f} s, {100 * shared.busy:.0f} % of the cores busy"
        row("gpu-share", f"{len(cases)} cases side by side on {device(shared.evidence)}: {took}")
        timed = {case: corpus(place / case, gpus[0], [case]) for case in cases[:SINGLE]}
        done = alone(place / "alone", gpus, cases, limit_s)
        both = sorted({*done} & {*shared.evidence})
        if not both:
            return row("", "nothing ended in both runs")
        if set(both) < set(cases):
            row("", f"alone, {len(both)} of them ended so far; the seconds side by side are those of all")
    return report(done, shared, both, timed, partial(share, gpu=gpus[0]))


def device(evidence: Mapping[str, Evidence]) -> str:
    return ", ".join({str(each.device) for each in evidence.values()})


def report(
    done: Mapping[str, Evidence],
    shared: Ran,
    both: Sequence[str],
    timed: Mapping[str, Ran],
    share_of: Callable[[str], float],
) -> None:
    # a few trials that stand for all are too few for a verdict
    whole = [case for case in both if len(done[case].trials) >= len(shared.evidence[case].trials)]
    verdicts = [case for case in whole if done[case].verdict is not shared.evidence[case].verdict]
    otherwise = [case for case in both if not alike(done[case], shared.evidence[case])]
    trials = sum(len(done[case].trials) for case in both)
    row("", f"{len(both)} cases, {trials} trials alone on {device(done)}")
    row("", f"other verdicts of {len(whole)} cases with all trials alone: {verdicts or 'none'}")
    row("", f"cases of which one of these trials went otherwise side by side: {otherwise or 'none'}")
    took_s = {case: alone_s(done[case], shared.evidence[case]) for case in both}
    sum_s = sum(took_s.values())
    row("", f"{shared.wall_s:.0f} s side by side, {sum_s:.0f} s of trials alone: {shared.wall_s / sum_s:.2f}")
    fit_s = sum(took_s[case] * share_of(case) for case in both)
    row("", f"and {fit_s:.0f} s of trials by the slots that they take: {shared.wall_s / fit_s:.2f} (allowed 1.5)")
    ratios = []
    for case, ran in ((case, ran) for case, ran in timed.items() if case in done):
        one_s, all_s = done[case].trials[0].duration_s, seconds_of(ran.evidence[case])
        ratios.append(all_s / one_s)
        count = len(ran.evidence[case].trials)
        row(
            "", f"{case}: {all_s:.1f} s for {count} trials, {one_s:.1f} s for one alone: {ratios[-1]:.2f} (allowed 2.5)"
        )
    if ratios:
        row("", f"median of these: {statistics.median(ratios):.2f}")
