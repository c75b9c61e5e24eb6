"""Is what fixed.py changes of repro.py a fix? Read from both syntax trees. Pure: texts in, problems out.

A statement counts as changed if its text, comments and layout apart, stands in one script and not in the other.
"""

import ast
import builtins
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property, lru_cache
from itertools import takewhile, zip_longest
from typing import Any

from gpu_casebook.errors import Problem, Severity
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.model import Expectation

_BINDS = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.For | ast.With | ast.comprehension | ast.arg
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HARMLESS = {*dir(builtins), "format", "exit", "write", "flush", "join", "items", "append", "item", "tolist"}
"""Calls that compute nothing a failure could be in."""
_BUFFERS = re.compile(r"(?:new_)?(?:empty|zeros|ones|full)(?:_like)?")
_INPUTS = re.compile(
    r"(?:.*_)?(?:seed|seed_all|default_rng|RandomState|tensor|array|arange|linspace|logspace|"
    r"rand|randn|randint|randperm|random|normal|uniform|bernoulli|choice)_?(?:_like)?"
)
_RANDOM = re.compile(r"rand|randn|randint|randperm|(?:rand|randn)_like|normal_?|uniform_?|bernoulli_?|gauss")
_BACKEND = re.compile(
    r"compile|jit|script|trace|enable_\w+|use_deterministic_algorithms|set_float32_matmul_precision|sdpa_kernel|"
    r"set_default_dtype|set_default_device|autocast|cuda|cpu|half|bfloat16|float16|float32|float64|double|putenv|setenv"
)
_BACKEND_WORD = re.compile(
    r"(?:cuda|cpu|mps|xpu|hip|meta)(?::\d+)?|inductor|eager|aot_eager|cudagraphs|nccl|gloo|mpi|sdpa|math|"
    r"flash_attention(?:_\d)?|b?float\d+|half"
)
_PRECISION = re.compile(r"b?float\d+|half|double")
_BACKEND_KEYS = {"device", "dtype", "backend", "attn_implementation", "mode", "fullgraph", "dynamic", "interpret"}
_TOLERANCE = re.compile(r"[ar]?tol|tolerance|thresh(?:old)?|(?:max_|abs_|rel_)?err(?:or)?|delta")
_WAITS = re.compile(r"sleep|pause|wait")
_COMPARES = re.compile(r"err|diff|close|equal|dist|compare|same|match|dev")
_MEASURE = re.compile(rf"{_COMPARES.pattern}|ref|exact|expect|truth|gold|want|right")
_ENDS = {"exit", "_exit", "quit", "abort", "kill"}
_WELL = re.compile(r"(?:sys\.)?exit\(0?\)|quit\(0?\)|os\._exit\(0\)|(?:raise )?SystemExit(?:\(0?\))?")
_SWALLOWS = {"suppress", "raises", "assertRaises"}
_FIGURE = re.compile(r"(?m)^([^=\n]*[^=\n\s])=(\S*)")
_VALUE = "\0"
_NODES = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
_BELOW = {kind: [name for name in kind._fields if name not in {"ctx", "op", "ops"}] for kind in _NODES}
"""What stands below a node, without contexts and operators, which are half of a tree."""
_BLOCKS = {
    kind: [name for name in kind._fields if name in {"body", "orelse", "finalbody", "handlers", "cases"}]
    for kind in _NODES
}
"""The statements below a statement."""


def of_fix(repro: str, fixed: str, shown: str, because: str | None) -> Iterator[Problem]:
    """Yield why the change can't be a fix, or may not be one; the latter only if the manifest does not say `because`.

    `shown` is the case's directory. Raises SyntaxError if a script is no Python.
    """
    change = _change(repro, fixed)
    for line, what in change.errors():
        yield Problem(f"{shown}/fixed.py", line, "", what)
    if because:
        return
    for variant, found in ((Variant.REPRO, change.doubts_of_repro()), (Variant.FIXED, change.doubts())):
        for line, what in dict.fromkeys(found):
            remedy = "if that is meant, say why in the manifest, in a line because:"
            yield Problem(f"{shown}/{variant}.py", line, "", f"{what}; {remedy}", Severity.WARNING)


def changes(repro: str, fixed: str) -> bool:
    """Return whether a statement, imports apart, stands in one script alone. Raises SyntaxError as `of_fix` does."""
    change = _change(repro, fixed)
    return bool(change.removed or change.added)


def of_script(text: str, expected: Expectation, path: str) -> Iterator[Problem]:
    """Yield why a script shows nothing, whatever the other one does. Raises SyntaxError if it is no Python."""
    script = _read(text)
    if not script.works():
        yield Problem(path, 1, "", "is empty or only prints, so nothing is checked")
    constant = {name for name, values in script.figures.items() if all(map(script.is_constant, values))}
    if expected.figures and not expected.must_fail and not expected.figures.keys() - constant:
        what = f"computes no figure that the manifest bounds: {', '.join(expected.figures)} stand there as constants"
        yield Problem(path, 1, "", what)
    if expected.hang:
        for name, function in script.functions.items():
            waits = [call for call in _walk(function) if isinstance(call, ast.Call) and _WAITS.fullmatch(_name(call))]
            if waits and re.search(expected.hang.stack, name):
                what = f"{name}, where the manifest says that it hangs, waits by itself"
                yield Problem(path, waits[0].lineno, "", what, Severity.WARNING)


class _Script:
    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.lines = re.split(r"\r\n|\r|\n", text)  # as Python counts them, unlike splitlines
        for function in (self.tree, *(node for node in _walk(self.tree, _BLOCKS) if isinstance(node, _FUNCTIONS))):
            if ast.get_docstring(function, clean=False) is not None:
                function.body = function.body[1:]
        self.nodes = _walk(self.tree)
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.functions = {node.name: node for node in self.nodes if isinstance(node, _FUNCTIONS)}
        self.used = Counter(_used(self.nodes))
        kernels = [each for each in self.functions.values() if "jit" in "".join(map(ast.unparse, each.decorator_list))]
        self.in_kernels = {id(node) for kernel in kernels for node in _walk(kernel)}

    @cached_property
    def sources(self) -> list[str]:
        """The text of each statement at the top level, as it stands there."""
        return ["\n".join(self.lines[_first_line(node) - 1 : node.end_lineno]) for node in self.tree.body]

    def statements(self, begin: int, end: int) -> list[tuple[str, ast.stmt | ast.ExceptHandler]]:
        """Return every statement in these at the top level with its text; of one that has a body, the head."""
        kinds = (ast.stmt, ast.ExceptHandler)
        nodes = _walk(ast.Module(self.tree.body[begin:end], []))
        return [(_head(node), node) for node in nodes if isinstance(node, kinds)]

    @cached_property
    def imported(self) -> dict[str, str]:
        """Where the names that it imports come from: the top-level module."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {each.asname or each.name.split(".")[0]: each.name.split(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {each.asname or each.name: node.module.split(".")[0] for each in node.names}
        return found

    @cached_property
    def packages(self) -> dict[str, str]:
        """The same without what is Python's own."""
        return {name: top for name, top in self.imported.items() if top not in sys.stdlib_module_names}

    @cached_property
    def assigned(self) -> Mapping[str, list[ast.AST]]:
        """What each name is assigned; the statement itself where that is no plain assignment."""
        found: dict[str, list[ast.AST]] = {}
        for node in self.nodes:
            if not isinstance(node, _BINDS):
                continue
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found.setdefault(name, []).append(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    found.setdefault(name, []).append(value)
                case ast.Assign() | ast.AugAssign() | ast.For() | ast.comprehension() | ast.With() | ast.NamedExpr():
                    for name in {
                        each.id
                        for each in _walk(node)
                        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
                    }:
                        found.setdefault(name, []).append(node)
                case ast.arg(arg=name):
                    found.setdefault(name, []).append(node)
                case _:
                    continue
        return found

    @cached_property
    def figures(self) -> Mapping[str, list[ast.AST]]:
        """What it prints as lines name=value, by name: {...} for what is filled in."""
        found: dict[str, list[ast.AST]] = {}
        for call in self.calls:
            for text in call.args if _name(call) in {"print", "write"} else ():
                template, values = _template(text)
                for name, value in _FIGURE.findall(template):
                    filled = [values[int(each)] for each in re.findall(rf"{_VALUE}(\d+){_VALUE}", value)]
                    found.setdefault(_shown(name, values), []).extend(filled or [ast.Constant(value)])
        return found

    def outside_kernels(self, statements: Iterable[Any]) -> list[Any]:
        return [node for node in statements if id(node) not in self.in_kernels]

    def works(self) -> bool:
        """Return whether it calls anything that could fail."""
        return any(_name(call) not in _HARMLESS for call in self.calls)

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

    def is_input(self, value: ast.AST) -> bool:
        """Return whether this is made of constants alone: of literals, by packages, by what has a name in capitals."""
        names = [node for node in _walk(value) if isinstance(node, ast.Name)]
        known = {*dir(builtins), *self.imported, *(node.id for node in names if isinstance(node.ctx, ast.Store))}
        return all(node.id.isupper() or node.id in known for node in names)

    def way(self, value: ast.AST, depth: int = 4) -> set[str]:
        """Return how a figure is measured: its expression, and of what is in there each error and each reference.

        What is measured may differ: the fix is there.
        """
        found = {ast.unparse(value)}
        for name in {node.id for node in _walk(value) if isinstance(node, ast.Name)} if depth else ():
            if _MEASURE.search(name):
                values = [*self.assigned.get(name, ()), *filter(None, [self.functions.get(name)])]
                plain = [each for each in values if not isinstance(each, ast.arg | ast.For)]
                found = found.union(*(self.way(each, depth - 1) for each in plain))
        return found


class _Change:
    def __init__(self, before: _Script, after: _Script) -> None:
        self.before, self.after = before, after
        # What is the same at both ends need not be written out again, which takes longer than all the rest.
        first = common_start(before.sources, after.sources)
        last = min(
            common_start(before.sources[::-1], after.sources[::-1]),
            len(before.sources) - first,
            len(after.sources) - first,
        )
        parts = [script.statements(first, len(script.sources) - last) for script in (before, after)]
        texts = [Counter(text for text, _ in part) for part in parts]
        self.removed = _others(parts[0], texts[0] - texts[1])
        self.added = _others(parts[1], texts[1] - texts[0])
        self.line = self.added[0].lineno if self.added else 1

    def errors(self) -> Iterator[tuple[int, str]]:
        yield from self._unused()
        for name, call in self._dropped():
            if not self._replaced(call) and not _BACKEND.fullmatch(name):
                yield self.line, f"no longer calls {ast.unparse(call.func)}, as repro.py does"
        for name, values in self.after.figures.items():
            was = self.before.figures.get(name)
            if was and all(map(self.after.is_constant, values)) and not all(map(self.before.is_constant, was)):
                yield getattr(values[0], "lineno", self.line), f"prints a constant as {name}, which repro.py computes"
        yield from self._hidden()

    def _unused(self) -> Iterator[tuple[int, str]]:
        before, after = self.before, self.after
        for package in sorted({*before.packages.values()}):
            names = [{name for name, of in each.packages.items() if of == package} for each in (before, after)]
            if any(before.used[name] for name in names[0]) and not any(after.used[name] for name in names[1]):
                yield self.line, f"does nothing with {package}, which repro.py uses"
        for name in before.functions:
            if before.used[name] and not after.used[name]:
                yield self.line, f"no longer uses {name}, as repro.py does"

    def _hidden(self) -> Iterator[tuple[int, str]]:
        """Yield what is new and keeps the check from failing."""
        for node in self._nodes(self.added):
            if what := _empties(node):
                yield getattr(node, "lineno", self.line), what
        tried = {ast.unparse(node) for node in self.before.nodes if isinstance(node, ast.Try)}
        for node in self.after.nodes:
            if isinstance(node, ast.Try) and ast.unparse(node) not in tried and _swallows(node):
                what = "a new try/except, which neither raises again nor repeats the call, hides the failure"
                yield node.lineno, what

    def doubts(self) -> Iterator[tuple[int, str]]:
        before, after = self.before, self.after
        for name, call in self._dropped():
            if self._replaced(call) and not _BACKEND.fullmatch(name):
                yield self.line, f"goes another way than {ast.unparse(call.func)}, which repro.py calls"
        yield from self._inputs()
        tolerances = [dict(_tolerances(self._nodes(each))) for each in (self.removed, self.added)]
        for what, (limit, line) in tolerances[1].items():
            if what in tolerances[0] and tolerances[0][what][0] != limit:
                yield line, f"has another threshold than repro.py: {limit} for {what}"
        outside = (before.outside_kernels(self.removed), after.outside_kernels(self.added))
        words = [dict(_backends(self._nodes(nodes))) for nodes in outside]
        if different := words[0].keys() ^ words[1].keys():
            line = next((words[1][word] for word in sorted(different) if word in words[1]), self.line)
            yield line, f"switches the backend, device or precision ({', '.join(sorted(different))})"
        for name, values in after.figures.items():
            was = before.figures.get(name)
            if was and _ways(before, was) != _ways(after, values):
                yield getattr(values[0], "lineno", self.line), f"computes {name} in another way than repro.py"

    def doubts_of_repro(self) -> Iterator[tuple[int, str]]:
        """What repro.py does to itself, and fixed.py does not."""
        for node in self._nodes(self.removed):
            match node:
                case ast.Call() if _WAITS.fullmatch(name := _name(node)) and name not in map(_name, self.after.calls):
                    yield node.lineno, "waits by itself, and fixed.py does not"
                case ast.Call() if _RANDOM.fullmatch(name := _name(node)) and name not in map(_name, self.after.calls):
                    yield node.lineno, "draws random numbers that fixed.py does not"
                case ast.Call() if _name(node) in _ENDS:
                    yield node.lineno, "ends itself, and fixed.py does not"
                case ast.Raise(exc=ast.expr()):
                    yield node.lineno, "raises by itself, and fixed.py does not"
                case _:
                    continue

    def _dropped(self) -> Iterator[tuple[str, ast.Call]]:
        """Yield the calls of packages and of methods that are in repro.py alone, one of each name."""
        kept = {*map(_name, self.after.calls), *self.before.functions, *_HARMLESS}
        for node in self._nodes(self.removed):
            if isinstance(node, ast.Call) and (name := _name(node)) not in kept and not self._beside(node, name):
                kept.add(name)
                yield name, node

    def _beside(self, call: ast.Call, name: str) -> bool:
        """Return whether a call is not what a case is about."""
        root = ast.unparse(call.func).split(".")[0].split("(")[0]
        # Something of the standard library: a name that is imported, and of no package.
        standard = root in self.before.imported and root not in self.before.packages
        return standard or any(each.fullmatch(name) for each in (_BUFFERS, _RANDOM, _WAITS))

    def _replaced(self, call: ast.Call) -> bool:
        """Return whether all that the call is given goes into a changed statement of fixed.py."""
        given = {node.id for part in (*call.args, *call.keywords) for node in _walk(part) if isinstance(node, ast.Name)}
        if isinstance(call.func, ast.Attribute):
            given |= {node.id for node in _walk(call.func.value) if isinstance(node, ast.Name)}
        given -= self.before.imported.keys()
        there = {node.id for node in self._nodes(self.added) if isinstance(node, ast.Name)}
        return bool(given) and given <= there

    def _inputs(self) -> Iterator[tuple[int, str]]:
        targets = {_target(node) for node in self.removed} - {None}
        for node in self.after.outside_kernels(self.added):
            target, value = _target(node), _value(node)
            if target in targets and value and not _is_code(value) and self.after.is_input(value):
                yield node.lineno, f"has other inputs or settings than repro.py: {target}"
        was, now = Counter(self._made(self.removed, self.before)), Counter(self._made(self.added, self.after))
        if gone := was - now:
            yield self.line, f"has other inputs than repro.py, whose {next(iter(gone))} it lacks"

    def _made(self, statements: Iterable[ast.AST], script: _Script) -> Iterator[str]:
        for node in self._nodes(statements):
            if isinstance(node, ast.Call) and _INPUTS.fullmatch(_name(node)) and script.is_input(node):
                yield ast.unparse(node)

    @staticmethod
    def _nodes(statements: Iterable[ast.AST]) -> Iterator[Any]:
        for statement in statements:
            yield from _own_nodes(statement)


@lru_cache(maxsize=2)
def _read(text: str) -> _Script:
    return _Script(text)


@lru_cache(maxsize=1)
def _change(repro: str, fixed: str) -> _Change:
    return _Change(_read(repro), _read(fixed))


def _walk(node: ast.AST, fields: Mapping[type[ast.AST], list[str]] = _BELOW) -> list[Any]:
    """Return a node and all below it in these fields, as ast.walk does, in less than half of its time."""
    found = [node]
    for each in found:
        for name in fields[type(each)]:
            value = getattr(each, name, None)
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [part for part in value if isinstance(part, ast.AST)]
    return found


def _first_line(node: ast.stmt) -> int:
    first: ast.stmt | ast.expr = next(iter(getattr(node, "decorator_list", [])), node)
    return first.lineno


def common_start(one: list[str], other: list[str]) -> int:
    """Return how many are the same at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _others(statements: list[tuple[str, Any]], texts: Counter[str]) -> list[Any]:
    """Return the statements with these texts, in the order of the script."""
    found = list[Any]()
    for text, node in statements:
        if texts[text] and not isinstance(node, ast.Import | ast.ImportFrom):
            texts[text] -= 1
            found.append(node)
    return sorted(found, key=lambda node: node.lineno)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement without those of the statements in it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _own_nodes(child)


def _head(node: ast.AST) -> str:
    if not _has_body(node):
        return ast.unparse(node)
    bare = copy(node)
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        if hasattr(bare, name):
            setattr(bare, name, [ast.Pass()] if name == "body" else [])
    return ast.unparse(bare)


def _has_body(node: ast.AST) -> bool:
    return isinstance(getattr(node, "body", None) or getattr(node, "cases", None), list)


def _used(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _name(call: ast.Call) -> str:
    """Return the last part of what is called: randn of torch.randn(3), kernel of kernel[grid](x)."""
    called: ast.AST = call.func
    while isinstance(called, ast.Subscript):
        called = called.value
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _target(node: ast.AST) -> str | None:
    match node:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) | ast.For(target=target):
            return ast.unparse(target)
        case _:
            return None


def _value(node: ast.AST) -> ast.AST | None:
    return node.iter if isinstance(node, ast.For) else getattr(node, "value", None)


def _is_code(value: ast.AST) -> bool:
    """Return whether this is a text of several lines: the source of a kernel, in which the fix may well be."""
    return isinstance(value, ast.Constant) and "\n" in str(value.value)


def _ways(script: _Script, values: Iterable[ast.AST]) -> set[str]:
    return set().union(*map(script.way, values))


def _template(node: ast.AST) -> tuple[str, list[ast.AST]]:
    """Return the text that is printed, with the number of the value, between marks, where one is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text, []
        case ast.JoinedStr(values=pieces):
            parts = [piece.value if isinstance(piece, ast.FormattedValue) else piece for piece in pieces]
        case ast.BinOp(left, ast.Add(), right):
            parts = [left, right]
        case ast.BinOp(ast.Constant(value=str(text)), ast.Mod(), right):
            given = right.elts if isinstance(right, ast.Tuple) else [right]
            words = re.split(r"%[-+#0 ]*[\d.]*[a-zA-Z]", text)
            parts = [
                part for word, value in zip_longest(words, given) for part in (ast.Constant(word or ""), value) if part
            ]
        case _:
            return f"{_VALUE}0{_VALUE}", [node]
    text, values = "", list[ast.AST]()
    for part in parts:
        inner, more = _template(part)
        text += re.sub(rf"(?<={_VALUE})\d+(?={_VALUE})", lambda at: str(int(at[0]) + len(values)), inner)  # noqa: B023
        values += more
    return text, values


def _shown(name: str, values: list[ast.AST]) -> str:
    return re.sub(rf"{_VALUE}(\d+){_VALUE}", lambda at: f"{{{ast.unparse(values[int(at[1])])}}}", name)


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
    tried = {ast.unparse(each.func) for part in node.body for each in _walk(part) if isinstance(each, ast.Call)}
    return any(
        not any(
            isinstance(each, ast.Raise) or (isinstance(each, ast.Call) and ast.unparse(each.func) in tried - {"print"})
            for each in _walk(handler)
        )
        for handler in node.handlers
    )


def _tolerances(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, tuple[str, int]]]:
    for node in nodes:
        match node:
            case ast.Compare(left, [_], [ast.Constant(value=float() | int()) as limit]):
                yield ast.unparse(left), (ast.unparse(limit), node.lineno)
            case ast.keyword(arg=str(name), value=limit) if _TOLERANCE.fullmatch(name):
                yield name, (ast.unparse(limit), limit.lineno)


def _backends(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        match node:
            case ast.Call() if _BACKEND.fullmatch(_name(node)):
                yield _name(node), node.lineno
            case ast.Constant(value=str(word)) if _BACKEND_WORD.fullmatch(word):
                yield word, node.lineno
            case ast.Attribute(attr=word) if word in {"backends", "environ"} or _PRECISION.fullmatch(word):
                yield word, node.lineno
            case ast.keyword(arg=str(name), value=value) if name in _BACKEND_KEYS:
                yield f"{name}={ast.unparse(value)}", value.lineno
