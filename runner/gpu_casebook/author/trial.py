"""The trial that a proposal rests on: in the author's own environment, or in a locked one."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from gpu_casebook.devices import hardware
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.trial import Limits, Note, Recipe, TrialRequest, TrialResult, Watch

HANG_AFTER_S = 20.0
"""From then on nothing may stand still for long: enough for imports and a first compilation to come to their end."""


def in_active(python: Path, script: Path, text: str, *, gpus: int, timeout_s: float, note: Note) -> TrialResult:
    """One trial of a script by somebody's own Python, with stdin closed, in a scratch directory."""
    from gpu_casebook.engines.venv.engine import VenvEngine  # noqa: PLC0415 only a trial needs it

    with VenvEngine() as engine:
        prepared = Prepared(key="active", python=str(python.absolute()))
        return _run(engine, prepared, {script.name: text}, gpus=gpus, timeout_s=timeout_s, note=note)


def in_locked(
    engine: Engine, recipe: Recipe, scripts: Mapping[str, str], *, gpus: int, timeout_s: float, note: Note
) -> TrialResult:
    """One trial of the first of these scripts in the environment of a lock."""
    prepared = engine.prepare(recipe, note)
    return _run(engine, prepared, scripts, gpus=gpus, timeout_s=timeout_s, note=note)


def _run(
    engine: Engine, prepared: Prepared, scripts: Mapping[str, str], *, gpus: int, timeout_s: float, note: Note
) -> TrialResult:
    chosen = _chosen(gpus)
    request = TrialRequest(
        files={name: text.encode() for name, text in scripts.items()},
        arguments=[next(iter(scripts))],
        limits=Limits(timeout_s=timeout_s),
        gpus=chosen,
        watch=Watch.from_second(min(HANG_AFTER_S, timeout_s / 2), gpus=bool(chosen)),
    )
    with hardware.lock_gpus(chosen, note) if chosen and engine.local else nullcontext():
        return engine.run(prepared, request)


def _chosen(gpus: int) -> Sequence[int]:
    """The first ones that are there, as many as are wanted or fewer: what is missing shows in the trial."""
    return tuple(gpu.index for gpu in hardware.gpus())[:gpus] if gpus else ()
