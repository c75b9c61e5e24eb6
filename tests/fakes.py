"""An engine whose trials end as a test says."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from failure_signature.result import TrialResult
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.packages.lock import basis
from gpu_casebook.pins import ORDINARY, Special
from gpu_casebook.trial import GpuAccess, Note, Recipe, TrialRequest

FOUND = '"python": "3.11.2", "platform": "Linux-6.1-x86_64", "packages": {"numpy": "1.26.4"}'
ATTESTED = f'{{{FOUND}, "content": {{"files": 1}}}}'
_HASH = "2a02aba9ed12e4ac4eb3ea9421c420301a0c6460d9830d74a9df87efa4912010"


def locked(requirements: Iterable[str], python: str = "3.11", special: Special = ORDINARY, **_: object) -> str:
    """Return a lock of these requirements and nothing else; the hash is NumPy's."""
    pinned = sorted(requirements)
    header = [f"# {key}: {value}".rstrip() for key, value in basis(pinned, python, special).items()]
    return "".join(f"{line}\n" for line in [*header, *(f"{each} \\\n    --hash=sha256:{_HASH}" for each in pinned)])


LOCK = locked(["numpy==1.26.4"])

REPRO = TrialResult(stdout="rel_err=0.5\n", stderr="", duration_s=0.5, exit_status=0)
FIXED = TrialResult(stdout="all good\nrel_err=1e-7\n", stderr="", duration_s=0.25, exit_status=0)


class FakeEngine(Engine):
    """Answers by script: `ends` maps the script's name to what its trials end with, in turn; the last one repeats.

    Under a tool of compute-sanitizer the name has the tool in front: "memcheck repro.py". `located` is what is said of
    where that program is.
    """

    name = "venv"
    takes_over = True
    local = True
    isolation: Sequence[str] = ("none: this is a test",)
    version = "fake 1"
    machine = "x86_64"

    def __init__(self, ends: dict[str, Sequence[TrialResult]], access: GpuAccess | None = None) -> None:
        self._ends = {script: list(results) for script, results in ends.items()}
        self._access = access
        self.requests: list[TrialRequest] = []
        self.recipes: list[Recipe] = []
        self.attested = ATTESTED
        self.located = "null"
        self.before_trial: Callable[[TrialRequest], None] = lambda _request: None

    @classmethod
    def connect(cls, root: Path) -> Self:
        return cls({})

    def absent(self, recipes: Iterable[Recipe]) -> Sequence[Recipe]:
        return []

    def gpu_access(self) -> GpuAccess | None:
        return self._access

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        self.recipes.append(recipe)
        note("found ready")
        return Prepared(key="k", python="/env/bin/python")

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        script = request.arguments[0]
        if "attest.py" in request.arguments:
            told = self.attested
            return TrialResult(stdout=told + "\n", stderr="", duration_s=0.1, exit_status=0)
        if script == "locate.py":
            return TrialResult(stdout=self.located, stderr="", duration_s=0.1, exit_status=0)
        self.before_trial(request)
        self.requests.append(request)
        left = self._ends[" ".join([*request.wrapper[2:3], script])]
        return left.pop(0) if len(left) > 1 else left[0]
