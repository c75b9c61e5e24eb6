"""A bug report for upstream, in that project's own form, from evidence that is there. Pure: nothing is run."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gpu_casebook.evidence import Attestation, Evidence, Grade, Outcome, Rate, Trial, Variant, Verdict
from gpu_casebook.issue.collected import environment_block, gpu_lines, operating_system
from gpu_casebook.reading.findings import sentence
from gpu_casebook.records.bisection import Bisection
from gpu_casebook.records.watched import Sighting, State
from gpu_casebook.redact import Private, Redacted, redact
from gpu_casebook.report.headline import finding_of, headline, markdown
from gpu_casebook.report.markdown import code, fence, prose
from gpu_casebook.report.words import cautions, interval, share
from gpu_casebook.text import plain
from gpu_casebook.words import date, utc

LIMIT = 65_536
"""Characters that GitHub takes."""
_ROOM = LIMIT - 256
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
class Room:
    """Characters that the long parts may take."""

    output: int
    script: int


@dataclass(frozen=True)
class Work:
    """One attempt at a report. What is long is redacted before it is cut: half a token could not be told any more."""

    source: Source
    room: Room
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
    rooms = _rooms(len(source.script))
    attempts = (_attempt(source, form, room) for room in rooms)
    made = next((made for made in attempts if len(made.text) <= _ROOM), None) or _attempt(source, form, rooms[-1])
    text = middle_cut(made.text, _ROOM)
    title = redact(f"{form.get('title', '')}{source.run.case.title}", source.private)
    return Issue(project, title.text, text, _cuts(text), made.counts + title.counts)


def _attempt(source: Source, form: Mapping[str, Any], room: Room) -> Redacted:
    work = Work(source, room)
    body = redact(_body(work, form), source.private)
    return Redacted(body.text, work.removed + body.counts)


def _rooms(script: int) -> list[Room]:
    steps = [Room(output, script + 1) for output in _OUTPUT_STEPS]
    return [*steps, Room(_OUTPUT_STEPS[-1], 20_000), Room(_OUTPUT_STEPS[-1], _SCRIPT_LEAST)]


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


def _body(work: Work, form: Mapping[str, Any]) -> str:
    sections = []
    for heading, parts in form["sections"]:
        told = [_part(name, work) for name in parts]
        text = "\n".join(told) if all(":" in name for name in parts) else "\n\n".join(filter(None, told))
        sections.append(f"{heading}\n\n{text or '_No response_'}\n")
    return "\n".join(sections)


def _part(name: str, work: Work) -> str:
    kind, _, text = name.partition(":")
    if kind in {"check", "tick"}:
        return f"- [{'x' if kind == 'tick' else ' '}] {text}"
    return _PARTS[name](work)


# The parts


def _summary(work: Work) -> str:
    run = work.run
    told = [f"{prose(run.case.title)}.", str(markdown(headline(run)))]
    told += [str(prose(each)) for each in cautions(run.environment)]
    if work.source.stale:
        told.append("The script has been edited since this run.")
    return "\n\n".join(told)


def _script(work: Work) -> str:
    return f"`repro.py`:\n\n{fence(work.cut(work.source.script, work.room.script), 'python')}"


def _command(_work: Work) -> str:
    told = "Run it with [uv](https://docs.astral.sh/uv/), which installs what its header names:"
    return f"{told}\n\n{fence('uv run repro.py', 'sh')}"


def _actual(work: Work) -> str:
    trial = _sample(work.run, Variant.REPRO)
    if trial is None:
        return ""
    texts = [("stderr", trial.stderr), ("stdout", trial.stdout)]
    shown = [
        f"{stream}:\n\n{fence(work.cut(plain(text).strip(), work.room.output))}"
        for stream, text in texts
        if text.strip()
    ]
    return "\n\n".join(["What it does:", *shown, *_stacks(work, trial)]) if shown or trial.observation.stacks else ""


def _stacks(work: Work, trial: Trial) -> list[str]:
    told = "\n\n".join(f"{stack.command} ({stack.source})\n{stack.text}" for stack in trial.observation.stacks)
    return [f"Where its processes stand:\n\n{fence(work.cut(told, work.room.output))}"] if told else []


def _expected(work: Work) -> str:
    run, lines = work.run, [str(code(line)) for line in work.run.case.signature.get(Variant.FIXED, [])]
    told = [f"With the fix the same check passes: {', '.join(lines)}."] if lines else []
    trial = _sample(run, Variant.FIXED)
    if trial and trial.stdout.strip():
        told.append(f"It then prints:\n\n{fence(work.cut(plain(trial.stdout).strip(), min(2_000, work.room.output)))}")
    return "\n\n".join(told)


def _sample(run: Evidence, variant: Variant) -> Trial | None:
    """A trial that went as declared, if there is one."""
    trials = [trial for trial in run.trials_of(variant) if trial.outcome is not Outcome.INFRA]
    return min(trials, key=lambda trial: trial.outcome is not Outcome.AS_EXPECTED, default=None)


def _signature(work: Work) -> str:
    lines = [f"- {prose(aspect)}: {code(value)}" for aspect, _, value in _declared(work.run)]
    return "\n".join(["It is this failure if all of this holds:", "", *lines]) if lines else ""


def _declared(run: Evidence) -> list[tuple[str, str, str]]:
    return [line.partition(": ") for line in run.case.signature.get(Variant.REPRO, [])]


def _rates(work: Work) -> str:
    run, told = work.run, []
    for variant, words in (
        (Variant.REPRO, "The failure shows in"),
        (Variant.FIXED, "With the fix the check passes in"),
    ):
        rate = run.rates.get(variant)
        if rate and rate.n:
            told.append(f"{words} {share(rate)} fresh processes ({interval(rate)}).")
    where = f"Seen on {prose(run.device)}, {date(run.started)}."
    return " ".join([*told, where])


def _sanitizer(work: Work) -> str:
    tool, finding = finding_of(work.run)
    return f"compute-sanitizer ({tool}) finds {prose(sentence(finding), 1000)}." if tool and finding else ""


def _versions(work: Work) -> str:
    told = []
    for found in work.source.bisections:
        package = found.question.package
        good, bad = (", ".join(versions) for versions in (found.known_good, found.known_bad))
        parts = [f"bad: {bad}" if bad else "", f"good: {good}" if good else "", found.answer or ""]
        told.append(f"- {code(package)}: {prose('; '.join(filter(None, parts)), 1000)}")
    for environment, seen in work.source.sightings.items():
        first = f"; the first without it: {', '.join(seen.first_fixed)}" if seen.first_fixed else ""
        words = f"{_STATES[seen.state]}, {date(seen.last)}{first}"
        told.append(f"- {prose(seen.packages or environment)}, the newest releases: {prose(words, 1000)}")
    return "\n".join(["Versions that were tried:", "", *told]) if told else ""


_STATES = {
    State.STILL: "it still fails",
    State.FIXED: "it fails no more",
    State.OTHERWISE: "it fails in another way",
    State.CANNOT: "they can't be installed together",
}


def _fix(work: Work) -> str:
    upstream, diff = work.run.case.upstream, work.run.case.fix_diff
    told = []
    if upstream.introduced:
        told.append(f"Introduced in {code(upstream.introduced)}.")
    if upstream.fixed:
        told.append(f"Fixed in {code(upstream.fixed)}.")
    if diff.strip():
        told.append(f"What makes it pass:\n\n{fence(work.cut(diff, _DIFF_MOST), 'diff')}")
    return "\n\n".join(told)


def _links(work: Work) -> str:
    upstream = work.run.case.upstream
    links = [link for link in (upstream.issue, *upstream.links) if link]
    return "\n".join(["Related:", "", *(f"- {link}" for link in dict.fromkeys(links))]) if links else ""


def _case(work: Work) -> str:
    run = work.run
    name = f"[{run.case.id}]({work.source.link})" if work.source.link else f"`cases/{run.case.id}`"
    return f"This is the case {name} of Casebook, run again by `{run.command}`."


def _environment(work: Work) -> str:
    return str(fence(environment_block(work.run.environment)))


def _folded(work: Work) -> str:
    summary = "<summary>The output of <code>python collect_env.py</code>, from what was attested</summary>"
    return f"<details>\n{summary}\n\n{_environment(work)}\n\n</details>"


def _attested(work: Work) -> Attestation:
    return work.run.environment.attestation or Attestation(python=work.run.environment.python, platform="unknown")


def _os(work: Work) -> str:
    found = _attested(work)
    return f"- OS: {prose(found.os or operating_system(found))}"


def _gpus(work: Work) -> str:
    return "\n".join(f"- {prose(line)}" for line in gpu_lines(_attested(work).gpus))


def _python(work: Work) -> str:
    return f"- Python {prose(_attested(work).python)}"


def _launcher(_work: Work) -> str:
    return "None: `repro.py` starts all that it needs."


def _docker(work: Work) -> str:
    engine = work.run.engine
    return f"None is needed. This run: {prose(engine.version)}."


def _release(work: Work) -> str:
    name = work.run.case.upstream.project.rpartition("/")[2].lower()
    pinned = [*work.run.environment.requirements, *work.run.environment.variant_requirements.get(Variant.REPRO, [])]
    return str(code(next((each for each in pinned if each.startswith(f"{name}==")), "see the script's header")))


_PARTS: Mapping[str, Callable[[Work], str]] = {
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
    "nothing": lambda _work: "",
}
