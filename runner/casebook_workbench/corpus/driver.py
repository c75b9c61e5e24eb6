"""The driver of a run: starts jobs in order, and records each end at once.

Whatever ends it early (Ctrl-C, SIGTERM, kill -9, a full disk), the record holds what was finished, and the run can be
taken up again.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from casebook_workbench.corpus import schedule
from casebook_workbench.corpus.events import Event, Machine, Workers
from casebook_workbench.corpus.journal import Journal
from casebook_workbench.corpus.model import End, Finished, Job, Lost, ended
from casebook_workbench.corpus.table import Doing, RunTable
from gpu_casebook.errors import MachineError

ATTEMPTS = 3
"""How many workers one job may lose: it may be what kills them."""
WAIT_S = 1.0
"""How long to wait for news before looking at the machines again."""
MACHINE_STOPS = 2
"""How often one job may find that a machine can't go on, where there is no other one."""


@dataclass(kw_only=True)
class Driver:
    """Drives one run to its end."""

    journal: Journal
    workers: Workers
    display: RunTable
    ready: set[str] = field(default_factory=set)
    """Keys of the environments that need not be built before their jobs start."""
    lost: Callable[[], object] = lambda: None
    """Called when a worker went away: something of its job may still run."""
    fail_fast: bool = False
    """Start nothing more after a job that is not confirmed."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._waiting = schedule.ranked(self.journal.run.left)
        self._running: dict[str, Doing] = {}  # by the job's name
        self._lost: dict[str, list[Lost]] = defaultdict(list)
        self._stopped: dict[str, int] = defaultdict(int)
        self._built_s: dict[str, float] = defaultdict(float)
        self._ended: list[Finished] = []  # all of this drive; the record has the first of them
        self._before = len(self.journal.run.finished)
        self._failed = False

    def drive(self) -> None:
        """Run all jobs that are left. The caller enters and leaves the workers.

        Raises MachineError where the machine can't go on, OSError where the record can't be written, KeyboardInterrupt.
        """
        try:
            self._loop()
        finally:
            self._record()
        self.journal.update(workers=sorted({each.worker for each in self.journal.run.finished if each.worker}))

    def _loop(self) -> None:
        while self._waiting or self._running:
            machines = self.workers.machines
            if not self._failed:
                self._start(machines)
            self.display.show(machines, self._waiting, self._running)
            self._record()
            if self._running:
                for event in self.workers.events(WAIT_S):
                    self._happened(event)
            elif self._failed or not self._without_hope():
                break

    def _start(self, machines: Sequence[Machine]) -> None:
        running = [doing.start for doing in self._running.values()]
        for start in schedule.choose(self._waiting, running, schedule.together(machines), self.ready):
            self._running[start.job.name] = Doing(start, self.workers.start(start), self.clock())
        self._waiting = [job for job in self._waiting if job.name not in self._running]

    def _without_hope(self) -> bool:
        """Give up jobs that no machine can run any more, such as for want of a GPU; return whether there were any."""
        machines = self.workers.machines
        if not machines:
            raise MachineError("no machine is left to run the rest on")
        hopeless = [(job, why) for job in self._waiting if (why := schedule.impossible(job, machines))]
        for job, why in hopeless:
            self._waiting.remove(job)
            self._end(ended(job, End.SKIPPED, why))
        return bool(hopeless)

    def _happened(self, event: Event) -> None:
        doing = self._running[event.job]
        if event.said is not None:
            doing.lately = event.said
            return
        del self._running[event.job]
        job, after_s, finished = doing.start.job, self.clock() - doing.begun, event.finished
        if event.lost is not None:
            self.lost()
            self._again(job, Lost(worker=event.worker, reason=event.lost, after_s=after_s))
        elif finished is None:
            self.ready.add(job.environment_key)
            self._built_s[job.name] += after_s
            self._wait_again(job)
        elif finished.stops:
            self._stops(job, Lost(worker=event.worker, reason=finished.reason, after_s=after_s))
        else:
            if finished.end is End.RAN:
                self.ready.add(job.environment_key)
            self._end(finished.model_copy(update={"job": job, "worker": event.worker}))

    def _stops(self, job: Job, lost: Lost) -> None:
        """Put a job back whose machine can't go on: another may, or the same one once another job's trial has ended."""
        self._stopped[job.name] += 1
        if self._stopped[job.name] >= MACHINE_STOPS and len(self.workers.machines) == 1:
            raise MachineError(lost.reason)
        self._again(job, lost)

    def _again(self, job: Job, lost: Lost) -> None:
        all_lost = self._lost[job.name]
        all_lost.append(lost)
        self.display.lost(job, lost)
        if len(all_lost) < ATTEMPTS:
            self._wait_again(job)
            return
        reason = f"{len(all_lost)} workers were lost with it, the last: {lost.worker}: {lost.reason}"
        duration_s = sum(each.after_s for each in all_lost)
        self._end(ended(job, End.BROKE, reason, worker=lost.worker, duration_s=duration_s))

    def _wait_again(self, job: Job) -> None:
        self._waiting = schedule.ranked([*self._waiting, job])

    def _end(self, finished: Finished) -> None:
        name = finished.job.name
        whole = finished.model_copy(update={"lost": self._lost.pop(name, []), "built_s": self._built_s.pop(name, 0.0)})
        self._failed |= self.fail_fast and whole.end in {End.RAN, End.BROKE} and not whole.confirmed
        self._ended.append(whole)

    def _record(self) -> None:
        """Write down what has ended. The next jobs were started before, so that no worker waits for the disk.

        What the record has is the record's to say: an interrupt may have come in the middle of the last call.
        """
        new = self._ended[len(self.journal.run.finished) - self._before :]
        if new:
            self.journal.append(new)
        for each in new:
            self.display.ended(each)
