"""What GitHub shows of a text, the site shows too."""

from markdown import markdown

from casebook_workbench.catalogue.site.gfm import NAME, page


def resolve(link: str) -> str | None:
    return {"there.md": "there.html", "picture.svg": "p.svg", f"{NAME}a-case": "a.html"}.get(link)


def html(text: str) -> str:
    """As the generator makes it of a page without front matter."""
    return str(markdown(page(text, resolve), extensions=["toc"]))


def test_a_list_needs_no_empty_line_before_it() -> None:
    shown = html("Established:\n- one\n- two\n  - deeper\n")
    assert shown.count("<li>") == 3
    assert shown.count("<ul>") == 2


def test_inside_of_details_is_markdown() -> None:
    shown = html("<details><summary>Output</summary>\n\n```text\na <b>\n\n\nc\n```\n\n</details>\n")
    assert "```" not in shown
    assert "a &lt;b&gt;\n" in shown
    assert shown.index("<details>") < shown.index("a &lt;b&gt;") < shown.index("c</code>") < shown.index("</details>")


def test_headings_are_the_generators_own() -> None:
    shown = html("# A page\n\ntext\n\n## Deeper `x`\n\nmore\n")
    assert '<h1 id="a-page">A page</h1>' in shown
    assert '<h2 id="deeper-x">Deeper <code>x</code></h2>' in shown


def test_links_lead_to_pages_and_what_leads_nowhere_is_text() -> None:
    shown = html("[here](there.md) and [gone](gone.md), ![a picture](picture.svg)")
    assert '<a href="there.html">here</a> and gone' in shown
    assert 'src="p.svg"' in shown


def test_the_id_of_a_case_is_a_link() -> None:
    shown = html("see `a-case`, not `another`; [`a-case`](there.md)")
    assert '<a href="a.html"><code>a-case</code></a>, not <code>another</code>' in shown
    assert shown.count("<a ") == 2


def test_code_is_coloured_and_reached_by_the_keyboard() -> None:
    shown = html("```python\nimport torch\n```\n\n```no-such-language\nx < y\n```\n")
    assert shown.count('<pre tabindex="0">') == 2
    assert '<span class="kn">import</span>' in shown
    assert "x &lt; y" in shown


def test_a_table_scrolls_by_itself() -> None:
    assert '<div class="cb-wide" tabindex="0" role="group"><table>' in html("| a | b |\n|---|---|\n| 1 | 2 |\n")


def test_front_matter_takes_any_text() -> None:
    text = page("x", resolve, {"title": 'say: "no"\\n', "case": "a"})
    assert text.startswith('---\ntitle: "say: \\"no\\"\\\\n"\ncase: "a"\n---\n')
