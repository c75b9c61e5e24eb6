import time

import pytest

from gpu_casebook.errors import BuildError
from gpu_casebook.packages.lock import content_key, installable, problems, read_lock, wheel_bytes
from gpu_casebook.pins import ORDINARY, Special

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
        assert [pin[:3] for pin in lock.pins] == [("numpy", "1.26.4", True), ("some-thing", "1.0", True)]
        assert [pin.line for pin in lock.pins] == [6, 9]
        assert lock.basis["requirements"] == "numpy==1.26.4 triton==3.6.0"
        assert lock.strange == ()

    def test_a_pin_without_hash(self) -> None:
        assert [pin[:3] for pin in read_lock("numpy==1.26.4\n").pins] == [("numpy", "1.26.4", False)]

    @pytest.mark.parametrize(
        "line",
        [
            "--index-url https://example.org/simple",
            "a @ https://example.org/a-1-py3-none-any.whl",
            "numpy>=1",
            "numpy==1.0 ; python_version > '3' # and a comment",
            "numpy==${VERSION}",
            "./numpy-1.26.4-py3-none-any.whl",
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


def told(lock: str, *requirements: str, python: str = "3.11", special: Special = ORDINARY) -> list[str]:
    found = problems(lock, "x.txt", requirements, python, "again", special=special)
    return [f"{each.line}: {each.where}: {each.what}" for each in found]


class TestProblems:
    WANTED = ("numpy==1.26.4", "Some_Thing==1.0")
    LOCK = LOCK.replace("triton==3.6.0", "some-thing==1.0")

    def test_none(self) -> None:
        assert told(self.LOCK, *self.WANTED) == []

    def test_a_lock_that_holds_nothing(self) -> None:
        header = self.LOCK[: self.LOCK.index("numpy==1.26.4 \\")]
        assert told(header, *self.WANTED) == [
            "1: numpy: none in the lock, the manifest says 1.26.4; again",
            "1: some-thing: none in the lock, the manifest says 1.0; again",
        ]
        assert [line.split(":")[1].strip() for line in told("", *self.WANTED)] == ["requirements", "python", "platform"]

    def test_a_lock_of_something_else(self) -> None:
        (line,) = told(LOCK, *self.WANTED)
        assert line.startswith("1: requirements: was made for numpy==1.26.4 triton==3.6.0, the manifest says numpy")

    @pytest.mark.parametrize(
        ("key", "place"), [("build", 0), ("without-dependencies", 1), ("index", 2), ("only-files", 3)]
    )
    def test_what_is_special_is_what_the_manifest_says(self, key: str, place: int) -> None:
        lock = f"# {key}: numpy some-thing\n{self.LOCK}"
        names: list[tuple[str, ...]] = [(), (), (), ()]
        names[place] = ("numpy", "some-thing")
        assert read_lock(lock).special == Special(*names)
        assert told(lock, *self.WANTED, special=Special(*names)) == []
        assert told(lock, *self.WANTED) == [
            f"1: {key}: was made for numpy some-thing, the manifest says nothing; again"
        ]
        assert told(self.LOCK, *self.WANTED, special=Special(*names)) == [
            f"1: {key}: was made for nothing, the manifest says numpy some-thing; again"
        ]

    @pytest.mark.parametrize(
        ("marker", "wrong"),
        [
            ("sys_platform == 'win32'", True),
            ("python_version < '3.11'", True),
            ("python_full_version < '3.9'", True),
            ("no such thing", True),
            ("sys_platform == 'linux'", False),
        ],
    )
    def test_a_marker_holds_here(self, marker: str, wrong: bool) -> None:  # noqa: FBT001
        lock = self.LOCK.replace("numpy==1.26.4 \\", f"numpy==1.26.4 ; {marker} \\")
        said = f"6: numpy: would not be installed: {marker} does not hold on x86_64-manylinux_2_36; again"
        assert told(lock, *self.WANTED) == [said] * wrong

    def test_a_package_stands_there_once(self) -> None:
        assert told(f"{self.LOCK}numpy==1.26.3 {HASH}\n", *self.WANTED)[-1] == "11: numpy: stands there twice; again"

    def test_what_is_strange_is_shown(self) -> None:
        line = "--extra-index-url https://x:${TOKEN}@example.org/simple"
        assert told(f"{self.LOCK}{line}\n", *self.WANTED)[-1].startswith(f"11: : {line!r} has no place in a lock")

    @pytest.mark.parametrize("text", ["a==1", "a==1;", "a==1;b ", "a[", "a==1 \\\n"])
    def test_long_lines_take_no_time(self, text: str) -> None:
        begun = time.process_time()
        assert told(text + " " * 30_000 + "x")
        assert time.process_time() - begun < 1


class TestInstallable:
    def test_one_line_each(self) -> None:
        assert installable(LOCK, "3.11") == (
            f"Some_Thing[extra]===1.0 {HASH}\nnumpy===1.26.4 {HASH} --hash=sha256:{'b' * 64}\n"
        )

    @pytest.mark.parametrize(
        "line", ["--index-url https://example.org", "-e .", "six @ file:///six.whl", "six==1", "# \x0c-r other.txt"]
    )
    def test_nothing_else(self, line: str) -> None:
        with pytest.raises(BuildError, match=r"line 1[12] of the lock"):
            installable(f"{LOCK}{line}\n", "3.11")


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
