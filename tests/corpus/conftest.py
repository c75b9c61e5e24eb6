from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _tests_are_there_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What workers of the tests run is found on this path."""
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{root}:{root}/runner")
