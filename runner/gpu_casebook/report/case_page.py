"""reports/<case>.md: everything that was run of one case, on one page. Evidence in, text out."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from failure_signature.kinds import Variant
from gpu_casebook import probe_registry
from gpu_casebook.evidence import CaseFacts, Evidence, ProbeRecord, SanitizerProbe, evidence_path
from gpu_casebook.report.diff import shown_fix
from gpu_casebook.report.figures import without_failure
from gpu_casebook.report.headline import headline, markdown
from gpu_casebook.report.markdown import Markdown, render_template
from gpu_casebook.report.placement import Capable
from gpu_casebook.report.provenance import then, what_ran
from gpu_casebook.report.readme import mechanism
from gpu_casebook.report.upstream import other_links, revisions
from gpu_casebook.report.variant import output, variant_section
from gpu_casebook.report.versions import home_of
from gpu_casebook.report.worth import cautions, newest, newest_hardware_first
from gpu_casebook.run.probes import Words, words

XIDS_SHOWN = 5
_IMAGE = re.compile(r" --image (?:'[^']*'|\S+)")


def case_page(runs: Sequence[Evidence], why: str = "", capable: Sequence[Capable] = (), up: str = "../") -> str:
    """Return the page of one case. `why`: what its README says of the mechanism; `capable`: its manifest, of GPUs.

    `up` leads from the page to what holds cases/.

    Raises ValueError if there are no runs, or runs of several cases.
    """
    ids = {run.case.id for run in runs}
    if len(ids) != 1:
        raise ValueError(f"a page is about one case, not about {len(ids)}: {sorted(ids)}")
    case = (latest := newest(runs)).case
    ordered = sorted(newest_hardware_first(runs), key=lambda run: bool(then(run, case)))
    lead = ordered[0]
    home = home_of(case.upstream)
    return render_template(
        "case.md.j2",
        lead=lead,
        case=case,
        headline=markdown(headline(lead)),
        ran=what_ran(case.provenance, case.upstream.project, latest.semantics),
        mechanism=Markdown(mechanism(why)),
        capable=capable,
        up=up,
        home=home,
        revision=revisions(case.upstream, home),
        other_links=other_links(case.upstream, home),
        diff=shown_fix(case.fix_diff),
        runs=ordered,
        sections=[_section(run, case) for run in ordered],
    )


def _section(run: Evidence, case: CaseFacts) -> Markdown:
    """Return the section of one run. `case`: what the page says above."""
    return render_template(
        "case_run.md.j2",
        run=run,
        headline=markdown(headline(run)),
        path=evidence_path(Path(), run).as_posix(),
        command=_IMAGE.sub("", run.command),
        variants=[variant_section(run, variant) for variant in Variant],
        cautions=[*then(run, case), *cautions(run)],
        instruments=_instruments(run),
        xids=list(_xids(run)),
        odd=output(run.sharing.odd, "Output beside others") if run.sharing and run.sharing.odd else None,
        own_diff=shown_fix(run.case.fix_diff) if shown_fix(run.case.fix_diff) != shown_fix(case.fix_diff) else None,
    )


def _instruments(run: Evidence) -> list[Words]:
    """Return what each instrument showed; those with a conclusion, such as a table's, first."""
    shown = [
        probe_registry.probe(found.tool).words_of_trial(each) for each in run.sanitized if (found := each.sanitizer)
    ]
    return sorted([*shown, *(_probed(run, each) for each in run.probes)], key=lambda each: not each.conclusion)


def _probed(run: Evidence, probe: ProbeRecord) -> Words:
    """Return what a probe says; first of all, if a tool looked at a run of repro that did not fail, that it did not."""
    said = words(probe)
    looked = isinstance(probe, SanitizerProbe) and probe.variant is Variant.REPRO
    return replace(said, lines=[*without_failure(run, probe.stdout), *said.lines]) if looked else said


def _xids(run: Evidence) -> Iterator[tuple[Variant, int, int, str]]:
    """Yield variant, number, how often it came, and the text of the first; the most frequent first."""
    noted = ((trial.variant, xid) for trial in [*run.trials, *run.sanitized] for xid in trial.xids)
    texts: dict[tuple[Variant, int, str | None], dict[str, None]] = {}
    for variant, xid in noted:  # what came while several trials ran is noted with each of them
        texts.setdefault((variant, xid.number, xid.process), {})[xid.text] = None
    for (variant, number, _), found in sorted(texts.items(), key=lambda each: -len(each[1]))[:XIDS_SHOWN]:
        yield variant, number, len(found), next(iter(found))
