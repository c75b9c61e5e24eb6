"""Instruments on a real GPU: python -m pytest tests/gpu, on a host as tests/gpu/conftest.py describes it."""

import os
from collections.abc import Callable

import pytest

from failure_signature.kinds import Variant
from failure_signature.reading.findings import Kind, Tool
from failure_signature.trials import Outcome, SanitizerReport, Verdict
from gpu_casebook.evidence import Evidence, SanitizerProbe
from gpu_casebook.manifest.case import Case
from gpu_casebook.report.headline import headline, plain
from gpu_casebook.run.probes.launch_blocking import Effect, LaunchBlockingProbe, effect
from tests.gpu.conftest import Go

pytestmark = [pytest.mark.gpu, pytest.mark.docker]

Write = Callable[..., Case]
Corpus = Callable[[str], Case]

STORE = '''\
import torch
SOURCE = r"""
extern "C" __global__ void store_one(float* out, int at) { out[at] = 1.0f; }
"""
def launch(out, at):
    kernel = torch.cuda._compile_kernel(SOURCE, "store_one")
    kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[out, at])
def read_back(out):
    return out.sum().item()
out = torch.zeros(64, device="cuda")
torch.cuda.synchronize()
launch(out, AT)
print("launched=1", flush=True)
print(f"total={read_back(out)}")
'''
BEHIND, FAR, INSIDE = (STORE.replace("AT)\n", f"{at})\n") for at in ("64", "2**31 - 1", "63"))  # 32 bits are passed

RACE = '''\
import torch
SOURCE = r"""
extern "C" __global__ void reverse(int* out) {
    __shared__ int tile[256];
    tile[threadIdx.x] = threadIdx.x;
    SYNC
    out[threadIdx.x] = tile[255 - threadIdx.x];
}
"""
kernel = torch.cuda._compile_kernel(SOURCE, "reverse")
out = torch.zeros(256, dtype=torch.int32, device="cuda")
kernel(grid=(1, 1, 1), block=(256, 1, 1), args=[out])
print(f"last={int(out[0])}", flush=True)
'''

UNWRITTEN = '''\
import torch
SOURCE = r"""
extern "C" __global__ void read_all(const float* given, float* out) { out[threadIdx.x] = given[threadIdx.x] + 1.0f; }
"""
kernel = torch.cuda._compile_kernel(SOURCE, "read_all")
given, out = torch.MAKE(64, device="cuda"), torch.zeros(64, device="cuda")
kernel(grid=(1, 1, 1), block=(64, 1, 1), args=[given, out])
print(f"values={len(out.tolist())}", flush=True)
'''

CAPTURED = """\
import torch
SOURCE = r'''
extern "C" __global__ void store_one(float* out, int at) { out[at] = 1.0f; }
'''
kernel = torch.cuda._compile_kernel(SOURCE, "store_one")
out = torch.zeros(64, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    doubled = out * 2
    kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[out, AT])
graph.replay()
print(f"total={out.sum().item()}")
"""

ASSERTION = """\
import torch
def look_up(table, index):
    return table[index]
def add_one(rows):
    return rows + 1
table = torch.zeros(4, 8, device="cuda")
index = torch.tensor([INDEX], device="cuda")
torch.cuda.synchronize()
rows = look_up(table, index)
print(f"total={add_one(rows).sum().item()}")
"""


def looks(evidence: Evidence) -> list[SanitizerProbe]:
    return [probe for probe in evidence.probes if isinstance(probe, SanitizerProbe)]


def report_of(evidence: Evidence, tool: Tool) -> SanitizerReport:
    reports = [trial.sanitizer for trial in evidence.sanitized if trial.variant is Variant.REPRO]
    reports += [probe.report for probe in looks(evidence) if probe.variant is Variant.REPRO]
    (report,) = [report for report in reports if report and report.tool is tool]
    return report


def blocking(evidence: Evidence) -> LaunchBlockingProbe:
    (probe,) = [probe for probe in evidence.probes if isinstance(probe, LaunchBlockingProbe)]
    return probe


@pytest.fixture
def fault(case: Write) -> Case:
    """A store far outside of everything."""
    return case(
        failure="illegal-access",
        repro="{cuda_error: cudaErrorIllegalAddress, sanitizer: {access: write, size: 4, kernel: store_one}}",
        fixed="{figures: {total: '== 1'}}",
        scripts=(FAR, INSIDE),
    )


def test_an_illegal_access_with_the_declared_finding(fault: Case, go: Go) -> None:
    evidence = go(fault)
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    repro, fixed = evidence.sanitized
    assert repro.sanitizer
    assert fixed.sanitizer
    assert repro.sanitizer.findings[repro.sanitizer.declared or 0].kernel_name == "store_one"
    assert fixed.sanitizer.summary
    assert (fixed.sanitizer.summary.errors, fixed.sanitizer.findings) == (0, [])
    assert repro.sanitizer.version


def test_launch_blocking_leads_to_the_launch(fault: Case, go: Go) -> None:
    evidence = go(fault)
    probe = blocking(evidence)
    assert effect(probe) is Effect.MOVED
    assert probe.surfaced
    assert probe.launched
    assert (probe.surfaced.function, probe.launched.function) == ("read_back", "launch")
    said = plain(headline(evidence))
    assert said.startswith(
        "Reproduces in 1 of 1 runs: illegal memory access in store_one, an out-of-bounds write of 4 b"
    )
    assert "surfaced at return out.sum().item() (repro.py:" in said


def test_the_kernel_log_has_the_fault(fault: Case, go: Go) -> None:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"the kernel log can't be read here: {error.strerror}")
    evidence = go(fault)
    repro, fixed = evidence.trials
    assert [xid.number for xid in repro.xids]
    assert fixed.xids == []


def test_out_of_bounds_in_silence(case: Write, go: Go) -> None:
    """PyTorch's cache hands out 512 bytes where 256 were asked for: nothing shows but under the tool."""
    evidence = go(
        case(
            failure="illegal-access",
            repro="{figures: {launched: '== 1'}, sanitizer: {kind: out-of-bounds, access: write, size: 4}}",
            fixed="{figures: {total: '== 1'}}",
            scripts=(BEHIND, INSIDE),
        )
    )
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    finding = report_of(evidence, Tool.MEMCHECK).findings[0]
    assert finding.nearest
    assert (finding.nearest.side, finding.nearest.distance, finding.nearest.size) == ("after", 1, 256)
    assert "just behind a 256-byte buffer in store_one" in plain(headline(evidence))


def test_a_fix_that_leaves_the_access_is_none(case: Write, go: Go) -> None:
    evidence = go(
        case(
            failure="illegal-access",
            repro="{figures: {launched: '== 1'}, sanitizer: {access: write, kernel: store_one}}",
            fixed="{figures: {launched: '== 1', total: '== 0'}}",
            scripts=(BEHIND, BEHIND),
        )
    )
    assert evidence.verdict is Verdict.FIX_FAILS, evidence.reasons
    assert [trial.outcome for trial in evidence.trials] == [Outcome.AS_EXPECTED] * 2


def test_a_race_that_nothing_shows(case: Write, go: Go) -> None:
    evidence = go(
        case(
            failure="race",
            repro="{figures: {last: '>= 0'}, sanitizer: {tool: racecheck, kind: race, kernel: reverse}}",
            fixed="{figures: {last: '== 255'}}",
            scripts=(RACE.replace("SYNC", ""), RACE.replace("SYNC", "__syncthreads();")),
        )
    )
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    assert report_of(evidence, Tool.RACECHECK).findings[0].kind is Kind.RACE
    assert report_of(evidence, Tool.MEMCHECK).findings == []


def test_what_nobody_wrote(case: Write, go: Go) -> None:
    evidence = go(
        case(
            failure="wrong-numbers",
            repro="{figures: {values: '== 64'}, sanitizer: {tool: initcheck, kind: uninitialized, kernel: read_all}}",
            fixed="{figures: {values: '== 64'}}",
            scripts=(UNWRITTEN.replace("MAKE", "empty"), UNWRITTEN.replace("MAKE", "ones")),
        )
    )
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons


def test_a_graph_is_captured_with_the_allocator_that_it_needs(case: Write, go: Go) -> None:
    evidence = go(
        case(
            failure="illegal-access",
            repro="{cuda_error: cudaErrorIllegalAddress}",
            fixed="{figures: {total: '== 1'}}",
            scripts=(CAPTURED.replace("AT]", "2**31 - 1]"), CAPTURED.replace("AT]", "63]")),
        )
    )
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    report = report_of(evidence, Tool.MEMCHECK)
    assert report.cached
    assert report.findings[0].kernel_name == "store_one"
    assert "illegal memory access in store_one" in plain(headline(evidence))


def test_what_both_variants_have_is_not_told_as_the_cause(case: Write, go: Go) -> None:
    reads = UNWRITTEN.replace("MAKE", "empty")
    evidence = go(
        case(
            failure="wrong-numbers",
            repro="{figures: {values: '== 64', right: '== 0'}}",
            fixed="{figures: {values: '== 64', right: '== 1'}}",
            scripts=(f"{reads}print('right=0')\n", f"{reads}print('right=1')\n"),
        )
    )
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    assert {(it.report.tool, it.variant) for it in looks(evidence) if it.report.findings} == {
        (Tool.INITCHECK, Variant.REPRO),
        (Tool.INITCHECK, Variant.FIXED),
    }
    assert "initcheck" not in plain(headline(evidence))


def test_a_device_side_assertion(case: Write, go: Go) -> None:
    evidence = go(
        case(
            failure="illegal-access",
            repro="{cuda_error: cudaErrorAssert}",
            fixed="{figures: {total: '== 8'}}",
            scripts=(ASSERTION.replace("INDEX", "7"), ASSERTION.replace("INDEX", "3")),
        )
    )
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    assert report_of(evidence, Tool.MEMCHECK).findings[0].kind is Kind.ASSERT
    probe = blocking(evidence)
    assert effect(probe) is Effect.MOVED
    assert probe.launched
    assert probe.launched.function == "look_up"


@pytest.mark.parametrize(
    ("id", "kernel"),
    [
        ("vllm-block-table-overread", "flash_fwd_splitkv_kernel"),
        ("flash-attn-block-table-residual", "flash_fwd_splitkv_kernel"),
    ],
)
def test_cases_that_declare_a_finding(corpus: Corpus, go: Go, id: str, kernel: str) -> None:  # noqa: A002
    evidence = go(corpus(id))
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    assert f"illegal memory access in {kernel}, an out-of-bounds read of 4 bytes" in plain(headline(evidence))
    assert effect(blocking(evidence)) is Effect.MOVED


def test_gradients_over_replays_are_not_put_down_to_a_capture_that_failed(corpus: Corpus, go: Go) -> None:
    evidence = go(corpus("graphed-callables-static-grad"))
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    assert all(it.report.cached and it.report.summary for it in looks(evidence))
    assert "weight_grad_over_last=2" in plain(headline(evidence))


def test_a_matter_of_timing(corpus: Corpus, go: Go) -> None:
    evidence = go(corpus("vllm-unmap-in-flight"))
    assert evidence.verdict is Verdict.CONFIRMED, evidence.reasons
    assert effect(blocking(evidence)) is Effect.GONE
    assert "a matter of timing" in plain(headline(evidence))
