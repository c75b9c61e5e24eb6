"""The script runs on a directory that looks as an installer leaves it."""

import csv
import py_compile
from pathlib import Path

import pytest

from gpu_casebook.guest import only

FILES = {"big/__init__.py": "", "big/kept/a.py": "A = 1", "big/kept/b.so": "b", "big/other/c.py": "C = 1", "top.py": ""}
ABOUT = "Big_Package-1.0.dist-info"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in {
        **FILES,
        f"{ABOUT}/METADATA": "",
        "small.py": "",
        "small-2.dist-info/RECORD": "small.py,,\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if name.endswith(".py"):
            py_compile.compile(str(path))
    rows = "".join(f"{name},sha256=x,1\n" for name in [*FILES, f"{ABOUT}/METADATA"])
    (tmp_path / ABOUT / "RECORD").write_text(f"{rows}{ABOUT}/RECORD,,\n")
    return tmp_path


def there(site: Path) -> set[str]:
    return {str(path.relative_to(site)) for path in site.rglob("*") if "__pycache__" not in path.parts}


def test_what_is_not_named_goes_with_what_was_compiled_of_it(site: Path) -> None:
    assert only.main(str(site), "big-package", "big/__init__.py big/kept/*") is None
    assert {name for name in there(site) if name.startswith(("big", "top"))} == {
        "big", "big/__init__.py", "big/kept", "big/kept/a.py", "big/kept/b.so",
    }  # fmt: skip
    compiled = {path.name.partition(".")[0] for path in site.rglob("*.pyc")}
    assert compiled == {"__init__", "a", "small"}


def test_record_has_what_stayed_and_is_a_file_of_its_own(site: Path) -> None:
    record = site / ABOUT / "RECORD"
    (site / "store").hardlink_to(record)
    before = record.read_text()
    only.main(str(site), "big.package", "big/kept/b.so")
    assert [row[0] for row in csv.reader(record.read_text().splitlines())] == [
        "big/kept/b.so", f"{ABOUT}/METADATA", f"{ABOUT}/RECORD",
    ]  # fmt: skip
    assert (site / "store").read_text() == before


def test_other_packages_stay_as_they_are(site: Path) -> None:
    only.main(str(site), "big-package", "big/kept/*")
    assert (site / "small.py").exists()
    assert (site / "small-2.dist-info/RECORD").read_text() == "small.py,,\n"


def test_what_matches_nothing_is_said(site: Path) -> None:
    assert only.main(str(site), "big-package", "big/__init__.py big/gone.so") == (
        "no file of big-package matches big/gone.so"
    )
