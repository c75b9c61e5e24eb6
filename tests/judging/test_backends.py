"""An environment on a GPU of a case that runs on a CPU too: what the CPU printed is not what it asks for."""

from pathlib import Path

from failure_signature.judging.outcome import judge, observe
from failure_signature.result import TrialResult
from failure_signature.trials import Outcome
from gpu_casebook.evidence import evidence_files, load
from gpu_casebook.manifest.case import find, known_images

ROOT = Path(__file__).parents[2]
CASE = "graphed-callables-static-grad"


def test_a_cpu_is_no_gpu() -> None:
    case = find(ROOT, CASE, known_images(ROOT))
    runs = [load(path) for path in evidence_files(ROOT / "reports", CASE)]
    own = [run for run in runs if run.environment.name == "cpu" and run.case.digest == case.digest()]
    trials = [trial for run in own for trial in run.trials]
    assert trials
    for trial in trials:
        seen = TrialResult(stdout=trial.stdout, stderr=trial.stderr, duration_s=1.0, exit_status=0)
        for environment, outcome in (("cpu", Outcome.AS_EXPECTED), ("current", Outcome.OTHERWISE)):
            assert judge(case.expectation(environment, trial.variant), seen, observe(seen)).outcome is outcome
