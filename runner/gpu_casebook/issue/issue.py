"""A bug report for upstream, in that project's own form, from evidence that is there. Pure: nothing is run.

What each part of a report says is in templates/parts.md.j2; which parts a project's form has is in forms.toml.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from gpu_casebook.evidence import Attestation, Evidence, Outcome, Trial, Verdict
from gpu_casebook.issue.collected import environment_block, gpu_lines, operating_system
from gpu_casebook.kinds import Grade, Variant
from gpu_casebook.reading.findings import sentence
from gpu_casebook.records.bisection import Bisection, Call
from gpu_casebook.records.watched import Sighting
from gpu_casebook.redact import Private, redacted
from gpu_casebook.report.headline import finding_of, headline, markdown
from gpu_casebook.report.markdown import Markdown, prose, render_template
from gpu_casebook.report.words import cautions
from gpu_casebook.text import plain, utc

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
_FORMS = Path(__file__).with_name("forms.toml")


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a report is made from."""

    run: Evidence
    script: str  # repro.py as it is now
    ran: str  # what of the project ran, in a sentence: the report's first
    stale: bool = False  # whether the case was edited since the run
    link: str | None = None  # to the case, if it is public
    bisections: Sequence[Bisection] = ()
    sightings: Mapping[str, Sighting] = field(default_factory=dict)  # the last with the newest releases, by environment
    private: Private = field(default_factory=Private)


@dataclass(frozen=True)
class Issue:
    """A report that is ready to paste."""

    project: str
    title: str
    body: str
    cut: Sequence[str]  # what was shortened, in sentences
    removed: Counter[str]  # how much of each private kind was removed


def best(runs: Sequence[Evidence]) -> Evidence | None:
    """Return the run that says most: failure seen, then hardware, then the newest. None if nothing ran."""
    ran = [run for run in runs if run.verdict is not Verdict.SKIPPED]
    return max(ran, key=_worth, default=None)


def _worth(run: Evidence) -> tuple[bool, bool, bool, datetime]:
    rate = run.rates.get(Variant.REPRO)
    seen = rate is not None and rate.k > 0
    return run.verdict is Verdict.CONFIRMED, seen, run.environment.grade is Grade.HARDWARE, utc(run.started)


def compose(source: Source) -> Issue:
    """Return the report, under GitHub's limit: outputs give way first, in their middle, then the script."""
    case = source.run.case
    form, facts = form_of(case.upstream.project), _facts(source)
    body, removed = "", Counter[str]()
    for output, script in _BUDGETS:
        removed = Counter()
        body = _body(form, facts | {"most_output": output, "most_script": script}, source.private, removed)
        if len(body) <= _MOST:
            break
    body = middle_cut(body, _MOST)
    title = redacted(f"{form.get('title', '')}{case.title}", source.private, removed)
    cuts = re.findall(re.escape(_CUT).replace(r"\{\}", r"(\d+)"), body)
    return Issue(case.upstream.project, title, body, [f"{each} characters of a long text" for each in cuts], removed)


@cache
def _forms() -> dict[str, Any]:
    return tomllib.loads(_FORMS.read_text(encoding="utf-8"))


def form_of(project: str) -> dict[str, Any]:
    """Return the form of a project, by owner/name in any case; the generic one if it has none."""
    wanted = project.casefold()
    forms = _forms()
    found = (form for form in forms["form"] if wanted in map(str.casefold, form["projects"]))
    return dict(next(found, forms["generic"]))


def _facts(source: Source) -> dict[str, Any]:
    """Return what templates/parts.md.j2 is rendered with."""
    run, environment = source.run, source.run.environment
    finding = finding_of(run)
    failing = _sample(run, Variant.REPRO)
    stacks = failing.observation.stacks if failing else []
    return {
        "source": source,
        "run": run,
        "upstream": run.case.upstream,
        "headline": markdown(headline(run)),
        "cautions": cautions(run),
        "failing": failing,
        "stacks": "\n\n".join(f"{stack.command} ({stack.source})\n{stack.text}" for stack in stacks),
        "passing": _sample(run, Variant.FIXED),
        "finding": finding,
        "environment_block": environment_block(environment),
        "attested": environment.attestation or Attestation(python=environment.python, platform="unknown"),
        "pins": [*environment.requirements, *environment.variant_requirements.get(Variant.REPRO, [])],
        "Call": Call,
        "gpu_lines": gpu_lines,
        "operating_system": operating_system,
        "plain": plain,
        "prose": prose,
        "sentence": sentence,
        "raw": Markdown,
    }


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
        return render_template("parts.md.j2", package="gpu_casebook.issue", **values).strip()

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
