"""A third engine, which nothing but an entry point names: trials are plain processes of this Python."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from failure_signature.result import TrialResult
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.trial import Note, Recipe, TrialRequest


class ThirdEngine(Engine):
    name = "third"
    isolation = ("none: this is a test",)
    version = "third 1.0"

    @classmethod
    def connect(cls, root: Path) -> Self:
        return cls()

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        return Prepared(key="third", python=sys.executable)

    def absent(self, recipes: Iterable[Recipe]) -> Sequence[Recipe]:
        return []

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        with tempfile.TemporaryDirectory() as directory:
            for name, content in request.files.items():
                path = Path(directory, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            command = [*request.wrapper, prepared.python, *request.arguments]
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        return TrialResult(stdout=done.stdout, stderr=done.stderr, duration_s=0.1, exit_status=done.returncode)
