"""What a page says of upstream: its commits and links. Pure."""

import re
from functools import partial

from gpu_casebook.evidence import UpstreamFacts
from gpu_casebook.report.markdown import Markdown, code, link

_CHANGE = re.compile(r"https://github\.com/([^/]+/[^/]+)/(?:pull|commit)/")


def other_links(upstream: UpstreamFacts, home: str | None) -> list[str]:
    """Return the links that the line about upstream does not have yet."""
    changes = (upstream.introduced, upstream.fixed)
    linked = {upstream.issue, home, *changes, *(f"{home}/commit/{each}" for each in changes)}
    # What is no web address never becomes a link, so that it has not been one yet.
    return [url for url in upstream.links if url not in linked or not url.startswith("http")]


def revisions(upstream: UpstreamFacts, home: str | None) -> partial[Markdown]:
    """Return what shows a revision. Where changes elsewhere have a part, a bare commit, perhaps theirs, is no link."""
    changes = [change[1].casefold() for change in map(_CHANGE.match, upstream.links) if change]
    return partial(_revision, home=home if {*changes} <= {upstream.project.casefold()} else None)


def _revision(revision: str, home: str | None) -> Markdown:
    """Return a commit by its first 12 digits, linked if `home` is known; an address as a link; the rest as code."""
    if revision.startswith("https://"):
        return link(revision.removeprefix("https://github.com/"), revision)
    if not re.fullmatch("[0-9a-f]{40}", revision):
        return code(revision)
    return Markdown(f"[`{revision[:12]}`]({home}/commit/{revision})") if home else code(revision[:12])
