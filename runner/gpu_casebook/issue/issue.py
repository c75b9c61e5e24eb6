"""A bug report for upstream, in that project's own form, from evidence that is there. Pure: nothing is run."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gpu_casebook.evidence import Attestation, Evidence, Outcome, Rate, Trial, Variant, Verdict
from gpu_casebook.issue.collected import environment_block, gpu_lines, operating_system
from gpu_casebook.kinds import Grade
from gpu_casebook.reading.findings import sentence
from gpu_casebook.records.bisection import Bisection, Call
from gpu_casebook.records.watched import Sighting, State
from gpu_casebook.redact import Private, Redacted, redact
from gpu_casebook.report.headline import finding_of, headline, markdown
from gpu_casebook.report.markdown import code, fence, prose
from gpu_casebook.report.words import cautions, interval, share
from gpu_casebook.text import plain
from gpu_casebook.words import date, utc

LIMIT = 65_536
"""Characters that GitHub takes."""
_MOST = LIMIT - 256
_OUTPUT_STEPS = (16_000, 8_000, 4_000, 2_000, 800)
_SCRIPT_LEAST = 4_000
_SLACK = 4_000
_DIFF_MOST = 6_000
_FORMS = Path(__file__).with_name("forms.toml")


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a report is made from. `script` is repro.py as it stands now; `link` leads to the case, if it is public."""

    run: Evidence
    script: str
    stale: bool = False
    link: str | None = None
    bisections: Sequence[Bisection] = ()
    sightings: Mapping[str, Sighting] = field(default_factory=dict)
    """What the newest releases were last seen to make of it, by environment."""
    private: Private = field(default_factory=Private)


@dataclass(frozen=True)
class Issue:
    """Ready to paste. `cut` says in sentences what was shortened; `removed` counts what was private."""

    project: str
    title: str
    body: str
    cut: Sequence[str]
    removed: Counter[str]


@dataclass(frozen=True)
class Budget:
    """Characters that the long parts may take."""

    output: int
    script: int


@dataclass(frozen=True)
class Attempt:
    """One attempt at a report. Long texts are redacted before they are cut: half a token would not be recognised."""

    source: Source
    budget: Budget
    removed: Counter[str] = field(default_factory=Counter)

    @property
    def run(self) -> Evidence:
        return self.source.run

    def cut(self, text: str, limit: int) -> str:
        ends = limit // 2 + _SLACK
        if len(text) <= 2 * ends:
            return middle_cut(self._redacted(text), limit)
        # Far from the ends nothing is looked at, as it goes anyway; and what lies at the edge may be half a token.
        head, tail = self._redacted(text[:ends]), self._redacted(text[-ends:])
        head, tail = head[: -_SLACK // 2][: limit // 2 - 30], tail[_SLACK // 2 :][-(limit // 2 - 30) :]
        return f"{head}\n{_mark(len(text) - len(head) - len(tail))}\n{tail}"

    def _redacted(self, text: str) -> str:
        done = redact(text, self.source.private)
        self.removed.update(done.counts)
        return done.text


def best(runs: Sequence[Evidence]) -> Evidence | None:
    """What says most: the failure seen, on hardware before simulated, the newest; None where nothing was run."""
    ran = [run for run in runs if run.verdict is not Verdict.SKIPPED]
    return max(
        ran, key=lambda run: (_shown(run), run.environment.grade is Grade.HARDWARE, utc(run.started)), default=None
    )


def _shown(run: Evidence) -> int:
    if run.verdict is Verdict.CONFIRMED:
        return 2
    return 1 if run.rates.get(Variant.REPRO, Rate(k=0, n=0, low=0, high=1)).k else 0


def compose(source: Source) -> Issue:
    """The report, under GitHub's limit: outputs give way first, in their middle, then the script."""
    form, project = form_of(source.run.case.upstream.project), source.run.case.upstream.project
    script = len(source.script)
    steps = [Budget(output, script + 1) for output in _OUTPUT_STEPS]
    budgets = [*steps, Budget(_OUTPUT_STEPS[-1], 20_000), Budget(_OUTPUT_STEPS[-1], _SCRIPT_LEAST)]
    attempts = (_attempt(source, form, budget) for budget in budgets)
    made = next((made for made in attempts if len(made.text) <= _MOST), None) or _attempt(source, form, budgets[-1])
    text = middle_cut(made.text, _MOST)
    title = redact(f"{form.get('title', '')}{source.run.case.title}", source.private)
    return Issue(project, title.text, text, _cuts(text), made.counts + title.counts)


def _attempt(source: Source, form: Mapping[str, Any], budget: Budget) -> Redacted:
    attempt = Attempt(source, budget)
    sections = []
    for heading, names in form["sections"]:
        parts = [_part(name, attempt) for name in names]
        text = "\n".join(parts) if all(":" in name for name in names) else "\n\n".join(filter(None, parts))
        sections.append(f"{heading}\n\n{text or '_No response_'}\n")
    body = redact("\n".join(sections), source.private)
    return Redacted(body.text, attempt.removed + body.counts)


def _cuts(text: str) -> list[str]:
    return [
        f"{match[1]} characters of a long text"
        for match in re.finditer(r"\[\.\.\. (\d+) characters cut here \.\.\.\]", text)
    ]


def middle_cut(text: str, limit: int) -> str:
    """At most `limit` characters: the middle is replaced by a line that says how much is missing."""
    if len(text) <= limit:
        return text
    half = max(0, (limit - 60) // 2)
    return f"{text[:half]}\n{_mark(len(text) - 2 * half)}\n{text[len(text) - half :]}"


def _mark(characters: int) -> str:
    return f"[... {characters} characters cut here ...]"


@cache
def _forms() -> dict[str, Any]:
    return tomllib.loads(_FORMS.read_text(encoding="utf-8"))


def form_of(project: str) -> dict[str, Any]:
    """The form of a project, by owner/name in any case; the generic one where it has none."""
    wanted = project.casefold()
    forms = _forms()
    found = (form for form in forms["form"] if wanted in map(str.casefold, form["projects"]))
    return dict(next(found, forms["generic"]))


def _part(name: str, attempt: Attempt) -> str:
    kind, _, text = name.partition(":")
    if kind in {"check", "tick"}:
        return f"- [{'x' if kind == 'tick' else ' '}] {text}"
    return _PARTS[name](attempt)


# The parts


def _summary(attempt: Attempt) -> str:
    run = attempt.run
    parts = [f"{prose(run.case.title)}.", str(markdown(headline(run)))]
    parts += [str(prose(each)) for each in cautions(run.environment)]
    if attempt.source.stale:
        parts.append("The script has been edited since this run.")
    return "\n\n".join(parts)


def _script(attempt: Attempt) -> str:
    return f"`repro.py`:\n\n{fence(attempt.cut(attempt.source.script, attempt.budget.script), 'python')}"


def _command(_: Attempt) -> str:
    intro = "Run it with [uv](https://docs.astral.sh/uv/), which installs what its header names:"
    return f"{intro}\n\n{fence('uv run repro.py', 'sh')}"


def _actual(attempt: Attempt) -> str:
    trial = _sample(attempt.run, Variant.REPRO)
    if trial is None:
        return ""
    texts = [("stderr", trial.stderr), ("stdout", trial.stdout)]
    shown = [
        f"{stream}:\n\n{fence(attempt.cut(plain(text).strip(), attempt.budget.output))}"
        for stream, text in texts
        if text.strip()
    ]
    return "\n\n".join(["What it does:", *shown, *_stacks(attempt, trial)]) if shown or trial.observation.stacks else ""


def _stacks(attempt: Attempt, trial: Trial) -> list[str]:
    text = "\n\n".join(f"{stack.command} ({stack.source})\n{stack.text}" for stack in trial.observation.stacks)
    return [f"Where its processes stand:\n\n{fence(attempt.cut(text, attempt.budget.output))}"] if text else []


def _expected(attempt: Attempt) -> str:
    run, lines = attempt.run, [str(code(line)) for line in attempt.run.case.signature.get(Variant.FIXED, [])]
    parts = [f"With the fix the same check passes: {', '.join(lines)}."] if lines else []
    trial = _sample(run, Variant.FIXED)
    if trial and trial.stdout.strip():
        printed = attempt.cut(plain(trial.stdout).strip(), min(2_000, attempt.budget.output))
        parts.append(f"It then prints:\n\n{fence(printed)}")
    return "\n\n".join(parts)


def _sample(run: Evidence, variant: Variant) -> Trial | None:
    """A trial that went as declared, if there is one."""
    trials = [trial for trial in run.trials_of(variant) if trial.outcome is not Outcome.INFRA]
    return min(trials, key=lambda trial: trial.outcome is not Outcome.AS_EXPECTED, default=None)


def _signature(attempt: Attempt) -> str:
    lines = [f"- {prose(aspect)}: {code(value)}" for aspect, _, value in _declared(attempt.run)]
    return "\n".join(["It is this failure if all of this holds:", "", *lines]) if lines else ""


def _declared(run: Evidence) -> list[tuple[str, str, str]]:
    return [line.partition(": ") for line in run.case.signature.get(Variant.REPRO, [])]


def _rates(attempt: Attempt) -> str:
    run, parts = attempt.run, []
    for variant, words in (
        (Variant.REPRO, "The failure shows in"),
        (Variant.FIXED, "With the fix the check passes in"),
    ):
        rate = run.rates.get(variant)
        if rate and rate.n:
            parts.append(f"{words} {share(rate)} fresh processes ({interval(rate)}).")
    where = f"Seen on {prose(run.device)}, {date(run.started)}."
    return " ".join([*parts, where])


def _sanitizer(attempt: Attempt) -> str:
    tool, finding = finding_of(attempt.run)
    return f"compute-sanitizer ({tool}) finds {prose(sentence(finding), 1000)}." if tool and finding else ""


def _versions(attempt: Attempt) -> str:
    lines = []
    for found in attempt.source.bisections:
        package = found.question.package
        good, bad = (", ".join(found.called(call)) for call in (Call.GOOD, Call.BAD))
        parts = [f"bad: {bad}" if bad else "", f"good: {good}" if good else "", found.answer or ""]
        lines.append(f"- {code(package)}: {prose('; '.join(filter(None, parts)), 1000)}")
    for environment, seen in attempt.source.sightings.items():
        first = f"; the first without it: {', '.join(seen.first_fixed)}" if seen.first_fixed else ""
        words = f"{_STATES[seen.state]}, {date(seen.last)}{first}"
        lines.append(f"- {prose(seen.packages or environment)}, the newest releases: {prose(words, 1000)}")
    return "\n".join(["Versions that were tried:", "", *lines]) if lines else ""


_STATES = {
    State.STILL: "it still fails",
    State.FIXED: "it fails no more",
    State.OTHERWISE: "it fails in another way",
    State.CANNOT: "they can't be installed together",
}


def _fix(attempt: Attempt) -> str:
    upstream, diff = attempt.run.case.upstream, attempt.run.case.fix_diff
    parts = []
    if upstream.introduced:
        parts.append(f"Introduced in {code(upstream.introduced)}.")
    if upstream.fixed:
        parts.append(f"Fixed in {code(upstream.fixed)}.")
    if diff.strip():
        parts.append(f"What makes it pass:\n\n{fence(attempt.cut(diff, _DIFF_MOST), 'diff')}")
    return "\n\n".join(parts)


def _links(attempt: Attempt) -> str:
    upstream = attempt.run.case.upstream
    links = [link for link in (upstream.issue, *upstream.links) if link]
    return "\n".join(["Related:", "", *(f"- {link}" for link in dict.fromkeys(links))]) if links else ""


def _case(attempt: Attempt) -> str:
    run = attempt.run
    name = f"[{run.case.id}]({attempt.source.link})" if attempt.source.link else f"`cases/{run.case.id}`"
    return f"This is the case {name} of Casebook, run again by `{run.command}`."


def _environment(attempt: Attempt) -> str:
    return str(fence(environment_block(attempt.run.environment)))


def _folded(attempt: Attempt) -> str:
    summary = "<summary>The output of <code>python collect_env.py</code>, from what was attested</summary>"
    return f"<details>\n{summary}\n\n{_environment(attempt)}\n\n</details>"


def _attested(attempt: Attempt) -> Attestation:
    environment = attempt.run.environment
    return environment.attestation or Attestation(python=environment.python, platform="unknown")


def _os(attempt: Attempt) -> str:
    found = _attested(attempt)
    return f"- OS: {prose(found.os or operating_system(found))}"


def _gpus(attempt: Attempt) -> str:
    return "\n".join(f"- {prose(line)}" for line in gpu_lines(_attested(attempt).gpus))


def _python(attempt: Attempt) -> str:
    return f"- Python {prose(_attested(attempt).python)}"


def _launcher(_: Attempt) -> str:
    return "None: `repro.py` starts all that it needs."


def _docker(attempt: Attempt) -> str:
    engine = attempt.run.engine
    return f"None is needed. This run: {prose(engine.version)}."


def _release(attempt: Attempt) -> str:
    name = attempt.run.case.upstream.project.rpartition("/")[2].lower()
    pinned = [
        *attempt.run.environment.requirements,
        *attempt.run.environment.variant_requirements.get(Variant.REPRO, []),
    ]
    return str(code(next((each for each in pinned if each.startswith(f"{name}==")), "see the script's header")))


_PARTS: Mapping[str, Callable[[Attempt], str]] = {
    "summary": _summary,
    "script": _script,
    "command": _command,
    "actual": _actual,
    "expected": _expected,
    "signature": _signature,
    "rates": _rates,
    "sanitizer": _sanitizer,
    "versions": _versions,
    "fix": _fix,
    "links": _links,
    "case": _case,
    "environment": _environment,
    "folded-environment": _folded,
    "os": _os,
    "gpus": _gpus,
    "python": _python,
    "launcher": _launcher,
    "docker": _docker,
    "release": _release,
    "nothing": lambda _: "",
}
