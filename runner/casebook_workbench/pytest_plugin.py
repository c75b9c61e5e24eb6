"""`pytest cases/`: each case in each environment is one test, such as cases/rwkv6-backward/case.yaml::front-end.

The verdict `confirmed` passes, hardware that is not here skips, any other verdict fails; what keeps a case from having
a verdict (its manifest, the image, the engine, the machine) is an error. Pytest loads this in every run, so that
little but pytest is imported until there is a case.
"""

import argparse
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from failure_signature.kinds import Failure, Grade

if TYPE_CHECKING:
    from gpu_casebook.engines.base import Engine
    from gpu_casebook.evidence import Evidence
    from gpu_casebook.manifest.case import Case

MANIFEST = "case.yaml"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("casebook", "cases of Casebook")
    engine = "Where trials run. Without it: docker if a daemon answers, otherwise venv."
    group.addoption("--casebook-engine", type=_engine, metavar="NAME", help=engine)
    group.addoption("--casebook-image", metavar="NAME", help="Run trials in this image as it stands (docker).")
    group.addoption("--casebook-trials", type=_count, metavar="N", help="Trials of each variant.")
    reports = "Where evidence and reports go. Without it: evidence alone, to pytest's cache."
    group.addoption("--casebook-reports", type=os.path.abspath, metavar="DIR", help=reports)


def _engine(name: str) -> str:
    from gpu_casebook.engines.registry import kind
    from gpu_casebook.errors import UsageError

    try:
        return kind(name).name
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise ValueError
    return count


def pytest_configure(config: pytest.Config) -> None:
    failures = {each.replace("-", "_"): f"a case whose failure is of this kind: {each}" for each in Failure}
    needs = {"gpu": "needs an NVIDIA GPU", "gpus(n)": "needs n NVIDIA GPUs"}
    grades = {grade: f"gives evidence of this grade: {grade}" for grade in Grade}
    for mark, meaning in (failures | needs | grades).items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")
    config.stash[_ENGINES] = {}


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "CaseFile | None":
    home = file_path.parent.parent
    ours = file_path.name == MANIFEST and home.name == "cases" and (home.parent / "images").is_dir()
    return CaseFile.from_parent(parent, path=file_path) if ours else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Keep broken manifests whatever -m selects, since their marks are unknown."""
    broken = [item for item in items if isinstance(item, BrokenManifest)]
    yield
    if not config.getoption("keyword"):
        items += [item for item in broken if item not in items]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a skipped case at the line of its environment in the manifest, not at a line of this file."""
    report = yield
    if isinstance(item, CaseItem) and report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (str(item.path), item.line, report.longrepr[2])
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the pages once, at the end: workers of xdist only write evidence."""
    reports = session.config.getoption("casebook_reports")
    if not reports or hasattr(session.config, "workerinput") or not Path(reports, "evidence").is_dir():
        return
    from gpu_casebook.errors import CasebookError
    from gpu_casebook.report.pages import render

    try:
        render(Path(reports), None)
    except (CasebookError, OSError) as error:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.stash[_UNWRITTEN] = str(error)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if unwritten := terminalreporter.config.stash.get(_UNWRITTEN, None):
        terminalreporter.write_line(f"casebook: no reports: {unwritten}", red=True)


class CaseFile(pytest.File):
    """A manifest, and an item for each of its environments."""

    def collect(self) -> Iterator[pytest.Item]:
        from gpu_casebook.errors import ManifestError
        from gpu_casebook.manifest.case import known_images, load
        from gpu_casebook.manifest.document import read

        root = self.path.parents[2]
        try:
            case = load(self.path, known_images(root), root)
        except ManifestError as error:
            # An error of collecting would keep every other case from being run.
            yield BrokenManifest.from_parent(self, name="manifest", error=error)
            return
        with self.path.open("rb") as file:
            document = read(file)
        for name in case.manifest.environments:
            yield CaseItem.from_parent(self, name=name, case=case, line=document.line(("environments", name)))


class BrokenManifest(pytest.Item):
    """Stands for all environments of a case whose manifest can't be read."""

    def __init__(self, *, error: Exception, **more: Any) -> None:
        super().__init__(**more)
        self.error = error

    def setup(self) -> None:
        pytest.fail(str(self.error), pytrace=False)

    def runtest(self) -> None:
        """Never reached: `setup` has failed."""

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class CaseItem(pytest.Item):
    """One case in one environment. Running it is the set-up, judging it the test: what breaks before is an error."""

    def __init__(self, *, case: "Case", line: int, **more: Any) -> None:
        super().__init__(**more)
        self.case, self.line = case, line
        self.evidence: Evidence | None = None
        spec = case.environment(self.name)
        self.add_marker(case.manifest.failure.value.replace("-", "_"))
        self.add_marker(spec.grade.value)  # xdist can send no enum
        if spec.gpus:
            self.add_marker("gpu")
            self.add_marker(pytest.mark.gpus(n=spec.gpus))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line - 1, f"{self.case.id}: {self.name}"

    def setup(self) -> None:
        from gpu_casebook.console import Console
        from gpu_casebook.errors import CasebookError
        from gpu_casebook.evidence import Evidence, evidence_path, keep
        from gpu_casebook.run.options import Options
        from gpu_casebook.run.pipeline import run_case

        image, trials = (self.config.getoption(f"casebook_{name}") for name in ("image", "trials"))
        options = Options(environment=self.name, image=image, trials=trials)
        try:
            result = run_case(self.case, options, _engine_for(self.config, self.case.directory.parents[1]), Console())
            if isinstance(result, Evidence) and (reports := _reports(self.config)):
                not_kept = keep(reports, result)
                self.user_properties.append(("evidence", not_kept or str(evidence_path(reports, result))))
        except (CasebookError, OSError) as error:
            # pytest.fail() would show what led to the error too.
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        if not isinstance(result, Evidence):
            pytest.skip("; ".join(result.reasons))
        self.evidence = result
        rates = [(f"rate_{variant}", f"{rate.k}/{rate.n}") for variant, rate in result.rates.items()]
        drift = "; ".join(result.environment.drift) or "none"
        self.user_properties += [("verdict", result.verdict.value), *rates, ("device", result.device), ("drift", drift)]

    def runtest(self) -> None:
        from gpu_casebook.report.headline import summary

        assert self.evidence is not None
        if self.evidence.verdict != "confirmed":
            where = [f"{name}: {value}" for name, value in self.user_properties if name == "evidence"]
            pytest.fail("\n".join([*summary(self.evidence), *where]), pytrace=False)


def _reports(config: pytest.Config) -> Path | None:
    """Return where evidence goes, never to the checkout's reports unless asked; None where pytest has no cache."""
    if named := config.getoption("casebook_reports"):
        return Path(named)
    cache = getattr(config, "cache", None)
    return cache.mkdir("casebook") if cache else None


def _engine_for(config: pytest.Config, root: Path) -> "Engine":
    """Return the engine for cases of this checkout, which is chosen by the first of them. Raises EngineError."""
    engines = config.stash[_ENGINES]
    if root not in engines:
        from gpu_casebook.engines.registry import choose

        opened = ExitStack()
        engines[root] = opened.enter_context(choose(config.getoption("casebook_engine"), root, print))
        config.add_cleanup(opened.close)
    return engines[root]


_ENGINES = pytest.StashKey["dict[Path, Engine]"]()
_UNWRITTEN = pytest.StashKey[str]()
