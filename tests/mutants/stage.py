"""Runs mutants: the runner's own pipeline, and its venv engine, whose processes are real."""

import io
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import Verdict
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import MANIFEST, known_images, load
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.trial import GpuAccess, Note, Recipe, TrialRequest, TrialResult
from tests.mutants.corpus import ROOT
from tests.mutants.matrix import Mutant

AT_ONCE = 4
"""Many mutants wait more than they work."""

_TOOL = """\
#!/bin/sh
# Stands in for compute-sanitizer: the program itself prints the report.
if [ "$1" = --version ]; then echo "Version 2025.3.1.0"; exit; fi
while [ "${1#--}" != "$1" ]; do shift 2; done
STAND_IN=1 exec "$@"
"""
_GPU = {"name": "Made-up GPU", "compute_capability": "9.0"}
_attesting, _preparing = threading.Lock(), threading.Lock()
_attested: dict[str, TrialResult] = {}


class Stage(VenvEngine):
    """The venv engine, which looks into each environment once only, and goes away when a mutant wants it to."""

    def __init__(self, place: Path, gone: Variant | None = None) -> None:
        super().__init__(place=place)
        self._gone = gone

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        if list(request.arguments) == ["attest.py"]:
            with _attesting:
                if prepared.key not in _attested:
                    _attested[prepared.key] = super().run(prepared, request)
                return _attested[prepared.key]
        result = super().run(prepared, request)
        if self._gone and list(request.arguments) == [f"{self._gone}.py"]:
            raise EngineError("the engine went away")
        return result


class WithGpu(Stage):
    """An engine on some other machine, which has a GPU; compute-sanitizer may be in the environment or not."""

    local = False

    def __init__(self, place: Path, gone: Variant | None, *, tool: bool) -> None:
        super().__init__(place, gone)
        self._tool = tool
        self._cache /= "with-a-tool" if tool else "without-a-tool"

    def gpu_access(self) -> GpuAccess:
        return GpuAccess(mode="direct", detail="made up")

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        with _preparing:
            prepared = super().prepare(recipe, note)
            program = Path(prepared.python).with_name("compute-sanitizer")
            if self._tool and not program.exists():
                program.write_text(_TOOL)
                program.chmod(0o755)
                Seal.of(program.parents[1]).write()
            return super().prepare(recipe, note)

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        result = super().run(prepared, request)
        if list(request.arguments) != ["attest.py"]:
            return result
        told = json.loads(result.stdout) | {"gpus": [_GPU]}
        return TrialResult(stdout=json.dumps(told), stderr="", duration_s=result.duration_s, exit_status=0)


class Outcome(NamedTuple):
    """What became of a mutant: its verdict, None where there was an EngineError; and why, in a line."""

    mutant: Mutant
    verdict: Verdict | None
    told: str

    @property
    def right(self) -> bool:
        return self.verdict is self.mutant.right


def judged(mutant: Mutant, place: Path) -> Outcome:
    """Run one mutant to its verdict; trials run below `place`."""
    case = load(mutant.directory / MANIFEST, known_images(ROOT), mutant.directory.parents[1])
    options = Options(environment=mutant.environment, trials=mutant.trials, timeout_s=mutant.timeout_s, probes=False)
    stage = Stage(place, mutant.gone) if mutant.tool is None else WithGpu(place, mutant.gone, tool=mutant.tool)
    try:
        with stage as engine:
            result = run_case(case, options, engine, Console(io.StringIO()))
    except EngineError as error:
        return Outcome(mutant, None, str(error))
    return Outcome(mutant, result.verdict, " | ".join(result.reasons))


def judge_all(mutants: Sequence[Mutant], place: Path) -> Iterator[Outcome]:
    """Several at once; in their order."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield from pool.map(lambda mutant: judged(mutant, place), mutants)
    finally:
        pool.shutdown(cancel_futures=True)
