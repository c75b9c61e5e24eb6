"""Manifests, READMEs and evidence -> the generator's Markdown, written one case at a time."""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from casebook_workbench.catalogue.entry import Entry
from casebook_workbench.catalogue.site import changes, gfm, plots
from casebook_workbench.catalogue.site.lists import BY, STATUS, By, grouped, scripts, searched
from casebook_workbench.catalogue.site.map import BADGE, CHINESE, FEED, INDEX, README, SOURCES, Map, survey
from casebook_workbench.corpus import journal
from casebook_workbench.releases.records import Bisection, bisections, record_path
from failure_signature.kinds import Variant
from failure_signature.text import utc
from failure_signature.trials import Outcome
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Evidence
from gpu_casebook.files import write_whole
from gpu_casebook.manifest.case import MANIFEST, discover, find, known_images
from gpu_casebook.report.case_page import case_page
from gpu_casebook.report.diff import shown_fix
from gpu_casebook.report.headline import headline, markdown
from gpu_casebook.report.markdown import Markdown, prose, render_template
from gpu_casebook.report.placement import placed
from gpu_casebook.report.provenance import what_ran
from gpu_casebook.report.readme import mechanism
from gpu_casebook.report.variant import Stack, stacks_shown
from gpu_casebook.report.versions import changed_versions
from gpu_casebook.report.watched import known
from gpu_casebook.report.worth import seen_on, worth

FRONT, CHANGES, NIGHTS, REPORTED = "index.md", "changes.md", "nights.md", "reports/{}.md"
RUNNING = "docs/running.md"
NIGHTS_KEPT = 30
EXAMPLES = 10
_FIRST = ("", "What users saw", "What users could have seen", "Is your failure this one?", "Why", "The fix")
"""The sections of a README that stand before what is made from the evidence."""
_REPORTED = re.compile(r"reports/[^/]+\.md")


class Written(NamedTuple):
    """What the generator is to build, and what goes beside its pages: `files` by path on the site, and `texts`."""

    cases: int
    nav: list[Any]
    files: Mapping[str, Path]
    texts: Mapping[str, str]


class Night(NamedTuple):
    """What one run of the corpus said of a case in an environment."""

    run: str
    when: datetime
    environment: str
    ended: str  # the verdict, or how it ended without one
    device: str


def write(root: Path, reports: Path, docs: Path, address: str = "", repository: str = "") -> Written:
    """Write the pages of a checkout into `docs`. Raises ManifestError, OSError; evidence that can't be read is told."""
    made = [FRONT, CHANGES, *(by.page for by in BY)]
    nights = _nights(reports)
    nights_page = [NIGHTS] if any(reports.glob("runs/*/README.md")) else []
    plan = survey(root, reports, [*made, *nights_page], repository)
    pages = _Pages(docs, plan)
    pages.of_checkout(root, reports)
    images, entries, every = known_images(root), list[Entry](), list[changes.Change]()
    for id_ in discover(root):
        one = Entry.read(find(root, id_, images), reports, unread=_left_out)
        entries.append(one.without_output())
        every += changes.of_case(one.newest)
        every += changes.of_watch([known(reports, id_)])
        pages.of_case(one, reports, nights.get(id_, []), address)
    for by in BY:
        pages.listing(by, grouped(entries, by))
    shown = changes.newest(every)
    pages.made(CHANGES, "changes.md.j2", "What changed", changes=shown)
    pages.front(entries)
    if nights_page:
        pages.made(NIGHTS, "nights.md.j2", "Nights", runs=_runs(plan))
    texts = {
        FEED: changes.feed(shown, address),
        BADGE: _badge(entries),
        "signatures.json": json.dumps([*map(searched, entries)], separators=(",", ":")),
    }
    files = {at: _source(root, reports, name) for name, at in plan.files.items()}
    return Written(len(entries), _nav(plan), files, texts)


class _Pages(NamedTuple):
    """The pages as they are written."""

    docs: Path
    plan: Map

    def put(self, page: str, text: str, title: str, source: str | None = None, **meta: str) -> None:
        def resolve(link: str) -> str | None:
            return self.plan.address(page, link, source)

        write_whole(self.docs / page, gfm.page(text, resolve, {"title": title, **meta}))

    def made(self, page: str, template: str, title: str, **values: Any) -> None:
        """Write a page of a template of this package."""
        self.put(page, render_template(template, package="casebook_workbench.catalogue.site", **values), title)

    def of_checkout(self, root: Path, reports: Path) -> None:
        """Write the pages that are files of the checkout as they are."""
        for name, page in self.plan.pages.items():
            source = _source(root, reports, name)
            made = name.startswith("cases/") or page == INDEX or _REPORTED.fullmatch(page)
            if source.is_file() and not made:
                text = source.read_text(encoding="utf-8")
                first = re.search(r"(?m)^# +(.+)$", text)
                title = first[1].replace("`", "") if first else source.stem
                self.put(page, text, title, name, lang="zh" if name.startswith("docs/zh/") else "en")

    def of_case(self, one: Entry, reports: Path, nights: Sequence[Night], address: str) -> None:
        """Write a case's page, and the one with every run in full."""
        id_, directory, manifest = one.case.id, one.case.directory, one.case.manifest
        runs = one.newest
        lead = next(iter(runs), None)
        if runs:
            page = case_page(runs, one.readme.why, placed(directory / MANIFEST).capable)
            self.put(REPORTED.format(id_), page, f"{manifest.title}: every run")
        story = [(Markdown(each.heading), Markdown(each.text)) for each in one.readme.sections if each.text]
        diff = one.case.fix_diff()
        text = render_template(
            "case.md.j2",
            package="casebook_workbench.catalogue.site",
            one=one,
            manifest=manifest,
            status=STATUS[manifest.upstream.status],
            chips=_chips(one, "../../"),
            cards=seen_on([*one.runs.values()]),
            lead=lead,
            headline=markdown(headline(lead)) if lead else "",
            ran=what_ran(manifest.provenance, manifest.upstream.project),
            before=sorted((each for each in story if each[0] in _FIRST), key=lambda each: _FIRST.index(each[0])),
            after=[each for each in story if each[0] not in _FIRST],
            versions=changed_versions(lead) if lead else [],
            diff=shown_fix(diff),
            rates=plots.rates(runs),
            figures=plots.figures(lead) if lead else "",
            series=plots.series(lead) if lead else "",
            stacks=_stacks(lead) if lead else [],
            runs=[(run, markdown(headline(run))) for run in runs],
            scripts={name: (directory / name).read_text(encoding="utf-8") for name in _scripts(directory)},
            bisected=[(found, self._record(reports, found)) for found in bisections(reports, id_)],
            watched=known(reports, id_).history,
            nights=nights,
            address=address,
            chinese=f"docs/zh/{id_}.md" if f"docs/zh/{id_}.md" in self.plan.pages else None,
        )
        meta = {"case": id_, "description": manifest.symptom or mechanism(one.readme.why)}
        self.put(f"cases/{id_}/README.md", text, manifest.title, **meta)

    def _record(self, reports: Path, found: Bisection) -> str:
        path = record_path(reports, found.question.case, found.question.package).with_suffix(".md")
        return f"reports/{path.relative_to(reports).as_posix()}"

    def listing(self, by: By, groups: Mapping[str, Sequence[Entry]]) -> None:
        shown = [
            (heading, [(one, [text for each in BY if each != by for text in each.groups(one)]) for one in entries])
            for heading, entries in groups.items()
        ]
        self.made(by.page, "listing.md.j2", by.title, by=by, groups=shown, others=[each for each in BY if each != by])

    def front(self, entries: Sequence[Entry]) -> None:
        by_area = grouped(entries, BY[0])
        self.made(
            FRONT,
            "front.md.j2",
            "What did you see?",
            cases=len(entries),
            areas=[(_to(heading, BY[0]), len(each)) for heading, each in by_area.items()],
            examples=_examples(entries),
            cards=_cards(entries).most_common(),
        )


def _source(root: Path, reports: Path, name: str) -> Path:
    return reports / name.removeprefix("reports/") if name.startswith("reports/") else root / name


def _left_out(why: object) -> None:
    print(f"casebook: left out: {why}", file=sys.stderr)


def _stacks(run: Evidence) -> list[Stack]:
    """Return where the processes of a trial stood that hung as declared; none if none did."""
    hung = (trial for trial in run.trials_of(Variant.REPRO) if trial.observation.hung)
    return stacks_shown(next((trial for trial in hung if trial.outcome is Outcome.AS_EXPECTED), None))


def _scripts(directory: Path) -> list[str]:
    return sorted(scripts(directory), key=lambda name: (name != "repro.py", name != "fixed.py", name))


def anchor(heading: str) -> str:
    """Return the name by which the generator lets a heading be linked."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _chips(one: Entry, top: str) -> list[Markdown]:
    """Return links to the places where a case is listed."""
    return [_to(heading, by, top) for by in BY for heading in by.groups(one)]


def _to(heading: str, by: By, top: str = "") -> Markdown:
    return Markdown(f"[{prose(heading)}]({top}{by.page}#{anchor(heading)})")


def _cards(entries: Sequence[Entry]) -> Counter[str]:
    return Counter(card for one in entries for card in one.confirmed_on)


def _examples(entries: Sequence[Entry]) -> list[Entry]:
    """Return cases with a symptom to choose from, of as many kinds as there are, the best seen of each kind first."""
    best = [one for one in entries if one.facts["symptom"] and one.runs]
    ranked = sorted(best, key=lambda one: max(map(worth, one.newest)), reverse=True)
    turn, seen = dict[str, int](), Counter[str]()
    for one in ranked:
        turn[one.case.id] = seen[one.facts["failure"]]
        seen[one.facts["failure"]] += 1
    return sorted(ranked, key=lambda one: turn[one.case.id])[:EXAMPLES]


def _badge(entries: Sequence[Entry]) -> str:
    """Return a picture such as "cases 87 | confirmed on H100 42", of the card with the most cases."""
    cards = [(card, count) for card, count in _cards(entries).most_common() if not card.startswith("CPU")]
    right = f"confirmed on {cards[0][0]} {cards[0][1]}" if cards else "not on a GPU yet"
    left = f"cases {len(entries)}"
    widths = [round(6.6 * len(text) + 14) for text in (left, right)]
    return render_template(
        "badge.svg.j2",
        package="casebook_workbench.catalogue.site",
        left=Markdown(left),
        right=Markdown(re.sub(r"[^\w .()-]", "", right)),
        widths=widths,
    )


def _nights(reports: Path) -> Mapping[str, Sequence[Night]]:
    """Return by case what the newest runs of the corpus said, the newest first; none if there is no run."""
    found = defaultdict[str, list[Night]](list)
    for id_ in reversed(journal.ids(reports)[-NIGHTS_KEPT:]):
        with suppress(CasebookError):  # a record that can't be read is told by the run's own report
            run = journal.read(journal.runs_directory(reports) / id_)
            for each in run.finished:
                how = each.verdict or each.end
                found[each.job.case].append(Night(id_, utc(run.started), each.job.environment, how, each.device))
    return found


def _runs(plan: Map) -> list[tuple[str, str]]:
    """Return id and page of each run that has one, the newest first."""
    pages = [page for page in plan.pages if re.fullmatch(r"reports/runs/[^/]+/README\.md", page)]
    return [(page.split("/")[2], page) for page in sorted(pages, reverse=True)]


def _nav(plan: Map) -> list[Any]:
    """Return what every page has at its side: no cases, of which there may be a thousand."""
    there = set(plan.pages.values())
    docs = sorted(page for page in there if page.startswith("docs/") and page.count("/") == 1 and page != RUNNING)
    more = [{"中文": page} if page == CHINESE else page for page in (*docs, *SOURCES) if page in there]
    return [
        {"What did you see?": FRONT},
        {"All cases": [{by.title: by.page} for by in BY]},
        *([{"How to run a case": RUNNING}] if RUNNING in there else []),
        {"What changed": CHANGES},
        *([{"Nights": NIGHTS}] if NIGHTS in there else []),
        {"About": [*([{"Casebook": README}] if README in there else []), *more]},
    ]
