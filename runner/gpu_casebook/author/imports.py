"""Which packages a script needs, told from its imports and from what is installed where its author runs it."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpu_casebook.errors import UsageError
from gpu_casebook.guest import installed
from gpu_casebook.manifest.model import pin

_ASK_S = 60.0
_MATTER = ("torch", "transformers", "triton", "numpy", "accelerate")
"""Packages whose version may decide whether a failure shows, though a script need not import them."""
_FAILED_IMPORT = {"ImportError", "ModuleNotFoundError", "Exception"}


@dataclass(frozen=True)
class Imports:
    """Modules in dotted form; `optional` ones stand where their absence is caught."""

    needed: Sequence[str]
    optional: Sequence[str] = ()


@dataclass(frozen=True)
class Requirements:
    """`pinned` as "torch==2.11.0"; `blanks` says what is not known, a sentence for each; `python` is the minor version.

    `notes` is what was left out on the way, or looks odd; `installed` has the version of everything, by canonical name.
    """

    pinned: Sequence[str] = ()
    blanks: Sequence[str] = ()
    notes: Sequence[str] = ()
    python: str | None = None
    installed: Mapping[str, str] = field(default_factory=dict)


# What the script says. Pure.


def imports(tree: ast.Module) -> Imports:
    """Every absolute import that would be done at run time, wherever it stands."""
    needed: dict[str, None] = {}
    optional: dict[str, None] = {}
    for node, caught in _walk(tree, caught=False):
        found = needed if not caught else optional
        found.update(dict.fromkeys(_modules(node)))
    return Imports([*needed], [each for each in optional if each not in needed])


def relative(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _walk(node: ast.AST, *, caught: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            for each in child.orelse:
                yield each, caught
                yield from _walk(each, caught=caught)
            continue
        guarded = caught or (isinstance(node, ast.Try) and child in node.body and _catches_imports(node))
        yield child, guarded
        yield from _walk(child, caught=guarded)


def _is_type_checking(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case _:
            return False


def _catches_imports(node: ast.Try) -> bool:
    return any(_names(handler.type) & _FAILED_IMPORT or handler.type is None for handler in node.handlers)


def _names(node: ast.expr | None) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node else set()


def _modules(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(level=0, module=str(module)):
            # What is imported from a namespace package may be the package: from google import protobuf
            return [f"{module}.{alias.name}" if "." not in module else module for alias in node.names]
        case _:
            return []


# What the author's Python has.


def active_python(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The Python of the active virtual or conda environment, else the first on the path; None where there is none."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(name):
            python = Path(environ[name], "bin", "python")
            if python.is_file():
                return python
    found = shutil.which("python3", path=environ.get("PATH")) or shutil.which("python", path=environ.get("PATH"))
    return Path(found) if found else None


def ask(python: Path, modules: Iterable[str]) -> dict[str, Any]:
    """What that Python has of these modules. Raises UsageError where it can't be asked."""
    script = Path(installed.__file__)
    try:
        ended = subprocess.run(
            [str(python), "-I", str(script), *modules],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_ASK_S,
            check=False,
        )
        return dict(json.loads(ended.stdout.strip().rpartition("\n")[2]))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise UsageError(f"{python} does not tell what it has installed; name another with --python") from None


def required(
    found: Imports, beside: Sequence[str], header: Sequence[str], told: Mapping[str, Any], given: Iterable[str] = ()
) -> Requirements:
    """What `ask` told, as requirements. `header` are those of the script's own PEP 723 header, which come first.

    `beside` are the names of the modules that lie next to the script; `given` are packages to be left out.
    """
    guess = _Guess(told, beside, given)
    for requirement in header:
        guess.take_declared(requirement)
    for module in found.needed:
        guess.take(module, needed=True)
    for module in found.optional:
        guess.take(module, needed=False)
    guess.note_unpinned()
    python = ".".join(str(told["python"]).split(".")[:2]) if told else None
    return Requirements([*guess.pins.values()], guess.blanks, guess.notes, python, guess.installed)


def _canonical(names: Iterable[str]) -> set[str]:
    return {canonicalize_name(name) for name in names}


class _Guess:
    def __init__(self, told: Mapping[str, Any], beside: Sequence[str], given: Iterable[str]) -> None:
        self._modules = told.get("modules", {})
        self.installed: dict[str, str] = {
            canonicalize_name(name): version for name, version in told.get("versions", {}).items()
        }
        self._standard = {*told.get("standard", ()), *sys.stdlib_module_names, "__future__"}
        self._beside, self._given = set(beside), set(given)
        self._seen: set[str] = set()
        self.pins: dict[str, str] = {}
        self.blanks: list[str] = []
        self.notes: list[str] = []

    def note_unpinned(self) -> None:
        """What matters of the requirements of the imported packages, imported or not: the lock takes the newest."""
        givers = [giver for givers in self._modules.values() for giver in givers]
        for name in _MATTER:
            users = sorted({each["name"] for each in givers if name in _canonical(each.get("requires", ()))})
            if users and name in self.installed and name not in {*self.pins, *self._given}:
                version = self.installed[name].partition("+")[0]
                told = f"{name} {version} is installed here for {', '.join(users)}, and not pinned"
                self.notes.append(f"{told}: if its version matters, add {name}=={version} to the requirements")

    def take_declared(self, requirement: str) -> None:
        try:
            parsed = Requirement(requirement)
        except InvalidRequirement:
            self.blanks.append(f"{requirement!r} in the script's header is not a requirement; write NAME==VERSION")
            return
        name = canonicalize_name(parsed.name)
        if name in self._given:
            return
        try:
            self.pins[name] = pin(requirement)
        except ValueError:
            self._pin(parsed.name, self.installed.get(name), parsed.extras)

    def take(self, module: str, *, needed: bool) -> None:
        top = module.split(".", maxsplit=1)[0]
        if top in self._standard or top in self._seen or canonicalize_name(top) in self._given:
            return
        givers = self._modules.get(module, [])
        if len(givers) != 1 or canonicalize_name(givers[0]["name"]) == top:
            self._seen.add(top)
        if len(givers) > 1:
            givers = [each for each in givers if canonicalize_name(each["name"]) == canonicalize_name(top)] or givers
        if givers and top not in self._beside:
            self._pin_giver(givers[0])
            if len(givers) > 1:
                names = ", ".join(each["name"] for each in givers)
                self.blanks.append(f"several packages give {top}: {names}; keep the right one, pinned")
        elif needed:
            self._unknown(top)

    def _unknown(self, top: str) -> None:
        self._seen.add(top)
        if top in self._beside:
            self.blanks.append(
                f"{top} is a file beside the script; a case's script stands alone: put it into the script"
            )
        else:
            self.blanks.append(f"which package has the module {top}? It is not installed here; write NAME==VERSION")

    def _pin_giver(self, giver: Mapping[str, Any]) -> None:
        name = canonicalize_name(giver["name"])
        if name in self.pins or name in self._given:
            return
        if giver["elsewhere"]:
            told = f"{giver['name']} {giver['version']} is {giver['elsewhere']} here; which release is it? Write "
            self.blanks.append(f"{told}{name}==VERSION")
            return
        self._pin(giver["name"], giver["version"])

    def _pin(self, name: str, version: str | None, extras: Iterable[str] = ()) -> None:
        if version is None:
            self.blanks.append(f"{name} is not installed here; write {name}==VERSION")
            return
        released, _, build = version.partition("+")
        if build:
            self.notes.append(
                f"{name} {version} is a build of its own here; the case pins {released}, as the index has it"
            )
        wanted = f"[{','.join(sorted(extras))}]" if extras else ""
        self.pins[canonicalize_name(name)] = pin(f"{name}{wanted}=={released}")
