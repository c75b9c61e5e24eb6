"""Trials that are forked from a process which has already imported what the script imports first: a zygote.

What every engine that forks shares: which imports those are, and when trials are fresh processes after all. The
process itself is `gpu_casebook.guest.zygote`; how it is started and asked is each engine's (`engines.venv.forking`,
`engines.docker.forking`).
"""

import ast
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
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


@dataclass(eq=False)
class _Kept:
    """A zygote, and whether a trial is being forked from it."""

    key: object
    zygote: Zygote
    stack: ExitStack
    busy: bool = True
    unwanted: bool = False  # it ends with the trial that is being forked from it


class Nursery:
    """The zygotes of an engine: for each of the variants whose trials are being run, as many as run at once.

    A zygote forks one trial at a time: trials of one share its scratch space, which is cleared in between.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._kept: list[_Kept] = []  # those used last come last
        self._unfit: list[tuple[object, Unfit]] = []
        self._changes = threading.Lock()

    def run(
        self, prepared: Prepared, request: TrialRequest, fresh: Callable[[Prepared, TrialRequest], TrialResult]
    ) -> TrialResult:
        """Run a trial as a fork; as a `fresh` process, and say why, where it can't be one. Threads may run trials."""
        key = (prepared, request)
        try:
            kept = self._idle(key) or self._new(key, prepared, request)
            try:
                result = kept.zygote.run(request)
            except Unfit as why:
                self._spoil(key, why)
                raise
            except BaseException:
                kept.unwanted = True
                raise
            finally:
                self._give_back(kept)
        except Unfit as why:
            return replace(fresh(prepared, request), zygote=f"fresh processes, not forked: {why}")
        if result.infra:
            self._spoil(key, Unfit("one of them could not be run"))
        return replace(result, zygote=kept.zygote.story)

    def _idle(self, key: object) -> _Kept | None:
        """Return a zygote for this, if one is free. Raises Unfit, again and again."""
        with self._changes:
            for known, why in self._unfit:
                if known == key:
                    raise why
            found = next((kept for kept in self._kept if kept.key == key and not kept.busy), None)
            if found:
                found.busy = True
                self._kept.remove(found)
                self._kept.append(found)
            return found

    def _new(self, key: object, prepared: Prepared, request: TrialRequest) -> _Kept:
        """Make a zygote, and end those of variants whose turn is over. Raises Unfit."""
        stack = ExitStack()
        try:
            kept = _Kept(key, stack.enter_context(self._make(prepared, request, _wanted(request))), stack)
        except Unfit as why:
            self._spoil(key, why)
            raise
        with self._changes:
            self._kept.append(kept)
            lately: list[object] = []
            for each in reversed(self._kept):
                if each.key not in lately:
                    lately.append(each.key)
        self._end(lambda each: each.key not in lately[:_MOST])
        return kept

    def _give_back(self, kept: _Kept) -> None:
        with self._changes:
            kept.busy = False
        self._end(lambda each: each.unwanted)

    def _spoil(self, key: object, why: Unfit) -> None:
        """End the zygotes for this; there will be no others in their place."""
        with self._changes:
            self._unfit.append((key, why))
        self._end(lambda each: each.key == key)

    def _end(self, which: Callable[[_Kept], bool]) -> None:
        """End these zygotes: now if they are idle, else with the trial that is being forked."""
        with self._changes:
            for each in filter(which, self._kept):
                each.unwanted = True
            gone = [each for each in self._kept if each.unwanted and not each.busy]
            self._kept = [each for each in self._kept if each not in gone]
        for each in gone:
            each.stack.close()

    def close(self) -> None:
        with self._changes:
            self._unfit.clear()
        self._end(lambda _: True)


def _wanted(request: TrialRequest) -> list[Import]:
    source = request.files.get(request.arguments[0])
    if source is None or request.wrapper or request.keep:
        raise Unfit("that takes a script of the case, with nothing in front of it, and nothing kept")
    return imports(source, request.files)
