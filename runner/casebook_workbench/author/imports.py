"""Which packages a script needs, by its imports and by what is installed where its author runs it."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpu_casebook.errors import UsageError
from gpu_casebook.guest import installed
from gpu_casebook.pins import CPU_BUILD, pin

_ASK_S = 60.0
_READ = re.compile(
    r"""environ(?:\.(?:get|setdefault|pop)\(|\[)\s*['"](\w+)['"](?!\]\s*=[^=])|getenv\(\s*['"](\w+)|"""
    r"""['"](\w+)['"] (?:not )?in (?:os\.)?environ"""
)
_IMPORTED = re.compile(r"(?m)^import time:.*\| +([\w.]+|imported package)\r?\n")
_MATTER = ("torch", "transformers", "triton", "numpy", "accelerate")
"""Packages whose version may decide whether a failure shows, though a script need not import them."""


# What the script says. Pure.


def imports(tree: ast.Module) -> dict[str, bool]:
    """Return every absolute import that would be done at run time, wherever it stands, in dotted form.

    The value is whether the module is needed: not if its absence is caught. Needed ones come first.
    """
    needed: dict[str, bool] = {}
    for node, caught in _walk(tree, caught=False):
        for module in _modules(node):
            needed[module] = needed.get(module, False) or not caught
    return dict(sorted(needed.items(), key=lambda each: not each[1]))


def relative(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def variables(text: str) -> set[str]:
    """Return the names of the environment variables that the script seems to read."""
    return {name for names in _READ.findall(text) for name in names if name}


def loaded(stderr: str) -> tuple[str, dict[str, bool]]:
    """Return stderr without what -X importtime wrote there, and the modules that were imported after Python's start."""
    _, _, after = stderr.partition("| site\n")
    tops = {name.partition(".")[0]: False for name in _IMPORTED.findall(after)}
    return _IMPORTED.sub("", stderr), tops


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
    return bool(re.fullmatch(r"(?:\w+\.)*TYPE_CHECKING", ast.unparse(test)))


def _catches_imports(node: ast.Try) -> bool:
    caught = [ast.unparse(handler.type) if handler.type else "Exception" for handler in node.handlers]
    return any(re.search(r"\b(?:ImportError|ModuleNotFoundError|Exception)\b", names) for names in caught)


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
    """Return the Python of the active virtual or conda environment, else the first on the path, or None."""
    for prefix in filter(None, map(environ.get, ("VIRTUAL_ENV", "CONDA_PREFIX"))):
        python = Path(prefix, "bin", "python")
        if python.is_file():
            return python
    found = shutil.which("python3", path=environ.get("PATH")) or shutil.which("python", path=environ.get("PATH"))
    return Path(found) if found else None


def ask(python: Path, modules: Iterable[str]) -> dict[str, Any]:
    """Return what that Python has of these modules: see guest/installed.py. Raises UsageError if it does not answer."""
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


@dataclass(kw_only=True)
class Requirements:
    """What a script needs, collected from its header and its imports."""

    answer: Mapping[str, Any] = field(default_factory=dict)  # of `ask`
    beside: Collection[str] = ()  # names of the modules that lie next to the script
    given: Collection[str] = ()  # packages to be left out, as their versions are known otherwise
    cpu: bool = False  # no GPU is needed, so PyTorch's CPU builds, a tenth of the others' size, may stay
    pins: dict[str, str] = field(default_factory=dict)  # such as "torch==2.11.0", by canonical name
    blanks: list[str] = field(default_factory=list)  # what is not known, a sentence for each
    notes: list[str] = field(default_factory=list)  # what was left out on the way, or looks odd
    _seen: set[str] = field(default_factory=set)  # top-level modules that are settled

    @property
    def python(self) -> str | None:
        """The minor version of the author's Python."""
        return ".".join(self.answer["python"].split(".")[:2]) if self.answer else None

    @cached_property
    def installed(self) -> dict[str, str]:
        """The version of everything that is installed there, by canonical name."""
        return {canonicalize_name(name): version for name, version in self.answer.get("versions", {}).items()}

    def collect(self, header: Iterable[str], modules: Mapping[str, bool]) -> Self:
        """Add the requirements of the script's own PEP 723 header, then the packages of the modules that it imports."""
        for requirement in header:
            self._add_declared(requirement)
        for module, needed in modules.items():
            self._add_module(module, needed=needed)
        self._note_unpinned()
        return self

    def _note_unpinned(self) -> None:
        """Note which packages that matter are required by the imported ones: the lock takes their newest versions."""
        packages = [each for providers in self.answer.get("modules", {}).values() for each in providers]
        for name in _MATTER:
            users = {each["name"] for each in packages if name in {*map(canonicalize_name, each.get("requires", ()))}}
            if users and name in self.installed and name not in {*self.pins, *self.given}:
                version = self.installed[name].partition("+")[0]
                what = f"{name} {version} is installed here for {', '.join(sorted(users))}, and not pinned"
                self.notes.append(f"{what}: if its version matters, add {name}=={version} to the requirements")

    def _add_declared(self, requirement: str) -> None:
        """Add a requirement of the script's own header."""
        try:
            parsed = Requirement(requirement)
        except InvalidRequirement:
            self.blanks.append(f"{requirement!r} in the script's header is not a requirement; write NAME==VERSION")
            return
        name = canonicalize_name(parsed.name)
        if name in self.given:
            return
        try:
            self.pins[name] = pin(requirement)
        except ValueError:
            self._pin(name, self.installed.get(name), parsed.extras)

    def _add_module(self, module: str, *, needed: bool) -> None:
        """Add the package that provides a module."""
        top = module.partition(".")[0]
        standard = {*self.answer.get("standard", ()), *sys.stdlib_module_names, "__future__"}
        if top in standard or top in self._seen or canonicalize_name(top) in self.given:
            return
        providers = self.answer.get("modules", {}).get(module, [])
        named_so = [each for each in providers if canonicalize_name(each["name"]) == canonicalize_name(top)]
        # Several packages may share a namespace, such as google: then what is imported of it decides.
        if len(providers) != 1 or named_so:
            self._seen.add(top)
        if providers and top not in self.beside:
            providers = named_so or providers
            self._add_provider(providers[0])
            if len(providers) > 1:
                names = ", ".join(each["name"] for each in providers)
                self.blanks.append(f"several packages give {top}: {names}; keep the right one, pinned")
        elif needed:
            self._seen.add(top)
            if top in self.beside:
                raise UsageError(
                    f"{top} is a file beside the script; a case's script stands alone: put it into the script"
                )
            self.blanks.append(f"which package has the module {top}? It is not installed here; write NAME==VERSION")

    def _add_provider(self, package: Mapping[str, Any]) -> None:
        name = canonicalize_name(package["name"])
        if name in self.pins or name in self.given:
            return
        if package["elsewhere"]:
            what = f"{package['name']} {package['version']} is {package['elsewhere']} here"
            self.blanks.append(f"{what}; which release is it? Write {name}==VERSION")
        else:
            self._pin(name, package["version"])

    def _pin(self, name: str, version: str | None, extras: Iterable[str] = ()) -> None:
        if version is None:
            self.blanks.append(f"{name} is not installed here; write {name}==VERSION")
            return
        released, _, build = version.partition("+")
        if self.cpu and version.endswith(CPU_BUILD):
            released = version
            self.notes.append(
                f"{name} {version} is PyTorch's CPU build, and needs no GPU: the case takes it from its index"
            )
        elif build:
            what = f"{name} {version} is a build of its own here"
            self.notes.append(f"{what}; the case pins {released}, as the index has it")
        wanted = f"[{','.join(sorted(extras))}]" if extras else ""
        self.pins[name] = pin(f"{name}{wanted}=={released}")
