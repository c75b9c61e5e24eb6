"""The lines at the end of a run, and the exit status of its command. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from casebook_workbench.corpus.model import End, Finished, Run
from failure_signature.text import counted, one_line, plural
from gpu_casebook.errors import ExitStatus

NOT_CONFIRMED = ExitStatus.SOME_NOT_CONFIRMED
BROKE = ExitStatus.SOME_BROKE
_LINE = 300
_NAMES = 6
_BROKE_SHOWN = 50


def status(run: Run) -> int:
    """Return the exit status of the command.

    A verdict that is not confirmed outranks what broke: it says something about a case. A run that did nothing, since
    no hardware is here, is skipped as one case would be.
    """
    ends = Counter(each.end for each in run.finished)
    if any(each.verdict and not each.confirmed for each in _judged(run.finished)):
        return NOT_CONFIRMED
    if ends[End.BROKE] or run.left:
        return BROKE
    return 0 if ends[End.RAN] or ends[End.REUSED] else ExitStatus.SKIPPED


def lines(run: Run) -> list[str]:
    """Return how many are confirmed, then what is not, what broke, what was skipped, and why the others ran again."""
    ordered = sorted(run.finished, key=lambda each: each.job.name)
    of = {end: [each for each in ordered if each.end is end] for end in End}
    judged = _judged(ordered)
    rest = {"reused": len(of[End.REUSED]), "skipped": len(of[End.SKIPPED]), "broke": len(of[End.BROKE])}
    others = counted(rest | {"not run": len(run.left)})
    broke = [_line(f"broke: {each.job.name}", each.reason) for each in of[End.BROKE]]
    more = len(broke) - _BROKE_SHOWN
    return [
        f"{sum(each.confirmed for each in judged)} of {len(judged)} confirmed{f' ({others})' if others else ''}",
        *(_line(f"{each.verdict}: {each.job.name}", each.reason) for each in judged if not each.confirmed),
        *broke[:_BROKE_SHOWN],
        *([f"  broke: {more} more, which the run's page lists"] if more > 0 else []),
        *(
            _line(f"lost {plural(len(each.lost), 'worker')}: {each.job.name}", each.lost[-1].reason)
            for each in ordered
            if each.lost
        ),
        *_by_reason("skipped", [(each.reason, each.job.name) for each in of[End.SKIPPED]]),
        *_by_reason("run", [(each.job.because, each.job.name) for each in of[End.RAN] if each.job.because]),
        *_by_reason("reused", [("", each.job.name) for each in of[End.REUSED]]),
    ]


def _judged(finished: Iterable[Finished]) -> list[Finished]:
    return [each for each in finished if each.end in {End.RAN, End.REUSED}]


def _by_reason(what: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line for each reason, the most frequent first."""
    names = defaultdict[str, list[str]](list)
    for reason, name in pairs:
        names[reason].append(name)
    ordered = sorted(names.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        _line(f"{what}: {len(of)}, {reason}" if reason else f"{what}: {len(of)}", _names(of)) for reason, of in ordered
    ]


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES
    return ", ".join(sorted(names)[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _line(head: str, rest: str) -> str:
    return f"  {one_line(f'{head}: {rest}' if rest else head, _LINE)}"
