from pathlib import Path

import pytest

from casebook_workbench.bundle import parts
from gpu_casebook.errors import UsageError
from gpu_casebook.guest import starter


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("56MB", 56_000_000),
        ("56 mb", 56_000_000),
        ("1GiB", 2**30),
        ("1.5G", 1_500_000_000),
        ("64KiB", 65536),
        ("65536", 65536),
        ("65536B", 65536),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parts.size(text) == count


@pytest.mark.parametrize("text", ["", "MB", "1", "64KB", "-5MB", "1e9"])
def test_what_is_no_size_or_too_small_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=f"--split {text}: write a size such as 48MB"):
        parts.size(text)


def test_parts_replace_the_archive_and_are_at_most_as_large_as_asked(tmp_path: Path) -> None:
    archive = tmp_path / "x.casebook.tar"
    archive.write_bytes(bytes(range(256)) * 1000)
    written = parts.split(archive, 100_000)
    assert [path.name for path in written] == [
        "x.casebook.tar.1of3",
        "x.casebook.tar.2of3",
        "x.casebook.tar.3of3",
        "x.casebook.tar.parts.json",
        "x.casebook.tar.run.py",
    ]
    assert [path.stat().st_size for path in written[:3]] == [100_000, 100_000, 56_000]
    assert b"".join(path.read_bytes() for path in written[:3]) == bytes(range(256)) * 1000
    assert written[-1].read_bytes() == Path(starter.__file__).read_bytes()
    assert not archive.exists()


def test_an_archive_that_fits_is_one_part(tmp_path: Path) -> None:
    archive = tmp_path / "x.casebook.tar"
    archive.write_bytes(b"x" * 100_000)
    assert [path.name for path in parts.split(archive, 100_000)][:-2] == ["x.casebook.tar.1of1"]
