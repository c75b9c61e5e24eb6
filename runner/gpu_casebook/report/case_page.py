"""reports/<case>.md: everything that was run of one case, on one page. Evidence in, text out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_casebook.evidence import Evidence, UpstreamFacts, Variant, evidence_path
from gpu_casebook.report.headline import headline, markdown
from gpu_casebook.report.instruments import InstrumentsSection, instruments
from gpu_casebook.report.markdown import Markdown, code, link, prose, render_template
from gpu_casebook.report.variant import VariantSection, variant_section
from gpu_casebook.report.words import cautions, newest_hardware_first
from gpu_casebook.words import utc

DIFF_LIMIT = 20_000
PROVENANCE = {
    "distilled": "distilled: minimal code with the same defect, written for this corpus",
    "release": "release: the real package, in its buggy and in its fixed version",
}


@dataclass(frozen=True)
class Section:
    """What the page shows of one run."""

    run: Evidence
    headline: Markdown
    path: str  # of its evidence, relative to the checkout
    variants: Sequence[VariantSection]
    cautions: Sequence[str]  # what lowers the worth of the evidence
    instruments: InstrumentsSection
    own_diff: str | None  # where the scripts differed from today's page


def case_page(runs: Sequence[Evidence]) -> str:
    """The page of the case that all of these runs are of. Raises ValueError if there are none, or of several cases."""
    ids = {run.case.id for run in runs}
    if len(ids) != 1:
        raise ValueError(f"a page is about one case, not about {len(ids)}: {sorted(ids)}")
    ordered = newest_hardware_first(list(runs))
    lead = ordered[0]
    case = max(ordered, key=lambda run: utc(run.started)).case
    return render_template(
        "case.md.j2",
        lead=lead,
        case=case,
        provenance=PROVENANCE.get(case.provenance, case.provenance),
        upstream=_upstream(case.upstream),
        diff=_bounded(case.fix_diff),
        sections=[_section(run, case.fix_diff) for run in ordered],
    )


def _section(run: Evidence, fix_diff: str) -> Section:
    return Section(
        run=run,
        headline=markdown(headline(run)),
        path=evidence_path(Path("reports"), run).as_posix(),
        variants=[variant_section(run, variant) for variant in Variant],
        cautions=cautions(run.environment),
        instruments=instruments(run),
        own_diff=_bounded(run.case.fix_diff) if run.case.fix_diff != fix_diff else None,
    )


def _bounded(diff: str) -> str:
    if len(diff) <= DIFF_LIMIT:
        return diff
    kept = diff[:DIFF_LIMIT].rpartition("\n")[0]
    return f"{kept}\n[... {diff.count(chr(10), len(kept))} more lines ...]"


def _upstream(upstream: UpstreamFacts) -> Markdown:
    home = f"https://github.com/{upstream.project}"
    on_github = (upstream.issue or "").startswith(f"{home}/")
    parts = [link(upstream.project, home) if on_github else prose(upstream.project)]
    if upstream.issue:
        parts.append(link("issue", upstream.issue))
    for word, revision in (("introduced in", upstream.introduced), ("fixed in", upstream.fixed)):
        if revision:
            parts.append(Markdown(f"{word} {_revision(revision, home if on_github else None)}"))
    if upstream.status == "open":
        parts.append(Markdown("not fixed upstream yet"))
    text = ", ".join(parts)
    others = [link(url.removeprefix("https://"), url) for url in upstream.links if f"({url})" not in text]
    return Markdown(", ".join([text, *others]))


def _revision(revision: str, home: str | None) -> Markdown:
    """A commit by its first 12 digits, linked where it is known to be on GitHub; anything else as it stands."""
    if not re.fullmatch("[0-9a-f]{40}", revision):
        return code(revision)
    return Markdown(f"[`{revision[:12]}`]({home}/commit/{revision})") if home else code(revision[:12])
