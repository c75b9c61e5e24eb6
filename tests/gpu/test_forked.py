"""Forked trials on a real GPU: each has a CUDA context of its own, and its parent has none.

The environment is this interpreter's own PyTorch, found through PYTHONPATH: a GPU host may reach no index to install
a locked one from.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_casebook.console import Console
from gpu_casebook.devices import hardware
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.evidence import Evidence, Verdict
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from tests.conftest import Checkout, write_locks

pytestmark = pytest.mark.gpu

MANIFEST = """\
id: tiny
title: An assertion on the device
failure: crash
upstream: {{project: owner/name, status: fixed}}
provenance: distilled
environments:
  current: {{image: cuda13, requirements: [], python: '{python}', gpus: 1, variables: {{PYTHONPATH: '{site}'}}}}
repro:
  expect: {{cuda_error: cudaErrorAssert}}
fixed:
  expect: {{figures: {{total: '== 32'}}}}
trials: 3
timeout: 120s
"""

SCRIPT = """\
import torch
table = torch.ones(4, 8, device="cuda")
print(f"total={table[torch.tensor([INDEX] * 4, device='cuda')].sum().item()}", flush=True)
"""


@pytest.fixture
def case(checkout: Checkout) -> Case:
    torch = importlib.util.find_spec("torch")
    if not hardware.gpus():
        pytest.skip("no NVIDIA GPU here")
    if torch is None or torch.origin is None:
        pytest.skip("this Python has no PyTorch")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    manifest = MANIFEST.format(python=python, site=Path(torch.origin).parents[1])
    directory = checkout.write(manifest).parent
    for name, index in (("repro.py", "4"), ("fixed.py", "3")):
        (directory / name).write_text(SCRIPT.replace("INDEX", index))
    write_locks(directory)
    return find(checkout.root, "tiny", ["cuda13"])


@pytest.fixture
def go(case: Case, capsys: pytest.CaptureFixture[str]) -> Callable[[Options], Evidence]:
    def run(options: Options) -> Evidence:
        with VenvEngine() as engine:
            result = run_case(case, options, engine, Console())
        assert isinstance(result, Evidence), result
        return result

    return run


def test_forked_and_fresh_trials_end_alike(go: Callable[[Options], Evidence]) -> None:
    fresh, forked = (go(Options(environment="current", zygote=zygote, probes=False)) for zygote in (False, True))
    assert fresh.verdict is Verdict.CONFIRMED, fresh.reasons
    assert forked.verdict is Verdict.CONFIRMED, forked.reasons
    for variant in Variant:
        told = [[trial.observation.cuda_error for trial in run.trials_of(variant)] for run in (fresh, forked)]
        assert told[0] == told[1]
    assert not fresh.zygotes
    assert all("torch" in story for story in forked.zygotes), forked.zygotes
