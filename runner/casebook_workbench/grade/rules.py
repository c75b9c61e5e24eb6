"""What a candidate may change, and when what it hands out is right. Pure: JSON and source text in, sentences out.

It stands alone, with Python 3.8's standard library and nothing else: a task that is written for another harness has
this file with it.
"""

from __future__ import annotations

import ast
import builtins
import math
from typing import Any, Iterator, Mapping, Sequence  # noqa: UP035 Python 3.8

SLACK_S = 0.05
"""A round may take so much longer than one of fixed.py whatever the ratio: no more can be told on a busy machine."""
MOST_CALLS = 2.0
"""The whole process may take so many times as long as that of fixed.py, and `START_S` more: it is mostly imports."""
START_S = 5.0
TENSOR = {"dtype", "shape", "values"}

_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Import = (ast.Import, ast.ImportFrom)


def breaches(subject: str, candidate: str, rules: Mapping[str, Any]) -> list[str]:
    """Return what a candidate changes that it may not, line by line, and what it no longer calls.

    `rules` has `may_change`, names of functions and classes of subject.py, and `keeps`, names that must stay in use.
    New imports and new functions are allowed.
    """
    try:
        there, new = ast.parse(subject), ast.parse(candidate)
    except (SyntaxError, ValueError, RecursionError) as error:
        return [f"can't be parsed: {error}"]
    free = set(rules["may_change"])
    known = set(_names(there.body))
    sources = {name: source for node in there.body for name, source in _imported(node)}
    frozen = [node for node in _statements(there) if _name(node) not in free and not isinstance(node, _Import)]
    left = [(ast.dump(node), _label(node)) for node in frozen]
    only = f"only {_listed(free)} may be changed"
    found: list[str] = []
    open_: list[ast.AST] = []
    for node in _statements(new):
        name, dumped = _name(node), ast.dump(node)
        place = next((number for number, (each, _) in enumerate(left) if each == dumped), None)
        if name in free:
            open_.append(node)
            found += _other_signature(there, node)
        elif place is not None:
            found += [f"{label} is gone or moved; {only}" for _, label in left[:place]]
            del left[: place + 1]
        elif isinstance(node, _Import) or (name and name not in known):
            open_.append(node)
            bound = dict(_imported(node)) or {str(name): ""}
            taken = {each for each in bound if each in known and sources.get(each) != bound[each]}
            taken |= set(bound) & {*dir(builtins), "*"}
            found += [f"line {node.lineno}: takes the name {each}, which has its meaning" for each in sorted(taken)]
        else:
            label = _label(node)
            found.append(f"line {node.lineno}: {label} is changed or moved; {only}")
            left = left[1:] if left and left[0][1] == label else left
    found += [f"{label} is gone or moved; {only}" for _, label in left]
    found += [f"{each} is gone" for each in sorted(free - {_name(node) for node in open_})]
    found += [f"line {line}: rebinds {name}, a name of the file" for line, name in _rebound(open_, known)]
    called = set(_called(open_))
    found += [f"no longer calls {each}, which is what has the defect" for each in rules["keeps"] if each not in called]
    return found


def _statements(module: ast.Module) -> list[ast.stmt]:
    """Return the statements of a file without its docstring."""
    return module.body[ast.get_docstring(module, clean=False) is not None :]


def _name(node: ast.AST) -> str | None:
    return node.name if isinstance(node, _Definition) else None


def _names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the names that statements at the top of a file bind."""
    for node in nodes:
        if isinstance(node, _Definition):
            yield node.name
        elif isinstance(node, _Import):
            yield from dict(_imported(node))
        else:
            stores = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            yield from (each.id for each in stores if isinstance(each.ctx, ast.Store))


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, each with what it stands for."""
    if isinstance(node, ast.Import):
        for each in node.names:
            top = each.name.partition(".")[0]
            yield (each.asname, each.name) if each.asname else (top, top)
    elif isinstance(node, ast.ImportFrom):
        yield from ((each.asname or each.name, f"{'.' * node.level}{node.module}:{each.name}") for each in node.names)


def _label(node: ast.stmt) -> str:
    return next(_names([node]), "a statement")


def _other_signature(there: ast.Module, node: ast.AST) -> list[str]:
    if not isinstance(node, ast.FunctionDef):
        return []
    old = next((each for each in there.body if _name(each) == node.name and isinstance(each, ast.FunctionDef)), None)
    same = old is not None and _head(old) == _head(node)
    return [] if same else [f"line {node.lineno}: {node.name} has other arguments, or another decorator"]


def _head(function: ast.FunctionDef) -> list[str]:
    return [ast.dump(part) for part in (function.args, *function.decorator_list)]


def _rebound(nodes: Sequence[ast.AST], known: set[str]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Global):
                yield from ((each.lineno, name) for name in each.names if name in known)


def _called(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the last word of everything that is called, or handed on to be called."""
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Attribute):
                yield each.attr
            elif isinstance(each, ast.Name):
                yield each.id


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))


def differences(got: Any, want: Any, rules: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Yield where values differ from the reference's: numbers by more than `absolute` + `relative` * reference."""
    where = f"{at}: " if at else ""
    if isinstance(want, dict) and set(want) == TENSOR:
        yield from _of_tensors(got, want, rules, where)
    elif isinstance(want, dict) and isinstance(got, dict):
        for name in sorted({*want, *got}):
            if name in got and name in want:
                yield from differences(got[name], want[name], rules, f"{at}.{name}" if at else name)
            else:
                yield f"{where}{name} {'should not be there' if name in got else 'is missing'}"
    elif isinstance(want, dict):
        yield f"{where}{_shown(got)} where there should be {', '.join(want)}"
    elif isinstance(want, list):
        yield from _of_lists(got, want, rules, at)
    elif isinstance(want, float) and isinstance(got, (int, float)) and not isinstance(got, bool):
        if _off(float(got), want, rules):
            yield f"{where}{got:.6g} where it should be {want:.6g}"
    elif type(got) is not type(want) or got != want:
        yield f"{where}{_shown(got)} where it should be {_shown(want)}"


def _of_lists(got: Any, want: Sequence[Any], rules: Mapping[str, Any], at: str) -> Iterator[str]:
    where = f"{at}: " if at else ""
    if not isinstance(got, list) or len(got) != len(want):
        yield f"{where}{_count(got)} where there should be {len(want)} values"
        return
    pairs = enumerate(zip(got, want))  # noqa: B905 Python 3.8
    found = [line for number, pair in pairs for line in differences(*pair, rules, f"{at}[{number}]")]
    yield from found[:1]
    if found[1:]:
        yield f"{where}and {len(found) - 1} more"


def _of_tensors(got: Any, want: Mapping[str, Any], rules: Mapping[str, Any], where: str) -> Iterator[str]:
    if not (isinstance(got, dict) and set(got) == TENSOR):
        yield f"{where}{_shown(got)} where there should be a tensor"
    elif got["shape"] != want["shape"] or len(got["values"]) != len(want["values"]):
        yield f"{where}shape {got['shape']} where it should be {want['shape']}"
    elif ("float" in got["dtype"]) != ("float" in want["dtype"]):
        yield f"{where}{got['dtype']} where it should be {want['dtype']}"
    else:
        pairs = [(float(a), float(b)) for a, b in zip(got["values"], want["values"])]  # noqa: B905 Python 3.8
        off = [(a, b) for a, b in pairs if _off(a, b, rules)]
        if off:
            a, b = max(off, key=lambda pair: abs(pair[0] - pair[1]))
            yield f"{where}{len(off)} of {len(pairs)} values are off, such as {a:.6g} where it should be {b:.6g}"


def _off(got: float, want: float, rules: Mapping[str, Any]) -> bool:
    if not (math.isfinite(got) and math.isfinite(want)):
        return not (got == want or (math.isnan(got) and math.isnan(want)))
    return abs(got - want) > float(rules["absolute"]) + float(rules["relative"]) * abs(want)


def _shown(value: Any) -> str:
    if isinstance(value, dict) and set(value) == TENSOR:
        return f"a tensor of shape {value['shape']}"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _count(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, list) else _shown(value)


def wrong(run: Mapping[str, Any], reference: Sequence[Any], rules: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with what a run of rounds.py handed out: in the first round that has something."""
    rounds = run["rounds"]
    for number, want in enumerate(reference):
        if number == len(rounds):
            return [f"round {number + 1}: {run['ended'] or 'ended too early'}"]
        found = list(differences(rounds[number]["values"], want, rules))
        if found:
            return [f"round {number + 1}: {found[0]}", *found[1:]]
    return [run["ended"]] if run["ended"] else []


def grows(run: Mapping[str, Any], rules: Mapping[str, Any]) -> list[str]:
    """Return whether the process grew by more than `growth` bytes a round, from the second round on."""
    most, seen = rules["growth"], [each["bytes"] for each in run["rounds"]][1:]
    if most is None or len(seen) < 2:
        return []
    by = (seen[-1] - seen[0]) / (len(seen) - 1)
    return [f"grows by {by / 1e6:.1f} MB a round; at most {most / 1e6:.1f} are allowed"] if by > most else []


def seconds(runs: Sequence[Mapping[str, Any]]) -> float:
    """Return the time of the fastest round, without the first of each run, which also warms up."""
    return min(float(each["seconds"]) for run in runs for each in (run["rounds"][1:] or run["rounds"]))


def slow(candidate: Sequence[Mapping[str, Any]], fixed: Sequence[Mapping[str, Any]], rules: Mapping[str, Any]) -> str:
    """Return by how much the candidate is too slow; empty where it is not. Both may have been run several times.

    Runs may also have `whole`, the seconds of their processes.
    """
    takes, should = seconds(candidate), seconds(fixed)
    if takes > rules["slower"] * should + SLACK_S:
        ratio = f"{takes / should:.1f} times as long as fixed.py"
        return f"{takes:.3g} s a round, {ratio}; at most {rules['slower']:g} times is allowed"
    wholes = [min(run.get("whole", 0.0) for run in runs) for runs in (candidate, fixed)]
    if wholes[0] > MOST_CALLS * wholes[1] + START_S:
        return f"{wholes[0]:.1f} s in all, and fixed.py {wholes[1]:.1f} s: it works before its rounds are timed"
    return ""
