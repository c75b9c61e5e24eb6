"""Which job starts next, and where. Pure: no clock, no I/O, nothing remembered between two decisions.

- Jobs with more GPUs go first, then those with more cores: the machine is empty once, at the start, and later it would
  have to be emptied for them. Then the longest: whatever is long and last, the whole run waits for. A job that nobody
  has timed yet counts as the longest, since its environment is likely to be built first, and since a short one that
  starts too early costs nothing. Jobs that share a GPU come after those that want as many alone: then they fill it.
- A job takes its cores also while it uses a GPU: its script compiles and launches there, and a trial that starves is
  slow, or looks like a hang.
- What does not fit yet must not wait for ever. The first job that waits for GPUs has some kept for it: those whose
  jobs have run the longest, and free ones for the rest. Nothing new gets them, however short: durations are guesses,
  and the wide ones went first, so this is rare. So no job waits for one that was started after it began to wait. The
  same for cores: what it needs of them is kept with its GPUs, and where only they are missing, nothing is started.
- An environment is prepared before its job gets a GPU, which others use meanwhile. Jobs whose environment is there go
  before those builds, and all that wants a GPU before what does not: so GPUs wait for cores as little as can be.
- Of two jobs without a GPU in an environment that is not prepared yet, the second would only wait for the first one's
  build: another job goes before it, if there is one.
"""

import statistics
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import islice, takewhile

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpu_casebook.corpus.model import Job
from gpu_casebook.corpus.workers import Gpu, Machine, Start

Prepared = Collection[tuple[str, str]]
"""Names of machines, each with a key of an environment that is ready there."""


def ranked(jobs: Iterable[Job]) -> list[Job]:
    """In the order in which they should start."""
    return sorted(jobs, key=_rank)


def _rank(job: Job) -> tuple[int, bool, int, float, str]:
    expected = float("inf") if job.expected_s is None else job.expected_s
    return -job.gpus, job.shared and job.gpus > 0, -job.cores, -expected, job.name


def choose(
    waiting: Sequence[Job], running: Sequence[Start], machines: Sequence[Machine], prepared: Prepared = ()
) -> list[Start]:
    """What to start now. `waiting` is ranked, and `running` in the order in which it was started."""
    decision = _Decision([_Room(machine, running) for machine in machines], prepared)
    if not decision.has_cores:
        return []
    with_gpus = list(takewhile(lambda job: job.gpus, waiting))  # ranked before all others
    unbuilt, built = decision.apart(with_gpus)
    decision.go_through(built, postpones=False)
    decision.build(unbuilt)
    postponed = decision.go_through(islice(waiting, len(with_gpus), None), postpones=True)
    decision.go_through(postponed, postpones=False)
    return decision.starts


def impossible(job: Job, machines: Sequence[Machine]) -> str | None:
    """Why this job can't run on any of these machines, whatever else they do; None if it can."""
    if not machines:
        return "there is no machine left"
    if any(_Room(machine, ()).could(job) for machine in machines):
        return None
    asides = [gpu.aside for machine in machines for gpu in machine.gpus if gpu.aside]
    if asides:
        return asides[0]
    needed = "1 GPU is" if job.gpus == 1 else f"{job.gpus} GPUs are"
    capable = f" with compute capability {job.compute_capability}" if job.compute_capability else ""
    most = max(len(_suitable(job, machine)) for machine in machines)
    return f"{needed} needed{capable} on one machine, and there {'is' if most == 1 else 'are'} {most or 'none'}"


def left_s(
    waiting: Iterable[Job],
    running: Iterable[tuple[Job, float]],
    machines: Sequence[Machine],
    took: Iterable[float] = (),
) -> float | None:
    """How long the rest will take, in seconds; None where nobody knows. `running` has how long each has run.

    No less than what all cores need for it, all GPUs for theirs, and the longest job for itself. Jobs that nobody has
    timed count as the median of those that somebody has, and of what ended ones `took`; without any, nobody knows.
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
    on_cores = sum(left * max(1, job.cores) for job, left in rest) / cores
    on_gpus = sum(left * job.gpus for job, left in rest if not job.shared) / gpus
    return max(on_cores, on_gpus, *(left for _, left in rest))


class _Decision:
    def __init__(self, rooms: Sequence["_Room"], prepared: Prepared) -> None:
        self.rooms = rooms
        self.prepared = prepared
        self.starts: list[Start] = []
        self._full: set[tuple[int, int, bool, str | None]] = set()

    @property
    def has_cores(self) -> bool:
        return any(room.cores > 0 for room in self.rooms)

    def apart(self, jobs: Iterable[Job]) -> tuple[list[Job], list[Job]]:
        """Of jobs on GPUs, those whose environment is to be prepared first, and the others."""
        found = [(job, self._is_to_be_built(job)) for job in jobs]
        return [job for job, first in found if first], [job for job, first in found if not first]

    def _is_to_be_built(self, job: Job) -> bool:
        """Whether its environment has to be prepared before it starts on a GPU: anywhere, or where one is free."""
        able = [room for room in self.rooms if room.could(job)] if job.environment_key else []
        ready = [room for room in able if self._is_there(room, job)]
        if any(room.fits(job) for room in ready):
            return False
        return any(room.fits(job) for room in able) if ready else bool(able)

    def build(self, jobs: Iterable[Job]) -> None:
        """Prepare what these jobs run in; once on a machine, whatever the number of jobs."""
        for job in jobs:
            rooms = [room for room in self.rooms if room.cores > 0 and room.could(job)]
            rooms = [room for room in rooms if not self._is_there(room, job) and not room.builds(job.environment_key)]
            if rooms:
                self.starts.append(max(rooms, key=lambda room: room.cores).build(job))

    def go_through(self, jobs: Iterable[Job], *, postpones: bool) -> list[Job]:
        """Start what can be started; those that had better not be started yet."""
        postponed = []
        for job in jobs:
            if not self.has_cores:
                break
            needs = (job.gpus, job.cores, job.shared, job.compute_capability)
            if needs in self._full:
                continue
            fitting = [room for room in self.rooms if room.fits(job)]
            if not fitting:
                self._full.add(needs)
                self._keep(job)
            elif postpones and self._only_waits(job, fitting):
                postponed.append(job)
            else:
                self.starts.append(min(fitting, key=lambda room: self._cost(room, job)).take(job))
        return postponed

    def _keep(self, job: Job) -> None:
        able = [room for room in self.rooms if room.could(job)]
        if able:
            min(able, key=lambda room: len(room.before(job))).keep(job)

    def _only_waits(self, job: Job, rooms: Iterable["_Room"]) -> bool:
        """Not for jobs of several cores: others would take these meanwhile."""
        return job.cores < 2 and all(self._is_being_built(room, job) for room in rooms)

    def _is_being_built(self, room: "_Room", job: Job) -> bool:
        key = job.environment_key
        return bool(key) and not self._is_there(room, job) and room.runs(key)

    def _is_there(self, room: "_Room", job: Job) -> bool:
        return (room.name, job.environment_key) in self.prepared

    def _cost(self, room: "_Room", job: Job) -> tuple[bool, bool, int]:
        return self._is_being_built(room, job), not self._is_there(room, job), -room.cores


class _Room:
    """What is free on one machine, while a decision is made."""

    def __init__(self, machine: Machine, running: Iterable[Start]) -> None:
        self.name = machine.name
        self._machine = machine
        self._running = [start for start in running if start.machine == machine.name]
        self._kept: set[int] | None = None
        self.cores = machine.cores - sum(map(self._cores_in, self._running))

    def _cores_of(self, job: Job) -> int:
        """A job that wants more than there are gets the whole machine."""
        return min(max(1, job.cores), self._machine.cores)

    def _cores_in(self, start: Start) -> int:
        return 1 if start.builds else self._cores_of(start.job)

    def could(self, job: Job) -> bool:
        return self._machine.cores > 0 and len(_suitable(job, self._machine)) >= job.gpus

    def fits(self, job: Job) -> bool:
        return 0 < self._cores_of(job) <= self.cores and len(self._free(job)) >= job.gpus

    def runs(self, key: str) -> bool:
        return any(start.job.environment_key == key for start in self._running)

    def builds(self, key: str) -> bool:
        return any(start.builds and start.job.environment_key == key for start in self._running)

    def build(self, job: Job) -> Start:
        start = Start(job=job, machine=self.name, builds=True)
        self._running.append(start)
        self.cores -= 1
        return start

    def take(self, job: Job) -> Start:
        start = Start(job=job, machine=self.name, gpus=tuple(self._free(job)[: job.gpus]))
        self._running.append(start)
        self.cores -= self._cores_of(job)
        return start

    def keep(self, job: Job) -> None:
        """Have what this job waits for kept from those behind it: one that waits for GPUs, and one for cores."""
        if len(self._free(job)) >= job.gpus:
            self.cores = 0
        elif self._kept is None:
            before = self.before(job)
            coming = [gpu for start in before for gpu in start.gpus]
            self._kept = {*coming, *self._free(job)[: max(0, job.gpus - len(self._ready(job, before)))]}
            then = self.cores + sum(map(self._cores_in, before))  # free when its GPUs are
            self.cores = min(self.cores, max(0, then - self._cores_of(job)))

    def before(self, job: Job) -> Sequence[Start]:
        """The jobs, those first that have run the longest, whose ends give this one its GPUs."""
        enough = (
            number
            for number in range(len(self._running))
            if len(self._free(job)) + len(self._ready(job, self._running[:number])) >= job.gpus
        )
        return self._running[: next(enough, len(self._running))]

    def _ready(self, job: Job, ended: Sequence[Start]) -> list[int]:
        """GPUs for this job, taken now, that are free once these have ended."""
        taken = {gpu for start in ended for gpu in start.gpus} - set(self._free(job))
        return [gpu for gpu in _suitable(job, self._machine) if gpu in taken and self._users(gpu) <= _ids(ended)]

    def _free(self, job: Job) -> list[int]:
        """GPUs for this job, those that are shared by fewest first."""
        free = [gpu for gpu in _suitable(job, self._machine) if gpu not in (self._kept or ()) and self._open(gpu, job)]
        return sorted(free, key=lambda gpu: len(self._users(gpu)))

    def _open(self, gpu: int, job: Job) -> bool:
        users = self._users(gpu)
        return not users or (job.shared and all(start.job.shared for start in self._running if id(start) in users))

    def _users(self, gpu: int) -> set[int]:
        return _ids(start for start in self._running if gpu in start.gpus)


def _ids(starts: Iterable[Start]) -> set[int]:
    return {id(start) for start in starts}


def _suitable(job: Job, machine: Machine) -> list[int]:
    if not job.gpus:
        return []
    return [gpu.index for gpu in machine.gpus if not gpu.aside and _does(gpu, job.compute_capability)]


def _does(gpu: Gpu, wanted: str | None) -> bool:
    return not wanted or not gpu.compute_capability or _within(gpu.compute_capability, wanted)


@lru_cache
def _within(capability: str, wanted: str) -> bool:
    try:
        return SpecifierSet(wanted).contains(capability, prereleases=True)
    except InvalidSpecifier:
        return True  # a manifest's mistake is for the job itself to tell
