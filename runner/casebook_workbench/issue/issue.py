"""A bug report for upstream, in that project's own form, from evidence that is there. Pure: nothing is run.

What each part of a report says is in templates/parts.md.j2; which parts a project's form has is in forms.toml.
"""

import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from casebook_workbench.issue.collected import environment_block, gpu_lines, operating_system
from casebook_workbench.redact import Private, redacted
from casebook_workbench.releases.records import Bisection, Call
from failure_signature.judging.description import number
from failure_signature.kinds import Variant
from failure_signature.reading.findings import sentence
from failure_signature.text import plain, quiet
from failure_signature.trials import Outcome, Trial, Verdict
from gpu_casebook.evidence import Attestation, Evidence, UpstreamFacts
from gpu_casebook.report.diff import shown_fix
from gpu_casebook.report.figures import same_figures
from gpu_casebook.report.headline import finding_of, headline, markdown
from gpu_casebook.report.markdown import Markdown, prose, render_template
from gpu_casebook.report.variant import stacks_shown
from gpu_casebook.report.versions import changed_versions
from gpu_casebook.report.watched import Sighting
from gpu_casebook.report.worth import cautions, worth

LIMIT = 65_536
"""Characters that GitHub takes."""
_MOST = LIMIT - 256
_BUDGETS = (
    *((output, LIMIT) for output in (16_000, 8_000, 4_000, 2_000, 800)),
    *((800, script) for script in (20_000, 4_000)),
)
"""Characters that each output and the script may take, tried in turn until the report fits."""
_SLACK = 4_000
"""Characters beyond a cut that are redacted with the rest: half a token would not be recognised."""
_CUT = "[... {} characters cut here ...]"
_LOCAL_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
_FORMS = Path(__file__).with_name("forms.toml")


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a report is made from."""

    run: Evidence
    script: str  # repro.py as it is now
    ran: str  # what of the project ran, in a sentence: the report's first
    stale: bool = False  # whether the case was edited since the run
    why: str = ""  # what the case's README says of the mechanism
    variables: Mapping[str, str] = field(default_factory=dict)  # that the script needs
    link: str | None = None  # to the case, if it is public
    bisections: Sequence[Bisection] = ()
    sightings: Mapping[str, Sighting] = field(default_factory=dict)  # the last with the newest releases, by environment
    private: Private = field(default_factory=Private)


@dataclass(frozen=True)
class Issue:
    """A report that is ready to paste."""

    target: str  # the address to file it at
    comment: bool  # on an issue that is there and open
    title: str
    body: str
    cut: Sequence[str]  # what was shortened, in sentences
    removed: Counter[str]  # how much of each private kind was removed


def best(runs: Sequence[Evidence]) -> Evidence | None:
    """Return the run that says most: failure seen, hardware, packages as locked, the newest. None if nothing ran."""
    return max((run for run in runs if run.verdict is not Verdict.SKIPPED), key=worth, default=None)


def compose(source: Source) -> Issue:
    """Return the report, under GitHub's limit: outputs give way first, in their middle, then the script."""
    case = source.run.case
    report = open_report(case.upstream)
    form, facts = _forms()["comment"] if report else form_of(case.upstream.project), _facts(source)
    body, removed = "", Counter[str]()
    for output, script in _BUDGETS:
        removed = Counter()
        body = _body(form, facts | {"most_output": output, "most_script": script}, source.private, removed)
        if len(body) <= _MOST:
            break
    body = middle_cut(body, _MOST)
    title = redacted(f"{form.get('title', '')}{case.title}", source.private, removed)
    cuts = re.findall(re.escape(_CUT).replace(r"\{\}", r"(\d+)"), body)
    target = report or f"https://github.com/{case.upstream.project}/issues/new"
    cut_texts = [f"{each} characters of a long text" for each in cuts]
    return Issue(target, report is not None, title, body, cut_texts, removed)


def open_report(upstream: UpstreamFacts) -> str | None:
    """Return the address of the report that the project has, and has not closed: another one would be a duplicate."""
    own = re.fullmatch(rf"https://github\.com/{re.escape(upstream.project)}/(?:issues|pull)/\d+", upstream.issue or "")
    return own[0] if own and upstream.status == "open" else None


@cache
def _forms() -> dict[str, Any]:
    return tomllib.loads(_FORMS.read_text(encoding="utf-8"))


def form_of(project: str) -> dict[str, Any]:
    """Return the form of a project, by owner/name in any case; the generic one, without `projects`, if it has none."""
    wanted = project.casefold()
    forms = _forms()
    found = (form for form in forms["form"] if wanted in map(str.casefold, form["projects"]))
    return dict(next(found, forms["generic"]))


def _facts(source: Source) -> dict[str, Any]:
    """Return what templates/parts.md.j2 is rendered with."""
    run, environment = source.run, source.run.environment
    finding = finding_of(run)
    failing, passing = (_sample(run, variant) for variant in Variant)
    stacks = [f"{each.process}, {each.command}, {each.source}:\n{each.text}" for each in stacks_shown(failing)]
    pins = [*environment.requirements, *environment.variant_requirements.get(Variant.REPRO, [])]
    return {
        "source": source,
        "run": run,
        "upstream": run.case.upstream,
        "headline": markdown(headline(run)),
        "cautions": cautions(run),
        "failing": failing,
        "stacks": "\n\n".join(stacks),
        "contrast": list(_contrast(run, failing, passing)) if failing and passing else [],
        "same": same_figures([trial for trial in run.trials if trial.outcome is Outcome.AS_EXPECTED]),
        "changed": changed_versions(run),
        "diff": shown_fix(run.case.fix_diff),
        "why": _LOCAL_LINK.sub(r"\1", source.why),
        "command": _command(source, pins),
        "passing": passing,
        "finding": finding,
        "environment_block": environment_block(environment),
        "attested": environment.attestation or Attestation(python=environment.python, platform="unknown"),
        "pins": pins,
        "Call": Call,
        "gpu_lines": gpu_lines,
        "operating_system": operating_system,
        "shown": lambda text: quiet(plain(text)).strip(),
        "prose": prose,
        "sentence": sentence,
        "raw": Markdown,
    }


def _contrast(run: Evidence, failing: Trial, passing: Trial) -> Iterator[tuple[str, str, str, str]]:
    """Yield each declared figure that tells the two apart: its name, what repro had, what fixed must have, or had."""
    repro, fixed = (dict(line.split(": ", 1) for line in run.case.signature.get(each, [])) for each in Variant)
    there = passing.observation.figures
    for name, value in failing.observation.figures.items():
        bound = fixed.get(f"figure {name}")
        if f"figure {name}" in repro and repro[f"figure {name}"] != bound and there.get(name, value) != value:
            yield name, number(value), *(("expected", bound) if bound else ("with the fix", number(there[name])))


def _command(source: Source, pins: Sequence[str]) -> str:
    """Return what runs the script with the packages of the run, upstream's files beside it, and its variables."""
    files = source.run.environment.sources.get(Variant.REPRO, [])
    fetched = [f"curl -fsSL --create-dirs -o {shlex.quote(file.place)} {shlex.quote(file.address)}" for file in files]
    words = ["uv", "run", "repro.py"]
    released = [
        pin.partition("+")[0] for pin in pins
    ]  # a local build is on an index that uv does not look at by itself
    if not all(f'"{pin}"' in source.script for pin in released):  # its header is that of another environment
        options = [word for pin in released for word in ("--with", pin)]
        words = ["uv", "run", "--no-project", "--python", source.run.environment.python, *options, "python", "repro.py"]
    variables = [f"{name}={shlex.quote(value)}" for name, value in source.variables.items()]
    return "\n".join([*fetched, " ".join([*variables, shlex.join(words)])])


def _sample(run: Evidence, variant: Variant) -> Trial | None:
    """Return a trial that went as declared, if there is one."""
    trials = [trial for trial in run.trials_of(variant) if trial.outcome is not Outcome.INFRA]
    return min(trials, key=lambda trial: trial.outcome is not Outcome.AS_EXPECTED, default=None)


def _body(form: Mapping[str, Any], facts: Mapping[str, Any], private: Private, removed: Counter[str]) -> str:
    def clean(text: str) -> str:
        return str(redacted(text, private, removed))

    def part(name: str) -> str:
        kind, _, text = name.partition(":")
        if kind in {"check", "tick"}:
            return f"- [{'x' if kind == 'tick' else ' '}] {text}"
        values = {**facts, "part": name, "cut": lambda text, limit: cut(text, limit, clean)}
        return render_template("parts.md.j2", package="casebook_workbench.issue", **values).strip()

    sections = []
    for heading, names in form["sections"]:
        boxes = all(":" in name for name in names)
        text = ("\n" if boxes else "\n\n").join(filter(None, map(part, names)))
        sections.append(f"{heading}\n\n{text or '_No response_'}\n")
    return clean("\n".join([f"{prose(facts['source'].ran, 1000)}\n", *sections]))


def cut(text: str, limit: int, clean: Callable[[str], str]) -> str:
    """Return the cleaned text, at most `limit` characters of it. It is cleaned before it is cut."""
    ends = limit // 2 + _SLACK
    if len(text) <= 2 * ends:
        return middle_cut(clean(text), limit)
    # What is far from the ends goes anyway, so it is not looked at; and what is at the edge may be half a token.
    head, tail = clean(text[:ends]), clean(text[-ends:])
    head, tail = head[: -_SLACK // 2][: limit // 2 - 30], tail[_SLACK // 2 :][-(limit // 2 - 30) :]
    return f"{head}\n{_CUT.format(len(text) - len(head) - len(tail))}\n{tail}"


def middle_cut(text: str, limit: int) -> str:
    """Return at most `limit` characters: the middle is replaced by a line that says how much is missing."""
    if len(text) <= limit:
        return text
    half = max(0, (limit - 60) // 2)
    return f"{text[:half]}\n{_CUT.format(len(text) - 2 * half)}\n{text[len(text) - half :]}"
