"""reports/<case>.md: everything that was run of one case, on one page. Evidence in, text out."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpu_casebook.evidence import Evidence, UpstreamFacts, evidence_path
from gpu_casebook.kinds import Variant
from gpu_casebook.report.headline import headline, markdown
from gpu_casebook.report.markdown import Markdown, code, render_template
from gpu_casebook.report.variant import variant_section
from gpu_casebook.report.words import cautions, newest_hardware_first, what_ran
from gpu_casebook.run.probes import Words, words
from gpu_casebook.run.probes.sanitizer import words_of
from gpu_casebook.text import utc

DIFF_LIMIT = 20_000
XIDS_SHOWN = 5


def case_page(runs: Sequence[Evidence]) -> str:
    """Return the page of one case. Raises ValueError if there are no runs, or runs of several cases."""
    ids = {run.case.id for run in runs}
    if len(ids) != 1:
        raise ValueError(f"a page is about one case, not about {len(ids)}: {sorted(ids)}")
    ordered = newest_hardware_first(list(runs))
    lead = ordered[0]
    newest = max(ordered, key=lambda run: utc(run.started))
    case = newest.case
    home = _home(case.upstream)
    return render_template(
        "case.md.j2",
        lead=lead,
        case=case,
        headline=markdown(headline(lead)),
        ran=what_ran(case.provenance, case.upstream.project, newest.semantics),
        home=home,
        revision=_revision,
        other_links=_other_links(case.upstream, home),
        diff=_bounded(case.fix_diff),
        runs=ordered,
        sections=[_section(run, case.fix_diff) for run in ordered],
    )


def _section(run: Evidence, fix_diff: str) -> Markdown:
    """Return the section of one run. `fix_diff`: what the page shows above as the fix."""
    return render_template(
        "case_run.md.j2",
        run=run,
        headline=markdown(headline(run)),
        path=evidence_path(Path("reports"), run).as_posix(),
        variants=[variant_section(run, variant) for variant in Variant],
        cautions=cautions(run),
        instruments=_instruments(run),
        xids=list(_xids(run)),
        own_diff=_bounded(run.case.fix_diff) if run.case.fix_diff != fix_diff else None,
    )


def _instruments(run: Evidence) -> list[Words]:
    """Return what each instrument showed; those with a conclusion, such as a table's, first."""
    shown = [
        words_of(f"{found.tool} on {each.variant}, run {each.number}: {each.outcome}", found, each.infra, each.stdout)
        for each in run.sanitized
        if (found := each.sanitizer)
    ]
    return sorted([*shown, *map(words, run.probes)], key=lambda each: not each.conclusion)


def _xids(run: Evidence) -> Iterator[tuple[Variant, int, int, str]]:
    """Yield variant, number, how often it came, and the text of the first; the most frequent first."""
    own = [(trial.variant, xid) for trial in [*run.trials, *run.sanitized] for xid in trial.xids]
    count = Counter((variant, xid.number, xid.process) for variant, xid in own)
    texts = {(variant, xid.number, xid.process): xid.text for variant, xid in reversed(own)}
    for key, times in count.most_common(XIDS_SHOWN):
        variant, number, _ = key
        yield variant, number, times, texts[key]


def _bounded(diff: str) -> str:
    if len(diff) <= DIFF_LIMIT:
        return diff
    kept = diff[:DIFF_LIMIT].rpartition("\n")[0]
    return f"{kept}\n[... {diff.count(chr(10), len(kept))} more lines ...]"


def _home(upstream: UpstreamFacts) -> str | None:
    """Return the project's address on GitHub, or None if its issue is elsewhere."""
    home = f"https://github.com/{upstream.project}"
    return home if (upstream.issue or "").startswith(f"{home}/") else None


def _other_links(upstream: UpstreamFacts, home: str | None) -> list[str]:
    """Return the links that the line about upstream does not have yet."""
    linked = {upstream.issue, home, *(f"{home}/commit/{each}" for each in (upstream.introduced, upstream.fixed))}
    # What is no web address never becomes a link, so that it has not been one yet.
    return [url for url in upstream.links if url not in linked or not url.startswith("http")]


def _revision(revision: str, home: str | None) -> Markdown:
    """Return a commit by its first 12 digits, with a link if `home` is known; anything else as it is."""
    if not re.fullmatch("[0-9a-f]{40}", revision):
        return code(revision)
    return Markdown(f"[`{revision[:12]}`]({home}/commit/{revision})") if home else code(revision[:12])
