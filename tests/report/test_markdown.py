import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failure_signature.text import one_line, plain
from gpu_casebook.report.markdown import Markdown, code, codes, fence, link, prose, with_names
from tests.report.html import html

HOSTILE = (
    *(
        "</details>",
        "<!-- x -->",
        "<b>y</b>",
        "[x](javascript:a)",
        "![x](y)",
        "[^1]:",
        "[a]: http://b",
        "&lt;",
        "&#124;",
    ),
    *(
        "a|b",
        "\\|",
        "`|",
        "***",
        "__init__",
        "~~~",
        "```",
        "a\\",
        "\\`|`",
        "$x$",
        "\x1b[31m",
        "\x00",
        "\u202e",
        "\ud800",
    ),
    *("@user", "me@example.org", "#123", "GH-1", "www.example.org", "www._", "http://a.b/c_d*e"),
    *("1. ", "1) ", "12", "- ", "+ ", "> ", "# ", "===", "---", "\n", "\r", "\t", "    "),
)

texts = st.lists(st.sampled_from([*HOSTILE, " ", "a", "9", "_"]) | st.text(max_size=8), max_size=5).map("".join)


def shown(text: str) -> str:
    return one_line(text, 400).replace("\u200b", "").strip()


def seen(text: str) -> str:
    return text.replace("\u200b", "").strip()


@settings(max_examples=200)
@given(texts)
def test_prose_shows_the_text_and_nothing_else(text: str) -> None:
    for place, tags in (("{}", ["p"]), ("- {}", ["ul", "li"]), ("# {}", ["h1"])):
        page = html(place.format(prose(text)))
        assert seen(page.text) == shown(text)
        assert page.tags == tags or not shown(text)
        assert page.links == []


@settings(max_examples=200)
@given(texts)
def test_with_names_shows_the_text_too_but_for_backticks(text: str) -> None:
    page = html(f"| a |\n|---|\n| {with_names(text)} |\n")
    assert without_ticks(page.rows[1][0]) == without_ticks(text)
    assert set(page.tags) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}
    assert page.links == []


def without_ticks(text: str) -> str:
    # what a terminal makes of an escape and a backtick goes first, as it does on the page
    return shown(shown(text).replace("\u200b", "").replace("`", ""))


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("process 3 in `_engine_run`, 4 in `main`", "process 3 in `_engine_run`, 4 in `main`"),
        ("`a.b` <i>", "`a.b` \\<i>"),
        ("`a b`", "\\`a b\\`"),
        ("``a``", "\\`\\`a\\`\\`"),
    ],
)
def test_names_between_backticks_are_code(text: str, markdown: str) -> None:
    assert with_names(text) == markdown


@settings(max_examples=200)
@given(texts)
def test_cells_hold_what_they_are_given(text: str) -> None:
    page = html(f"| a | b | c |\n|---|---|---|\n| {prose(text)} | {code(text)} | end |\n")
    assert [seen(cell) for cell in page.rows[1]] == [shown(text), shown(text), "end"]
    assert page.tags.count("code") == bool(one_line(text))
    assert page.links == []


@settings(max_examples=200)
@given(texts)
def test_nothing_gets_out_of_a_fence(text: str) -> None:
    page = html(f"<details><summary>s</summary>\n\n{fence(text)}\n\n</details>\n\nend\n")
    assert page.tags == ["details", "summary", "pre", "code", "p"]
    inside = page.text.removeprefix("s\n").removesuffix("end\n")
    assert inside.strip("\n") == plain(text).strip("\n")


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("rel_err of dq is [16, 64]", "rel_err of dq is \\[16, 64\\]"),
        ("ask @octocat about #12", "ask @\u200boctocat about #\u200b12"),
        ("a|b <c> *d* `e`", "a\\|b \\<c> \\*d\\* \\`e\\`"),
        ("2026-11-21", "2026-11-21"),
        ("1. no list", "1\\. no list"),
        ("6.4 GB", "6.4 GB"),
        (Markdown("**as it is**"), "**as it is**"),
    ],
)
def test_prose(text: str, markdown: str) -> None:
    assert prose(text).replace("&#8203;", "\u200b") == markdown


def test_code() -> None:
    assert code("torch==2.2.2") == "`torch==2.2.2`"
    assert code(r"\(64\) a\b") == r"`\(64\) a\b`"
    assert code("") == ""
    assert code("a|b") == "<code>a&#124;b</code>"
    assert codes(["a", "b"]) == "`a`, `b`"


def test_a_fence_is_longer_than_what_is_in_it() -> None:
    assert fence("a\n`````\nb", "sh") == "``````sh\na\n`````\nb\n``````"
    assert fence("a") == "```text\na\n```"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "http://a b", "https://a)b", "https://a`b", "ftp://a", "https://a<b", "https://a\\b"]
)
def test_only_web_addresses_become_links(url: str) -> None:
    assert link("text", url) == "text"


def test_link() -> None:
    page = html(link("a [b]", "https://example.org/x_y?z=1|2"))
    assert (page.text.strip(), page.links) == ("a [b]", ["https://example.org/x_y?z=1%7C2"])
