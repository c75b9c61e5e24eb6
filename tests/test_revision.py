import subprocess
from pathlib import Path

import pytest

from gpu_casebook import __version__
from gpu_casebook.revision import describe


def git(checkout: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", "-C", str(checkout), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "run.py").write_text("one\n")
    (tmp_path / "README.md").write_text("one\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "One")
    return tmp_path


def test_a_checkout_tells_its_revision(checkout: Path) -> None:
    assert describe(checkout) == f"{__version__} ({git(checkout, 'rev-parse', '--short=12', 'HEAD')})"


def test_only_changes_of_the_runner_are_told(checkout: Path) -> None:
    (checkout / "README.md").write_text("two\n")
    assert "+changes" not in describe(checkout)
    (checkout / "runner" / "run.py").write_text("two\n")
    assert describe(checkout).endswith("+changes)")


def test_elsewhere_the_version_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe(tmp_path) == __version__
    monkeypatch.setenv("PATH", "")
    assert describe(Path(__file__).parents[1]) == __version__


def test_a_packed_runner_tells_what_it_was_packed_from(checkout: Path) -> None:
    (checkout / "runner" / "REVISION").write_text("0.1.0 (1a2b3c4d5e6f+changes)\n")
    assert describe(checkout) == "0.1.0 (1a2b3c4d5e6f+changes)"
