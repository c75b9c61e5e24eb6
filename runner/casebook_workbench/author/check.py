"""Everything that can be said of the corpus without running anything: manifests, scripts, headers, locks, schema."""

import ast
import gc
import os
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from symtable import symtable

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from casebook_workbench.author import fix, translations
from casebook_workbench.author.header import script_header
from failure_signature.kinds import Variant
from gpu_casebook.errors import ManifestError, Problem, Severity
from gpu_casebook.files import read_text, unreadable
from gpu_casebook.manifest.case import (
    MANIFEST,
    MAX_LOCK_BYTES,
    MAX_SCRIPT_BYTES,
    Case,
    discover,
    known_images,
    load,
    manifest_path,
)
from gpu_casebook.manifest.model import EnvironmentSpec
from gpu_casebook.manifest.rules import BLANK
from gpu_casebook.manifest.schema import SCHEMA, schema_text
from gpu_casebook.packages.lock import problems
from gpu_casebook.pins import pin

_MANY = 100
"""Cases from which on it pays to start processes for them."""

SCHEMA_LINE = "# yaml-language-server: $schema=../case.schema.json"
_OURS = re.compile(r"(?:import|from)\b[^\n]*\b(?:gpu_casebook|repro|fixed)\b|__import__|import_module")
_FORBIDDEN = {"gpu_casebook", *(variant.value for variant in Variant)}
_SCRIPTS = [f"{variant.value}.py" for variant in Variant]


def check_all(root: Path, only: Sequence[str] = ()) -> list[Problem]:
    """Return what is wrong in the corpus of the checkout at `root`, or in the cases named in `only`.

    Raises UsageError for an unknown name.
    """
    paths = [manifest_path(root, name) for name in only] or [root / "cases" / id_ / MANIFEST for id_ in discover(root)]
    check = partial(_of_case, images=known_images(root), root=root)
    with warnings.catch_warnings(action="ignore"):  # parsing a script may give warnings
        found = [] if only else list(_of_corpus(root))
        if len(paths) < _MANY:
            return [*found, *chain.from_iterable(map(check, paths))]
        # Imported where it is needed: one case is checked in half a second, of which this would be a part.
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415
        from multiprocessing import get_context  # noqa: PLC0415

        # Syntax trees have no cycles, and looking for some takes as long as all the rest.
        with ProcessPoolExecutor(mp_context=get_context("fork"), initializer=gc.disable) as pool:
            return [*found, *chain.from_iterable(pool.map(check, paths, chunksize=_MANY // 4))]


def _of_corpus(root: Path) -> Iterator[Problem]:
    if _text(root / SCHEMA) != schema_text():
        yield Problem(SCHEMA, 1, "", "is missing or out of date; write it: nox -s schema")
    for directory in sorted((root / "cases").glob("[!._]*/")):
        if not (directory / MANIFEST).is_file():
            yield Problem(f"cases/{directory.name}", 1, "", f"has no {MANIFEST}")
    yield from translations.of_none(root)


def _of_case(path: Path, images: Collection[str], root: Path) -> list[Problem]:
    directory, shown = path.parent, os.path.relpath(path.parent, root)
    case, found = None, list[Problem]()
    try:
        case = load(path, images, root)
    except ManifestError as error:
        found += error.problems
    found += _of_files(directory, shown)
    found += translations.of_case(directory / "README.md", directory.name, root)
    found += _of_blanks(directory, shown)
    found += _of_scripts(directory, shown, case)
    found += _of_locks(case, shown) if case else []
    return list(dict.fromkeys(found))  # a script that can't be read is found twice


def blanks(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line with the mark, and what stands after it."""
    if BLANK not in text:
        return
    for number, line in enumerate(text.splitlines(), 1):
        before, found, after = line.partition(BLANK)
        if found:
            quote = before[-1:] if before[-1:] in {"'", '"'} else ""
            yield number, after.removeprefix(":").strip().removesuffix(quote)


def _of_blanks(directory: Path, shown: str) -> Iterator[Problem]:
    for name in (MANIFEST, *_SCRIPTS, "README.md"):
        for line, what in blanks(_text(directory / name) or ""):
            todo = what if what.startswith("confirm") else f"fill in: {what}"
            yield Problem(f"{shown}/{name}", line, "", f"still to do: {todo}")


def _of_files(directory: Path, shown: str) -> Iterator[Problem]:
    if not (_text(directory / "README.md") or "").strip():
        yield Problem(f"{shown}/README.md", 1, "", "is missing or empty: say what failed, why, and how it was fixed")
    if not (_text(directory / MANIFEST) or SCHEMA_LINE).startswith(SCHEMA_LINE):
        what = f"editors complete a manifest that begins with: {SCHEMA_LINE}"
        yield Problem(f"{shown}/{MANIFEST}", 1, "", what, Severity.WARNING)


# Scripts


def _of_scripts(directory: Path, shown: str, case: Case | None) -> Iterator[Problem]:
    texts: list[str] = []
    for variant in Variant:
        path, name = directory / f"{variant.value}.py", f"{shown}/{variant.value}.py"
        if path.is_symlink() or not path.is_file():
            continue  # loading the manifest reports it
        text = read_script(path, name)
        if isinstance(text, Problem):
            yield text
            continue
        texts.append(text)
        yield from _of_imports(text, name)
        yield from _of_header(text, name, variant, case)
    if len(texts) == len(Variant) and BLANK not in "".join(texts):
        try:
            yield from _of_fix(texts[0], texts[1], shown, case)
        except RecursionError:
            yield Problem(f"{shown}/fixed.py", 1, "", "or repro.py is nested too deep to be compared; write it flatter")


def read_script(path: Path, name: str, encoding: str = "utf-8") -> str | Problem:
    """Return the script's text, or what is wrong with it."""
    try:
        text = read_text(path, MAX_SCRIPT_BYTES, encoding)
        # Finds what compile() finds, but for a few oddities, in three quarters of the time.
        symtable(text, name, "exec")
    except SyntaxError as error:
        return Problem(name, error.lineno or 1, "", f"is not Python: {error.msg}")
    except OSError as error:
        return Problem(name, 1, "", unreadable(error))
    except (ValueError, RecursionError, MemoryError) as error:
        return Problem(name, 1, "", f"can't be read as Python: {error}")
    return text


def _of_imports(text: str, name: str) -> Iterator[Problem]:
    # Either test spares most scripts the walk, which takes longer than all the rest.
    if not any(name in text for name in _FORBIDDEN) or not _OURS.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        for module in _imported(node):
            if module.split(".")[0] in _FORBIDDEN:
                what = f"imports {module}; a script stands alone, so that it can be pasted into a file and run"
                yield Problem(name, getattr(node, "lineno", 1), "", what)


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            return [node.module] if node.module else [alias.name for alias in node.names]
        case ast.Call(ast.Name("__import__") | ast.Attribute(attr="import_module"), [ast.Constant(str(name))]):
            return [name]
        case _:
            return []


def _of_header(text: str, name: str, variant: Variant, case: Case | None) -> Iterator[Problem]:
    try:
        header = script_header(text)
    except ValueError as error:
        yield Problem(name, 1, "", str(error))
        return
    if case is None:
        return
    first, spec = next(iter(case.manifest.environments.items()))
    wanted = case.requirements(first, variant)
    if header is None:
        packages = f"the packages of {first}: {', '.join(wanted)}"
        yield Problem(name, 1, "", f"has no inline script metadata (PEP 723); begin it with {packages}")
        return
    # Whoever has not the index of a build takes the release's.
    if differences := _differences([each.partition("+")[0] for each in wanted], header.requirements):
        what = f"differ from the manifest's first environment, {first}: {differences}"
        yield Problem(name, header.line, "dependencies", what)
    if header.alone != spec.special.without_dependencies:
        told = ", ".join(spec.special.without_dependencies) or "nothing"
        what = f"has not what {first} installs without dependencies ({told}): the name of each, and requires-dist = []"
        yield Problem(name, header.line, "tool.uv.dependency-metadata", what)
    if not _admits(header.requires_python, spec.python):
        what = f'does not admit Python {spec.python}, which {first} has; write "=={spec.python}.*"'
        yield Problem(name, header.line, "requires-python", what)


def _differences(wanted: Iterable[str], found: Iterable[str]) -> str:
    pins, there = set(map(pin, wanted)), {_pin_or_text(each) for each in found}
    parts = [("missing", pins - there), ("too many", there - pins)]
    return "; ".join(f"{what}: {', '.join(sorted(each))}" for what, each in parts if each)


def _pin_or_text(requirement: str) -> str:
    try:
        return pin(requirement)
    except ValueError:
        return requirement


def _admits(requires_python: str | None, python: str) -> bool:
    try:
        return requires_python is not None and SpecifierSet(requires_python).contains(f"{python}.99")
    except InvalidSpecifier:
        return False


def _of_fix(repro: str, fixed: str, shown: str, case: Case | None) -> Iterator[Problem]:
    if case is not None:
        yield from filter(None, [case.same_scripts()])
        for variant, text in zip(Variant, (repro, fixed), strict=True):
            yield from fix.of_script(text, case.variant(variant).expect, f"{shown}/{variant}.py")
    if repro != fixed:
        yield from fix.of_fix(repro, fixed, shown)


# Locks


def _of_locks(case: Case, shown: str) -> Iterator[Problem]:
    expected: set[str] = set()
    for environment, spec in case.manifest.environments.items():
        for variant in Variant:
            path = case.lock_path(environment, variant)
            if path.name not in expected:
                expected.add(path.name)
                name = f"{shown}/locks/{path.name}"
                yield from _of_lock(path, name, case.locked(environment, variant), spec)
    for path in sorted((case.directory / "locks").glob("[!.]*")):
        if path.name not in expected:
            yield Problem(f"{shown}/locks/{path.name}", 1, "", "belongs to no environment of the manifest; remove it")


def _of_lock(path: Path, name: str, requirements: Sequence[str], spec: EnvironmentSpec) -> Iterator[Problem]:
    again = f"write it: nox -s lock -- {path.parent.parent.name}"
    text = _text(path)
    if text is None:
        yield Problem(name, 1, "", f"is missing; {again}")
    else:
        yield from problems(text, name, requirements, spec.python, again, special=spec.special)


def _text(path: Path) -> str | None:
    """Return the file's text, or None if there is no such file or it is no text."""
    try:
        return read_text(path, MAX_LOCK_BYTES)
    except OSError:
        return None
