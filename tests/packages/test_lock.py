import pytest

from gpu_casebook.packages.lock import content_key, read_lock, script_header, wheel_bytes

HASH = "--hash=sha256:" + "a" * 64
LOCK = f"""\
# Written by `nox -s lock`, not by hand.
# requirements: numpy==1.26.4 triton==3.6.0
# python: 3.11
# platform: x86_64-manylinux_2_36
# download-bytes: 206466645
numpy==1.26.4 \\
    {HASH} \\
    --hash=sha256:{"b" * 64}
Some_Thing[extra]==1.0 \\
    {HASH}
"""


class TestReadLock:
    def test_pins(self) -> None:
        lock = read_lock(LOCK)
        assert lock.pins == (("numpy", "1.26.4", True), ("some-thing", "1.0", True))
        assert lock.basis["requirements"] == "numpy==1.26.4 triton==3.6.0"
        assert lock.strange == ()

    def test_a_pin_without_hash(self) -> None:
        assert read_lock("numpy==1.26.4\n").pins == (("numpy", "1.26.4", False),)

    @pytest.mark.parametrize(
        "line",
        [
            "--index-url https://example.org/simple",
            "a @ https://example.org/a-1-py3-none-any.whl",
            "numpy>=1",
            "numpy==1.0 ; python_version > '3'",
            "-r other.txt",
            "numpy==1.26.4 --hash=md5:00",
        ],
    )
    def test_whatever_else_there_is_stands_out_with_its_line(self, line: str) -> None:
        assert read_lock(f"{LOCK}{line}\n").strange == ((11, line),)

    def test_wheel_bytes(self) -> None:
        assert wheel_bytes(LOCK) == 206_466_645
        assert wheel_bytes(LOCK.replace("206466645", "unknown")) is None
        assert wheel_bytes("numpy==1.26.4\n") is None


class TestContentKey:
    def test_comments_and_order_do_not_count(self) -> None:
        entries = LOCK[LOCK.index("numpy==1.26.4 \\") :]
        first, second = entries[: entries.index("Some")], entries[entries.index("Some") :]
        assert content_key(LOCK, "3.11") == content_key(f"# another\n{second}{first}", "3.11")

    @pytest.mark.parametrize(("old", "new"), [("1.26.4 \\", "1.26.5 \\"), ("b" * 64, "c" * 64), ("[extra]", "")])
    def test_content_counts(self, old: str, new: str) -> None:
        assert old in LOCK
        assert content_key(LOCK, "3.11") != content_key(LOCK.replace(old, new), "3.11")

    def test_the_rest_counts(self) -> None:
        keys = [content_key(LOCK, "3.11"), content_key(LOCK, "3.12"), content_key(LOCK, "3.11", "cuda12")]
        assert len({*keys, content_key(LOCK, "3.11", "cuda13")}) == 4


class TestScriptHeader:
    def test_good(self) -> None:
        lines = ["#!/usr/bin/python", "# /// script", "# dependencies = [", '#   "a==1",', "#", "# ]"]
        text = "\n".join([*lines, '# requires-python = ">=3.11"', "# ///", "x", ""])
        assert script_header(text) == (["a==1"], ">=3.11", 2)

    def test_no_requires_python(self) -> None:
        assert script_header("# /// script\n# dependencies = []\n# ///\n") == ([], None, 1)

    @pytest.mark.parametrize("text", ["", "print(1)\n", "# /// script\n# open = 1\n", "# /// other\n# a = 1\n# ///\n"])
    def test_none(self, text: str) -> None:
        assert script_header(text) is None

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("# /// script\n# dependencies = [\n# ///\n", "has a header that is not TOML"),
            ("# /// script\n# dependencies = 'a'\n# ///\n", "dependencies are not a list of strings"),
            ("# /// script\n# requires-python = 3.11\n# ///\n", "requires-python is not a string"),
            ("# /// script\n# a = 1\n# ///\n\n# /// script\n# a = 1\n# ///\n", "has two headers"),
        ],
    )
    def test_broken(self, text: str, expected: str) -> None:
        with pytest.raises(ValueError, match=expected):
            script_header(text)
