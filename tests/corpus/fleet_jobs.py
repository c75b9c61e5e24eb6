"""What nodes of the tests run in place of `casebook_workbench.corpus.jobs.run_job`.

A job's project says what it does.
"""

import os
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from casebook_workbench.corpus.events import Start
from casebook_workbench.corpus.jobs import run_job
from casebook_workbench.corpus.model import End, Finished, Settings
from gpu_casebook.console import Console


def run(start: Start, settings: Settings, console: Console) -> Finished | None:
    """Does one of: real, gpus, until PATH (is there), die, first PATH (waits once), hold PATH."""
    job = start.job
    verb, _, more = job.project.partition(" ")
    if verb == "real":
        return run_job(start, settings, console)
    begun, reason = time.monotonic(), ""
    match verb:
        case "gpus":
            reason = ",".join(map(str, start.gpus))
        case "until":
            while not Path(more).exists():
                time.sleep(0.05)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "first":
            with suppress(FileExistsError), Path(more).open("x", encoding="utf-8"):
                _hold()
        case "hold":
            Path(more).touch()
            try:
                _hold()
            finally:
                Path(f"{more}.cleaned").touch()
        case _:
            raise ValueError(verb)
    return Finished(job=job, end=End.RAN, reason=reason, started=datetime.now(UTC), duration_s=time.monotonic() - begun)


def _hold() -> None:
    """A system call that nothing but a signal ends, as waiting for a trial is."""
    signal.sigtimedwait([], 600)
