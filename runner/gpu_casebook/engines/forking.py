"""Trials that are forked from a process which has already imported what the script imports first: a zygote.

What every engine that forks shares: which imports those are, and when trials are fresh processes after all. The
process itself is `gpu_casebook.guest.zygote`; how it is started and asked is each engine's (`engines.venv.forking`,
`engines.docker.forking`).
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gpu_casebook.engines.base import Prepared
from gpu_casebook.trial import TrialRequest, TrialResult

PATIENCE_S = 60.0
"""How long a zygote may take to fork a trial."""
ENDED = "the process that they are forked from has ended"
_MOST = 2  # the variants take turns


class Unfit(Exception):  # noqa: N818 no error: the trials are fresh processes then
    """Why trials can't be forked, as the end of a sentence."""


Import = tuple[str, Sequence[str]]  # as `__import__` takes it: a module, and the names of a from-import


def imports(source: bytes, own: Iterable[str]) -> list[Import]:
    """Return what a script imports before it does anything else; `own` are the files that it comes with.

    Ends at the first statement that may do something (sets a variable of the environment, say), or imports one of the
    case's own modules: what is imported after that may depend on it.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return []
    own_modules = {Path(name).parts[0].removesuffix(".py") for name in own}
    found: list[Import] = []
    while body:
        statement, *body = body
        here: list[Import] = []
        match statement:
            case ast.ImportFrom(module="__future__") | ast.Expr(value=ast.Constant()):
                pass
            case ast.Assign(targets=[ast.Name()], value=ast.Constant()):
                pass
            case ast.Import(names=names):
                here = [(alias.name, []) for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                here = [(module, [alias.name for alias in names])]
            case ast.Try(body=inner, orelse=[], finalbody=[]):  # the handlers are not for the zygote: it stops there
                body = inner + body
            case _:
                break
        if any(module.partition(".")[0] in own_modules for module, _ in here):
            break
        found += here
    return found


def story(imported: Sequence[str]) -> str:
    """Return how forked trials came to be, for the report."""
    names = ", ".join(dict.fromkeys(imported)) or "nothing"
    shared = "what importing set up, the hash seed and the memory's layout are the same in all"
    return f"forked from a process that had imported {names}; {shared}"


class Zygote(Protocol):
    """One script in one environment, ready to be forked."""

    story: str

    def run(self, request: TrialRequest) -> TrialResult:
        """Run a forked trial. Raises Unfit where the zygote is gone."""


Make = Callable[[Prepared, TrialRequest, Sequence[Import]], AbstractContextManager[Zygote]]
"""Starts a zygote that does these imports. Raises Unfit."""


class Nursery:
    """The zygotes of an engine: one for each of the variants whose trials are being run."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._known: list[tuple[object, Zygote | Unfit, ExitStack]] = []

    def run(
        self, prepared: Prepared, request: TrialRequest, fresh: Callable[[Prepared, TrialRequest], TrialResult]
    ) -> TrialResult:
        """Run a trial as a fork; as a `fresh` process, and say why, where it can't be one."""
        try:
            zygote = self._zygote(prepared, request)
            try:
                result = zygote.run(request)
            except Unfit as why:
                self._spoil(zygote, why)
                raise
            except BaseException:
                self.close()
                raise
        except Unfit as why:
            return replace(fresh(prepared, request), zygote=f"fresh processes, not forked: {why}")
        if result.infra:
            self._spoil(zygote, Unfit("one of them could not be run"))
        return replace(result, zygote=zygote.story)

    def _zygote(self, prepared: Prepared, request: TrialRequest) -> Zygote:
        """Return the zygote for this, which is made if there is none. Raises Unfit, again and again."""
        key = (prepared, request)
        found = next((found for known, found, _ in self._known if known == key), None)
        if found is None:
            stack = ExitStack()
            try:
                found = stack.enter_context(self._make(prepared, request, _wanted(request)))
            except Unfit as why:
                found = why
            self._known.append((key, found, stack))
            for _, _, old in self._known[:-_MOST]:
                old.close()
            del self._known[:-_MOST]
        if isinstance(found, Unfit):
            raise found
        return found

    def _spoil(self, zygote: Zygote, why: Unfit) -> None:
        """End a zygote; there will be no other in its place."""
        for number, (key, found, stack) in enumerate(self._known):
            if found is zygote:
                self._known[number] = (key, why, ExitStack())
                stack.close()

    def close(self) -> None:
        while self._known:
            self._known.pop()[2].close()


def _wanted(request: TrialRequest) -> list[Import]:
    source = request.files.get(request.arguments[0])
    if source is None or request.wrapper or request.keep:
        raise Unfit("that takes a script of the case, with nothing in front of it, and nothing kept")
    return imports(source, request.files)
