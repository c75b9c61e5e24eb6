"""What a maintainer would complain about, as seen from a case's files alone. Pure: texts in, problems out."""

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from casebook_workbench.redact import redact
from failure_signature.bounds import Bound
from failure_signature.kinds import Failure, Grade
from gpu_casebook.errors import Problem, Severity
from gpu_casebook.manifest.model import Manifest
from gpu_casebook.manifest.rules import literals
from gpu_casebook.report.readme import Readme, prose_lines

MAX_LINES = 120
MAX_TITLE = 110
_TELLING = 10
"""Characters that a message must have apart from what is left open, or it fits too much."""

_SHOWN_BY: Mapping[Failure, Sequence[str]] = {
    Failure.HANG: ("hang",),
    Failure.LEAK: ("growth", "figures", "sanitizer"),
    Failure.CRASH: ("signal", "exit_status"),
    Failure.EXCEPTION: ("exception", "exit_status"),
    Failure.WRONG_NUMBERS: ("figures", "differs"),
    Failure.NON_FINITE: ("figures",),
    Failure.COMPILE_ERROR: ("exception", "exit_status", "signal"),
    Failure.ILLEGAL_ACCESS: ("cuda_error", "sanitizer", "signal", "figures"),
    Failure.LAUNCH_ERROR: ("cuda_error", "exception"),
}
"""By which keys of an expectation each kind of failure can show."""

SECTIONS: Mapping[str, tuple[str, str]] = {
    "symptom": (r"what .*users? .*(?:saw|seen|see)|symptom", "What users saw"),
    "mechanism": (r"\bwhy\b|mechanism|cause", "Why"),
    "fix": (r"\bfix", "The fix"),
    "history": (r"history|links", "History"),
    "established and inferred": (r"established|inferred", "What is established, and what is inferred"),
    "is it yours": (r"\byours?\b|is (?:this|it) your", "Is your failure this one?"),
}
"""What a README has to say: a pattern for the heading, and the heading that most have."""

_FIGURE = re.compile(r"([a-z][a-z0-9]*_[\w.-]*)=([-+]?[0-9][0-9.]*(?:e[-+]?[0-9]+)?)")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)|<(https?://[^>\s]+)>|(?<![\(<\w])(https?://[^\s)>\]\"'`]+)")
_MOVING = re.compile(r"/(?:blob|tree)/(?:main|master|develop|dev|trunk|HEAD)(?:/|$)")
_REPORT = re.compile(r"^/[^/]+/[^/]+/(issues?|pulls?|discussions?)(?=/|$)(?:/([^/]*))?")

_RANDOM = re.compile(r"\b(?:randn?(?:_like)?|randint|randperm|normal_?|uniform_|random|bernoulli)\(")
_SEEDED = re.compile(r"manual_seed\(|\bseed\(|default_rng\(\s*[^\s)]|RandomState\(\s*[^\s)]|set_seed\(|Generator\(")
_NETWORK = {"requests", "httpx", "aiohttp", "urllib.request", "urllib3", "huggingface_hub"}
_DOWNLOADS = {"from_pretrained", "load_dataset", "snapshot_download", "hf_hub_download", "urlretrieve", "urlopen"}


def warning(path: str, line: int, what: str) -> Problem:
    return Problem(path, line, "", what, Severity.WARNING)


# README.md


def of_readme(text: str, path: str, leads: Callable[[str], bool]) -> Iterator[Problem]:
    """Say which sections are missing or empty, and which links are wrong.

    `leads` says whether a relative link leads anywhere.
    """
    there = Readme.of(text).sections
    for section, (pattern, usual) in SECTIONS.items():
        found = [each for each in there if re.search(pattern, each.heading, re.IGNORECASE)]
        if not found:
            yield warning(path, 1, f"says nothing on {section}: add a section, such as ## {usual}")
        elif not any(each.text for each in found):
            yield warning(path, found[0].line, f"the section {found[0].heading} is empty")
    yield from of_links(text, path, leads)


def of_title(text: str, path: str, title: str) -> Iterator[Problem]:
    """Say so if the heading is not the case's title."""
    heading = next((line for _, line in prose_lines(text) if line.startswith("# ")), "# none")[2:].strip()
    if heading.replace("`", "") != title.replace("`", ""):
        yield warning(path, 1, f"has another title than case.yaml: {title}")


def of_figures(text: str, path: str, known: Mapping[str, Sequence[float | Bound]], scripts: str) -> Iterator[Problem]:
    """Say which quoted figures nobody saw. `known` has what runs printed and what the manifest bounds, by name."""
    for number, line in enumerate(text.splitlines(), 1):
        for quoted in [line.strip(), *re.findall(r"`([^`]+)`", line)]:
            if not (match := _FIGURE.fullmatch(quoted)):
                continue
            name, value = match[1], float(match[2])
            if name in known and not any(_fits(value, each) for each in known[name]):
                yield warning(path, number, f"{quoted}: no evidence and no bound of this case has that value")
            elif name not in known and name not in scripts:
                yield warning(path, number, f"{quoted}: no script of this case prints {name}")


def _fits(value: float, seen: float | Bound) -> bool:
    return seen.holds(value) if isinstance(seen, Bound) else math.isclose(value, seen, rel_tol=0.01, abs_tol=1e-3)


def of_links(text: str, path: str, leads: Callable[[str], bool] = lambda _: True) -> Iterator[Problem]:
    """Say which links have a wrong form; none is followed."""
    for number, line in prose_lines(text):
        for match in _LINK.finditer(line):
            link = next(filter(None, match.groups())).rstrip(".,;")
            if wrong := _wrong_link(link, leads):
                yield warning(path, number, f"{link}: {wrong}")


def _wrong_link(link: str, leads: Callable[[str], bool]) -> str | None:
    if "://" not in link:
        target = link.partition("#")[0]
        return None if not target or link.startswith("mailto:") or leads(target) else "leads to nothing"
    try:
        parts = urlsplit(link)
        host = (parts.hostname or "").removeprefix("www.")
    except ValueError:
        return "is not a link"
    if parts.username:
        return "has a user name or password in it; take it out"
    if parts.scheme == "http":
        return "write it with https://"
    if host == "github.com":
        return _wrong_on_github(parts.path)
    return None


def _wrong_on_github(path: str) -> str | None:
    if _MOVING.search(path):
        return "leads to a branch, which moves on; link to a commit (press y on the page)"
    match = _REPORT.match(path)
    if not match or not match[2]:
        return None
    if right := {"issue": "issues", "pulls": "pull", "discussion": "discussions"}.get(match[1]):
        return f"write /{right}/ for /{match[1]}/"
    return None if match[2].isdigit() else "has no number of an issue, pull request or discussion"


# Scripts


def of_script(text: str, path: str) -> Iterator[Problem]:
    """Say what is wrong with a script. Raises SyntaxError if it is no Python."""
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines > MAX_LINES:
        what = f"has {lines} lines; {MAX_LINES} are what fits a bug report: cut what does not fail"
        yield warning(path, MAX_LINES, what)
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield warning(path, 1, "has no docstring: say in a few lines what to look for in its output")
    if (random := _RANDOM.search(text)) and not _SEEDED.search(text):
        line = text.count("\n", 0, random.start()) + 1
        yield warning(path, line, "draws random numbers and sets no seed, so each run is another")
    for node in ast.walk(tree):
        yield from _of_node(node, path)


def _of_node(node: ast.AST, path: str) -> Iterator[Problem]:
    match node:
        case ast.Import(names=names, lineno=line):
            if used := _NETWORK & {name.name for name in names}:
                yield warning(path, line, f"uses {', '.join(sorted(used))}; trials have no network")
        case ast.ImportFrom(module=str(module), lineno=line) if module in _NETWORK:
            yield warning(path, line, f"uses {module}; trials have no network")
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), lineno=line, args=arguments):
            literal = bool(arguments) and isinstance(arguments[0], ast.Constant)
            if name in _DOWNLOADS and literal:
                yield warning(path, line, f"{name} downloads, and trials have no network: make it tiny and random")
            elif name == "input" and isinstance(node.func, ast.Name):
                yield warning(path, line, "asks for input, and a trial has none")
        case ast.ExceptHandler(type=None, lineno=line):
            yield warning(path, line, "catches everything, and so hides a failure of another kind; name the exception")
        case (
            ast.Name(id="__file__", lineno=line)
            | ast.Subscript(value=ast.Attribute(attr="argv"), slice=ast.Constant(value=0), lineno=line)
        ):
            yield warning(path, line, "looks at its own name; a paste in an issue has another one")
        case _:
            return


def of_privacy(text: str, path: str) -> Iterator[Problem]:
    """Say which lines hold what `issue` removes."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := redact(line).counts:
            yield warning(path, number, f"holds what looks private: {', '.join(sorted(found))}")


# case.yaml


def line_of(lines: Mapping[str, int], where: str) -> int:
    """Return the line of a dotted place in a manifest, or of the nearest one around it that is there."""
    while where and where not in lines:
        where = where.rpartition(".")[0]
    return lines.get(where, 1)


def of_manifest(manifest: Manifest, path: str, lines: Mapping[str, int]) -> Iterator[Problem]:
    """Say what is wrong with a valid manifest. `lines` has the line of everything in it, by its dotted place."""
    for found, severity in ((_warnings(manifest), Severity.WARNING), (_notes(manifest), Severity.NOTE)):
        for where, what in found:
            yield Problem(path, line_of(lines, where), where, what, severity)


def _warnings(manifest: Manifest) -> Iterator[tuple[str, str]]:
    title, upstream, repro = manifest.title, manifest.upstream, manifest.repro.expect
    if len(title) > MAX_TITLE:
        yield "title", f"has {len(title)} characters, of {MAX_TITLE}"
    if title.endswith("."):
        yield "title", "ends with a full stop, and a title has none"
    shown = _SHOWN_BY.get(manifest.failure, ())
    expected = [repro, *(each.expect.repro for each in manifest.environments.values())]
    if shown and not any(each and getattr(each, key) for each in expected for key in shown):
        yield "failure", f"{manifest.failure} shows in {' or '.join(shown)}, and repro's expectation names none of it"
    if repro.hang and manifest.failure is not Failure.HANG:
        yield "failure", f"repro's expectation is a hang, and this says {manifest.failure}"
    where = re.match(r"https://github\.com/([^/]+/[^/]+)/", upstream.issue or "")
    own = f"https://github.com/{upstream.project}/".lower()
    if where and not any(each.lower().startswith(own) for each in (upstream.issue or "", *upstream.links)):
        yield (
            "upstream.project",
            f"is {upstream.project}, and the issue is one of {where[1]}; no link leads to the former",
        )
    if not upstream.issue:
        yield "upstream.issue", "has no link to a report; readers look there first"
    if upstream.status == "fixed" and not upstream.fixed:
        yield "upstream.status", "by which version or commit? Add fixed:"
    if repro.must_fail and not (repro.figures or repro.message or repro.sanitizer):
        what = "any failure of this kind would do, wherever it comes from; add a figure that is printed before"
        yield "repro.expect", what
    if repro.message and len(literals(repro.message)) < _TELLING:
        yield "repro.expect", f"the message {repro.message!r} fits much else; take more of it"


def _notes(manifest: Manifest) -> Iterator[tuple[str, str]]:
    fixed = manifest.fixed.expect
    if not (fixed.figures or fixed.growth or fixed.same):
        yield "fixed.expect", "a message alone proves it; a figure with a bound says more"
    if all(spec.gpus and spec.grade is Grade.HARDWARE for spec in manifest.environments.values()):
        what = "could a part be shown without one (compiled only, interpreted, a model of the arithmetic)?"
        yield "environments", f"all need a GPU: {what}"
