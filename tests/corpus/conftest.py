from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _tests_are_there_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What workers of the tests run is found on this path."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
