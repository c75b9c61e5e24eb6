"""case.yaml -> Case: parse, validate, and point at file:line for every mistake."""

import ast
import difflib
import hashlib
import os
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from failure_signature.expectation import Expectation, Model
from failure_signature.kinds import Failure, Variant
from failure_signature.text import one_line
from gpu_casebook.errors import ManifestError, Problem, UsageError
from gpu_casebook.files import read_bytes, read_text, unreadable
from gpu_casebook.manifest.document import Flaw, Location, ManifestText, Spot, read
from gpu_casebook.manifest.model import INDEX_LINES, PATTERN_WORDS, EnvironmentSpec, Manifest, VariantSpec
from gpu_casebook.manifest.rules import breaches
from gpu_casebook.pins import SourceFile, source_pins
from gpu_casebook.places import images_of

MANIFEST = "case.yaml"
_SCRIPTS = [f"{variant.value}.py" for variant in Variant]
MAX_SCRIPT_BYTES = 64 * 1024
MAX_CASE_BYTES = 2**20
"""Of all files of a case but its locks: a case is a minimal repro, not a data set."""
MAX_LOCK_BYTES = 2**22
MAX_WORDING = 400
"""Characters of one problem's text, which may quote a value of any length."""


@dataclass(frozen=True)
class Case:
    """A manifest and the directory it describes."""

    directory: Path
    manifest: Manifest

    @property
    def id(self) -> str:
        return self.manifest.id

    def script(self, variant: Variant) -> Path:
        return self.directory / f"{variant.value}.py"

    def variant(self, variant: Variant) -> VariantSpec:
        return self.manifest.repro if variant is Variant.REPRO else self.manifest.fixed

    def environment(self, name: str) -> EnvironmentSpec:
        """Return the environment. Raises UsageError with the nearest names if there is none."""
        try:
            return self.manifest.environments[name]
        except KeyError:
            there = self.manifest.environments
            raise UsageError(f"case {self.id} has no environment {name!r}{nearest(name, there)}") from None

    def expectation(self, environment: str, variant: Variant) -> Expectation:
        """Return the variant's expectation with the environment's overrides."""
        spec = self.environment(environment)
        override = spec.expect.repro if variant is Variant.REPRO else spec.expect.fixed
        base = self.variant(variant).expect
        return base if override is None else base.overridden_by(override)

    def failures(self, *environments: str) -> dict[str, Expectation]:
        """Return how the failure shows in one run, for each of these environments, or of all, in which it does.

        Raises UsageError where there is none.
        """
        declared = {name: self.expectation(name, Variant.REPRO) for name in environments or self.manifest.environments}
        if found := {name: each for name, each in declared.items() if self._in_one_run(name, each)}:
            return found
        over_runs = any(each.differs for each in declared.values())
        why = "is a difference between runs" if over_runs else "shows only under compute-sanitizer"
        raise UsageError(f"{self.id}: its failure {why}, so one ordinary run can't show it")

    def _in_one_run(self, environment: str, repro: Expectation) -> bool:
        fixed = self.expectation(environment, Variant.FIXED)
        tells = (
            repro.must_fail or repro.growth or repro.figures_unlike(fixed) or repro.message not in {None, fixed.message}
        )
        return bool(tells) and not repro.differs

    def alone(self, environment: str) -> bool:
        """Return whether a trial has its GPUs for itself, or where it needs none, the machine: see `alone` there."""
        spec, repro = self.environment(environment), self.expectation(environment, Variant.REPRO)
        measured = repro.rate or repro.differs or repro.growth or repro.hang
        usual = spec.gpus > 1 or bool(measured) or self.manifest.failure in {Failure.HANG, Failure.RACE, Failure.LEAK}
        return usual if spec.alone is None else spec.alone

    def requirements(self, environment: str, variant: Variant) -> list[str]:
        """Return the environment's requirements and the variant's own."""
        return [*self.environment(environment).requirements, *self.variant(variant).requirements]

    def sources(self, environment: str, variant: Variant) -> tuple[SourceFile, ...]:
        """Return the environment's files of upstream and the variant's own."""
        return tuple(
            SourceFile(url=each.url, commit=each.commit, path=path, sha256=sha256)
            for each in [*self.environment(environment).sources, *self.variant(variant).sources]
            for path, sha256 in each.files.items()
        )

    def locked(self, environment: str, variant: Variant) -> list[str]:
        """Return what a variant's lock is made for: its requirements, and the pin that stands for upstream's files."""
        return [*self.requirements(environment, variant), *source_pins(self.sources(environment, variant))]

    def lock_path(self, environment: str, variant: Variant) -> Path:
        """Return locks/<environment>.txt, or <environment>.<variant>.txt if a variant has packages of its own."""
        self.environment(environment)
        own = any(self.variant(each).requirements or self.variant(each).sources for each in Variant)
        return self.directory / "locks" / (f"{environment}.{variant.value}.txt" if own else f"{environment}.txt")

    def lock(self, environment: str, variant: Variant) -> str:
        """Return the text of the lock. Raises ManifestError where there is none, or it can't be read."""
        path = self.lock_path(environment, variant)
        try:
            return read_text(path, MAX_LOCK_BYTES)
        except FileNotFoundError:
            what = f"there is no lock for environment {environment}; write it: nox -s lock -- {self.id}"
        except OSError as error:
            what = f"{unreadable(error)}; write it again: nox -s lock -- {self.id}"
        raise ManifestError([Problem(str(path.relative_to(self.directory.parents[1])), 1, "", what)])

    def payload(self) -> dict[str, bytes]:
        """Return the files that a trial gets: all but the manifest, the locks, the README and grade/.

        Raises ManifestError for what has no place in a case, as `load` does.
        """
        names, problems = _files(self.directory, str(self.directory.relative_to(self.directory.parents[1])))
        if problems:
            raise ManifestError(problems)
        return {
            name: read_bytes(self.directory / name, MAX_CASE_BYTES)
            for name in sorted(names, key=Path)
            if Path(name).name not in {MANIFEST, "README.md"}
            and "locks" not in Path(name).parts
            and not name.startswith("grade/")  # how its fixes are graded, which no script may read
        }

    def digest(self) -> str:
        """Return a sha256 over all files that a trial gets, and the manifest without what only reports have of it."""
        manifest = (self.directory / MANIFEST).read_bytes()
        total = hashlib.sha256(re.sub(INDEX_LINES.encode(), b"", manifest))
        for name, content in self.payload().items():
            total.update(f"\0{name}\0{len(content)}\0".encode() + content)
        return total.hexdigest()

    def same_scripts(self) -> Problem | None:
        """Return what is wrong if both variants are the same code with the same packages."""
        repro, fixed = self.manifest.repro, self.manifest.fixed
        if (repro.requirements, repro.sources) != (fixed.requirements, fixed.sources):
            return None
        if len({_code(self.script(variant).read_bytes()) for variant in Variant}) > 1:
            return None
        return Problem(f"cases/{self.id}/fixed.py", 1, "", "is the same as repro.py, so it fixes nothing")

    def fix_diff(self) -> str:
        """Return the unified diff from repro.py to fixed.py."""
        before, after = (self.script(variant) for variant in Variant)
        texts = [path.read_text(encoding="utf-8").splitlines(keepends=True) for path in (before, after)]
        return "".join(difflib.unified_diff(texts[0], texts[1], before.name, after.name))


def _code(script: bytes) -> str | bytes:
    """Return a script without comments and docstring, or as it is if it is no Python."""
    try:
        tree = ast.parse(script)
        return ast.dump(ast.Module(tree.body[ast.get_docstring(tree) is not None :], []))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return script


def known_images(root: Path) -> list[str]:
    """Return the names of the images of the checkout at `root`."""
    return sorted(path.parent.name for path in images_of(root).glob("*/Dockerfile"))


def discover(root: Path) -> list[str]:
    """Return the ids of all cases of the checkout at `root`, sorted."""
    return sorted(path.parent.name for path in (root / "cases").glob(f"*/{MANIFEST}"))


def find(root: Path, id: str, images: Collection[str]) -> Case:  # noqa: A002
    """Load one case by its id. Raises UsageError with the nearest names where there is none, or ManifestError."""
    return load(manifest_path(root, id), images, root)


def manifest_path(root: Path, id: str) -> Path:  # noqa: A002
    """Return the path of a case's manifest. Raises UsageError with the nearest names if there is no such case."""
    path = root / "cases" / id / MANIFEST
    if path.parent.parent != root / "cases" or id == ".." or not path.is_file():
        raise UsageError(f"no case {id!r}{nearest(id, discover(root))}")
    return path


def load(path: Path, images: Collection[str], root: Path | None = None) -> Case:
    """Read the manifest at `path`.

    Raises ManifestError with every problem found, in paths relative to `root` (the working directory if None).
    """
    # Not resolve(): the name that counts is the one in cases/, wherever a symlink leads.
    directory = Path(os.path.abspath(path)).parent  # noqa: PTH100
    shown = os.path.relpath(path, root or Path.cwd()) if path.is_absolute() or root else str(path)
    names, problems = _files(directory, os.path.dirname(shown))  # noqa: PTH120 as it is written
    known = any(each.path == shown for each in problems)
    manifest, flaws = (None, []) if known else _validate(_read(path), images, directory.name)
    left = [name for name in _SCRIPTS if name not in names]
    flaws += [Flaw(1, (), f"{name} is {'not a file' if (directory / name).exists() else 'missing'}") for name in left]
    flaws.sort(key=lambda flaw: flaw.line)
    found = [Problem(shown, flaw.line, dotted(flaw.location), one_line(flaw.what, MAX_WORDING)) for flaw in flaws]
    if manifest is None or flaws or problems:
        raise ManifestError([*found, *problems])
    return Case(directory, manifest)


def _files(directory: Path, shown: str) -> tuple[list[str], list[Problem]]:
    """Return the files of a case by their names, and what has no place there.

    Nothing is followed or opened but the scripts: a link may lead to what is nobody's business, a FIFO has no end.
    """
    names, problems, total, queue = list[str](), list[Problem](), 0, deque([""])
    while queue:
        inside = queue.popleft()
        try:
            with os.scandir(directory / inside) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            problems.append(Problem(os.path.join(shown, inside), 1, "", unreadable(error)))  # noqa: PTH118 as it is written
            continue
        for entry in found:
            name = f"{inside}{entry.name}"
            if entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                queue.append(f"{name}/")
            elif not entry.is_dir(follow_symlinks=False):
                names.append(name)
                bytes_ = entry.stat(follow_symlinks=False).st_size
                total += 0 if inside == "locks/" else bytes_
                if wrong := _wrong_file(entry, bytes_, name):
                    problems.append(Problem(os.path.join(shown, ascii(name)[1:-1]), 1, "", wrong))  # noqa: PTH118
    if total > MAX_CASE_BYTES:
        problems.append(Problem(shown, 1, "", f"holds {total} bytes; {MAX_CASE_BYTES} are the most for a case"))
    return names, problems


def dotted(location: Location) -> str:
    """Return a location as people write it: environments.current.requirements[2]."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return one_line(text.removeprefix("."))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a tail for a message: "; did you mean torch?", or what there is."""
    names = sorted(known)
    near = get_close_matches(name, names, n=2)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f" (there are: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''})" if names else ""


def _read(path: Path) -> ManifestText:
    try:
        with path.open("rb") as file:
            return read(file)
    except OSError as error:
        return ManifestText(flaws=[Flaw(1, (), unreadable(error))])


def _validate(document: ManifestText, images: Collection[str], directory: str) -> tuple[Manifest | None, list[Flaw]]:
    """Return the manifest, or None if it is invalid, and its flaws: of each value the first found."""
    manifest = None
    flaws = list(document.flaws)
    if document.data is not None or not flaws:
        try:
            manifest = Manifest.model_validate(document.data, context={"images": images})
        except ValidationError as error:
            flaws += _once(flaws, (_flaw(each, document) for each in error.errors()))
        found = (Flaw(document.line(at), at, what) for at, what in breaches(document.data, directory=directory))
        flaws += _once(flaws, found)
    return manifest, flaws


def _once(known: list[Flaw], found: Iterator[Flaw]) -> list[Flaw]:
    """Return the flaws at locations that have none in `known`."""
    taken = {flaw.location for flaw in known if flaw.location}
    return [flaw for flaw in found if flaw.location not in taken]


def _wrong_file(entry: os.DirEntry[str], bytes_: int, name: str) -> str | None:
    """Return why a file has no place in a case; None if it has."""
    if entry.is_symlink():
        return "is a symlink; put the file itself there"
    if not entry.is_file(follow_symlinks=False):
        return "is not a file"
    if not name.isprintable():
        return "has a name that is no plain text; rename it"
    most, what = (MAX_LOCK_BYTES, "lock") if name.startswith("locks/") else (MAX_SCRIPT_BYTES, "minimal script")
    if bytes_ > most and (name in _SCRIPTS or what == "lock"):
        return f"is {bytes_} bytes long; {most} are the most for a {what}"
    try:
        if name in _SCRIPTS:
            read_text(Path(entry.path), MAX_SCRIPT_BYTES)
    except OSError as error:
        return unreadable(error)
    return None


def _flaw(error: ErrorDetails, document: ManifestText) -> Flaw:
    location = tuple(part for part in error["loc"] if part != "[key]")
    what = _wording(error, location, document.spots.get(location))
    return Flaw(document.line(location), location, what)


def _wording(error: ErrorDetails, location: Location, spot: Spot | None) -> str:  # noqa: PLR0911
    """Return what is wrong and what to do, in words that need no knowledge of pydantic."""
    given, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "key is missing"
        case "extra_forbidden":
            return f"unknown key{nearest(str(location[-1]), _keys(location[:-1]))}"
        case "value_error":
            return str(context["error"])
        case "enum" | "literal_error":
            expected = re.sub(r"<\w+\.\w+: ([^>]+)>", r"\1", context["expected"])  # a Literal's members of an enum
            return f"{given!r} is none of: {expected.replace(' or ', ', ').replace(chr(39), '')}"
        case "string_type":
            return _not_text(given, spot)
        case "string_pattern_mismatch":
            return f"{given!r} {PATTERN_WORDS.get(context['pattern'], 'does not match ' + context['pattern'])}"
        case "model_type" | "dict_type":
            return "is empty; it must hold keys" if given is None else "must be a mapping of keys to values"
        case "list_type":
            return "must be a list"
        case _:
            shown = spot.text if spot and spot.text else repr(given)
            return f"{error['msg'].replace('Input', 'value')}, not {shown}"


def _not_text(given: Any, spot: Spot | None) -> str:
    if given is None:
        return "is empty; it must be text"
    if isinstance(given, Mapping | list):
        return "must be text"
    text = spot.text if spot and spot.text is not None else str(given)
    kind = "a truth value" if isinstance(given, bool) else f"the number {given}"
    return f"must be text, but YAML reads {text} as {kind}; put it in quotes: '{text}'"


def _keys(location: Location) -> list[str]:
    """Return the keys that the manifest may have at `location`."""
    model: type[Model] = Manifest
    for part in location:
        if field := model.model_fields.get(str(part)):  # otherwise a name that the manifest chooses
            kinds = (field.annotation, *get_args(field.annotation))
            model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Model)), model)
    return list(model.model_fields)
