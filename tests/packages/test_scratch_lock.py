"""Locks that never leave this machine: what may go into them, and what is kept."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpu_casebook.packages import resolve
from gpu_casebook.packages.resolve import scratch_lock, unreachable
from tests.fakes import LOCK

TORCH = "torch==2.13.0 \\\n    --hash=sha256:" + "a" * 64 + "\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What uv would be asked: requirements, the lock that is there, and the settings that count."""
    asked: dict[str, object] = {}

    def compile_(source: Path, output: Path, python: str, *options: str, environ: Mapping[str, str]) -> None:
        settings = {name: environ[name] for name in ("UV_FIND_LINKS", "UV_INDEX", "UV_PRERELEASE") if name in environ}
        asked.update(requirements=source.read_text(), previous=output.read_text(), settings=settings, options=options)

    monkeypatch.setattr(resolve, "_compile", compile_)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null" if "CONFIG" in name else "")
    return asked


def test_what_is_locked_stays_where_it_fits(compiled: dict[str, object]) -> None:
    scratch_lock(["six==1.16.0"], "3.11", LOCK)
    assert compiled["requirements"] == "six==1.16.0\n"
    assert compiled["previous"] == LOCK
    assert "--generate-hashes" in compiled["options"]  # type: ignore[operator]


def test_files_of_this_machine_are_taken_only_where_they_may(
    compiled: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("UV_PRERELEASE", "allow")
    scratch_lock(["torch==2.13.0"], "3.11", anywhere=False)
    assert compiled["settings"] == {}
    scratch_lock(["torch==2.13.0"], "3.11", anywhere=True)
    assert compiled["settings"] == {"UV_FIND_LINKS": str(tmp_path)}


def test_a_local_build_goes_before_the_locked_one_and_the_rest_stays(
    compiled: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    scratch_lock(["torch==2.13.0"], "3.11", LOCK + TORCH, anywhere=True)
    assert str(compiled["previous"]).strip() == LOCK.strip()
    scratch_lock(["torch==2.13.0"], "3.11", LOCK + TORCH, anywhere=False)
    assert compiled["previous"] == LOCK + TORCH


@pytest.mark.parametrize(
    ("words", "away"),
    [
        (
            "error: Failed to fetch: `x` Caused by: error sending request for url (x) Caused by: connection refused",
            True,
        ),
        ("error: dns error: failed to lookup address information", True),
        ("error: Failed to fetch: `x` Caused by: HTTP status client error (404 Not Found) for url (x)", False),
        ("No solution found when resolving dependencies: because there is no version of thing==9", False),
    ],
)
def test_an_index_that_is_away_is_told_from_one_that_has_it_not(words: str, *, away: bool) -> None:
    assert unreachable(words) == away
