"""A variant's section of a case page: what was declared of it, next to what its trials showed. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from failure_signature.judging.description import digests, ending, number, spread, telling_line
from failure_signature.kinds import Variant
from failure_signature.patterns import find
from failure_signature.reading.findings import EXECUTABLE, sentence
from failure_signature.reading.stacks import frames_that_matter, that_matter, who
from failure_signature.text import plain, plural, quiet, tail
from failure_signature.trials import Observation, Outcome, Rate, SanitizerReport, Trial
from gpu_casebook.evidence import Evidence
from gpu_casebook.report.figures import same_figures
from gpu_casebook.report.markdown import Markdown, code, prose, render_template, with_names
from gpu_casebook.report.words import interval, share

FIGURES_SHOWN = 20
TAIL_LINES = 30
TAIL_WIDTH = 240
NOTHING = Markdown("-")
PROCESSES_SHOWN = 16
STACK_LINES = 40
STACK_WIDTH = 200
# The most telling source first.
_STACK_SOURCES = {
    "py-spy native": "seen by py-spy, with the frames of C and C++",
    "py-spy": "seen by py-spy",
    "faulthandler": "from Python's faulthandler",
    "kernel": "from the kernel",
}
# Aspects of each single trial, besides its figures.
_OF_A_TRIAL = ("exit status", "signal", "exception", "message", "CUDA error", "hang")


class AspectRow(NamedTuple):
    """One aspect of the trials, such as their exit status or a figure."""

    aspect: Markdown
    declared: Markdown  # empty: it is not declared
    seen: Markdown


class Stack(NamedTuple):
    """Where one process of a trial stood before it was ended."""

    process: str
    command: str
    source: str  # what looked at it
    text: str  # the innermost frames of its threads


def variant_section(run: Evidence, variant: Variant) -> Markdown:
    """Return the section of one variant in one run: its rate, a table of aspects, and the output of one trial."""
    trials = run.trials_of(variant)
    counted = [trial for trial in trials if trial.outcome is not Outcome.INFRA]
    sample = _sample(trials)
    differs = variant is Variant.REPRO and run.demand is not None and run.demand.differs
    return render_template(
        "case_variant.md.j2",
        variant=variant,
        rate=run.rates.get(variant) or Rate(k=0, n=0, low=0.0, high=1.0),
        same=same_figures([trial for trial in counted if trial.outcome is Outcome.AS_EXPECTED]),
        counts="unlike the commonest output" if differs else "as declared",
        rows=list(_rows(run, variant, counted)),
        forked=_forked(counted),
        durations=[trial.duration_s for trial in counted],
        sample=sample,
        output=output(sample, "Output") if sample else "",
        stacks=stacks_shown(sample),
    )


def output(trial: Trial, what: str) -> Markdown:
    """Return the end of what a trial printed, folded up under these words and the trial's number and outcome."""
    stdout, stderr = (tail(quiet(text), TAIL_LINES, TAIL_WIDTH) for text in (trial.stdout, trial.stderr))
    return render_template("case_output.md.j2", what=what, sample=trial, stdout=stdout, stderr=stderr)


def _forked(counted: Sequence[Trial]) -> str:
    """Return how fresh runs went, and how forked ones did, which only older evidence has."""
    forked = [trial for trial in counted if trial.forked]
    if not forked or len(forked) == len(counted):
        return ""
    good = [sum(trial.outcome is Outcome.AS_EXPECTED for trial in some) for some in (counted, forked)]
    fresh = f"{good[0] - good[1]} of {plural(len(counted) - len(forked), 'fresh run')}"
    return f"{fresh}, {good[1]} of {len(forked)} forked from a process that had done the imports"


def stacks_shown(trial: Trial | None) -> list[Stack]:
    """Return a stack for each process that matters, from the source that says most, cut to what matters of it."""
    telling = list(_STACK_SOURCES)
    found = sorted(trial.observation.stacks if trial else (), key=lambda stack: telling.index(stack.source))
    best = {stack.number: stack for stack in reversed(found)}
    script = f"{trial.variant}.py" if trial else ""
    shown = that_matter([best[number] for number in sorted(best)])[:PROCESSES_SHOWN]
    return [
        Stack(who(each), each.command, _STACK_SOURCES[each.source], _innermost(frames_that_matter(each, script)))
        for each in shown
    ]


def _innermost(text: str) -> str:
    """Return the first lines of a stack, which are its innermost frames."""
    lines = text.splitlines()
    left_out = len(lines) - STACK_LINES
    shown = tail("\n".join(lines[:STACK_LINES]), STACK_LINES, STACK_WIDTH)
    return f"{shown}\n[... {left_out} lines below ...]" if left_out > 0 else shown


def _sample(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial to show: one that went otherwise says most, one that the machine spoiled least."""
    telling = [Outcome.OTHERWISE, Outcome.AS_EXPECTED, Outcome.INFRA]
    return min(trials, key=lambda trial: telling.index(trial.outcome), default=None)


def _rows(run: Evidence, variant: Variant, counted: Sequence[Trial]) -> Iterator[AspectRow]:
    """Yield what is declared, then other figures, then what compute-sanitizer finds, which has trials of its own."""
    lines = run.case.signature.get(variant, [])
    declared = {aspect: value for aspect, _, value in (line.partition(": ") for line in lines)}
    under_sanitizer = declared.pop(EXECUTABLE, None)
    for aspect, value in declared.items():
        yield _row(aspect, value, counted, run.rates.get(variant))
    printed = dict.fromkeys(f"figure {name}" for trial in counted for name in trial.observation.figures)
    for aspect in [aspect for aspect in printed if aspect not in declared][:FIGURES_SHOWN]:
        yield _row(aspect, "", counted, None)
    if under_sanitizer is not None:
        reports = [trial.sanitizer for trial in run.sanitized if trial.variant is variant and trial.sanitizer]
        seen = _together([prose(_finding(report)) for report in reports])
        yield AspectRow(prose(EXECUTABLE), prose(under_sanitizer), seen)


def _row(aspect: str, declared: str, counted: Sequence[Trial], rate: Rate | None) -> AspectRow:
    kind, _, name = aspect.partition(" ")
    if kind == "rate":
        label, seen = prose(kind), prose(f"{share(rate)}, {interval(rate)}" if rate and rate.n else "none")
    elif kind == "digest":
        label = code(name)
        seen = prose(f"{plural(len(digests(counted, name)), 'value')} in {plural(len(counted), 'run')}")
    elif kind == "growth":
        grown = [trial.growth for trial in counted if trial.growth is not None]
        label = Markdown(f"growth of {code(name)}")
        seen = prose(f"{spread(grown)} per step" if grown else "too few steps")
    else:
        label = prose(aspect) if aspect in _OF_A_TRIAL else code(aspect.removeprefix("figure "))
        seen = _together([_seen(aspect, declared, trial) for trial in counted])
    return AspectRow(label, code(declared), seen)


def _finding(report: SanitizerReport) -> str:
    """Return the most telling finding for a cell of a table, or that there was none."""
    if report.findings:
        return sentence(report.findings[report.declared or 0])
    return "nothing" if report.summary else report.missing or "no report"


def _together(seen: Sequence[Markdown]) -> Markdown:
    """Return each different text once, the most frequent first; with how often it came if there are several."""
    count = Counter(each or NOTHING for each in seen).most_common()
    if len(count) == 1:
        return count[0][0]
    return Markdown("; ".join(f"{what} ({times} of {len(seen)})" for what, times in count)) or NOTHING


def _seen(aspect: str, declared: str, trial: Trial) -> Markdown:
    """Return what one trial showed of an aspect, or nothing. `declared` chooses the line of a message."""
    seen = trial.observation
    match aspect:
        case "exit status" | "signal":
            return _exit(seen)
        case "exception":
            return code(seen.exception or "")
        case "message":  # without a line that matches, the one that says most
            return code(_matching_line(trial, declared) or telling_line(seen.message or ""))
        case "CUDA error":
            return code(seen.cuda_error or "")
        case "hang":
            return with_names(ending(seen))
        case _:
            return _figure(seen, aspect.removeprefix("figure "))


def _exit(seen: Observation) -> Markdown:
    if seen.timed_out or seen.out_of_memory:
        return prose("ended at the time limit" if seen.timed_out else "ended at the memory limit")
    return code(seen.signal or str(seen.exit_status))


def _figure(seen: Observation, name: str) -> Markdown:
    if name in seen.contradicted:
        return prose("contradicts itself")
    return code(number(seen.figures[name])) if name in seen.figures else Markdown("")


def _matching_line(trial: Trial, pattern: str) -> str | None:
    seen = trial.observation
    for text in filter(None, [seen.message, *reversed(seen.causes), plain(trial.stdout), plain(trial.stderr)]):
        match = find(pattern, text)
        if match:
            return text[text.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0]
    return None
