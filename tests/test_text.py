import pytest

from gpu_casebook.text import one_line, without_escapes


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[1;38;5;196mred\x1b[m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Btext", "text"),
        ("\x1b]never ended\nrel_err=1", "never ended\nrel_err=1"),
        ("end\x1b", "end"),
        ("plain [31m", "plain [31m"),
    ],
)
def test_without_escapes(text: str, plain: str) -> None:
    assert without_escapes(text) == plain


def test_one_line() -> None:
    assert one_line(" a\n\n b\tc ") == "a b c"
    assert one_line("x" * 50, limit=10) == "xxxxxxx..."
    assert one_line("x" * 10, limit=10) == "xxxxxxxxxx"
