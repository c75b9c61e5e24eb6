"""Is what fixed.py changes of repro.py a fix? Read from both syntax trees. Pure: texts in, problems out.

A statement counts as changed if its text, comments and layout apart, stands in one script and not in the other.
"""

import ast
import builtins
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property, lru_cache
from itertools import zip_longest
from typing import Any

from failure_signature.expectation import Expectation
from failure_signature.kinds import Variant
from gpu_casebook.errors import Problem, Severity

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_HARMLESS = {*dir(builtins), "format", "exit", "write", "flush", "join", "items", "append", "item", "tolist"}
"""Calls that compute nothing a failure could be in."""
_BUFFERS = re.compile(r"(?:new_)?(?:empty|zeros|ones|full)(?:_like)?")
_RANDOM = re.compile(r"rand|randn|randint|randperm|(?:rand|randn)_like|normal_?|uniform_?|bernoulli_?|gauss")
_SEEDS = re.compile(r"(?:.*_)?seed(?:_all)?_?|default_rng|RandomState")
_WAITS = re.compile(r"sleep|pause|wait")
_COMPARES = re.compile(r"err|diff|close|equal|dist|compare|same|match|dev")
_MEASURE = re.compile(rf"{_COMPARES.pattern}|ref|exact|expect|truth|gold|want|right")
_ENDS = {"exit", "_exit", "quit", "abort", "kill"}
_WELL = re.compile(r"(?:sys\.)?exit\(0?\)|quit\(0?\)|os\._exit\(0\)|(?:raise )?SystemExit(?:\(0?\))?")
_SWALLOWS = {"suppress", "raises", "assertRaises"}
_FIGURE = re.compile(r"(?m)^([^=\n]*[^=\n\s])=(\S*)")
_VALUE = re.compile(r"\0(\d+)\0")
"""Where a printed text has a value: the number of the value."""

Finding = tuple[int, str]
"""A line, and what is wrong there."""


def of_fix(repro: str, fixed: str, shown: str) -> Iterator[Problem]:
    """Yield why the change can't be a fix, as errors, and what a reader must look at, as warnings.

    `shown` is the case's directory. Raises SyntaxError if a script is no Python.
    """
    change = _Change(_read(repro), _read(fixed))
    for variant, severity, found in (
        (Variant.FIXED, Severity.ERROR, change.errors()),
        (Variant.REPRO, Severity.WARNING, change.warnings_of_repro()),
        (Variant.FIXED, Severity.WARNING, change.warnings()),
    ):
        for line, what in dict.fromkeys(found):
            yield Problem(f"{shown}/{variant}.py", line, "", what, severity)


def of_script(text: str, expected: Expectation, path: str) -> Iterator[Problem]:
    """Yield why a script shows nothing, whatever the other one does. Raises SyntaxError if it is no Python."""
    script = _read(text)
    if all(_name(call) in _HARMLESS for call in script.calls):
        yield Problem(path, 1, "", "is empty or only prints, so nothing is checked")
    constant = {name for name, values in script.figures.items() if all(map(script.is_constant, values))}
    if expected.figures and not expected.must_fail and not expected.figures.keys() - constant:
        what = f"computes no figure that the manifest bounds: {', '.join(expected.figures)} stand there as constants"
        yield Problem(path, 1, "", what)
    for name, function in script.functions.items() if expected.hang else ():
        waits = [node for node in ast.walk(function) if isinstance(node, ast.Call) and _WAITS.fullmatch(_name(node))]
        if expected.hang and waits and re.search(expected.hang.stack, name):
            what = f"{name}, where the manifest says that it hangs, waits by itself"
            yield Problem(path, waits[0].lineno, "", what, Severity.WARNING)


class _Script:
    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        for node in [*ast.walk(self.tree)]:
            if isinstance(node, _FUNCTIONS | ast.Module) and ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:]
        self.nodes = [*ast.walk(self.tree)]
        self.statements = [(_head(node), node) for node in self.nodes if isinstance(node, ast.stmt | ast.ExceptHandler)]
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.called = {*map(_name, self.calls)}
        self.functions = {node.name: node for node in self.nodes if isinstance(node, _FUNCTIONS)}
        self.used = {node.id for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        self.used |= {node.attr for node in self.nodes if isinstance(node, ast.Attribute)}

    @cached_property
    def imported(self) -> dict[str, str]:
        """Where the names that it imports come from: the top-level module."""
        return {
            each.asname or each.name.split(".")[0]: (getattr(node, "module", None) or each.name).split(".")[0]
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for each in node.names
        }

    def uses(self, package: str) -> bool:
        return any(name in self.used for name, top in self.imported.items() if top == package)

    @cached_property
    def assigned(self) -> Mapping[str, list[ast.AST]]:
        """What each name is assigned; the statement itself where that is no plain assignment."""
        found = defaultdict[str, list[ast.AST]](list)
        for node in self.nodes:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    found[name].append(value)
                case ast.arg(arg=name):
                    found[name].append(node)
                case ast.Assign() | ast.AugAssign() | ast.For() | ast.comprehension() | ast.With() | ast.NamedExpr():
                    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
                    for name in {each.id for each in names if isinstance(each.ctx, ast.Store)}:
                        found[name].append(node)
                case _:
                    continue
        return found

    @cached_property
    def figures(self) -> Mapping[str, list[ast.AST]]:
        """What it prints as lines name=value, by name: {...} for what is filled in."""
        found = defaultdict[str, list[ast.AST]](list)
        for text in (each for call in self.calls if _name(call) in {"print", "write"} for each in call.args):
            parts = _parts(text)
            printed = "".join(part if isinstance(part, str) else f"\0{at}\0" for at, part in enumerate(parts))
            for name, value in _FIGURE.findall(printed):
                shown = _VALUE.sub(lambda at, parts=parts: f"{{{ast.unparse(parts[int(at[1])])}}}", name)  # type: ignore[misc]
                found[shown] += [parts[int(at)] for at in _VALUE.findall(value)] or [ast.Constant(value)]
        return found

    def is_constant(self, value: ast.AST, depth: int = 8) -> bool:
        match value:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                values = self.assigned.get(name, ())
                return bool(values and depth) and all(self.is_constant(each, depth - 1) for each in values)
            case ast.Call(func=ast.Name(id=name), args=arguments) if name in dir(builtins) and arguments:
                return all(self.is_constant(each, depth) for each in arguments)
            case ast.BinOp(left, _, right):
                return self.is_constant(left, depth) and self.is_constant(right, depth)
            case ast.UnaryOp(_, operand):
                return self.is_constant(operand, depth)
            case _:
                return False

    def way(self, value: ast.AST, depth: int = 4) -> set[str]:
        """Return how a figure is measured: its expression, and of what is in there each error and each reference.

        What is measured may differ: the fix is there.
        """
        found = {ast.unparse(value)}
        for name in {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} if depth else ():
            if _MEASURE.search(name):
                values = [*self.assigned.get(name, ()), self.functions.get(name)]
                plain = [each for each in values if each and not isinstance(each, ast.arg | ast.For)]
                found = found.union(*(self.way(each, depth - 1) for each in plain))
        return found


class _Change:
    def __init__(self, before: _Script, after: _Script) -> None:
        self.before, self.after = before, after
        texts = [Counter(text for text, _ in script.statements) for script in (before, after)]
        removed, added = _others(before, texts[0] - texts[1]), _others(after, texts[1] - texts[0])
        self.line = added[0].lineno if added else 1
        self.removed, self.added = ([part for each in nodes for part in _own(each)] for nodes in (removed, added))

    def errors(self) -> Iterator[Finding]:
        before, after = self.before, self.after
        for package in sorted({*before.imported.values()} - {*sys.stdlib_module_names}):
            if before.uses(package) and not after.uses(package):
                yield self.line, f"does nothing with {package}, which repro.py uses"
        for name in before.functions:
            if name in before.used and name not in after.used:
                yield self.line, f"no longer uses {name}, as repro.py does"
        for call in self._dropped():
            yield self.line, f"no longer calls {ast.unparse(call.func)}, as repro.py does"
        for name, values in after.figures.items():
            was = before.figures.get(name)
            if was and all(map(after.is_constant, values)) and not all(map(before.is_constant, was)):
                yield getattr(values[0], "lineno", self.line), f"prints a constant as {name}, which repro.py computes"
        yield from self._hidden()

    def _hidden(self) -> Iterator[Finding]:
        """Yield what is new and keeps the check from failing."""
        for node in self.added:
            if what := _empties(node):
                yield getattr(node, "lineno", self.line), what
        tried = {ast.unparse(node) for node in self.before.nodes if isinstance(node, ast.Try)}
        for node in self.after.nodes:
            if isinstance(node, ast.Try) and ast.unparse(node) not in tried and _swallows(node):
                what = "a new try/except, which neither raises again nor repeats the call, hides the failure"
                yield node.lineno, what

    def warnings(self) -> Iterator[Finding]:
        draws = [call for call in self.after.calls if _RANDOM.fullmatch(_name(call))]
        names = {node.id for call in draws for node in ast.walk(call) if isinstance(node, ast.Name)}
        there = {*map(ast.unparse, self.after.calls)}
        for node in self.removed:
            if isinstance(node, ast.Assert):
                yield self.line, f"does not assert what repro.py does: {ast.unparse(node.test)}"
            elif isinstance(node, ast.Call) and _SEEDS.fullmatch(_name(node)) and ast.unparse(node) not in there:
                yield self.line, f"draws other random numbers than repro.py, whose {ast.unparse(node)} it lacks"
        settings = [node for node in self.added if isinstance(node, ast.Assign) and self.after.is_constant(node.value)]
        for node in settings:
            if ast.unparse(node.targets[0]) in names:
                yield node.lineno, f"draws other random numbers than repro.py: {ast.unparse(node)}"
        for name, values in self.after.figures.items():
            was = self.before.figures.get(name, ())
            if was and _ways(self.before, was) != _ways(self.after, values):
                yield getattr(values[0], "lineno", self.line), f"computes {name} in another way than repro.py"

    def warnings_of_repro(self) -> Iterator[Finding]:
        """What repro.py does to itself, and fixed.py does not."""
        for node in self.removed:
            name = _name(node) if isinstance(node, ast.Call) else ""
            waits = _WAITS.fullmatch(name) and name not in self.after.called
            raises = isinstance(node, ast.Raise) and node.exc
            if does := "waits" if waits else "ends" if name in _ENDS else "raises" if raises else "":
                yield node.lineno, f"{does} by itself, and fixed.py does not"

    def _dropped(self) -> Iterator[ast.Call]:
        """Yield the calls that are in repro.py alone and that nothing stands in for, one of each name."""
        kept = {*self.after.called, *self.before.functions, *_HARMLESS}
        for node in self.removed:
            if isinstance(node, ast.Call) and (name := _name(node)) not in kept:
                # A failure is hardly about the standard library, memory or waiting; random numbers may be all of it.
                beside = self._is_standard(node) or _BUFFERS.fullmatch(name) or _WAITS.fullmatch(name)
                if _RANDOM.fullmatch(name) or not (beside or self._replaced(node)):
                    kept.add(name)
                    yield node

    def _is_standard(self, call: ast.Call) -> bool:
        root = ast.unparse(call.func).split(".")[0].split("(")[0]
        return self.before.imported.get(root) in sys.stdlib_module_names

    def _replaced(self, call: ast.Call) -> bool:
        """Return whether all that the call is given goes into a changed statement of fixed.py."""
        of = [*call.args, *call.keywords, *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
        given = {node.id for part in of for node in ast.walk(part) if isinstance(node, ast.Name)}
        given -= self.before.imported.keys()
        return bool(given) and given <= {node.id for node in self.added if isinstance(node, ast.Name)}


_read = lru_cache(maxsize=2)(_Script)


def _ways(script: _Script, values: Iterable[ast.AST]) -> set[str]:
    return set().union(*map(script.way, values))


def _others(script: _Script, texts: Counter[str]) -> list[Any]:
    """Return the statements with these texts, in the order of the script."""
    found = list[Any]()
    for text, node in script.statements:
        if texts[text] and not isinstance(node, ast.Import | ast.ImportFrom):
            texts[text] -= 1
            found.append(node)
    return sorted(found, key=lambda node: node.lineno)


def _own(node: ast.AST) -> Iterator[Any]:
    """Yield the nodes of a statement without those of the statements in it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _own(child)


def _head(node: ast.AST) -> str:
    """Return the text of a statement without the statements in it."""
    bare = copy(node)
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        if isinstance(getattr(bare, name, None), list):
            setattr(bare, name, [])
    return ast.unparse(bare)


def _name(call: ast.Call) -> str:
    """Return the last part of what is called: randn of torch.randn(3), kernel of kernel[grid](x)."""
    called: ast.AST = call.func
    while isinstance(called, ast.Subscript):
        called = called.value
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _parts(node: ast.AST) -> list[Any]:
    """Return the pieces of a printed text: texts, and nodes for what is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=pieces):
            return [part for piece in pieces for part in _parts(piece)]
        case ast.FormattedValue(value=value):
            return _parts(value)
        case ast.BinOp(left, ast.Add(), right):
            return _parts(left) + _parts(right)
        case ast.BinOp(ast.Constant(value=str(text)), ast.Mod(), right):
            given = right.elts if isinstance(right, ast.Tuple) else [right]
            words = re.split(r"%[-+#0 ]*[\d.]*[a-zA-Z]", text)
            pairs = zip_longest(words, given)
            return [part for word, value in pairs for part in (word or "", *(_parts(value) if value else ()))]
        case _:
            return [node]


def _empties(node: ast.AST) -> str | None:
    """Return how a new piece of code keeps the check from failing, or None."""
    match node:
        case ast.BinOp(left, ast.Sub() | ast.Div(), right) | ast.Compare(left, [_], [right]) if _same(left, right):
            return f"compares {ast.unparse(left)} with itself"
        case ast.Call(args=[left, right, *_]) if _COMPARES.search(_name(node)) and _same(left, right):
            return f"compares {ast.unparse(left)} with itself"
        case ast.Call() | ast.Raise() if _WELL.fullmatch(ast.unparse(node)):
            return "ends early, as if all were well"
        case ast.If(test=ast.Constant(value=value)) | ast.While(test=ast.Constant(value=value)) if not value:
            return "has code that never runs"
        case ast.Call() if _name(node) in _SWALLOWS:
            return f"{_name(node)} is new, and hides the failure"
        case _:
            return None


def _same(left: ast.AST, right: ast.AST) -> bool:
    return not isinstance(left, ast.Constant) and ast.unparse(left) == ast.unparse(right)


def _swallows(node: ast.Try) -> bool:
    """Return whether a handler neither raises nor calls again what failed."""
    tried = {ast.unparse(each.func) for part in node.body for each in ast.walk(part) if isinstance(each, ast.Call)}
    return any(
        not any(
            isinstance(each, ast.Raise) or (isinstance(each, ast.Call) and ast.unparse(each.func) in tried - {"print"})
            for each in ast.walk(handler)
        )
        for handler in node.handlers
    )
