"""reports/bisect/<case>.<package>.md: what was asked, the answer, how sure it is, every step. Record in, text out."""

from casebook_workbench.releases.records import Bisection, Call
from gpu_casebook.report.markdown import render_template
from gpu_casebook.report.words import interval


def page(found: Bisection) -> str:
    """Return the page of a bisection, finished or under way."""
    return render_template("bisect.md.j2", package="casebook_workbench.releases", found=found, sureness=sureness(found))


def sureness(found: Bisection) -> list[str]:
    """Return how far the answer can be trusted, in sentences."""
    rate, needed, asked = found.rate, found.quiet_needed, found.question
    if not (rate and needed and found.first and found.doubt is not None):
        return ["The search is not finished."]
    measured = f"With {asked.package} {asked.bad} it fails in {rate.k} of {rate.n} trials ({interval(rate)})"
    chance = f"{found.doubt:.2g}" if found.doubt >= 1e-12 else "below 1e-12"
    quiet = f"The chance that one of those is bad after all, and only kept quiet, is {chance}"
    sentences = [
        f"{measured}, so a release was called good after {needed} trials without the failure.",
        f"{quiet} over the whole search (at the lower end of that interval; wanted: {asked.alpha:g} at most).",
    ]
    if skipped := ", ".join(version for version in found.called(Call.SKIP) if version in found.first):
        sentences.append(f"It stays open between {len(found.first)} releases, because these could not tell: {skipped}.")
    return sentences
