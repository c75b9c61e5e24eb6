"""Real reports of people who had a case's failure, and of others who had none of them: are they told apart?

`tests/data/match/reports.jsonl` has for each the thread's address, the case (null for none) and what somebody would
paste: output as it was printed, and where users describe what is off, that in other words. No case links one of them.
Half of them is frozen: the ranking is tuned on the others alone.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from casebook_workbench.catalogue.match.known import Corpus, read_all
from casebook_workbench.catalogue.match.rank import rank

ROOT = Path(__file__).resolve().parents[3]
REPORTS = ROOT / "tests" / "data" / "match" / "reports.jsonl"


class Report(NamedTuple):
    url: str
    case: str | None
    text: str
    packages: str

    @property
    def frozen(self) -> bool:
        return hashlib.sha256(self.url.encode()).digest()[0] % 2 == 0


class Score(NamedTuple):
    """Shares of reports: of cases, the right one first, and among the first three; of others, called likely."""

    own: int
    foreign: int
    first: float
    among_three: float
    mistaken: float


def reports() -> list[Report]:
    return [Report(**json.loads(line)) for line in REPORTS.read_text(encoding="utf-8").splitlines()]


def place(corpus: Corpus, report: Report) -> tuple[int | None, bool]:
    """Return where the right case stands, from 1, and whether the first one is called likely."""
    ranked = rank(corpus, report.text, report.packages)
    ids = [each.case.id for each in ranked]
    return (ids.index(report.case) + 1 if report.case in ids else None), bool(ranked and ranked[0].likely)


def score(chosen: Iterable[Report]) -> Score:
    corpus = read_all(ROOT)
    places = [(report, *place(corpus, report)) for report in chosen]
    own = [where for report, where, _ in places if report.case]
    foreign = [likely for report, _, likely in places if not report.case]
    return Score(
        own=len(own),
        foreign=len(foreign),
        first=sum(where == 1 for where in own) / len(own),
        among_three=sum(where is not None and where <= 3 for where in own) / len(own),
        mistaken=sum(foreign) / len(foreign),
    )


def table() -> str:
    lines = ["half     reports of cases   first   first three   of none   called likely"]
    for name, frozen in (("open", False), ("frozen", True)):
        found = score(each for each in reports() if each.frozen == frozen)
        shares = f"{found.first:>5.0%}   {found.among_three:>11.0%}   {found.foreign:>7}   {found.mistaken:>13.0%}"
        lines.append(f"{name:<8} {found.own:>16}   {shares}")
    return "\n".join(lines)
