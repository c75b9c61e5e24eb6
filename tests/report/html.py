"""Pages as GitHub's own parser makes HTML of them."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

import cmarkgfm
from cmarkgfm.cmark import Options


@dataclass
class Html:
    """What is left of a page: its text, its tags in order with their attributes, its table cells."""

    text: str = ""
    tags: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.html = Html()
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.html.tags.append(tag)
        if tag not in {"br", "hr", "img", "input"}:
            self.html.open_tags.append(tag)
        self.html.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag == "tr":
            self.html.rows.append([])
        if tag in {"td", "th"}:
            self.html.rows[-1].append("")
            self._in_cell = True

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.html.open_tags.pop() == tag, f"</{tag}> out of place"
        self._in_cell = self._in_cell and tag not in {"td", "th"}

    def handle_data(self, data: str) -> None:
        self.html.text += data
        if self._in_cell:
            self.html.rows[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        self.html.tags.append("!--")


def html(markdown: str) -> Html:
    """Raw HTML is let through: what would be HTML on GitHub must show itself here."""
    reader = _Reader()
    reader.feed(cmarkgfm.github_flavored_markdown_to_html(markdown, Options.CMARK_OPT_UNSAFE))
    reader.close()
    assert not reader.html.open_tags, reader.html.open_tags
    return reader.html
