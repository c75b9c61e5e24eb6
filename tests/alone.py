"""Tests that need the machine for themselves, marked `alone(reason)`: they run after all others, one by one.

`pytest --alone no` runs the others, which may run side by side; `--alone only` runs these; `--alone list` lists them
with the seconds that each took when it last ran here. Without the option, all run.
"""

import pytest

SECONDS = "casebook/alone"
"""Where the cache has the seconds of each, by node id."""
GPU = "uses a GPU, its memory and its time"

_took: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--alone", choices=["no", "only", "list"], help="Tests marked alone: leave out, only, or list them."
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.alone(GPU))
        marker = item.get_closest_marker("alone")
        if marker and not (len(marker.args) == 1 and str(marker.args[0]).strip()):
            raise pytest.UsageError(f"{item.nodeid}: alone(reason) says what it needs the machine for")
    if how := config.getoption("alone"):
        chosen = [item for item in items if bool(item.get_closest_marker("alone")) is (how != "no")]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Where they are only listed, that is all there is to do."""
    if session.config.getoption("alone") != "list":
        return None
    took = _seconds(session.config)
    print("\n| seconds | test | what it needs the machine for |\n|---|---|---|")
    for item in session.items:
        marker = item.get_closest_marker("alone")
        seconds = f"{took[item.nodeid]:.1f}" if item.nodeid in took else "?"
        print(f"| {seconds} | {item.nodeid} | {marker.args[0] if marker else ''} |")
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "alone" in report.keywords:
        _took[report.nodeid] = _took.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    cache = _cache(session.config)
    if cache and _took and not hasattr(session.config, "workerinput"):
        cache.set(SECONDS, _seconds(session.config) | _took)


def _seconds(config: pytest.Config) -> dict[str, float]:
    cache = _cache(config)
    return cache.get(SECONDS, {}) if cache else {}


def _cache(config: pytest.Config) -> pytest.Cache | None:
    """Return the cache; with `-p no:cacheprovider` there is none."""
    return getattr(config, "cache", None)
