"""What workers of the tests run in place of `casebook_workbench.corpus.jobs.run_job`.

A job's project says what it does.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from casebook_workbench.corpus.events import Start
from casebook_workbench.corpus.model import End, Finished, Job, Settings
from failure_signature.kinds import Grade
from gpu_casebook.console import Console


def job(name: str, does: str = "", **fields: object) -> Job:
    values = {"environment": "e", "failure": "crash", "grade": Grade.SIMULATED} | fields
    return Job.model_validate({"case": name, "project": does, **values})


def settings(place: Path) -> Settings:
    return Settings(root=str(place), reports=str(place / "reports"))


def run(start: Start, settings: Settings, console: Console) -> Finished | None:
    """Does one of: sleep N, stops, die, die-once, exit, print, note, wait, stubborn, child, pid."""
    job = start.job
    if start.builds:
        (Path(settings.root) / f"{job.case}.built").touch()
        return None
    begun = time.monotonic()
    reason = _do(*job.project.split(maxsplit=1), root=Path(settings.root), console=console) if job.project else ""
    return Finished(
        job=job,
        end=End.RAN,
        reason=reason or ",".join(map(str, start.gpus)),
        stops=reason == "stops",
        started=datetime.now(UTC),
        duration_s=time.monotonic() - begun,
    )


def _do(verb: str, more: str = "", *, root: Path, console: Console) -> str:  # noqa: C901, PLR0912
    match verb:
        case "stops":
            return verb
        case "sleep":
            time.sleep(float(more))
        case "die":
            os.kill(os.getpid(), signal.Signals[more])
        case "die-once":
            with suppress(FileExistsError):
                (root / more).touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(int(more))
        case "print":
            print(more)
            sys.stderr.write(more + "\n")
        case "note":
            with console.step("building") as note:
                note(more)
        case "wait":
            (root / f"{more}.started").write_text(str(os.getpid()))
            try:
                while not (root / f"{more}.go").exists():
                    time.sleep(0.05)
            finally:
                (root / f"{more}.cleaned").touch()
        case "stubborn":
            (root / f"{more}.started").write_text(str(os.getpid()))
            while True:
                with suppress(KeyboardInterrupt):
                    time.sleep(600)
        case "child":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            (root / f"{more}.started").write_text(f"{os.getpid()} {child.pid}")
            time.sleep(600)
        case "pid":
            return str(os.getpid())
        case _:
            raise ValueError(verb)
    return ""
