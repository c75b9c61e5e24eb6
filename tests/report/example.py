"""Evidence as a run of the RWKV6 case leaves it, to be changed by the tests that use it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from failure_signature.expectation import Expectation
from failure_signature.judging.decision import Terms, decide
from failure_signature.judging.outcome import judge, lines, observe
from failure_signature.kinds import Grade, Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Trial
from gpu_casebook.evidence import (
    Attestation,
    CaseFacts,
    Content,
    Durations,
    EngineFacts,
    EnvironmentFacts,
    Evidence,
    Gpu,
    ImageFacts,
    UpstreamFacts,
)
from gpu_casebook.revision import SEMANTICS
from gpu_casebook.trial import GpuAccess

REPRO_STDERR = (Path(__file__).parents[1] / "data" / "stderr" / "triton-2.2.0.txt").read_text()
REPRO = TrialResult(stdout="fwd_rel_err=1.0e-07\n", stderr=REPRO_STDERR, duration_s=6.84, exit_status=1)
FIXED = TrialResult(stdout="fwd_rel_err=1.0e-07\ndq_rel_err=9.5e-08\n", stderr="", duration_s=8.02, exit_status=0)

EXPECTED = {
    Variant.REPRO: Expectation.model_validate(
        {
            "exception": "triton.compiler.errors.CompilationError",
            "message": r"Cannot broadcast, the expanded size of the tensor \(64\) must match the existing size \(16\) "
            r"at non-singleton dimension 0: \[16, 64\], \[64, 16\]",
            "figures": {"fwd_rel_err": "< 1e-5"},
        }
    ),
    Variant.FIXED: Expectation.model_validate({"figures": {"fwd_rel_err": "< 1e-5", "dq_rel_err": "< 1e-5"}}),
}

FIX_DIFF = """\
--- repro.py
+++ fixed.py
@@ -19,7 +19,7 @@
 @triton.jit
 def dq_kernel(k, v, w, s0, dy, dq, T, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
     rk, rv = tl.program_id(0) * BK + tl.arange(0, BK), tl.program_id(1) * BV + tl.arange(0, BV)
-    keep = (rk < K)[:, None] & (rv < V)[None, :]                           # [BK, BV]
+    keep = (rv < V)[:, None] & (rk < K)[None, :]                           # [BV, BK]
     S = tl.load(s0 + rk[None, :] * V + rv[:, None], mask=keep, other=0.0)  # [BV, BK] of the [K, V] state
"""

CASE = CaseFacts(
    id="rwkv6-backward",
    title="RWKV6 fused recurrent backward fails to compile with an initial state",
    failure="compile-error",
    provenance="distilled",
    upstream=UpstreamFacts(
        project="fla-org/flash-linear-attention",
        issue="https://github.com/fla-org/flash-linear-attention/issues/18",
        introduced="f3309729d3de7706b04cd4e4ffe5cdc8c50e9db0",
        fixed="1547448b998a163fdb33c49266da699db13f2dc8",
        status="fixed",
    ),
    signature={variant: lines(expectation) for variant, expectation in EXPECTED.items()},
    fix_diff=FIX_DIFF,
    digest="3f1c" * 16,
)

REQUIREMENTS = ["torch==2.2.2", "triton==2.2.0", "numpy==1.26.4", "setuptools==69.5.1"]
H200 = Gpu(name="NVIDIA H200", compute_capability="9.0", memory_bytes=150_754_820_096, driver="580.159.04")
ATTESTATION = Attestation(
    python="3.11.2",
    platform="Linux-6.1.0-x86_64-with-glibc2.36",
    packages={"torch": "2.2.2", "triton": "2.2.0", "numpy": "1.26.4", "setuptools": "69.5.1"},
    content=Content(files=20_341),
    cuda_driver="13.0",
    driver="580.159.04",
    gpus=[H200],
)
ENVIRONMENT = EnvironmentFacts(
    name="upstream",
    grade=Grade.HARDWARE,
    image="cuda12",
    python="3.11",
    requirements=REQUIREMENTS,
    locks={"upstream.txt": "9e07" * 16},
    attestation=ATTESTATION,
)
ENGINE = EngineFacts(
    name="docker",
    version="Docker 27.5.1",
    isolation=["no network", "no capabilities, no new privileges", "read-only root", "user 65534"],
    gpu_access=GpuAccess(mode="toolkit", detail="NVIDIA container toolkit 1.17.4"),
    image=ImageFacts(
        name="casebook/cuda12:9e07c5b1",
        id="sha256:" + "4be0" * 16,
        size_bytes=6_412_345_678,
        base="debian:bookworm-slim@sha256:" + "77aa" * 16,
    ),
)


def trial(variant: Variant, number: int, result: TrialResult) -> Trial:
    judgement = judge(EXPECTED[variant], result, observe(result))
    return Trial(
        variant=variant,
        number=number,
        outcome=judgement.outcome,
        mismatches=list(judgement.mismatches),
        infra=judgement.infra,
        observation=observe(result),
        duration_s=result.duration_s,
        stdout=result.stdout,
        stderr=result.stderr,
    )


def evidence(repro: TrialResult = REPRO, fixed: TrialResult = FIXED, **changed: Any) -> Evidence:
    """Three trials of each variant that all end the same, judged and decided as the pipeline does it."""
    results = {Variant.REPRO: repro, Variant.FIXED: fixed}
    trials = [trial(variant, number, results[variant]) for variant in Variant for number in (1, 2, 3)]
    decision = decide(trials, Terms(trials=3))
    whole: dict[str, Any] = {
        "case": CASE,
        "environment": ENVIRONMENT,
        "engine": ENGINE,
        "verdict": decision.verdict,
        "reasons": list(decision.reasons),
        "rates": decision.rates,
        "trials": trials,
        "started": datetime(2026, 11, 21, 9, 30, 12, tzinfo=UTC),
        "durations": Durations(prepare_s=131.4, trials_s=44.6, total_s=176.0),
        "command": "nox -s case-rwkv6-backward -- --environment upstream --engine docker",
        "runner": "0.1.0 (80fe59a)",
        "semantics": SEMANTICS,
    }
    return Evidence(**whole | changed)


def simulated(**changed: Any) -> Evidence:
    """The same case in its front-end environment: compiled only, on a CPU, by the venv engine, and drifted."""
    environment = ENVIRONMENT.model_copy(
        update={
            "name": "front-end",
            "grade": Grade.SIMULATED,
            "image": "cpu",
            "requirements": REQUIREMENTS[1:],
            "locks": {"front-end.txt": "51ad" * 16},
            "attestation": ATTESTATION.model_copy(update={"gpus": [], "driver": None, "cuda_driver": None}),
            "drift": ["python 3.11.2, not 3.12", "numpy 1.26.4, not 1.26.3"],
            "aside": 1,
        }
    )
    engine = EngineFacts(name="venv", version="uv 0.5.11", isolation=["process group", "resource limits"])
    return evidence(**{"environment": environment, "engine": engine} | changed)
