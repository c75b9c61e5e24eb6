"""What a run of many cases adds to the cases themselves; part of tests/bench.py.

`python -m tests.bench_corpus JOBS WORKERS` is one run of synthetic jobs, which prints what it took as JSON.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.bench import ROOT, RUNNER, in_turn, row, run

JOB_S = 0.05
MANY, FEW, WORKERS = 1000, 100, 2
CASES = 20
GPU_CASE, GPU_ENVIRONMENT = "rwkv6-mask-silent", "current"
BURN = """
import time
while time.process_time() < 0.5:
    pass
"""
WAIT = """
import time
time.sleep(0.5)
"""


def synthetic(jobs: int, workers: int) -> dict[str, float]:
    """Run jobs that wait, with driver, journal, display and workers as in any run. Seconds, and the driver's bytes."""
    from casebook_workbench.corpus.driver import Driver
    from casebook_workbench.corpus.events import Machine
    from casebook_workbench.corpus.journal import Journal, new_id
    from casebook_workbench.corpus.model import End, Run
    from casebook_workbench.corpus.pool import Pool
    from casebook_workbench.corpus.table import RunTable
    from tests.corpus.pool_jobs import job, settings

    with tempfile.TemporaryDirectory() as directory, Path(os.devnull).open("w") as nowhere:
        place, now = Path(directory), datetime.now(UTC)
        all_jobs = [job(f"case-{number:04}", f"sleep {JOB_S}") for number in range(jobs)]
        record = Run(id=new_id(place / "reports", now), started=now, settings=settings(place), jobs=all_jobs)
        begun = time.perf_counter()
        with (
            Journal.create(place / "reports", record) as journal,
            RunTable(nowhere, jobs) as shown,
            Pool(
                record.settings,
                journal.directory / "logs",
                lambda: Machine(name="box", cores=workers),
                "tests.corpus.pool_jobs:run",
            ) as pool,
        ):
            Driver(journal=journal, workers=pool, display=shown).drive()
        took = time.perf_counter() - begun
        ran = [each for each in journal.run.finished if each.end is End.RAN]
        if len(ran) != jobs:
            sys.exit(f"{len(ran)} of {jobs} jobs ran: {journal.run.finished[0].reason}")
    return {"seconds": took, "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def measured(jobs: int, workers: int) -> dict[str, float]:
    """In a process of its own, whose memory is all the driver's."""
    command = [sys.executable, "-m", "tests.bench_corpus", str(jobs), str(workers)]
    variables = os.environ | {
        "PYTHONPATH": str(ROOT)
    }  # workers import the tests' jobs, and never from where they start
    done = subprocess.run(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return dict(json.loads(done.stdout))


def corpus() -> None:
    """Many short jobs against the work itself, and the driver's memory against that for fewer."""
    few, many = measured(FEW, WORKERS), measured(MANY, WORKERS)
    ideal_s = MANY * JOB_S / WORKERS
    took_s, work = many["seconds"], f"{MANY} jobs of {JOB_S * 1000:.0f} ms on {WORKERS} workers"
    row("corpus", f"{took_s:.1f} s for {work} against {ideal_s:.1f} s: {took_s / ideal_s:.2f} times (allowed 1.3)")
    sizes = [each["bytes"] / 2**20 for each in (few, many)]
    grown = (many["bytes"] - few["bytes"]) / (MANY - FEW) / 1024
    row("", f"driver: {sizes[1]:.1f} MiB against {sizes[0]:.1f} MiB for {FEW}: {grown:.1f} KiB a job more")


def jobs() -> None:
    """CPU cases through the venv engine: two at once against one at a time, for scripts that burn and that wait."""
    for name, does in (("burn", BURN), ("wait", WAIT)):
        with tempfile.TemporaryDirectory() as directory:
            one_s, two_s = cases_in_turn(Path(directory), does)
        told = f"{CASES} cases that {name} 1 s: {one_s:.1f} s with --jobs 1 against {two_s:.1f} s with --jobs 2"
        row("jobs" if name == "burn" else "", f"{told}: {one_s / two_s:.2f} times as fast (wanted 1.8)")


def cases_in_turn(home: Path, does: str) -> list[float]:
    from tests.corpus.world import FIXED, REPRO, make_world

    world = make_world(home / "checkout", home / "cache")
    for number in range(CASES):
        world.write(f"case-{number:02}", does + REPRO, does + FIXED)
    options, variables = ("--max-age", "0", "--no-probes"), dict(world.environment())
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # or each run compiles what it imports anew

    def timed(count: int) -> float:
        return run(world.command("--jobs", str(count), *options), world.root, variables)

    timed(2)  # builds the environment, and learns how long each case takes
    return in_turn(lambda: timed(1), lambda: timed(2), rounds=1)


def resume() -> None:
    """`--resume` of a run of many cases that has ended."""
    from casebook_workbench.corpus.journal import Journal, new_id
    from casebook_workbench.corpus.model import End, Finished, Run, Settings
    from failure_signature.trials import Verdict
    from tests.corpus.pool_jobs import job
    from tests.corpus.world import make_world

    with tempfile.TemporaryDirectory() as directory:
        world, now = make_world(Path(directory) / "checkout", Path(directory) / "cache"), datetime.now(UTC)
        all_jobs = [job(f"case-{number:04}") for number in range(MANY)]
        ends = [
            Finished(job=each, end=End.RAN, verdict=Verdict.CONFIRMED, worker="w1", started=now, duration_s=JOB_S)
            for each in all_jobs
        ]
        settings = Settings(root=str(world.root), reports=str(world.reports), engine="venv")
        record = Run(id=new_id(world.reports, now), started=now, ended=now, settings=settings, jobs=all_jobs)
        with Journal.create(world.reports, record) as journal:
            journal.append(ends)
        command, variables = world.command("--resume"), dict(world.environment())
        resumed_s, nothing_s = in_turn(
            lambda: run(command, world.root, variables), lambda: run([*RUNNER, "--help"], world.root, variables)
        )
    row("resume", f"{resumed_s:.2f} s for {MANY} jobs (allowed 2 s); {nothing_s:.2f} s for --help")


def gpus() -> None:
    """Two cases at once on two GPUs against one; in the image CASEBOOK_GPU_IMAGE, if that names one."""
    from gpu_casebook.devices import hardware

    there = len(hardware.gpus())
    if there < 2:
        return row("gpus", f"not measured: it takes 2 GPUs, and here {'is' if there == 1 else 'are'} {there or 'none'}")
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        shutil.copytree(ROOT / "images", top / "images")
        names = [twin(top, number) for number in (1, 2)]
        image = os.environ.get("CASEBOOK_GPU_IMAGE")
        options = [
            "--environment",
            GPU_ENVIRONMENT,
            "--no-probes",
            "--max-age",
            "0",
            *(["--image", image] if image else []),
        ]
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }

        def timed(cases: list[str]) -> float:
            return run([*RUNNER, "corpus", *options, *cases], top, variables)

        timed(names)  # builds the environment
        one_s, two_s = in_turn(lambda: timed(names[:1]), lambda: timed(names))
    told = f"{two_s:.1f} s for two GPU cases on {there} GPUs against {one_s:.1f} s for one"
    return row("gpus", f"{told}: {two_s / one_s:.2f} times as long (allowed 1.15)")


def twin(top: Path, number: int) -> str:
    """A copy of the case in the checkout `top`, under a name of its own."""
    name = f"{GPU_CASE}-{number}"
    manifest = Path(shutil.copytree(ROOT / "cases" / GPU_CASE, top / "cases" / name)) / "case.yaml"
    manifest.write_text(manifest.read_text().replace(f"id: {GPU_CASE}\n", f"id: {name}\n"))
    return name


if __name__ == "__main__":
    print(json.dumps(synthetic(*map(int, sys.argv[1:]))))
