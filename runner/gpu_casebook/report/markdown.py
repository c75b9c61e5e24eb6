"""Markdown: text of any origin escaped so that GitHub shows it and nothing else, and the templates of pages.

What a trial prints ends up in pages and is pasted into issues: it must not close a fence, break a table, become HTML,
call a person by @name or link an issue by #number. Everything here returns `Markdown`; templates pass any other
string through `prose`, so that forgetting to escape is not possible.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from failure_signature.text import date, instant, one_line, plain, plural, seconds, size, spread
from gpu_casebook.report.placement import architectures
from gpu_casebook.report.versions import changed_versions
from gpu_casebook.report.words import gpu, interval, page_name, share
from gpu_casebook.report.worth import packages, seen_on

if TYPE_CHECKING:
    from jinja2 import Environment

LINE_LIMIT = 400

_SPECIAL = re.compile(r"[\\`*\[\]<|~$&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=\s)#(?=#*$)")
_AT_START = re.compile(r"^(?:(?=[>#+=-])|(\d+)(?=[.)](?:\s|$)))")
# Where a zero-width space keeps GitHub from making a mention, a reference or a link.
_CALL = re.compile(r"(?<=@)(?=\w)|(?<=#)(?=\d)|(?<=\bGH-)(?=\d)|(?<=www)(?=\.)|(?<=:)(?=//)", re.IGNORECASE)

_NAME = re.compile(r"(?<!`)`([A-Za-z0-9_.]+)`(?!`)")

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 ,;=/+()-]")


class Markdown(str):
    """Markdown already: `prose` leaves it alone."""

    __slots__ = ()


def prose(text: str, limit: int = LINE_LIMIT) -> Markdown:
    """Return one line of running text, safe in a cell of a table too."""
    if isinstance(text, Markdown):
        return text
    line = _SPECIAL.sub(r"\\\g<0>", one_line(text, limit))
    line = _AT_START.sub(lambda match: f"{match[0]}\\", line)
    return Markdown(_CALL.sub("&#8203;", line))


def with_names(text: str) -> Markdown:
    """`prose`, in which names between backticks are code: for what the runner itself says of functions."""
    parts = _NAME.split(text)
    return Markdown("".join(code(part) if at % 2 else _piece(part) for at, part in enumerate(parts)))


def _piece(text: str) -> Markdown:
    """`prose` strips a line; here the spaces at the ends stay, since more follows on the same line."""
    before, after = text[:1] == " ", len(text) > 1 and text[-1:] == " "
    return Markdown(f"{' ' * before}{prose(text)}{' ' * after}")


def code(text: str, limit: int = LINE_LIMIT) -> Markdown:
    """Return one line of code, safe in a cell of a table too."""
    line = one_line(text, limit)
    if not line:
        return Markdown("")
    if "`" in line or "|" in line:  # a backslash before a pipe means one thing in a cell and another outside
        return Markdown(f"<code>{entities(line)}</code>")
    return Markdown(f"`{line}`")


def _reference(character: re.Match[str]) -> str:
    unlinked = "&#8203;" if character[0] == "@" else ""  # what looks like an address becomes a link even so
    return f"&#{ord(character[0])};{unlinked}"


def entities(text: str) -> Markdown:
    """Return one line of text for inside of an HTML element, where Markdown would still see its own marks."""
    return Markdown(_NOT_PLAIN.sub(_reference, one_line(text, LINE_LIMIT)))


def codes(texts: Iterable[str], between: str = ", ") -> Markdown:
    return Markdown(between.join(map(code, texts)))


def listed(texts: Iterable[str]) -> Markdown:
    return Markdown("; ".join(map(prose, texts)))


def fence(text: str, language: str = "text") -> Markdown:
    """Return a block of literal lines: its fence is longer than any run of backticks inside."""
    body = plain(text).strip("\n")
    longest = max(map(len, re.findall(r"`+", body)), default=0)
    ticks = "`" * max(3, longest + 1)
    return Markdown(f"{ticks}{language}\n{body}\n{ticks}")


def link(text: str, url: str) -> Markdown:
    """Return a link to a web page; only the text if the address is none of the web."""
    if not re.fullmatch(r"https?://[^\s<>()`\\]+", url):
        return prose(text)
    return Markdown(f"[{prose(text)}]({url.replace('|', '%7C')})")


def local_link(text: str, path: str | None, top: str = "") -> Markdown:
    """Return a link to a file below `top`, relative to the page; only the text if the path could lead elsewhere."""
    if path is None or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*", path):
        return prose(text)
    return Markdown(f"[{prose(text)}]({top}{path})")


def render_template(template: str, *, package: str = "gpu_casebook.report", **values: Any) -> Markdown:
    """Render a template of the package's templates/, with the filters of this module."""
    return Markdown(_environment(package).get_template(template).render(**values))


@cache
def _environment(package: str) -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 slow to import: not before a page

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=False,  # noqa: S701  these are Markdown pages; `finalize` escapes for them
        finalize=lambda value: prose(value) if isinstance(value, str) else str(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    of_values = (seconds, size, share, interval, spread, date, instant, packages, gpu, plural, page_name)
    of_runs = (seen_on, architectures, changed_versions)
    of_text = (code, codes, entities, fence, link, listed, local_link, prose)
    environment.filters |= {each.__name__: each for each in (*of_values, *of_runs, *of_text)}
    return environment
