"""GitHub's Markdown, in which this repository is written, as the generator takes it: headings, and all else as HTML.

The generator's own Markdown (Python-Markdown) is another dialect: there a list needs an empty line before it, and what
stands inside of <details> is no Markdown.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

Resolve = Callable[[str], str | None]
"""Gives the address of what a link or a picture leads to; None where the site has nothing there.

It is asked for text that is set as code, too, with `NAME` before it: a case's id becomes a link to the case.
"""
NAME = "named:"
_FORMATTER = HtmlFormatter(nowrap=True)


def page(text: str, resolve: Resolve, meta: Mapping[str, str] | None = None) -> str:
    """Return a page for the generator. `meta` goes into its front matter."""
    head = ["---", *(f"{name}: {_quoted(value)}" for name, value in meta.items()), "---", ""] if meta else []
    return "\n".join([*head, *_blocks(_parser().parse(text), resolve), ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _blocks(tokens: Sequence[Token], resolve: Resolve) -> Iterator[str]:
    """Yield headings, which the generator needs for its table of contents, and between them blocks of HTML."""
    begun = list[Token]()
    at = 0
    while at < len(tokens):
        if tokens[at].type == "heading_open" and tokens[at].level == 0:
            yield from _html(begun, resolve)
            begun = []
            yield f"\n{'#' * int(tokens[at].tag[1])} {tokens[at + 1].content}\n"
            at += 3
        else:
            begun.append(tokens[at])
            at += 1
    yield from _html(begun, resolve)


def _html(tokens: Sequence[Token], resolve: Resolve) -> Iterator[str]:
    if tokens:
        parser = _parser()
        for token in tokens:
            if token.children:
                token.children = list(_linked(token.children, resolve))
        yield f"<div>\n{parser.renderer.render(tokens, parser.options, {})}</div>"


def _linked(children: Sequence[Token], resolve: Resolve) -> Iterator[Token]:
    """Yield a line's tokens with their links resolved; of a link that leads nowhere its text stays."""
    dropped = list[bool]()  # of each link that is open
    for child in children:
        if child.type == "link_open":
            address = resolve(str(child.attrGet("href")))
            dropped.append(address is None)
            if address is None:
                continue
            child.attrSet("href", address)
        elif child.type == "link_close" and dropped.pop():
            continue
        elif child.type == "code_inline" and not dropped and (address := resolve(f"{NAME}{child.content}")):
            yield Token("link_open", "a", 1, attrs={"href": address})
            yield child
            yield Token("link_close", "a", -1)
            continue
        elif child.type == "image" and (address := resolve(str(child.attrGet("src")))):
            child.attrSet("src", address)
        yield child


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    parser.add_render_rule("table_open", lambda *_: '<div class="cb-wide" tabindex="0" role="group"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _fence(_renderer: object, tokens: Sequence[Token], at: int, *_: Any) -> str:
    """Return a block of code as the generator's theme styles it. What scrolls can be reached by the keyboard."""
    language = (re.findall(r"\w+", tokens[at].info) or ["text"])[0]
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    code = highlight(tokens[at].content.rstrip(), lexer, _FORMATTER).rstrip("\n")
    code = code.replace("\n\n", "\n&#10;")  # an empty line would end the block of HTML for the generator
    return f'<div class="highlight"><pre tabindex="0"><code>{code}</code></pre></div>\n'
