"""A checkout with cases whose scripts need no package, and real runs of it: `casebook corpus`, with venv."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from casebook_workbench.corpus import journal
from casebook_workbench.corpus.model import Finished, Run
from tests.engines.subjects import ROOT, this_python
from tests.fakes import locked

PATIENCE_S = 300.0

MANIFEST = """\
id: {id}
title: A case of the tests
failure: {failure}
upstream:
  project: owner/name
  status: fixed
  issue: https://example.org/owner/name/issues/1
provenance: distilled
environments:
  plain:
    image: cpu
    requirements: []
    python: '{python}'
    {hardware}
repro:
  expect: {{exception: builtins.RuntimeError, message: off by two}}
fixed:
  expect: {{message: all good}}
timeout: {timeout}s
memory: {memory}
"""
REPRO = "raise RuntimeError('off by two')\n"
FIXED = "print('all good')\n"


@dataclass
class World:
    """A checkout at `root`. Runs get `variables` on top of this process's own, and `prefix` before the command."""

    root: Path
    cache: Path
    variables: dict[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    engine: Sequence[str] = ("--engine", "venv")

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    def write(
        self,
        name: str,
        repro: str = REPRO,
        fixed: str = FIXED,
        *,
        timeout: float = 60,
        memory: str = "1GiB",
        failure: str = "exception",
        hardware: str = "grade: simulated",
    ) -> Path:
        """Write a case; without more it is confirmed. Its directory."""
        directory = self.root / "cases" / name
        (directory / "locks").mkdir(parents=True)
        (directory / "locks" / "plain.txt").write_text(locked([], this_python()))
        (directory / "README.md").write_text("What failed, and why.\n")
        (directory / "repro.py").write_text(repro)
        (directory / "fixed.py").write_text(fixed)
        manifest = MANIFEST.format(
            id=name, python=this_python(), timeout=timeout, memory=memory, failure=failure, hardware=hardware
        )
        (directory / "case.yaml").write_text(manifest)
        return directory

    def command(self, *options: str) -> list[str]:
        runner = [sys.executable, "-m", "gpu_casebook", "corpus", "--reports", str(self.reports)]
        return [*self.prefix, *runner, *([] if "--resume" in options else self.engine), *options]

    def environment(self) -> Mapping[str, str]:
        scratch = self.root / "tmp"
        scratch.mkdir(exist_ok=True)
        own = {"XDG_CACHE_HOME": str(self.cache), "TMPDIR": str(scratch), "PYTHONPATH": f"{ROOT}:{ROOT}/runner"}
        return dict(os.environ) | own | self.variables

    def run(self, *options: str) -> tuple[int, str]:
        """A whole run; exit status and output."""
        with self.running(*options) as process:
            said, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said

    @contextmanager
    def running(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        process = subprocess.Popen(
            self.command(*options),
            cwd=self.root,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def last(self) -> Run:
        """The record of the newest run, whole or so far."""
        return journal.read(journal.runs_directory(self.reports) / journal.ids(self.reports)[-1])

    def ends(self) -> dict[str, Finished]:
        """What came of each case in the newest run."""
        return {each.job.case: each for each in self.last().finished}

    def left(self) -> list[str]:
        """Processes and scratch directories of trials."""
        mark = f"{self.root / 'tmp'}/"
        places = [path.name for path in (self.root / "tmp").glob("casebook-*/*")]
        return [f"process {pid}" for pid, home in _homes() if home.startswith(mark)] + places


def _homes() -> Iterator[tuple[int, str]]:
    for process in psutil.process_iter():
        try:
            yield process.pid, process.environ().get("HOME", "")
        except (psutil.Error, OSError):
            continue


def make_world(root: Path, cache: Path) -> World:
    shutil.copytree(ROOT / "images", root / "images")
    (root / "cases").mkdir()
    return World(root, cache)


def eventually(look: Callable[[], Any], why: str = "it did not happen") -> Any:
    """Wait for something that another process does; what it gave."""
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, why
        time.sleep(0.05)
    return seen
