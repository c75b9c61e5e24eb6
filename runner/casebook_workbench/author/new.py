"""A new case: its directory, with what a script and trials of it show, and marked blanks for the rest."""

import ast
import math
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version
from pydantic import TypeAdapter, ValidationError

from casebook_workbench.author.check import read_script
from casebook_workbench.author.draft import EMPTY_SCRIPT, Draft, Proposal, files, parse_report, script
from casebook_workbench.author.header import script_header
from casebook_workbench.author.imports import Requirements, active_python, ask, imports, loaded, relative, variables
from casebook_workbench.author.propose import agree, proof, propose, told_apart
from casebook_workbench.redact import redact
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from gpu_casebook.devices import hardware, ledger
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.errors import BuildError, Problem, UsageError
from gpu_casebook.manifest.case import known_images
from gpu_casebook.manifest.model import NAME_PATTERN, PATTERN_WORDS, TRIALS, VariableName
from gpu_casebook.packages.lock import read_lock, same_version
from gpu_casebook.packages.resolve import lock_text
from gpu_casebook.pins import pin
from gpu_casebook.revision import git
from gpu_casebook.trial import PYTHON, Limits, Note, Recipe, TrialRequest, Watch

HANG_AFTER_S = 20.0
"""When to start watching for a hang: imports and a first compilation are over by then."""
LONGEST_ID = 80
LEAST_TIMEOUT_S = 120.0
_MOST_TRIALS = 12
"""Where some trials fail and some do not: as many tell a rate of a half from one of a tenth."""
_LONG_S = 60.0
"""Seconds of trials after which no further one is begun."""
_CUDA = re.compile(r"""(?m)['"]cuda(?::\d+)?['"]|\.cuda\(|torch\.cuda\.|^\s*(?:import|from) triton\b""")
_DECIDES = re.compile(r"(?:TRITON|TORCH\w*|PYTORCH|NCCL|CUBLAS|CUDNN)_\w+|CUDA_LAUNCH_\w+|(?:OMP|MKL)_NUM_THREADS")
"""Variables that libraries read, and that a failure often depends on."""
_NOT_KEPT = re.compile(r"PATH|HOME|USER|LANG|PWD|SHELL|TMPDIR|NVIDIA_\w+|CUDA_(?:VISIBLE_DEVICES|DEVICE_ORDER)")
"""Variables that are this machine's, or the runner's to set."""
_NOTHING = Requirements(blanks=["the packages that the scripts need, each pinned: NAME==VERSION"])
_CUDA_13_FROM = Version("2.11")
"""The first release of PyTorch whose packages on the index are those for CUDA 13."""


@dataclass(frozen=True, kw_only=True)
class NewCase:
    """The options of the command."""

    id: str
    source: Path | None = None
    fixed_source: Path | None = None
    issue: str | None = None
    engine: str | None = None
    trial: bool = True
    python: Path | None = None
    buggy: Sequence[str] = ()  # pins of a release case
    fixed: Sequence[str] = ()
    require: Sequence[str] = ()  # pins that go before what is installed
    variables: Sequence[str] = ()  # NAME=VALUE
    timeout_s: float = LEAST_TIMEOUT_S
    again: bool = False


@dataclass(frozen=True)
class Begun:
    """A case of which nothing is written yet."""

    directory: Path
    draft: Draft
    locks: Mapping[str, str]
    notes: Sequence[str]  # for the author: what was seen, and what is odd

    def write(self) -> Path:
        """Write the directory, whole or not at all, and return it."""
        _write(self.directory, files(self.draft) | {f"locks/{name}": lock for name, lock in self.locks.items()})
        return self.directory


def begin(root: Path, options: NewCase, say: Note) -> Begun:
    """Return what can be known of a case. Raises UsageError, and BuildError if a lock can't be made."""
    directory = _directory(root, options)
    making = _Making(root, options, say)
    with warnings.catch_warnings(action="ignore"):  # parsing a script may give warnings
        draft, found = making.begun()
        locks: dict[str, str] = {}
        if options.source and options.trial:
            draft, locks = making.tried(draft, found)
    return Begun(directory, draft, locks, making.notes)


def _directory(root: Path, options: NewCase) -> Path:
    name = options.id
    if not re.fullmatch(NAME_PATTERN, name) or len(name) > LONGEST_ID:
        raise UsageError(f"{name!r} {PATTERN_WORDS[NAME_PATTERN]}, and of {LONGEST_ID} characters at most")
    directory = root / "cases" / name
    if directory.exists() or directory.is_symlink():
        choices = f"choose another id, work on that one (nox -s check -- {name}), or replace it with --again"
        if not options.again:
            raise UsageError(f"cases/{name} is there already; {choices}")
        if directory.is_symlink() or git(root, "ls-files", f"cases/{name}"):
            raise UsageError(f"cases/{name} is committed, and --again replaces only what is not; choose another id")
    return directory


def _own(options: NewCase) -> dict[Variant, list[str]]:
    if bool(options.buggy) != bool(options.fixed):
        raise UsageError("--buggy and --fixed belong together: the two releases that the scripts are run with")
    found = {Variant.REPRO: _pins("--buggy", options.buggy), Variant.FIXED: _pins("--fixed", options.fixed)}
    if found[Variant.REPRO] and found[Variant.REPRO] == found[Variant.FIXED]:
        raise UsageError("--buggy and --fixed are the same; a release case needs two versions")
    names = [sorted(map(_name, found[variant])) for variant in Variant]
    if names[0] != names[1]:
        both = f"--buggy names {', '.join(names[0])} and --fixed {', '.join(names[1])}"
        raise UsageError(f"{both}; name the same packages in two versions (--require pins any other)")
    if names[0] and options.fixed_source:
        raise UsageError("--fixed-from is another script, and a release case has one: leave it or --fixed out")
    return found if options.buggy else {}


def _pins(option: str, requirements: Sequence[str]) -> list[str]:
    try:
        return [pin(each) for each in requirements]
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _read(source: Path) -> str:
    if source.suffix == ".ipynb":
        raise UsageError(f"{source}: is a notebook; make a script of it: jupyter nbconvert --to script {source.name}")
    text = read_script(source, str(source), "utf-8-sig")
    if isinstance(text, Problem):
        raise UsageError(str(text))
    if relative(ast.parse(text)):
        raise UsageError(f"{source}: imports relatively (from . import ...), and a case's script stands alone")
    return text


def _variables(options: NewCase, texts: Sequence[str], notes: list[str]) -> dict[str, str]:
    """Return the variables that were given, and of the caller's those that a script reads."""
    given = dict(each.partition("=")[::2] for each in options.variables)
    names = TypeAdapter(VariableName)
    for each in options.variables:
        try:
            names.validate_python(each.partition("=")[0])
        except ValidationError as error:
            raise UsageError(f"--variable {each}: {error.errors()[0]['msg']}") from None
        if "=" not in each:
            raise UsageError(f"--variable {each}: write NAME=VALUE")
    read = set[str]().union(*map(variables, texts)) - given.keys()
    for name in sorted(read & os.environ.keys()):
        value = os.environ[name]
        if redact(f"{name}={value}").counts or re.search("TOKEN|KEY|SECRET|PASS", name):
            notes.append(f"the script reads {name}, whose value looks private, so it is not kept")
        elif not _NOT_KEPT.fullmatch(name):
            given[name] = value
            notes.append(f"the script reads {name}, which is {value!r} here: it is in the case's variables")
    others = sorted(name for name in os.environ if _DECIDES.fullmatch(name) and name not in given)
    notes += [f"{name} is set here and not kept; if it matters: --variable {name}=VALUE" for name in others]
    return given


def _python(options: NewCase) -> Path | None:
    if options.python and not options.python.is_file():
        raise UsageError(f"--python {options.python}: there is no such file")
    return options.python or active_python()


def _requirements(texts: Mapping[Path, str], python: Path | None, given: Collection[str], *, cpu: bool) -> Requirements:
    """Return what the scripts need. `given` are the packages, by name, whose versions are known otherwise."""
    modules = {name: needed for text in texts.values() for name, needed in imports(ast.parse(text)).items()}
    headers = []
    for source, text in texts.items():
        try:
            headers.append(script_header(text))
        except ValueError as error:
            raise UsageError(f"{source}: {error}") from None
    answer = ask(python, modules) if python else {}
    found = Requirements(answer=answer, beside=_beside(next(iter(texts))), given=given, cpu=cpu)
    found.collect(dict.fromkeys(each for header in headers if header for each in header.requirements), modules)
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
    own = [f"--buggy {each} --fixed {_name(each)}==VERSION" for each in draft.pins if _name(each) == draft.project]
    begun = "a release case, with the package itself in two versions, is begun with"
    return [f"{begun} {own[0]}"] if draft.workaround and own else []


def _others_installed(wanted: Sequence[str], requirements: Requirements) -> list[str]:
    """Return what of these pins is installed here in another version, or not at all."""
    pairs = ((each, requirements.installed.get(_name(each))) for each in wanted)
    here = [(each, version) for each, version in pairs if not same_version(version or "", each.partition("==")[2])]
    return [f"{each} is wanted, and {version or 'none'} is installed here" for each, version in here]


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
        text, fixed, found, required = EMPTY_SCRIPT, "", _NOTHING, _pins("--require", options.require)
        if options.fixed_source and not options.source:
            raise UsageError("--fixed-from needs --from: the script that shows the failure")
        gpus = 0
        if options.source:
            text = _read(options.source)
            gpus = _gpus(text, self.notes)
            texts = {options.source: text}
            if options.fixed_source:
                texts[options.fixed_source] = fixed = _read(options.fixed_source)
            given = {_name(each) for pins in (*own.values(), required) for each in pins}
            found = _requirements(texts, _python(options), given, cpu=not gpus)
        pins = [*found.pins.values(), *required]
        kept = _variables(options, [text, fixed], self.notes) if options.source else {}
        draft = Draft(
            id=options.id,
            script=text,
            fixed_script=fixed,
            image=_image(gpus, [*pins, *own.get(Variant.REPRO, ())], known_images(self.root)),
            gpus=gpus,
            variables=kept,
            pins=pins,
            unknown=found.blanks,
            own=own,
            report=parse_report(options.issue) if options.issue else None,
        )
        self.notes.extend([*found.notes, *_on_releases(draft)])
        return draft, found

    def tried(self, draft: Draft, found: Requirements) -> tuple[Draft, dict[str, str]]:
        """Return the draft with what trials propose, and its locks, as far as they can be made."""
        from gpu_casebook.engines.registry import capable, choose, kind  # noqa: PLC0415

        wanted = [*draft.own.get(Variant.REPRO, ()), *_pins("--require", self.options.require)]
        python, engine = _python(self.options), self.options.engine
        if draft.unknown and engine:
            raise UsageError(f"nothing can be locked while a requirement is unknown: {draft.unknown[0]}")
        if not engine and (others := _others_installed(wanted, found)):
            self.notes.append(f"not tried: {', '.join(others)}; --engine venv tries what is wanted")
            return draft, {}
        if draft.gpus and not hardware.gpus():
            self.notes.append("no GPU is here, and the trials need none: the case asks for none either")
            draft = replace(draft, gpus=0, image=_image(0, draft.pins, known_images(self.root)))
        locks = {} if draft.unknown else self._locks(draft)
        if engine:
            with choose(engine, self.root, self.say) as chosen:
                draft, locks = self._tried_locked(draft, chosen, locks)
            if chosen.storage:
                kept = f"environments stay in {chosen.storage} for later runs"
                self.notes.append(f"{kept}; `nox -s clean -- --unused` removes those that no case uses")
        elif python:
            assert self.options.source
            self.say(f"trials of {self.options.source.name} with {python} ...")
            with kind(capable("uses_host_python")).connect(self.root) as chosen:
                draft, locks = self._tried_here(
                    draft, chosen, Prepared(key="active", python=str(python.absolute())), locks
                )
        return draft, locks

    def _locks(self, draft: Draft) -> dict[str, str]:
        """Return the locks; none where the index can't be reached and nobody asked for a locked trial."""
        names = {variant: f"{draft.environment}.{variant}.txt" for variant in draft.own} or {
            Variant.REPRO: f"{draft.environment}.txt"
        }
        self.say(f"locking {', '.join(names.values())} ...")
        try:
            return {
                name: lock_text([*draft.pins, *draft.own.get(variant, ())], PYTHON, special=draft.special, say=self.say)
                for variant, name in names.items()
            }
        except BuildError as error:
            if "can't be reached" not in str(error):
                raise BuildError(f"{error}; choose other versions with --require NAME==VERSION") from None
            if self.options.engine:
                raise
            self.notes.append(f"not locked: {error}")
            return {}

    def _tried_here(
        self, draft: Draft, engine: Engine, prepared: Prepared, locks: dict[str, str]
    ) -> tuple[Draft, dict[str, str]]:
        """Run trials by the author's own Python, and lock what they loaded besides."""
        first = self._trial(draft, Variant.REPRO, engine, prepared, "-X", "importtime")
        stderr, modules = loaded(first.stderr)
        draft = self._with_failure(
            draft, self._trials(draft, Variant.REPRO, engine, prepared, replace(first, stderr=stderr))
        )
        if draft.fixed_script:
            draft = self._with_proof(draft, self._trials(draft, Variant.FIXED, engine, prepared))
        elif draft.release:
            self.notes.append("fixed: not tried, as it is not what is installed here; --engine venv tries both")
        more = self._loaded_besides(draft, modules, locks) if locks else {}
        if more:
            self.notes.append(f"loaded by what the script imports, and so pinned too: {', '.join(more.values())}")
            draft = replace(draft, pins=[*draft.pins, *more.values()])
            locks = self._locks(draft)
        return draft, locks

    def _tried_locked(self, draft: Draft, engine: Engine, locks: dict[str, str]) -> tuple[Draft, dict[str, str]]:
        """Run trials of each variant that differs from the other, in an environment that is locked for it."""
        for variant in Variant if draft.release or draft.fixed_script else (Variant.REPRO,):
            lock = [*locks.values()][-1 if variant is Variant.FIXED else 0]
            self.say(f"trials of {variant} ({engine.version}) ...")
            prepared = engine.prepare(Recipe(image=draft.image, lock=lock), lambda _: None)
            results = self._trials(draft, variant, engine, prepared)
            if (lacks := re.search(r"No module named '([\w.]+)'", results[0].stderr)) and (
                more := self._loaded_besides(draft, {lacks[1]: False}, locks)
            ):
                self.notes.append(f"imported at run time, and so pinned too: {', '.join(more.values())}")
                draft = replace(draft, pins=[*draft.pins, *more.values()])
                return self._tried_locked(draft, engine, self._locks(draft))
            draft = (self._with_failure if variant is Variant.REPRO else self._with_proof)(draft, results)
        return draft, locks

    def _loaded_besides(self, draft: Draft, modules: Mapping[str, bool], locks: Mapping[str, str]) -> dict[str, str]:
        """Return pins of the packages that give these modules here and that no lock has."""
        there = {each.name for lock in locks.values() for each in read_lock(lock).pins}
        python = _python(self.options)
        own = {_name(each) for pins in draft.own.values() for each in pins}
        found = Requirements(answer=ask(python, modules) if python else {}, given={*there, *own})
        return found.collect((), modules).pins

    def _trials(
        self, draft: Draft, variant: Variant, engine: Engine, prepared: Prepared, *begun: TrialResult
    ) -> list[TrialResult]:
        """Run the usual number of trials, more where some fail and some do not, fewer where they take long or hang."""
        results = [*begun] or [self._trial(draft, variant, engine, prepared)]
        while not (results[-1].hung or results[-1].timed_out or results[-1].infra):
            spent = sum(each.duration_s for each in results)
            enough = TRIALS if variant is Variant.FIXED or agree(results) else _MOST_TRIALS
            if len(results) >= enough or spent > _LONG_S:
                break
            results.append(self._trial(draft, variant, engine, prepared))
        return results

    def _trial(self, draft: Draft, variant: Variant, engine: Engine, prepared: Prepared, *options: str) -> TrialResult:
        """Run a variant's script, with stdin closed, on as many GPUs as it seems to need or as there are."""
        gpus = [gpu.index for gpu in hardware.gpus()][: draft.gpus] if draft.gpus else []
        limit = self.options.timeout_s
        request = TrialRequest(
            files={f"{variant}.py": script(draft, variant).encode()},
            arguments=[*options, f"{variant}.py"],
            variables=draft.variables,
            limits=Limits(timeout_s=limit),
            gpus=gpus,
            watch=Watch.from_second(min(HANG_AFTER_S, limit / 2), gpus=bool(gpus)),
        )
        with ledger.hold(gpus, self.say) if gpus and engine.local else nullcontext():
            return engine.run(prepared, request)

    def _with_failure(self, draft: Draft, results: Sequence[TrialResult]) -> Draft:
        assert self.options.source
        proposal = propose(results, self.options.source.name)
        if why := self._mistaken(proposal, draft.script):
            raise UsageError(why)
        longest = max(result.duration_s for result in results)
        self.notes.extend([f"repro: {proposal.seen} ({_times(results)})", *proposal.remarks])
        packages = f" with {', '.join(draft.pins)}" if draft.pins else ""
        ran = f"{'on a GPU' if draft.gpus else 'on the CPU'} (Python {PYTHON}{packages})"
        enough = max(LEAST_TIMEOUT_S, math.ceil(longest * 4 / 60) * 60)
        return replace(draft, proposal=proposal, timeout_s=enough, ran=ran)

    def _mistaken(self, proposal: Proposal, text: str) -> str | None:
        """Return why the trials say nothing of a bug, with what to do, or None."""
        assert self.options.source
        name, exception = self.options.source.name, proposal.repro.get("exception")
        missing = re.search(r"No such file or directory: '([^'/]+)'", proposal.seen)
        if exception == "FileNotFoundError" and missing and self.options.source.with_name(missing[1]).exists():
            return f"{name} reads {missing[1]}, which lies beside it; a trial has the script alone: make the data in it"
        if exception == "IndexError" and "sys.argv[" in text:
            return f"{name} reads sys.argv, and a trial gives no arguments: put their values into the script"
        if not proposal.repro:
            return f"{proposal.remarks[0]}. Nothing was written; --no-trial writes a case without a trial"
        return None

    def _with_proof(self, draft: Draft, results: Sequence[TrialResult]) -> Draft:
        name = self.options.fixed_source.name if self.options.fixed_source else f"{Variant.FIXED}.py"
        failing, passed = told_apart(draft.proposal, proof(results, name, draft.proposal))
        self.notes.extend([f"fixed: {passed.seen} ({_times(results)})", *passed.remarks])
        return replace(draft, proposal=failing, proof=passed)


def _times(results: Sequence[TrialResult]) -> str:
    longest = max(result.duration_s for result in results)
    return f"{longest:.1f} s" if len(results) == 1 else f"{len(results)} trials, {longest:.1f} s at most"


# Writing


def _write(directory: Path, texts: dict[str, str]) -> None:
    """Write the directory, whole or not at all."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as place:
        for name, text in texts.items():
            path = Path(place, directory.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if directory.is_dir():
            shutil.rmtree(directory)
        Path(place, directory.name).rename(directory)
