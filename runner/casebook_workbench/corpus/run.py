"""One run, from what was asked to its pages and its exit status: begun, or taken up again. Puts the parts together."""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from casebook_workbench.corpus import driver, pool
from casebook_workbench.corpus.begin import Request, begin
from casebook_workbench.corpus.close import Say, close
from casebook_workbench.corpus.events import Machine, Workers
from casebook_workbench.corpus.journal import Journal
from casebook_workbench.corpus.model import Settings
from casebook_workbench.corpus.resume import reopened, stopped
from casebook_workbench.corpus.table import RunTable
from gpu_casebook import plugins
from gpu_casebook.devices import hardware
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, MachineError, UsageError

WORKERS = "gpu_casebook.workers"
"""Entry points with classes of workers on other machines, made as `workers(name)(settings, address, say, jobs=)`."""


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Who runs the jobs. `engine` is None where each machine of a fleet has its own."""

    settings: Settings
    """With the engine that was found, so that all jobs have the same one."""
    machines: Sequence[Machine]
    engine: Engine | None
    workers: Callable[[Path], Workers]
    """Made for a run's directory, in which they may leave logs."""


def start(request: Request, out: TextIO) -> int:
    """Run what is asked for and return the exit status. Raises CasebookError, OSError, KeyboardInterrupt."""
    say = partial(print, file=out, flush=True)
    with _crew(request, request.settings, say) as crew:
        begun = begin(replace(request, settings=crew.settings), crew.machines, crew.engine)
        if begun is None:
            say(f"nothing changed since {request.selection.changed_since} that any case rests on; nothing is run")
            return 0
        with begun:
            return _run(request, begun, crew, out)


def resume(request: Request, id_: str | None, out: TextIO) -> int:
    """Resume a run, or say again how it ended. Raises as `start` does, and UsageError where there is none."""
    say = partial(print, file=out, flush=True)
    with reopened(request, id_) as record:
        run = record.run
        say(f"run {run.id}: {len(run.finished)} of {len(run.jobs)} finished, {len(run.left)} left")
        if not run.left:
            return close(record, say)
        with _crew(request, run.settings, say) as crew:
            return _run(request, record, crew, out)


def workers(name: str) -> Callable[..., Any]:
    """Return the class of workers that a plug-in brings. Raises UsageError where it is not there."""
    if name not in plugins.find(WORKERS):
        plug_in = f"gpu-casebook-{name}"
        raise UsageError(f"--fleet needs the plug-in {plug_in}, which is not installed: pip install {plug_in}")
    found: Callable[..., Any] = plugins.load(WORKERS, name)
    return found


@contextmanager
def _crew(request: Request, settings: Settings, say: Say) -> Iterator[Crew]:
    with ExitStack() as stack:
        if request.fleet:
            fleet = stack.enter_context(workers("ray")(settings, request.fleet, say, jobs=request.jobs))
            yield Crew(settings=settings, machines=fleet.machines, engine=None, workers=lambda _: fleet)
            return
        engine = stack.enter_context(registry.choose(settings.engine, Path(settings.root), say))
        found = settings.model_copy(update={"engine": engine.name})
        look = partial(local_machine, request.jobs, request.gpus, elsewhere=not engine.local)
        processes = partial(pool.Pool, found, machine=look)
        yield Crew(settings=found, machines=[look()], engine=engine, workers=lambda run: processes(run / "logs"))


def local_machine(jobs: int | None, gpus: Sequence[int] | None, *, elsewhere: bool = False) -> Machine:
    """Return this machine, with those of its GPUs that are named. Raises MachineError for one that is not there.

    `elsewhere`: the engine is on another machine, whose GPUs can't be counted here; those named are taken to be there.
    """
    found = Machine(name=socket.gethostname(), cores=jobs or hardware.cores(), gpus=hardware.gpus())
    if elsewhere:
        return replace(found, gpus=[HostGpu(index=index) for index in gpus or ()])
    if gpus is None:
        return found
    there = {gpu.index: gpu for gpu in found.gpus}
    if missing := [index for index in gpus if index not in there]:
        listed = ", ".join(map(str, there)) or "none"
        raise MachineError(f"--gpu {missing[0]}: no such GPU on this machine (there are: {listed})")
    return replace(found, gpus=[there[index] for index in dict.fromkeys(gpus)])


def _run(request: Request, record: Journal, crew: Crew, out: TextIO) -> int:
    run = record.run
    # In a fleet each machine builds what it lacks when a job gets there: where that is, Ray decides.
    ready = set() if crew.engine else {job.environment_key for job in run.left}
    try:
        with ExitStack() as stack:
            shown = stack.enter_context(RunTable(out, len(run.jobs), len(run.finished)))
            hands = crew.workers(record.directory)
            if crew.engine:
                stack.enter_context(hands)
            driver.Driver(
                journal=record,
                workers=hands,
                display=shown,
                ready=ready,
                lost=partial(_sweep, run.settings),
                fail_fast=request.fail_fast,
            ).drive()
    except (KeyboardInterrupt, CasebookError, OSError) as error:
        raise stopped(error, record.run) from error
    finally:
        if crew.engine:  # it may have been away for a time, and workers killed
            _sweep(run.settings)
    return close(record, partial(print, file=out, flush=True))


def _sweep(settings: Settings) -> None:
    """Remove what a worker that was killed left behind: its trials, and what they ran in."""
    with suppress(CasebookError, OSError), registry.choose(settings.engine, Path(settings.root), lambda _: None):
        pass  # an engine is swept when it is chosen
