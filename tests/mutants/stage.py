"""Runs mutants: the runner's own pipeline, and its venv engine, whose processes are real."""

import io
import json
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from casebook_workbench.author.review import static
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.errors import CasebookError, EngineError, ManifestError, UnfitError
from gpu_casebook.manifest.case import MANIFEST, known_images, load
from gpu_casebook.report.headline import headline, plain
from gpu_casebook.run import attesting
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.run.plan import Skipped, recipe
from gpu_casebook.trial import GpuAccess, Note, Recipe, TrialRequest
from tests.mutants import demo
from tests.mutants.corpus import ROOT
from tests.mutants.matrix import HERE, IMAGE, Mutant
from tests.mutants.mutations import Mutation, Part

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
_attested: dict[tuple[str, ...], TrialResult] = {}


class Stage(VenvEngine):
    """The venv engine, which looks into each environment once only, and goes away when a mutant wants it to.

    With a cache of its own its environments are its own too, whatever others have that lock, and are looked into each
    time.
    """

    def __init__(self, place: Path, gone: Variant | None = None, cache: Path | None = None) -> None:
        super().__init__(cache=cache, place=place)
        self._gone, self._shared = gone, cache is None

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        prepared = super().prepare(recipe, note)
        return prepared if self._shared else replace(prepared, key=f"{prepared.key} in {self._cache}")

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        if self._shared and _is_a_look(request):
            with _attesting:
                asked = (prepared.key, *request.arguments)
                if asked not in _attested:
                    _attested[asked] = super().run(prepared, request)
                return _attested[asked]
        result = super().run(prepared, request)
        if self._gone and list(request.arguments) == [f"{self._gone}.py"]:
            raise EngineError("the engine went away")
        return result

    def change(self, recipe: Recipe, mutation: Mutation) -> None:
        """Prepare an environment, and do to its packages what the mutation says."""
        assert mutation.inside
        environment = Path(self.prepare(recipe, lambda _: None).python).parents[1]
        (site,) = environment.glob("lib/python*/site-packages")
        mutation.inside(site)
        if mutation.sealed:
            Seal.of(environment).write()


def _is_a_look(request: TrialRequest) -> bool:
    return "attest.py" in request.arguments


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
        if not _is_a_look(request):
            return result
        told = json.loads(result.stdout) | {"gpus": [_GPU]}
        return TrialResult(stdout=json.dumps(told), stderr="", duration_s=result.duration_s, exit_status=0)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    verdict: Verdict | None = None
    """None where there was an error."""
    refused: bool = False
    """Whether a rule refused it: the manifest's, the lock's, the environment's."""
    exact: bool = False
    told: str = ""
    """Why, and what differs in the environment; or the error."""
    said: Sequence[str] = ()
    """What `check` says of the scripts, where only a reader can see what is wrong."""

    @property
    def right(self) -> bool:
        asked = self.mutant.mutation
        if self.verdict is not asked.right or self.refused is not asked.refused or asked.told not in self.told:
            return False
        return asked.exact in {None, self.exact} and self.said_right

    @property
    def said_right(self) -> bool:
        """Whether `check` says what it can, and nothing where it can't."""
        asked = self.mutant.mutation
        return any(line.startswith(asked.said) for line in self.said) if asked.said else not self.said

    @property
    def false(self) -> bool:
        """Whether it is called confirmed, or exact, and is not."""
        asked = self.mutant.mutation
        wrong = asked.right is not Verdict.CONFIRMED or (asked.exact is False and self.exact)
        return self.verdict is Verdict.CONFIRMED and wrong


def judged(mutant: Mutant, place: Path) -> Outcome:
    """Run one mutant to its verdict; trials run below `place`."""
    mutation, root = mutant.mutation, mutant.directory.parents[1]
    cache = root / "cache" if mutation.part is Part.ENVIRONMENT else None
    options = Options(environment=mutant.environment, trials=mutant.trials, timeout_s=mutation.timeout_s, probes=False)
    stage = (
        Stage(place, mutation.gone, cache) if mutant.tool is None else WithGpu(place, mutation.gone, tool=mutant.tool)
    )
    try:
        case = load(mutant.directory / MANIFEST, known_images(ROOT), root)
        with stage as engine:
            if mutation.inside:
                engine.change(recipe(case, mutant.environment, Variant.REPRO), mutation)
            result = run_case(case, options, engine, Console(io.StringIO()))
    except CasebookError as error:
        return Outcome(mutant=mutant, refused=isinstance(error, ManifestError | UnfitError), told=str(error))
    if isinstance(result, Skipped):
        return Outcome(mutant=mutant, verdict=result.verdict, told=" | ".join(result.reasons))
    told = " | ".join([plain(headline(result)), *result.reasons[1:], *result.environment.drift])
    said = checked(root, case.id) if mutation.for_a_reader else ()
    return Outcome(mutant=mutant, verdict=result.verdict, exact=result.environment.exact, told=told, said=said)


def checked(root: Path, id_: str) -> list[str]:
    """Return what `check` says of the scripts, as "severity: what"."""
    (root / "images" / IMAGE).mkdir(parents=True)
    (root / "images" / IMAGE / "Dockerfile").touch()
    scripts = {f"cases/{id_}/{variant}.py" for variant in Variant}
    return [f"{each.severity}: {each.what}" for each in static(root, id_)[1] if each.path in scripts]


def judge_all(mutants: Sequence[Mutant], place: Path) -> Iterator[Outcome]:
    """Several at once: first those that were made up, then those of the corpus, each in their order."""
    made_up = [mutant for mutant in mutants if mutant.environment == HERE]
    with packages_at_hand(place):
        yield from _judge(made_up, place)
    yield from _judge([mutant for mutant in mutants if mutant.environment != HERE], place)


def _judge(mutants: Sequence[Mutant], place: Path) -> Iterator[Outcome]:
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield from pool.map(lambda mutant: judged(mutant, place), mutants)
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def packages_at_hand(place: Path) -> Iterator[None]:
    """Let environments be made of the one package that mutants need, without an index."""
    wheels, before = place.with_name(f"{place.name}.wheels"), dict(os.environ)
    demo.write_wheel(wheels)
    os.environ.update(UV_FIND_LINKS=str(wheels), UV_NO_INDEX="1")
    try:
        with patch.object(attesting, "user_cache_path", lambda _name: wheels):  # what is found there goes with them
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
