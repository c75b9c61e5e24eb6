"""Going on with a run that ended early: its record, and the command for it."""

import shlex
from pathlib import Path

from casebook_workbench.corpus.begin import Request
from casebook_workbench.corpus.journal import Journal
from casebook_workbench.corpus.model import Run
from gpu_casebook.errors import CasebookError, ExitStatus, MachineError
from gpu_casebook.files import os_reason
from gpu_casebook.places import reports_of


def reopened(request: Request, id_: str | None) -> Journal:
    """Return the record of a run that ended, the newest without an id. Raises UsageError where there is none."""
    record = Journal.resume(Path(request.settings.reports), id_)
    here = {"root": request.settings.root, "reports": request.settings.reports}  # its checkout may have moved
    record.run = record.run.model_copy(update={"settings": record.run.settings.model_copy(update=here)})
    return record


def stopped(error: BaseException, run: Run) -> CasebookError:
    """Return an error with the exit status of what ended the run early, which says how to go on."""
    text, status = "interrupted; nothing is left running", int(ExitStatus.INTERRUPTED)
    if isinstance(error, CasebookError):
        text, status = str(error), error.exit_status
    elif isinstance(error, OSError):
        text, status = os_reason(error), MachineError.exit_status
    done = f"{len(run.finished)} of {len(run.jobs)} jobs are finished and safe"
    stopped = CasebookError(f"{text}; {done}; go on with: {again(run)}")
    stopped.exit_status = status
    return stopped


def again(run: Run) -> str:
    """Return the command that goes on with a run: that of a bundle does so by itself."""
    if run.command and not run.command.startswith("casebook "):
        return run.command
    words = ["casebook", "corpus", "--resume", run.id]
    top, reports = Path(run.settings.root), Path(run.settings.reports)
    if reports == reports_of(top, published=True) != reports_of(top):
        return shlex.join([*words, "--publish"])
    return shlex.join(words if reports == reports_of(top) else [*words, "--reports", str(reports)])
