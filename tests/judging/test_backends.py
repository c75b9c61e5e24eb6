"""Environments on a GPU of cases that run on a CPU too: what a CPU printed is not what they ask for."""

from pathlib import Path

import pytest

from gpu_casebook.evidence import Outcome, evidence_files, load
from gpu_casebook.judging.expectation import judge, observe
from gpu_casebook.manifest.case import find, known_images
from gpu_casebook.trial import TrialResult

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["graphed-callables-static-grad", "inductor-slice-scatter-zero-grad"])
def test_a_cpu_is_no_gpu(name: str) -> None:
    case = find(ROOT, name, known_images(ROOT))
    runs = [load(path) for path in evidence_files(ROOT / "reports", name)]
    own = [run for run in runs if run.environment.name == "cpu" and run.case.digest == case.digest()]
    trials = [trial for run in own for trial in run.trials]
    assert trials
    for trial in trials:
        seen = TrialResult(stdout=trial.stdout, stderr=trial.stderr, duration_s=1.0, exit_status=0)
        for environment, outcome in (("cpu", Outcome.AS_EXPECTED), ("current", Outcome.OTHERWISE)):
            assert judge(case.expectation(environment, trial.variant), seen, observe(seen)).outcome is outcome
