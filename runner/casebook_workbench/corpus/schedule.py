"""Which job starts next. Pure: no clock, no I/O, nothing remembered between two decisions.

Greedy: the widest job that fits, then the longest. A job that does not fit waits, and the first one that waits has GPUs
reserved, so that those behind it can't starve it.
"""

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice, takewhile

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from casebook_workbench.corpus.events import Machine, Start
from casebook_workbench.corpus.model import Job


def ranked(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs in the order in which they should start."""
    return sorted(jobs, key=_rank)


def _rank(job: Job) -> tuple[int, bool, float, str]:
    # Wide jobs first: later a machine would have to be emptied for them. Those that share a GPU come after those that
    # want as many alone, and fill it. Then the longest, as the whole run waits for whatever is long and last; a job
    # that was never timed counts as the longest, since its environment is likely to be built first.
    expected = float("inf") if job.expected_s is None else job.expected_s
    return -job.gpus, job.shared and job.gpus > 0, -expected, job.name


def choose(waiting: Sequence[Job], running: Sequence[Start], machine: Machine, ready: Collection[str]) -> list[Start]:
    """Return what to start now.

    `waiting` is ranked, `running` in the order in which it was started. `ready` has the keys of the environments that
    are there: for a job with GPUs its environment is built first, without a GPU, which others use meanwhile.
    """
    now = list(running)
    reserved: set[int] = set()
    unready = []
    for job in takewhile(lambda job: job.gpus, waiting):  # ranked before all others
        if len(now) >= machine.cores:
            break
        if impossible(job, [machine]):
            continue
        if job.environment_key and job.environment_key not in ready:
            unready.append(job)
            continue
        free = [gpu for gpu in _open_to(job, machine, now) if gpu not in reserved]
        if len(free) >= job.gpus:
            now.append(Start(job=job, gpus=tuple(free[: job.gpus])))
        elif not reserved:
            reserved = _kept_for(job, machine, now, free)
    building = {start.job.environment_key for start in now if start.builds}
    for job in unready:
        if len(now) < machine.cores and job.environment_key not in building:
            building.add(job.environment_key)
            now.append(Start(job=job, builds=True))
    rest = islice((job for job in waiting if not job.gpus), max(0, machine.cores - len(now)))
    return [*now[len(running) :], *(Start(job=job) for job in rest)]


def _open_to(job: Job, machine: Machine, running: Sequence[Start]) -> list[int]:
    """Return the GPUs that this job can have now, those first that fewest share."""
    users = {gpu: [start.job for start in running if gpu in start.gpus] for gpu in suitable(job, machine)}
    able = [gpu for gpu, jobs in users.items() if not jobs or (job.shared and all(each.shared for each in jobs))]
    return sorted(able, key=lambda gpu: len(users[gpu]))


def _kept_for(job: Job, machine: Machine, running: Sequence[Start], free: Sequence[int]) -> set[int]:
    """Return the GPUs that this job waits for: those whose jobs have run the longest, and free ones for the rest."""
    usable = suitable(job, machine)
    coming: list[int] = []
    for start in running:
        if len(free) + len(coming) < job.gpus:
            coming += [gpu for gpu in start.gpus if gpu in usable and gpu not in [*free, *coming]]
    return {*coming, *free[: max(0, job.gpus - len(coming))]}


def together(machines: Sequence[Machine]) -> Machine:
    """Return all that these machines have, as one of which nobody knows where its parts are."""
    if len(machines) == 1:
        return machines[0]
    gpus = [gpu for machine in machines for gpu in machine.gpus]
    return Machine(
        name="",
        cores=sum(machine.cores for machine in machines),
        gpus=[replace(gpu, index=number) for number, gpu in enumerate(gpus)],
    )


def impossible(job: Job, machines: Sequence[Machine]) -> str | None:
    """Return why this job can't run on any of these machines, whatever else they do; None if it can."""
    if not machines:
        return "there is no machine left"
    most = max(len(suitable(job, machine)) for machine in machines)
    if most >= job.gpus:
        return None
    asides = [gpu.aside for machine in machines for gpu in machine.gpus if gpu.aside]
    if asides:
        return asides[0]
    needed = "1 GPU is" if job.gpus == 1 else f"{job.gpus} GPUs are"
    capable = f" with compute capability {job.compute_capability}" if job.compute_capability else ""
    return f"{needed} needed{capable} on one machine, and there {'is' if most == 1 else 'are'} {most or 'none'}"


def suitable(job: Job, machine: Machine) -> list[int]:
    """Return the indices of the machine's GPUs that the job can use."""
    wanted = job.compute_capability or ""
    return [gpu.index for gpu in machine.gpus if job.gpus and not gpu.aside and _within(gpu.compute_capability, wanted)]


@lru_cache
def _within(capability: str, wanted: str) -> bool:
    if not capability:
        return True  # a GPU of unknown capability is tried
    try:
        return SpecifierSet(wanted).contains(capability, prereleases=True)
    except InvalidSpecifier:
        return True  # a manifest's mistake is for the job itself to say


def left_s(
    waiting: Iterable[Job],
    running: Iterable[tuple[Job, float]],
    machines: Sequence[Machine],
    took: Iterable[float] = (),
) -> float | None:
    """Return how long the rest will take, in seconds; None if that is unknown. `running` has how long each has run.

    No less than what all cores need for it, all GPUs for theirs, and the longest job for itself. Jobs that were never
    timed count as the median of those that were, and of what ended ones `took`; without any, the answer is None.
    """
    entries = [*((job, 0.0) for job in waiting), *running]
    known = [*took, *(job.expected_s for job, _ in entries if job.expected_s is not None)]
    if not entries:
        return 0.0
    if not known:
        return None
    usual = statistics.median(known)
    rest = [
        (job, max(0.0, (usual if job.expected_s is None else job.expected_s) - after_s)) for job, after_s in entries
    ]
    cores = sum(machine.cores for machine in machines) or 1
    gpus = sum(len(machine.gpus) for machine in machines) or 1
    on_gpus = sum(left * job.gpus for job, left in rest if not job.shared) / gpus
    return max(sum(left for _, left in rest) / cores, on_gpus, *(left for _, left in rest))
