"""A new case: its directory, with what a script and one trial of it show, and marked blanks for the rest."""

import ast
import math
import re
import shutil
import warnings
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version

from gpu_casebook.author.check import read_script
from gpu_casebook.author.draft import EMPTY_SCRIPT, Draft, files, parse_report, script
from gpu_casebook.author.imports import Requirements, active_python, ask, imports, relative
from gpu_casebook.author.propose import keep_discriminating_figures, proof, propose
from gpu_casebook.devices import hardware
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.errors import Problem, UsageError
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import known_images
from gpu_casebook.manifest.model import NAME_PATTERN, PATTERN_WORDS
from gpu_casebook.manifest.pins import pin
from gpu_casebook.packages.lock import same_version, script_header
from gpu_casebook.packages.resolve import lock_text
from gpu_casebook.trial import PYTHON, Limits, Note, Recipe, TrialRequest, TrialResult, Watch

HANG_AFTER_S = 20.0
"""When to start watching for a hang: imports and a first compilation are over by then."""
LONGEST_ID = 80
LEAST_TIMEOUT_S = 120.0
_CUDA = re.compile(r"""(?m)['"]cuda(?::\d+)?['"]|\.cuda\(|torch\.cuda\.|^\s*(?:import|from) triton\b""")
_NOTHING = Requirements(blanks=["the packages that the scripts need, each pinned: NAME==VERSION"])
_CUDA_13_FROM = Version("2.11")
"""The first release of PyTorch whose packages on the index are those for CUDA 13."""


@dataclass(frozen=True, kw_only=True)
class NewCase:
    """The options of the command."""

    id: str
    source: Path | None = None
    issue: str | None = None
    engine: str | None = None
    trial: bool = True
    python: Path | None = None
    buggy: Sequence[str] = ()  # pins of a release case
    fixed: Sequence[str] = ()
    timeout_s: float = LEAST_TIMEOUT_S


def new(root: Path, options: NewCase, say: Note) -> tuple[Path, list[str]]:
    """Write cases/<id>/, whole or not at all. Return it, and lines for the author: what was seen, and what is odd.

    Raises UsageError, and BuildError if a lock can't be made.
    """
    directory = _directory(root, options.id)
    making = _Making(root, options, say)
    with warnings.catch_warnings(action="ignore"):  # parsing a script may give warnings
        draft, found = making.begun()
        locks: dict[str, str] = {}
        if options.source and options.trial:
            draft, locks = making.tried(draft, found)
        _write(directory, files(draft) | {f"locks/{name}": lock for name, lock in locks.items()})
    return directory, making.notes


def _directory(root: Path, name: str) -> Path:
    if not re.fullmatch(NAME_PATTERN, name) or len(name) > LONGEST_ID:
        raise UsageError(f"{name!r} {PATTERN_WORDS[NAME_PATTERN]}, and of {LONGEST_ID} characters at most")
    directory = root / "cases" / name
    if directory.exists() or directory.is_symlink():
        choices = f"choose another id, or work on that one: nox -s check -- {name}"
        raise UsageError(f"cases/{name} is there already; {choices}")
    return directory


def _own(options: NewCase) -> dict[Variant, list[str]]:
    if bool(options.buggy) != bool(options.fixed):
        raise UsageError("--buggy and --fixed belong together: the two releases that the scripts are run with")
    found = {}
    for variant, option, pins in ((Variant.REPRO, "--buggy", options.buggy), (Variant.FIXED, "--fixed", options.fixed)):
        try:
            found[variant] = [pin(each) for each in pins]
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from None
    if found[Variant.REPRO] and found[Variant.REPRO] == found[Variant.FIXED]:
        raise UsageError("--buggy and --fixed are the same; a release case needs two versions")
    return found if options.buggy else {}


def _python(options: NewCase) -> Path | None:
    if options.python and not options.python.is_file():
        raise UsageError(f"--python {options.python}: there is no such file")
    return options.python or active_python()


def _requirements(text: str, source: Path, python: Path | None, given: Collection[str]) -> Requirements:
    """Return what the script needs. `given` are the packages, by name, whose versions are known otherwise."""
    tree = ast.parse(text)
    modules = imports(tree)
    try:
        header = script_header(text)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    answer = ask(python, modules) if python else {}
    found = Requirements(answer=answer, beside=_beside(source), given=given)
    found.collect(header.requirements if header else (), modules)
    if relative(tree):
        found.notes.append("the script imports relatively (from . import ...), and a case's script stands alone")
    if not python:
        found.notes.append("no Python is active, so nothing could be asked for installed versions; use --python")
    if found.python not in {None, PYTHON}:
        versions = f"versions are those of Python {found.python} here"
        found.notes.append(f"{versions}; the case asks for {PYTHON}, which the images have")
    return found


def _beside(source: Path) -> list[str]:
    own = source.resolve()
    around = [path for path in own.parent.iterdir() if path != own]
    modules = [path.stem for path in around if path.suffix == ".py"]
    return modules + [path.name for path in around if (path / "__init__.py").is_file()]


def _name(requirement: str) -> str:
    return requirement.partition("==")[0].partition("[")[0]


def _on_releases(draft: Draft) -> list[str]:
    """Return advice if the script seems to run the very package that the report is about."""
    project = draft.report.project.rpartition("/")[2].lower() if draft.report else ""
    own = [each for each in draft.pins if _name(each) == project]
    if not own or draft.release:
        return []
    both = f"--buggy {own[0]} --fixed {project}==VERSION"
    return [f"a release case, with the package itself in two versions, is begun with {both}"]


def _others_installed(draft: Draft, requirements: Requirements) -> list[str]:
    """Return what is installed here of the buggy packages in another version."""
    wanted = {_name(each): each.partition("==")[2] for each in draft.own.get(Variant.REPRO, ())}
    found = {name: requirements.installed.get(name, "missing") for name in wanted}
    return [f"{name} {version}" for name, version in found.items() if not same_version(version, wanted[name])]


def _gpus(text: str, notes: list[str]) -> int:
    """Return how many GPUs the script seems to need."""
    if re.search(r"""['"]nccl['"]""", text):
        return 2
    if not _CUDA.search(text):
        return 0
    if "cuda.is_available" in text:
        what = "the script takes a GPU only if there is one, so the case asks for none"
        notes.append(f"{what}; if the bug needs it: gpus: 1")
        return 0
    return 1


def _image(gpus: int, pins: Sequence[str], known: Sequence[str]) -> str:
    versions = [Version(each.split("==")[1]) for each in pins if _name(each) == "torch"]
    chosen = "cpu" if not gpus else "cuda12" if versions and versions[0] < _CUDA_13_FROM else "cuda13"
    return chosen if chosen in known or not known else known[0]


# What needs the checkout, the command line and a place for notes


@dataclass(frozen=True)
class _Making:
    root: Path
    options: NewCase
    say: Note
    notes: list[str] = field(default_factory=list)

    def begun(self) -> tuple[Draft, Requirements]:
        """Return what is known without a trial."""
        options, own = self.options, _own(self.options)
        text, found = EMPTY_SCRIPT, _NOTHING
        if options.source:
            script = read_script(options.source, str(options.source), "utf-8-sig")
            if isinstance(script, Problem):
                raise UsageError(str(script))
            text, given = script, {_name(each) for pins in own.values() for each in pins}
            found = _requirements(text, options.source, _python(options), given)
        gpus, pins = _gpus(text, self.notes), [*found.pins.values()]
        draft = Draft(
            id=options.id,
            script=text,
            image=_image(gpus, [*pins, *own.get(Variant.REPRO, ())], known_images(self.root)),
            gpus=gpus,
            pins=pins,
            unknown=found.blanks,
            own=own,
            report=parse_report(options.issue) if options.issue else None,
        )
        self.notes.extend([*found.notes, *_on_releases(draft)])
        return draft, found

    def tried(self, draft: Draft, found: Requirements) -> tuple[Draft, dict[str, str]]:
        """Return the draft with what trials propose, and the locks that were made for them."""
        if self.options.engine:
            return self._tried_locked(draft)
        if others := _others_installed(draft, found):
            self.notes.append(f"not tried: {', '.join(others)} is installed here; --engine venv tries both versions")
        elif python := _python(self.options):
            draft = self._tried_here(draft, python)
            if draft.release:
                self.notes.append("fixed: not tried, as it is not what is installed here; --engine venv tries both")
        return draft, {}

    def _tried_here(self, draft: Draft, python: Path) -> Draft:
        """Run one trial by the author's own Python."""
        from gpu_casebook.engines.registry import capable, kind  # noqa: PLC0415

        assert self.options.source
        name = self.options.source.name
        self.say(f"one trial of {name} with {python} ...")
        with kind(capable("uses_host_python")).connect(self.root) as engine:
            prepared = Prepared(key="active", python=str(python.absolute()))
            return self._with_failure(draft, self._trial(draft, Variant.REPRO, engine, prepared), name)

    def _tried_locked(self, draft: Draft) -> tuple[Draft, dict[str, str]]:
        """Run one trial of each variant that has requirements of its own, in an environment that is locked for it."""
        from gpu_casebook.engines.registry import choose  # noqa: PLC0415

        if draft.unknown:
            raise UsageError(f"nothing can be locked while a requirement is unknown: {draft.unknown[0]}")
        locks: dict[str, str] = {}
        with choose(self.options.engine, self.root, self.say) as engine:
            for variant in Variant if draft.release else (Variant.REPRO,):
                name = f"{draft.environment}.{variant}.txt" if draft.release else f"{draft.environment}.txt"
                self.say(f"locking {name} ...")
                locks[name] = lock_text([*draft.pins, *draft.own.get(variant, ())], PYTHON)
                self.say(f"one trial of {variant} ({engine.version}) ...")
                prepared = engine.prepare(Recipe(image=draft.image, lock=locks[name]), lambda _: None)
                result = self._trial(draft, variant, engine, prepared)
                add = self._with_failure if variant is Variant.REPRO else self._with_proof
                draft = add(draft, result, f"{variant}.py")
        return draft, locks

    def _trial(self, draft: Draft, variant: Variant, engine: Engine, prepared: Prepared) -> TrialResult:
        """Run a variant's script once, with stdin closed, on as many GPUs as it seems to need or as there are."""
        gpus = [gpu.index for gpu in hardware.gpus()][: draft.gpus] if draft.gpus else []
        limit = self.options.timeout_s
        request = TrialRequest(
            files={f"{variant}.py": script(draft, variant).encode()},
            arguments=[f"{variant}.py"],
            limits=Limits(timeout_s=limit),
            gpus=gpus,
            watch=Watch.from_second(min(HANG_AFTER_S, limit / 2), gpus=bool(gpus)),
        )
        with hardware.lock_gpus(gpus, self.say) if gpus and engine.local else nullcontext():
            return engine.run(prepared, request)

    def _with_failure(self, draft: Draft, result: TrialResult, name: str) -> Draft:
        proposal = propose(result, name)
        self.notes.extend([f"repro: {proposal.seen} ({result.duration_s:.1f} s)", *proposal.remarks])
        enough = max(LEAST_TIMEOUT_S, math.ceil(result.duration_s * 4 / 60) * 60)
        return replace(draft, proposal=proposal, timeout_s=enough)

    def _with_proof(self, draft: Draft, result: TrialResult, name: str) -> Draft:
        passed = proof(result, name, draft.proposal)
        self.notes.extend([f"fixed: {passed.seen} ({result.duration_s:.1f} s)", *passed.remarks])
        return replace(draft, proposal=keep_discriminating_figures(draft.proposal, passed), proof=passed)


# Writing


def _write(directory: Path, texts: dict[str, str]) -> None:
    """Write the directory, whole or not at all."""
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
