"""One job in this process: case -> evidence on disk and how the job ended."""

import time
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from casebook_workbench.corpus.events import Start
from casebook_workbench.corpus.model import REASON_LIMIT, End, Finished, OnGpu, Settings, facts
from failure_signature.text import one_line
from gpu_casebook.console import Console
from gpu_casebook.engines import registry
from gpu_casebook.errors import CasebookError, EngineError, UnfitError
from gpu_casebook.evidence import evidence_path, keep
from gpu_casebook.files import disk_is_full, os_reason
from gpu_casebook.manifest.case import find, known_images
from gpu_casebook.run.pipeline import prepare_case, run_case
from gpu_casebook.run.plan import Skipped

PATIENCE_S = 60.0
"""How long an engine that went away may take to come back: a daemon that is restarted."""
_POLL_S = 1.0

_Came = dict[str, Any] | None
"""Fields of `Finished`; None where an environment was to be prepared, and is."""


def run_job(start: Start, settings: Settings, console: Console) -> Finished | None:
    """Run the job, and write its evidence. Raises nothing but KeyboardInterrupt.

    With `start.builds` only its environment is prepared: None, unless that is how the job ends. Pages are not written:
    whoever runs many jobs does that once for all.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    try:
        came = _patiently(start, settings, console)
        if came is None:
            return None
    except UnfitError as error:
        came = {"end": End.SKIPPED, "reason": str(error).removeprefix(f"{start.job.case}: ")}
    except CasebookError as error:
        full = isinstance(error.__cause__, OSError) and disk_is_full(error.__cause__)
        came = _broke(str(error), stops=full or isinstance(error, _EngineGoneError))
    except OSError as error:
        came = _broke(os_reason(error), stops=disk_is_full(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a case does to the runner is that case's own result
        came = _broke(_runner_reason(error))
    return Finished(job=start.job, started=started, duration_s=time.monotonic() - begun, **came)


class _EngineGoneError(EngineError):
    """The engine does not answer any more, and did not come back."""


def _patiently(start: Start, settings: Settings, console: Console) -> _Came:
    """Call it, and once more if the engine went away meanwhile and came back."""
    try:
        return _try(start, settings, console)
    except EngineError as error:
        console.say(f"{start.job.name}: {one_line(str(error), REASON_LIMIT)}; waiting for the engine")
        _wait_for_engine(settings, console)
        return _try(start, settings, console)


def _wait_for_engine(settings: Settings, console: Console) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with registry.choose(settings.engine, Path(settings.root), console.say):
                return
        except EngineError as error:
            if time.monotonic() >= deadline:
                raise _EngineGoneError(f"{error}; it did not come back within {PATIENCE_S:.0f} s") from error
        time.sleep(_POLL_S)


def _try(start: Start, settings: Settings, console: Console) -> _Came:
    root, reports = Path(settings.root), Path(settings.reports)
    case = find(root, start.job.case, known_images(root))
    begun = datetime.now(UTC)
    options = replace(settings.options, environment=start.job.environment, gpus=start.gpus or None)
    if not start.job.gpus:  # jobs fill the cores
        options = replace(options, at_once=options.at_once or 1)
    with registry.choose(settings.engine, root, console.say) as engine:
        result = (prepare_case if start.builds else run_case)(case, options, engine, console)
    if result is None:
        return None
    if isinstance(result, Skipped):
        return {"end": End.SKIPPED, "reason": "; ".join(result.reasons)}
    path = evidence_path(reports, result)
    if instead := keep(reports, result):
        console.say(f"{start.job.name}: {instead}")
    trials = [
        OnGpu(after_s=(trial.started - begun).total_seconds(), duration_s=trial.duration_s)
        for trial in result.trials
        if trial.started and start.gpus
    ]
    evidence = path.relative_to(reports).as_posix()
    return {"end": End.RAN, **facts(result), "evidence": evidence, "on_gpus": tuple(start.gpus), "trials": trials}


def _broke(reason: str, *, stops: bool = False) -> dict[str, Any]:
    return {"end": End.BROKE, "reason": reason, "stops": stops}


def _runner_reason(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"the runner failed: {type(error).__name__}: {error} ({at})"
