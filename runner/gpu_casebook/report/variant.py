"""A variant's section of a case page: what was declared of it, next to what its trials showed. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpu_casebook.evidence import Evidence, Observation, Outcome, Rate, SanitizerReport, Trial, Variant
from gpu_casebook.judging.description import digests, ending, spread, telling_line
from gpu_casebook.reading.findings import sentence
from gpu_casebook.reading.sanitizer import EXECUTABLE
from gpu_casebook.reading.stacks import who
from gpu_casebook.report.markdown import Markdown, code, prose, with_names
from gpu_casebook.report.words import interval, share
from gpu_casebook.text import tail

FIGURES_SHOWN = 20
TAIL_LINES = 30
TAIL_WIDTH = 240
NOTHING = Markdown("-")
PROCESSES_SHOWN = 16
STACK_LINES = 60
STACK_WIDTH = 200
_STACK_SOURCES = {
    "py-spy native": "seen by py-spy, with the frames of C and C++",
    "py-spy": "seen by py-spy",
    "faulthandler": "from Python's faulthandler",
    "kernel": "from the kernel",
}
"""The most telling one first."""


@dataclass(frozen=True)
class AspectRow:
    """One aspect of a trial, such as its exit status or a figure."""

    aspect: Markdown
    declared: Markdown | None  # None: it is not declared
    seen: Markdown


@dataclass(frozen=True)
class Stack:
    """Where one process of a trial stood before it was ended."""

    process: str
    command: str
    source: str  # what looked at it
    text: str  # the innermost frames of its threads


@dataclass(frozen=True)
class VariantSection:
    """One variant in one run."""

    variant: Variant
    rate: Rate
    counts: str  # what the k of the rate are
    rows: Sequence[AspectRow]
    durations: Sequence[float]
    sample: Trial | None  # the trial whose output is shown
    stdout: str  # its last lines
    stderr: str
    stacks: Sequence[Stack]

    @property
    def headline(self) -> str:
        return f"{self.variant}: {self.counts} in {self.rate.k} of {self.rate.n} runs" if self.rate.n else self.variant


def variant_section(run: Evidence, variant: Variant) -> VariantSection:
    trials = run.trials_of(variant)
    counted = [trial for trial in trials if trial.outcome is not Outcome.INFRA]
    sample, signature = _sample(trials), run.case.signature.get(variant, [])
    rate = run.rates.get(variant) or Rate(k=0, n=0, low=0.0, high=1.0)
    differs = variant is Variant.REPRO and run.demand is not None and run.demand.differs
    return VariantSection(
        variant=variant,
        rate=rate,
        counts="unlike the commonest output" if differs else "as declared",
        rows=[*_rows(_uninstrumented(signature), counted, rate), *_sanitizer_rows(signature, run, variant)],
        durations=[trial.duration_s for trial in counted],
        sample=sample,
        stdout=tail(sample.stdout, TAIL_LINES, TAIL_WIDTH) if sample else "",
        stderr=tail(sample.stderr, TAIL_LINES, TAIL_WIDTH) if sample else "",
        stacks=stacks(sample),
    )


def stacks(trial: Trial | None) -> list[Stack]:
    """One for each process, from the source that says most; the trial's first process first."""
    telling = list(_STACK_SOURCES)
    found = sorted(trial.observation.stacks if trial else (), key=lambda stack: telling.index(stack.source))
    best = {stack.number: stack for stack in reversed(found)}
    shown = [best[number] for number in sorted(best)[:PROCESSES_SHOWN]]
    return [Stack(who(each), each.command, _STACK_SOURCES[each.source], _innermost(each.text)) for each in shown]


def _innermost(text: str) -> str:
    """The first lines: the innermost frames come first."""
    lines = text.splitlines()
    left_out = len(lines) - STACK_LINES
    shown = tail("\n".join(lines[:STACK_LINES]), STACK_LINES, STACK_WIDTH)
    return f"{shown}\n[... {left_out} lines below ...]" if left_out > 0 else shown


def _sample(trials: Sequence[Trial]) -> Trial | None:
    """A trial that went otherwise says more than one that did not, and both more than one the machine spoiled."""
    telling = [Outcome.OTHERWISE, Outcome.AS_EXPECTED, Outcome.INFRA]
    return min(trials, key=lambda trial: telling.index(trial.outcome), default=None)


def _rows(signature: Sequence[str], counted: Sequence[Trial], rate: Rate) -> Iterator[AspectRow]:
    declared = {aspect: value for aspect, _, value in (line.partition(": ") for line in signature)}
    for aspect, value in declared.items():
        if row := _over_trials(aspect, value, counted, rate):
            yield row
            continue
        figure = aspect.removeprefix("figure ")
        seen_in_trial = _ASPECTS.get(aspect) or _figure(figure)
        label = prose(aspect) if aspect in _ASPECTS else code(figure)
        yield AspectRow(label, code(value), _together([seen_in_trial(trial, value) for trial in counted]))
    printed = dict.fromkeys(name for trial in counted for name in trial.observation.figures)
    others = [name for name in printed if f"figure {name}" not in declared]
    for name in others[:FIGURES_SHOWN]:
        yield AspectRow(code(name), None, _together([_figure(name)(trial, "") for trial in counted]))


def _over_trials(aspect: str, declared: str, counted: Sequence[Trial], rate: Rate) -> AspectRow | None:
    """The row of an aspect of all trials together; None for an aspect of each single one."""
    kind, _, name = aspect.partition(" ")
    if aspect == "rate":
        label, seen = prose(aspect), f"{share(rate)}, {interval(rate)}" if rate.n else "none"
    elif kind == "digest":
        values = len(digests(counted, name))
        seen = f"{values} value{'s' * (values != 1)} in {len(counted)} run{'s' * (len(counted) != 1)}"
        label = code(name)
    elif kind == "growth":
        grown = [trial.growth for trial in counted if trial.growth is not None]
        label, seen = Markdown(f"growth of {code(name)}"), f"{spread(grown)} per step" if grown else "too few steps"
    else:
        return None
    return AspectRow(label, code(declared), prose(seen))


def _uninstrumented(signature: Sequence[str]) -> list[str]:
    return [line for line in signature if not line.startswith(f"{EXECUTABLE}: ")]


def _sanitizer_rows(signature: Sequence[str], run: Evidence, variant: Variant) -> Iterator[AspectRow]:
    """What the tool must find is seen in trials of its own."""
    own = [trial for trial in run.sanitized if trial.variant is variant]
    for line in set(signature) - set(_uninstrumented(signature)):
        seen = [prose(_finding(trial.sanitizer)) for trial in own if trial.sanitizer]
        yield AspectRow(prose(EXECUTABLE), prose(line.partition(": ")[2]), _together(seen))


def _finding(report: SanitizerReport) -> str:
    """Return the most telling finding for a cell of a table, or that there was none."""
    if report.declared is not None:
        return sentence(report.findings[report.declared])
    if report.findings:
        return sentence(report.findings[0])
    return "nothing" if report.summary else report.missing or "no report"


def _together(seen: Sequence[Markdown]) -> Markdown:
    """Each different thing once, the most frequent first, with how often where they differ."""
    count = Counter(seen).most_common()
    if len(count) == 1:
        return count[0][0]
    return Markdown("; ".join(f"{what} ({times} of {len(seen)})" for what, times in count)) or NOTHING


def _exit(trial: Trial, _declared: str) -> Markdown:
    seen = trial.observation
    if seen.timed_out or seen.out_of_memory:
        return prose("ended at the time limit" if seen.timed_out else "ended at the memory limit")
    return code(seen.signal or str(seen.exit_status))


def _message(trial: Trial, declared: str) -> Markdown:
    """The line that matches; without one, the line that says most."""
    return code(_matching_line(trial, declared) or telling_line(trial.observation.message or "")) or NOTHING


def _matching_line(trial: Trial, pattern: str) -> str | None:
    seen = trial.observation
    texts = [seen.message, *reversed(seen.causes)] if seen.exception else [trial.stdout, trial.stderr]
    for text in filter(None, texts):
        match = _search(pattern, text)
        if match:
            return text[text.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0]
    return None


def _search(pattern: str, text: str) -> re.Match[str] | None:
    try:
        return re.search(pattern, text)
    except re.error:  # old evidence, of a Python that took it
        return None


def _figure(name: str) -> Callable[[Trial, str], Markdown]:
    def figure(trial: Trial, _declared: str) -> Markdown:
        seen: Observation = trial.observation
        if name in seen.contradicted:
            return prose("contradicts itself")
        return code(f"{seen.figures[name]:.4g}") if name in seen.figures else NOTHING

    return figure


_ASPECTS: dict[str, Callable[[Trial, str], Markdown]] = {
    "exit status": _exit,
    "signal": _exit,
    "exception": lambda trial, _: code(trial.observation.exception or "") or NOTHING,
    "message": _message,
    "CUDA error": lambda trial, _: code(trial.observation.cuda_error or "") or NOTHING,
    "hang": lambda trial, _: with_names(ending(trial.observation)),
}
"""What is seen of an aspect in one trial, given what is declared."""
