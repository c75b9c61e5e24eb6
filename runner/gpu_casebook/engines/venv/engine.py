"""Trials in virtual environments on this machine, where there is no Docker engine. Weaker isolation, same answers."""

import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from platformdirs import user_cache_path

from failure_signature.result import CASE_DIRECTORY, TrialResult
from failure_signature.text import path_list, size
from gpu_casebook.devices import hardware
from gpu_casebook.devices.driver import host_facts
from gpu_casebook.engines import scratch
from gpu_casebook.engines.base import VARIABLES, Engine, Packed, Prepared
from gpu_casebook.engines.output import supervised_s
from gpu_casebook.engines.venv import bytecode, packing, seal, supervised, unused
from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.engines.venv.supervised import NeutralOutput
from gpu_casebook.errors import BuildError, CasebookError, EngineError, UsageError
from gpu_casebook.guest import only
from gpu_casebook.locking import sole
from gpu_casebook.packages import uv
from gpu_casebook.packages.lock import content_key, read_lock
from gpu_casebook.trial import GpuAccess, Note, Recipe, TrialRequest

_MOST_SHOWN = 3
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


class VenvEngine(Engine):
    """`cache` holds environments and logs, `place` the scratch directories.

    `store` has the packages of all environments, each once, and `bytecode` beside it what they were compiled to: they
    are linked from there. It must be on the cache's file system. No other program's cache is used, because a trial that
    writes to a file writes to all links of it.
    """

    name = "venv"
    isolation = (
        "weaker than a container: the host's files, its network and its other processes are within reach",
        "each trial in a session of its own, with a private copy of the case and private scratch space",
        "nothing of the host's environment variables",
        "the files of its environment compared before and after; where one has changed, no trial counts",
        "limits on memory (with files in scratch space and shared memory), processes, time and output, from outside",
    )
    caveat = "with weaker isolation"
    uses_host_python = True
    takes_over = True

    def __init__(self, cache: Path | None = None, place: Path | None = None, store: Path | None = None) -> None:
        if sys.platform != "linux":
            raise EngineError("the venv engine needs Linux; use --engine docker")
        self._cache = (cache or user_cache_path("casebook")).resolve()
        self._place = (place or scratch.usual_place()).resolve()
        self._store = store or self._cache / "store"
        self._made: dict[str, tuple[Recipe, Seal]] = {}  # by the path of the environment's Python

    @classmethod
    def connect(cls, root: Path) -> Self:  # noqa: ARG003 environments need nothing of the checkout
        return cls()

    @cached_property
    def version(self) -> str:
        return uv.version()

    def gpu_access(self) -> GpuAccess | None:
        return GpuAccess(mode="direct", detail="the host's own driver") if hardware.gpus() else None

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        if recipe.use_image:
            raise UsageError(f"--image {recipe.use_image} needs the docker engine; venv has no images")
        packing.refuse_sources(recipe)
        if not recipe.over:
            return self._prepare(recipe, recipe.lock, (), note)
        from gpu_casebook.packages import overlay  # noqa: PLC0415 it brings the resolver

        with overlay.wheels(recipe, note) as wheels:
            return self._prepare(recipe, overlay.combined(recipe.lock, wheels), wheels, note)

    def _prepare(self, asked: Recipe, combined: str, wheels: Sequence[Path], note: Note) -> Prepared:
        recipe = replace(asked, lock=combined)
        directory = self._directory(recipe)
        lock = directory.with_suffix(".lock")
        with scratch.disk(self._cache), sole(lock, note, "waiting for another run that builds the same environment"):
            sealed = _intact(directory, note) or self._build(directory, recipe, wheels, note)
        python = str(directory / "bin" / "python")
        self._made[python] = asked, sealed
        return Prepared(key=f"{_key(recipe)} {sealed.content}", python=python)

    def absent(self, recipes: Iterable[Recipe]) -> Sequence[Recipe]:
        return [recipe for recipe in recipes if not _is_complete(self._directory(recipe))]

    @property
    def storage(self) -> Path:
        return self._cache

    def forget(self, prepared: Prepared) -> None:
        _remove(Path(prepared.python).parents[1])

    def discard_unused(self, wanted: Iterable[Recipe], *, dry_run: bool = False) -> Sequence[str]:
        kept = {self._directory(recipe) for recipe in wanted}
        lines, freed = list[str](), 0
        for directory in sorted(path for path in (self._cache / "envs").glob("*/") if path not in kept):
            lines.append(f"environment {directory}, which no case uses")
            if not dry_run:
                with sole(directory.with_suffix(".lock"), lambda _: None, ""):  # a run may build it
                    freed += unused.own_bytes(directory)
                    _remove(directory)
        freed += 0 if dry_run else unused.prune(self._store, self._shelf)
        return [*lines, *([f"{size(freed)}, with packages that no environment has"] if freed else [])]

    @contextmanager
    def throwaway(self) -> Iterator["VenvEngine"]:
        with scratch.scratch(self._passing) as cache, VenvEngine(cache, self._place, self._store) as engine:
            yield engine

    @property
    def _passing(self) -> Path:
        """Where the environments of throw-away engines lie."""
        return self._cache / "steps"

    @property
    def _shelf(self) -> Path:
        return self._store.with_name("bytecode")

    def pack(self, recipes: Mapping[str, Recipe], into: Path, note: Note, has: Collection[str]) -> Packed:  # noqa: ARG002
        packing.pack(recipes, into, note)
        return ()

    def take_in(self, packed: Path, note: Note) -> None:  # noqa: ARG002
        packing.take_in(packed)

    def _directory(self, recipe: Recipe) -> Path:
        return self._cache / "envs" / _key(recipe)[:16]

    def _build(self, directory: Path, recipe: Recipe, wheels: Sequence[Path], note: Note) -> Seal:
        _remove(directory)
        try:
            installed = self._installed(directory, recipe, wheels, note)
            return bytecode.compile_all(directory, installed, self._shelf, recipe.python).write()
        except BaseException:
            _remove(directory)
            raise

    def _installed(self, directory: Path, recipe: Recipe, wheels: Sequence[Path], note: Note) -> Seal:
        """Install the lock; where the store does not have what the wheels' RECORDs say, it is filled anew."""
        log = self._cache / "logs" / f"{directory.name}.log"
        wrong: Sequence[str] = ()
        for _ in range(2):
            shutil.rmtree(directory, ignore_errors=True)
            uv.make(directory, python=recipe.python, store=self._store, log=log, note=note)
            bare = Seal.of(directory)
            uv.install(directory, recipe, store=self._store, log=log, note=note, wheels=wheels)
            installed = Seal.of(directory, bare)
            wrong = installed.unrecorded(bare)
            if not wrong:
                _reduce(directory, recipe)
                return Seal.of(directory, installed)
            note(f"{_shown(wrong)} in the store of packages changed: they are fetched again")
            uv.forget([pin.name for pin in read_lock(recipe.lock).pins], self._store)
        raise BuildError(f"the environment could not be built: {_shown(wrong)}: not what the wheel's RECORD says")

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        result = self._run(prepared, request)
        recipe, sealed = self._made.get(prepared.python, (None, None))
        if recipe is None or sealed is None or not (changed := sealed.changed()):
            return result
        why = f"its environment was changed while it ran ({_shown(changed)}), and both are thrown away"
        with suppress(CasebookError):  # the next trial says what is missing
            self.prepare(recipe, lambda _: None)
        return replace(result, exit_status=None, signal=None, infra=why)

    def _run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        with scratch.laid_out(self._place, request) as directory:
            output = NeutralOutput(request, _names(directory, Path(prepared.python)))
            orders = _orders(directory, prepared, request)
            kept = str(directory) if request.keep else None
            result = supervised.run(orders, output, request, engine=self, kept=kept)
            if result.infra:  # its supervisor may have been killed
                scratch.end_processes(directory)
            return result

    def end_trials(self) -> None:
        supervised.end_trials(self)

    def sweep(self, *, dry_run: bool = False) -> Sequence[str]:
        return [line for place in (self._place, self._passing) for line in scratch.sweep(place, dry_run=dry_run)]


def _key(recipe: Recipe) -> str:
    return content_key(recipe.lock, recipe.python, "venv 2")


def _reduce(directory: Path, recipe: Recipe) -> None:
    """Remove the files of packages that the case does not name, where it names some. Raises BuildError."""
    special = read_lock(recipe.lock).special
    if not special.only:
        return
    site = directory / "lib" / f"python{recipe.python}" / "site-packages"
    python = str(directory / "bin" / "python")
    command = [python, "-I", "-S", only.__file__, str(site), " ".join(special.without_dependencies)]
    ended = uv.captured([*command, " ".join(special.only)], {})
    if ended.returncode:
        raise BuildError(f"the environment could not be built: {ended.stderr.strip()}")


def _is_complete(directory: Path) -> bool:
    # The interpreter that it was made from may have been removed since.
    return directory.with_suffix(".json").is_file() and (directory / "bin" / "python").exists()


def _intact(directory: Path, note: Note) -> Seal | None:
    """Return the seal of an environment that is as it was made."""
    sealed = Seal.read(directory) if _is_complete(directory) else None
    if sealed and (changed := sealed.changed()):
        note(f"{_shown(changed)} changed since the environment was made: it is made anew")
        return None
    return sealed


def _remove(directory: Path) -> None:
    seal.forget(directory)
    shutil.rmtree(directory, ignore_errors=True)


def _shown(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _MOST_SHOWN} more" if len(paths) > _MOST_SHOWN else ""
    return ", ".join(paths[:_MOST_SHOWN]) + more


def _names(directory: Path, python: Path) -> dict[str, str]:
    """Return what a pasted report calls the paths of this machine."""
    environment = python.parents[1]
    names = {str(directory / "case"): CASE_DIRECTORY, str(directory): "/scratch", str(environment): "/env"}
    with suppress(OSError):
        base = re.search(r"(?m)^home\s*=\s*(.+)/bin\s*$", (environment / "pyvenv.cfg").read_text(encoding="utf-8"))
        if base and base[1] not in {"/usr", "/usr/local"}:
            names[base[1]] = "/python"
    return names


def _orders(directory: Path, prepared: Prepared, request: TrialRequest) -> dict[str, Any]:
    """Return the supervisor's orders, without the file descriptors."""
    return {
        "command": [*request.wrapper, prepared.python, *request.arguments],
        "python": prepared.python,
        "directory": str(directory / "case"),
        "variables": _variables(directory, Path(prepared.python), request),
        "timeout_s": supervised_s(request),
        "memory_bytes": request.limits.memory_bytes,
        "processes": request.limits.processes,
        "places": [str(directory / name) for name in scratch.PLACES],
    }


def _variables(directory: Path, python: Path, request: TrialRequest) -> dict[str, str]:
    places = {"HOME": str(directory / "home"), "TMPDIR": str(directory / "tmp"), **_gpu_variables(request)}
    variables = {
        **VARIABLES,
        "PATH": f"{python.parent}:{_SYSTEM_PATH}",
        **_libraries(request),
        **request.variables,
        **places,  # what keeps a trial in its place counts for more than its own variables
    }
    if request.watch:
        variables["PYTHONPATH"] = path_list(str(directory / "watched"), request.variables.get("PYTHONPATH"))
    return variables


def _gpu_variables(request: TrialRequest) -> dict[str, str]:
    chosen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, request.gpus))}
    # indices as the driver counts, not by speed
    return chosen | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if request.gpus else chosen


def _libraries(request: TrialRequest) -> dict[str, str]:
    places = host_facts().library_directories if request.gpus else ()
    return {"LD_LIBRARY_PATH": ":".join(places)} if places else {}
