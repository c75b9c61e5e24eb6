"""A new case: its directory, with what can be told from a script and a trial of it, and marked blanks for the rest."""

import ast
import math
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from gpu_casebook.author import link
from gpu_casebook.author.check import MAX_SCRIPT_BYTES
from gpu_casebook.author.draft import EMPTY_SCRIPT, Draft, files, script
from gpu_casebook.author.imports import Requirements, active_python, ask, imports, relative, required
from gpu_casebook.author.propose import proof, propose, told_by
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import Variant
from gpu_casebook.manifest.case import known_images
from gpu_casebook.manifest.model import NAME_PATTERN, PATTERN_WORDS, pin
from gpu_casebook.packages.lock import same_version, script_header
from gpu_casebook.packages.resolve import lock_text
from gpu_casebook.trial import PYTHON

if TYPE_CHECKING:
    from gpu_casebook.engines.base import Engine
    from gpu_casebook.trial import TrialResult

Say = Callable[[str], None]

LONGEST_ID = 80
LEAST_TIMEOUT_S = 120.0
"""What the images have."""
_NOTHING = Requirements(blanks=["the packages that the scripts need, each pinned: NAME==VERSION"])
_CUDA_13_FROM = Version("2.11")
"""The first release of PyTorch whose packages on the index are those for CUDA 13."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command line asks for. `buggy` and `fixed` are the two pins of a release case."""

    id: str
    source: Path | None = None
    issue: str | None = None
    engine: str | None = None
    trial: bool = True
    python: Path | None = None
    buggy: Sequence[str] = ()
    fixed: Sequence[str] = ()
    timeout_s: float = LEAST_TIMEOUT_S


@dataclass(frozen=True)
class Written:
    """The new directory, and lines for the author: what was seen, and what is odd."""

    directory: Path
    notes: Sequence[str]


def new(root: Path, wanted: Wanted, say: Say) -> Written:
    """Write cases/<id>/, whole or not at all. Raises UsageError, and BuildError where a lock can't be made."""
    directory = _directory(root, wanted.id)
    making = _Making(root, wanted, say)
    draft, told = making.begun()
    locks: dict[str, str] = {}
    if wanted.source and wanted.trial:
        draft, locks = making.tried(draft, told)
    _write(directory, files(draft) | {f"locks/{name}": lock for name, lock in locks.items()})
    return Written(directory, making.notes)


def _directory(root: Path, name: str) -> Path:
    if not re.fullmatch(NAME_PATTERN, name) or len(name) > LONGEST_ID:
        raise UsageError(f"{name!r} {PATTERN_WORDS[NAME_PATTERN]}, and of {LONGEST_ID} characters at most")
    directory = root / "cases" / name
    if directory.exists() or directory.is_symlink():
        raise UsageError(
            f"cases/{name} is there already; choose another id, or work on that one: nox -s check -- {name}"
        )
    return directory


def _own(wanted: Wanted) -> dict[Variant, list[str]]:
    if bool(wanted.buggy) != bool(wanted.fixed):
        raise UsageError("--buggy and --fixed belong together: the two releases that the scripts are run with")
    found = {}
    for variant, option, pins in ((Variant.REPRO, "--buggy", wanted.buggy), (Variant.FIXED, "--fixed", wanted.fixed)):
        try:
            found[variant] = [pin(each) for each in pins]
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from None
    if found[Variant.REPRO] and found[Variant.REPRO] == found[Variant.FIXED]:
        raise UsageError("--buggy and --fixed are the same; a release case needs two versions")
    return found if wanted.buggy else {}


def _source(path: Path) -> str:
    """The script's text. Raises UsageError where it is no script."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
        with warnings.catch_warnings(action="ignore"):
            compile(text, str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8; save it as UTF-8") from None
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno or 1}: is not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: can't be read as Python: {error}") from None
    if len(content) > MAX_SCRIPT_BYTES:
        raise UsageError(f"{path}: is {len(content)} bytes long; {MAX_SCRIPT_BYTES} are the most for a minimal script")
    return text


def _python(wanted: Wanted) -> Path | None:
    python = wanted.python or active_python()
    if wanted.python and not wanted.python.is_file():
        raise UsageError(f"--python {wanted.python}: there is no such file")
    return python


def _requirements(text: str, source: Path, python: Path | None, given: Iterable[str]) -> Requirements:
    """`given` are the packages, by name, whose versions are known otherwise."""
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(text)
    found = imports(tree)
    told = ask(python, [*found.needed, *found.optional]) if python else {}
    result = required(found, _beside(source), _declared(text, source), told, given)
    return replace(result, notes=[*result.notes, *_oddities(tree, result, python)])


def _oddities(tree: ast.Module, told: Requirements, python: Path | None) -> Iterator[str]:
    if relative(tree):
        yield "the script imports relatively (from . import ...), and a case's script stands alone"
    if not python:
        yield "no Python is active, so nothing could be asked for installed versions; name one with --python"
    if told.python and told.python != PYTHON:
        yield f"versions are those of Python {told.python} here; the case asks for {PYTHON}, which the images have"


def _beside(source: Path) -> list[str]:
    own = source.resolve()
    around = [path for path in own.parent.iterdir() if path != own]
    modules = [path.stem for path in around if path.suffix == ".py"]
    return modules + [path.name for path in around if (path / "__init__.py").is_file()]


def _declared(text: str, source: Path) -> list[str]:
    try:
        header = script_header(text)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    return header.requirements if header else []


def _name(requirement: str) -> str:
    return requirement.partition("==")[0].partition("[")[0]


def _on_releases(draft: Draft) -> list[str]:
    """Advice where the script seems to run the very package that the report is about."""
    project = draft.report.project.rpartition("/")[2].lower() if draft.report else ""
    own = [each for each in draft.pins if _name(each) == project]
    if not own or draft.release:
        return []
    both = f"--buggy {own[0]} --fixed {project}==VERSION"
    return [f"a release case, with the package itself in two versions, is begun with {both}"]


def _others_installed(draft: Draft, told: Requirements) -> list[str]:
    """What is installed here of the buggy packages, where that is another version."""
    wanted = {_name(each): each.partition("==")[2] for each in draft.own.get(Variant.REPRO, ())}
    found = {name: told.installed.get(name, "missing") for name in wanted}
    return [f"{name} {version}" for name, version in found.items() if not same_version(version, wanted[name])]


def _gpus(text: str, notes: list[str]) -> int:
    """How many GPUs the script seems to need."""
    if re.search(r"""['"]nccl['"]""", text):
        return 2
    if not re.search(
        r"""['"]cuda(?::\d+)?['"]|\.cuda\(|torch\.cuda\.|^\s*(?:import|from) triton\b""", text, re.MULTILINE
    ):
        return 0
    if "cuda.is_available" in text:
        notes.append(
            "the script takes a GPU only if there is one, so the case asks for none; if the bug needs it: gpus: 1"
        )
        return 0
    return 1


def _image(gpus: int, pins: Sequence[str], known: Sequence[str]) -> str:
    torch = next((each.split("==")[1] for each in pins if _name(each) == "torch"), None)
    try:
        newer = torch is None or Version(torch) >= _CUDA_13_FROM
    except InvalidVersion:
        newer = True
    chosen = "cpu" if not gpus else "cuda13" if newer else "cuda12"
    return chosen if chosen in known or not known else known[0]


# What needs the checkout, the command line and a place for notes


@dataclass(frozen=True)
class _Making:
    root: Path
    wanted: Wanted
    say: Say
    notes: list[str] = field(default_factory=list)

    def begun(self) -> tuple[Draft, Requirements]:
        """What can be told without a trial."""
        wanted, own = self.wanted, _own(self.wanted)
        text = _source(wanted.source) if wanted.source else EMPTY_SCRIPT
        given = {_name(each) for pins in own.values() for each in pins}
        told = _NOTHING if wanted.source is None else _requirements(text, wanted.source, _python(wanted), given)
        gpus = _gpus(text, self.notes)
        draft = Draft(
            id=wanted.id,
            script=text,
            image=_image(gpus, [*told.pinned, *own.get(Variant.REPRO, ())], known_images(self.root)),
            gpus=gpus,
            pins=told.pinned,
            unknown=told.blanks,
            own=own,
            report=link.parse(wanted.issue) if wanted.issue else None,
        )
        self.notes.extend([*told.notes, *_on_releases(draft)])
        return draft, told

    def tried(self, draft: Draft, told: Requirements) -> tuple[Draft, dict[str, str]]:
        """The draft with what trials propose, and the locks that were made for them."""
        if self.wanted.engine:
            return self._tried_locked(draft)
        python = _python(self.wanted)
        if others := _others_installed(draft, told):
            self.notes.append(f"not tried: {', '.join(others)} is installed here; --engine venv tries both versions")
        elif python:
            draft = self._tried_here(draft, python)
            if draft.release:
                self.notes.append("fixed: not tried, as it is not what is installed here; --engine venv tries both")
            return draft, {}
        return draft, {}

    def _tried_here(self, draft: Draft, python: Path) -> Draft:
        from gpu_casebook.author import trial  # noqa: PLC0415 what runs trials takes its time to import

        assert self.wanted.source
        name = self.wanted.source.name
        self.say(f"one trial of {name} with {python} ...")
        text, limit = script(draft, Variant.REPRO), self.wanted.timeout_s
        result = trial.in_active(python, Path("repro.py"), text, gpus=draft.gpus, timeout_s=limit, note=self.say)
        return self._with_failure(draft, result, name)

    def _tried_locked(self, draft: Draft) -> tuple[Draft, dict[str, str]]:
        from gpu_casebook.engines.choose import choose  # noqa: PLC0415

        if draft.unknown:
            raise UsageError(f"nothing can be locked while a requirement is unknown: {draft.unknown[0]}")
        locks: dict[str, str] = {}
        with choose(self.wanted.engine, self.root, self.say) as engine:
            for variant in Variant if draft.release else (Variant.REPRO,):
                name = f"{draft.environment}.{variant}.txt" if draft.release else f"{draft.environment}.txt"
                self.say(f"locking {name} ...")
                locks[name] = lock_text([*draft.pins, *draft.own.get(variant, ())], draft.python, _quiet)
                result = self._trial(draft, variant, locks[name], engine)
                add = self._with_failure if variant is Variant.REPRO else self._with_proof
                draft = add(draft, result, f"{variant}.py")
        return draft, locks

    def _trial(self, draft: Draft, variant: Variant, lock: str, engine: "Engine") -> "TrialResult":
        from gpu_casebook.author import trial  # noqa: PLC0415
        from gpu_casebook.trial import Recipe  # noqa: PLC0415

        self.say(f"one trial of {variant} ({engine.version}) ...")
        recipe = Recipe(image=draft.image, lock=lock, python=draft.python)
        scripts, limit = {f"{variant}.py": script(draft, variant)}, self.wanted.timeout_s
        return trial.in_locked(engine, recipe, scripts, gpus=draft.gpus, timeout_s=limit, note=_quiet)

    def _with_failure(self, draft: Draft, result: "TrialResult", name: str) -> Draft:
        proposal = propose(result, name)
        self.notes.extend([f"repro: {proposal.seen} ({result.duration_s:.1f} s)", *proposal.remarks])
        enough = max(LEAST_TIMEOUT_S, math.ceil(result.duration_s * 4 / 60) * 60)
        return replace(draft, proposal=proposal, timeout_s=enough)

    def _with_proof(self, draft: Draft, result: "TrialResult", name: str) -> Draft:
        passed = proof(result, name, draft.proposal)
        self.notes.extend([f"fixed: {passed.seen} ({result.duration_s:.1f} s)", *passed.remarks])
        return replace(draft, proposal=told_by(draft.proposal, passed), proof=passed)


def _quiet(_: str) -> None:
    """What locking and preparing do in between, nobody has to know here."""


# Writing


def _write(directory: Path, texts: dict[str, str]) -> None:
    """Whole or not at all."""
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for name, text in texts.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        partial.rename(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
