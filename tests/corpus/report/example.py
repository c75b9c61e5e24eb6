"""Runs of a small corpus, to be changed by the tests that use them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from casebook_workbench.corpus.model import End, Finished, Job, Lost, Run, Settings
from failure_signature.kinds import Grade, Variant
from failure_signature.trials import Rate, Verdict

H200, A100 = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"
START = datetime(2026, 11, 21, 2, 0, 0, tzinfo=UTC)
SETTINGS = Settings(root="/checkout", reports="/checkout/reports")
ALL = Rate(k=3, n=3, low=0.44, high=1.0)
NONE = Rate(k=0, n=3, low=0.0, high=0.56)
REASONS = {
    Verdict.CONFIRMED: "Reproduces in 3 of 3 runs: CompilationError; the fix holds in 3 of 3.",
    Verdict.NOT_REPRODUCED: "repro ran to its end in 3 of 3 trials without the failure.",
    Verdict.WRONG_FAILURE: "repro failed in another way: ModuleNotFoundError: No module named 'triton'",
}


def job(case: str, environment: str = "current", **changed: Any) -> Job:
    whole: dict[str, Any] = {
        "case": case,
        "environment": environment,
        "failure": "compile-error",
        "project": "owner/name",
        "grade": Grade.HARDWARE,
        "gpus": 1,
        "environment_key": "ab12",
    }
    return Job(**whole | changed)


def finished(of: Job, verdict: Verdict = Verdict.CONFIRMED, **changed: Any) -> Finished:
    """A job that ran on an H200 to this verdict, in 44.6 s from the run's start."""
    whole: dict[str, Any] = {
        "job": of,
        "end": End.RAN,
        "verdict": verdict,
        "reason": REASONS.get(verdict, str(verdict)),
        "rates": {Variant.REPRO: ALL if verdict is Verdict.CONFIRMED else NONE, Variant.FIXED: ALL},
        "device": H200 if of.gpus else "CPU",
        "evidence": f"evidence/{of.case}/{of.environment}.docker.nvidia-h200.json",
        "worker": "worker 1",
        "started": START,
        "duration_s": 44.6,
    }
    return Finished(**whole | changed)


def broke(of: Job, reason: str = "the image could not be built: no space left on device", **changed: Any) -> Finished:
    return _without_verdict(of, End.BROKE, reason, **{"duration_s": 12.0} | changed)


def skipped(of: Job, reason: str = "2 GPUs are needed, and there is 1", **changed: Any) -> Finished:
    return _without_verdict(of, End.SKIPPED, reason, **changed)


def _without_verdict(of: Job, end: End, reason: str, **changed: Any) -> Finished:
    nothing: dict[str, Any] = {"verdict": None, "rates": {}, "device": "", "evidence": None, "duration_s": 0.0}
    return finished(of, **nothing | {"end": end, "reason": reason} | changed)


def run(done: Sequence[Finished] = (), left: Sequence[Job] = (), night: int = 0, **changed: Any) -> Run:
    """The run of a night; `left` are jobs that it has not come to."""
    started = START + timedelta(days=night)
    whole: dict[str, Any] = {
        "id": f"{started:%Y%m%d-%H%M%S}-000000",
        "started": started,
        "ended": None if left else started + timedelta(minutes=10),
        "host": "gpu-box",
        "runner": "0.1.0 (80fe59a)",
        "command": "nox -s corpus",
        "settings": SETTINGS,
        "workers": ["worker 1", "worker 2"],
        "jobs": [*(each.job for each in done), *left],
        "finished": list(done),
        "disk_before_bytes": 15_000_000_000,
        "disk_after_bytes": 17_500_000_000,
    }
    return Run(**whole | changed)


RWKV, MASK, RACE, UNPAD, OVERREAD = map(job, ("rwkv6-backward", "rwkv6-mask", "wake-race", "unpad", "overread"))
SIMULATED = job("rwkv6-backward", "front-end", gpus=0, grade=Grade.SIMULATED)
PAIR = job("pair-hang", gpus=2)
YESTERDAY = run(
    [
        finished(RWKV),
        finished(MASK, Verdict.NOT_REPRODUCED),
        finished(RACE),
        finished(UNPAD),
        finished(OVERREAD, device=A100),
        finished(SIMULATED),
        finished(job("retired")),
    ],
    night=-1,
)
TODAY = run(
    [
        finished(RWKV, Verdict.NOT_REPRODUCED),
        finished(MASK, duration_s=131.0),
        finished(RACE, end=End.REUSED, duration_s=0.0),
        broke(UNPAD),
        finished(OVERREAD, Verdict.WRONG_FAILURE, infra_trials=2, drifted=False),
        finished(SIMULATED, worker="worker 2", lost=[Lost(worker="worker 3", reason="killed by SIGKILL", after_s=8.5)]),
        skipped(PAIR),
    ],
)
