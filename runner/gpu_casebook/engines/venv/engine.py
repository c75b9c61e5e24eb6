"""Trials in virtual environments on this machine, where there is no Docker engine. Weaker isolation, same answers."""

import hashlib
import json
import os
import re
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, Self

from platformdirs import user_cache_path

from gpu_casebook.devices import hardware
from gpu_casebook.devices.driver import host_facts
from gpu_casebook.engines import scratch, watching
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.output import Kept, Neutral, Novelty, ending
from gpu_casebook.engines.venv import forking, packing
from gpu_casebook.engines.venv.forking import Nursery, Supervising, Unfit, ZygoteProcess
from gpu_casebook.errors import EngineError, MachineError, UsageError
from gpu_casebook.evidence import GpuAccess, ImageFacts
from gpu_casebook.files import sole
from gpu_casebook.packages import uv
from gpu_casebook.trial import CASE_DIRECTORY, Note, Recipe, TrialRequest, TrialResult

ISOLATION = (
    "weaker than a container: the host's files, its network and its other processes are within reach",
    "each trial in a session of its own, with a private copy of the case and private scratch space",
    "nothing of the host's environment variables",
    "limits on memory, processes, time and output, watched from outside the trial",
)

_COMPLETE = "complete.json"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_SPARE_S = 2 * watching.FINAL_S
"""What a watched trial gets on top of its time, so that its stacks can be taken: the runner keeps the time then."""
_DRAIN_S = 5.0
"""How long output may still come after the last process is gone, or can't be killed."""


class VenvEngine(Engine):
    """`cache` holds environments and logs, `place` the scratch directories."""

    name = "venv"
    isolation = ISOLATION
    caveat = "with weaker isolation"
    uses_host_python = True
    can_fork = True

    def __init__(self, cache: Path | None = None, place: Path | None = None) -> None:
        if sys.platform != "linux":
            raise EngineError("the venv engine needs Linux; use --engine docker")
        self._cache = (cache or user_cache_path("casebook")).resolve()
        self._place = (place or scratch.usual_place()).resolve()
        self._nursery = Nursery()

    @classmethod
    def connect(cls, root: Path) -> Self:  # noqa: ARG003 environments need nothing of the checkout
        return cls()

    def __exit__(self, *exc_info: object) -> None:
        """Each trial takes away its own; what forked trials came from is still there."""
        self._nursery.close()

    @cached_property
    def version(self) -> str:
        return uv.version()

    def gpu_access(self) -> GpuAccess | None:
        return GpuAccess(mode="direct", detail="the host's own driver") if hardware.gpus() else None

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        if recipe.use_image:
            raise UsageError(f"--image {recipe.use_image} needs the docker engine; venv has no images")
        started = time.monotonic()
        directory = self._directory(recipe)
        lock = directory.with_suffix(".lock")
        with _disk(self._cache), sole(lock, note, "waiting for another run that builds the same environment"):
            if not _is_complete(directory):
                self._build(directory, recipe, note)
        python = directory / "bin" / "python"
        return Prepared(key=_key(recipe), python=str(python), duration_s=time.monotonic() - started)

    def absent(self, recipes: Iterable[Recipe]) -> Sequence[Recipe]:
        return [recipe for recipe in recipes if not _is_complete(self._directory(recipe))]

    @property
    def storage(self) -> Path:
        return self._cache

    def forget(self, prepared: Prepared) -> None:
        shutil.rmtree(Path(prepared.python).parents[1], ignore_errors=True)

    @contextmanager
    def throwaway(self) -> Iterator["VenvEngine"]:
        with scratch.scratch(self._passing) as cache, VenvEngine(cache, self._place) as engine:
            yield engine

    @property
    def _passing(self) -> Path:
        """Where the environments of throw-away engines lie."""
        return self._cache / "steps"

    def pack(self, recipes: Mapping[str, Recipe], into: Path, note: Note) -> Sequence[ImageFacts]:
        packing.pack(recipes, into, note)
        return ()

    def take_in(self, packed: Path, note: Note) -> None:  # noqa: ARG002
        packing.take_in(packed)

    def _directory(self, recipe: Recipe) -> Path:
        return self._cache / "envs" / _key(recipe)[:16]

    def _build(self, directory: Path, recipe: Recipe, note: Note) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        lock, log = directory.with_suffix(".txt"), self._cache / "logs" / f"{directory.name}.log"
        lock.write_text(recipe.lock, encoding="utf-8")
        try:
            uv.build(directory, python=recipe.python, lock=lock, log=log, note=note)
            (directory / _COMPLETE).write_text(json.dumps({"python": recipe.python}), encoding="utf-8")
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        finally:
            lock.unlink(missing_ok=True)

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        if not request.zygote:
            return self._run(prepared, request)
        try:
            return self._run_forked(prepared, request)
        except Unfit as why:
            return replace(self._run(prepared, request), zygote=f"fresh processes, not forked: {why}")

    def _run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        with self._laid_out(request) as directory:
            output = _Output(request, Neutral(_names(directory, Path(prepared.python))))
            ended, followed = _supervised(_begin(_orders(directory, prepared, request)), output, request)
            if "failed" in ended:
                scratch.end_processes(directory)
            return _result(ended, followed, output, request, directory)

    @contextmanager
    def _laid_out(self, request: TrialRequest) -> Iterator[Path]:
        """A scratch directory with all that a trial finds there."""
        with _disk(self._place), scratch.scratch(self._place, keep=request.keep) as directory:
            for name in forking.PLACES:
                (directory / name).mkdir()
            _lay_out(directory / "case", request.files)
            if request.watch:
                _lay_out(directory / "watched", {watching.SITE.name: watching.SITE.read_bytes()})
            yield directory

    def _run_forked(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        """Raises Unfit."""
        zygote = self._nursery.get((prepared, request), lambda: self._zygote(prepared, request))
        with _disk(self._place):
            zygote.refresh()
            output = _Output(request, Neutral(_names(zygote.directory, Path(prepared.python))))
            for kept, said in zip((output.stdout, output.stderr), zygote.said, strict=True):
                output.take(kept, [said])  # a fresh process would have said it
            orders = _orders(zygote.directory, prepared, request)
            try:
                ended, followed = _supervised(partial(zygote.fork, orders), output, request)
            except Unfit as why:
                self._nursery.spoil(why)
                raise
            if "failed" in ended:
                self._nursery.spoil(Unfit("one of them could not be run"))
            return replace(_result(ended, followed, output, request, zygote.directory), zygote=zygote.story)

    @contextmanager
    def _zygote(self, prepared: Prepared, request: TrialRequest) -> Iterator[ZygoteProcess]:
        """Raises Unfit."""
        source = request.files.get(request.arguments[0])
        if source is None or request.wrapper or request.keep:
            raise Unfit("that takes a script of the case, with nothing in front of it, and nothing kept")
        wanted = forking.imports(source, request.files)
        with self._laid_out(request) as directory:
            orders = _orders(directory, prepared, request)
            with forking.zygotes(directory, orders, wanted, request.limits.timeout_s) as made:
                yield made

    def sweep(self) -> Sequence[str]:
        return [line for place in (self._place, self._passing) for line in scratch.sweep(place)]

    def left(self) -> Sequence[str]:
        return [line for place in (self._place, self._passing) for line in scratch.left(place)]


@contextmanager
def _disk(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not uv.disk_is_full(error):
            raise
        raise MachineError(f"the disk is full: no room to write {error.filename or f'to {place}'}") from error


def _key(recipe: Recipe) -> str:
    return hashlib.sha256(f"venv 1\0{recipe.python}\0{recipe.lock}".encode()).hexdigest()


def _is_complete(directory: Path) -> bool:
    """The interpreter it was made from may have been removed since."""
    return (directory / _COMPLETE).is_file() and (directory / "bin" / "python").exists()


def _lay_out(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _names(directory: Path, python: Path) -> dict[str, str]:
    """Return what a pasted report calls the paths of this machine."""
    environment = python.parents[1]
    names = {str(directory / "case"): CASE_DIRECTORY, str(directory): "/scratch", str(environment): "/env"}
    base = _base_prefix(environment)
    return names if base in {None, "/usr", "/usr/local"} else names | {str(base): "/python"}


def _base_prefix(environment: Path) -> str | None:
    with suppress(OSError):
        text = (environment / "pyvenv.cfg").read_text(encoding="utf-8")
        found = re.search(r"^home\s*=\s*(.+)/bin\s*$", text, re.MULTILINE)
        return found[1] if found else None
    return None


def _orders(directory: Path, prepared: Prepared, request: TrialRequest) -> dict[str, Any]:
    """Return the supervisor's orders, without the file descriptors."""
    return {
        "command": [*request.wrapper, prepared.python, *request.arguments],
        "directory": str(directory / "case"),
        "variables": _variables(directory, Path(prepared.python), request),
        "timeout_s": request.limits.timeout_s + (_SPARE_S if request.watch else 0.0),
        "memory_bytes": request.limits.memory_bytes,
        "processes": request.limits.processes,
    }


def _variables(directory: Path, python: Path, request: TrialRequest) -> dict[str, str]:
    variables = {
        "PATH": f"{python.parent}:{_SYSTEM_PATH}",
        "HOME": str(directory / "home"),
        "TMPDIR": str(directory / "tmp"),
        "USER": "case",
        "LOGNAME": "case",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **_gpu_variables(request),
        **request.variables,
    }
    if request.watch:
        own = request.variables.get("PYTHONPATH")
        variables["PYTHONPATH"] = ":".join([str(directory / "watched"), *([own] if own else [])])
    return variables


def _gpu_variables(request: TrialRequest) -> dict[str, str]:
    chosen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, request.gpus))}
    if not request.gpus:
        return chosen
    chosen["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # indices as the driver counts, not by speed
    places = host_facts().library_directories
    return chosen | {"LD_LIBRARY_PATH": ":".join(places)} if places else chosen


class _Output:
    """Both streams of a trial, read in the background until nobody holds their other ends."""

    def __init__(self, request: TrialRequest, neutral: Neutral) -> None:
        bound = request.limits.output_bytes
        self.stdout, self.stderr = (Kept(bound, Novelty() if request.watch else None) for _ in range(2))
        self.neutral = neutral
        self._threads: list[threading.Thread] = []

    def read(self, stream: int, kept: Kept) -> None:
        thread = threading.Thread(target=self._read, args=(stream, kept), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _read(self, stream: int, kept: Kept) -> None:
        with os.fdopen(stream, "rb", buffering=0) as file:
            self.take(kept, iter(lambda: file.read(65536), b""))

    def take(self, kept: Kept, pieces: Iterable[bytes]) -> None:
        for piece in self.neutral.pieces(pieces):
            kept.add(piece)

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(_DRAIN_S)


def _begin(orders: dict[str, Any]) -> Callable[[int, int], Supervising]:
    def begin(out: int, err: int) -> Supervising:
        process = forking.launch(out, err)
        forking.tell(process, orders | {"stdout": out, "stderr": err})
        return process

    return begin


def _supervised(
    begin: Callable[[int, int], Supervising], output: _Output, request: TrialRequest
) -> tuple[dict[str, Any], watching.Followed]:
    """Run a trial under a supervisor; return how it says that it ended, and what was seen where it was watched."""
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    output.read(out_read, output.stdout)
    output.read(err_read, output.stderr)
    try:
        process = begin(out_write, err_write)
    finally:
        os.close(out_write)
        os.close(err_write)
    try:
        followed = _followed(process, output, request)
        return _answer(process), followed
    finally:
        _closed(process.stdin)  # an order to end, if the trial still runs
        process.wait()
        _closed(process.stdout)
        _closed(process.stderr)
        output.finish()


def _followed(process: Supervising, output: _Output, request: TrialRequest) -> watching.Followed:
    """Watch the trial if that was asked for, and give the order to end it if it does not end by itself."""
    if request.watch is None:
        return watching.Followed()

    answer = process.stdout
    assert answer

    def look(spying: bool) -> str:  # noqa: FBT001
        seen = watching.look(process.pid, spying=spying).encode()
        return b"".join(output.neutral.pieces([seen])).decode()

    followed = watching.watch_trial(
        request.watch,
        request.limits.timeout_s,
        look=look,
        printed=lambda: output.stdout.said + output.stderr.said,
        ended=lambda within_s: bool(select.select([answer], [], [], within_s)[0]),
    )
    if followed.end is not watching.TrialEnd.ENDED:
        _closed(process.stdin)
    return followed


def _answer(process: Supervising) -> dict[str, Any]:
    assert process.stdout
    said = process.stdout.read()
    if said:
        return dict(json.loads(said))
    words = process.stderr.read() if process.stderr else b""
    last = words.decode("utf-8", "replace").strip().splitlines()[-1:]
    return {"failed": f"its supervisor ended: {''.join(last) or 'it was killed'}"}


def _closed(stream: IO[bytes] | None) -> None:
    with suppress(BrokenPipeError):
        if stream:
            stream.close()


def _result(
    ended: Mapping[str, Any], followed: watching.Followed, output: _Output, request: TrialRequest, directory: Path
) -> TrialResult:
    infra = _infra(ended)
    why = ended.get("ended_for")
    if why == "processes":
        output.stderr.add(f"\n[the trial was ended: more than {request.limits.processes} processes]\n".encode())
    exit_status, signal = (None, None) if infra else ending(ended["status"])
    return TrialResult(
        stdout=output.stdout.text(),
        stderr=output.stderr.text(),
        duration_s=ended.get("duration_s", 0.0),
        exit_status=exit_status,
        signal=signal,
        **watching.marks(request.watch, followed, ended_by_us=why == "abandoned", timed_out=why == "timeout"),
        out_of_memory=why == "memory",
        infra=infra,
        kept=str(directory) if request.keep else None,
    )


def _infra(ended: Mapping[str, Any]) -> str | None:
    if "failed" in ended:
        return f"the trial could not be run: {ended['failed']}"
    if ended["left"]:
        return f"processes that can't be killed are left: {', '.join(map(str, ended['left']))}"
    return None if ended["status"] is not None else "nobody knows how the trial ended"
