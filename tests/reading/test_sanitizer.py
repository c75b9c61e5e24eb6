"""Reports put together by hand after NVIDIA's manual, and at the end whatever was recorded on a GPU."""

import json
from dataclasses import dataclass

import pytest

from failure_signature.reading.findings import (
    Dim3,
    Finding,
    KernelPlace,
    Kind,
    Nearest,
    Tool,
    alike,
    grouped,
    sentence,
    short_name,
)
from failure_signature.reading.sanitizer import at_odds_with_capture, command, parse, summary
from tests.recordings import DIRECTORY, Recording, recordings, sentences


def report(*lines: str, prefix: str = "=========") -> str:
    """Lines as the tool prints them: the title, its details indented by four, a bare prefix after each report."""
    return "\n".join([f"{prefix} COMPUTE-SANITIZER", *(f"{prefix} {line}" if line else prefix for line in lines), ""])


def one(*lines: str, tool: Tool = Tool.MEMCHECK) -> Finding:
    (finding,) = parse(report(*lines), tool)
    return finding


FULL_NAME = "void wkv::kernel_backward<float>(int, float const *, float *)"
OUT_OF_BOUNDS = (
    "Invalid __global__ write of size 4 bytes",
    f"    at {FULL_NAME}+0x1f0 in wkv.cu:57",
    "    by thread (0,0,0) in block (4,0,0)",
    "    Access to 0x7f3c7ec00200 is out of bounds",
    "    and is 257 bytes after the nearest allocation at 0x7f3c7ec00000 of size 256 bytes",
    "    Saved host backtrace up to driver entry point at kernel launch time",
    "        Host Frame: backward(at::Tensor) [0x8cd1] in wkv.so",
    "        Host Frame: main [0x9f9a] in python3.12",
    "",
)


def test_out_of_bounds_in_full() -> None:
    finding = one(*OUT_OF_BOUNDS, "ERROR SUMMARY: 1 error")
    assert finding == Finding(
        tool=Tool.MEMCHECK,
        kind=Kind.OUT_OF_BOUNDS,
        title="Invalid __global__ write of size 4 bytes",
        access="write",
        space="global",
        size=4,
        place=KernelPlace(function=FULL_NAME, file="wkv.cu", line=57),
        thread=Dim3(0, 0, 0),
        block=Dim3(4, 0, 0),
        nearest=Nearest(side="after", distance=257, size=256),
        host_frames=["backward(at::Tensor) in wkv.so", "main in python3.12"],
        text="\n".join(line.strip() for line in OUT_OF_BOUNDS[:-1]),
    )
    assert finding.kernel_name == "kernel_backward"


@dataclass(frozen=True)
class Said:
    """A report, the kind it is read as, and what a person is told."""

    lines: tuple[str, ...]
    kind: Kind
    sentence: str
    tool: Tool = Tool.MEMCHECK


BY = "    by thread (3,1,0) in block (2,0,0)"
BY_SAID = "thread (3,1,0), block (2,0,0)"
SAID = {
    "just behind": Said(
        (
            "Invalid __global__ write of size 4 bytes",
            "    at kernel(float *)+0x70 in a.cu:6",
            BY,
            "    Access to 0x7f00 is out of bounds",
            "    and is 1 bytes after the nearest allocation at 0x7e00 of size 4,194,300 bytes",
        ),
        Kind.OUT_OF_BOUNDS,
        "an out-of-bounds write of 4 bytes, just behind a 4,194,300-byte buffer, in kernel at a.cu:6"
        f" (memcheck; {BY_SAID})",
    ),
    "just before": Said(
        (
            "Invalid __global__ read of size 2 bytes",
            "    at kernel(short *)+0x70",
            BY,
            "    Access to 0x7dfe is out of bounds",
            "    and is 2 bytes before the nearest allocation at 0x7e00 of size 64 bytes",
        ),
        Kind.OUT_OF_BOUNDS,
        f"an out-of-bounds read of 2 bytes, just before a 64-byte buffer, in kernel (memcheck; {BY_SAID})",
    ),
    "far before, numbers grouped as elsewhere": Said(
        (
            "Invalid __global__ read of size 16 bytes",
            "    at _gemm_kernel+0x3440 in triton.py:42",
            BY,
            "    Access to 0x7dfe is out of bounds",
            "    and is 1.536 bytes before the nearest allocation at 0x7e00 of size 1.024 bytes",
        ),
        Kind.OUT_OF_BOUNDS,
        "an out-of-bounds read of 16 bytes, 1,536 bytes before a 1,024-byte buffer, in _gemm_kernel at triton.py:42"
        f" (memcheck; {BY_SAID})",
    ),
    "atomic": Said(
        ("Invalid __global__ atomic of size 4 bytes", "    at k(int*)+0x10", BY, "    Access to 0x1 is out of bounds"),
        Kind.OUT_OF_BOUNDS,
        f"an out-of-bounds atomic of 4 bytes in k (memcheck; {BY_SAID})",
    ),
    "shared": Said(
        ("Invalid __shared__ write of size 8 bytes", "    at k(int*)+0x10", BY, "    Access to 0x5cc is out of bounds"),
        Kind.OUT_OF_BOUNDS,
        f"an out-of-bounds shared-memory write of 8 bytes in k (memcheck; {BY_SAID})",
    ),
    "misaligned": Said(
        (
            "Invalid __global__ write of size 4 bytes",
            "    at unaligned_kernel()+0x100 in demo.cu:34",
            BY,
            "    Access to 0x7cc43aa00001 is misaligned",
            "    and is inside the nearest allocation at 0x7cc43aa00000 of size 4 bytes",
        ),
        Kind.MISALIGNED,
        "a misaligned write of 4 bytes, inside a 4-byte buffer, in unaligned_kernel at demo.cu:34"
        f" (memcheck; {BY_SAID})",
    ),
    "stream order": Said(
        (
            "Invalid __global__ read of size 4 bytes",
            "    at k(int*)+0x10",
            BY,
            "    Access to 0x302000000 is potentially accessed after it is free'd",
        ),
        Kind.LIFETIME,
        f"an untimely read of 4 bytes in k (memcheck; {BY_SAID})",
    ),
    "leak": Said(("Leaked 1,024 bytes at 0x7879c0800000",), Kind.LEAK, "1,024 bytes that nobody freed (memcheck)"),
    "leak of the device heap": Said(
        ("Leaked 16 bytes at 0x4012ffff6 on the device heap",),
        Kind.LEAK,
        "16 bytes on the device heap that nobody freed (memcheck)",
    ),
    "double free": Said(
        ("Malloc/Free error encountered : Double free", "    at 0x79d8", BY, "    Address 0x400aff920"),
        Kind.INVALID_FREE,
        f"an invalid free: Double free (memcheck; {BY_SAID})",
    ),
    "API error": Said(
        (
            'Program hit cudaErrorLaunchFailure (error 719) due to "unspecified" on CUDA API call to cudaFree.',
            "    Saved host backtrace up to driver entry point at error",
            "        Host Frame: main [0x8a94] in demo",
        ),
        Kind.API_ERROR,
        "cudaErrorLaunchFailure, returned by cudaFree (memcheck)",
    ),
    "race": Said(
        (
            "Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in block_error.cu:41",
            "    and Read access at sumKernel(int *, int *)+0x100 in block_error.cu:51 [508 hazards]",
        ),
        Kind.RACE,
        "a race on shared memory in sumKernel, between a write at block_error.cu:41 and a read at block_error.cu:51"
        " (racecheck; 508 hazards)",
        Tool.RACECHECK,
    ),
    "race of three": Said(
        (
            "Warning: Race reported between Write access at k(int *)+0xf0 in r.cu:12",
            "    and Read access at k(int *)+0xd0 in r.cu:12 [32 hazards]",
            "    and Write access at k(int *)+0xf0 in r.cu:13 [4 hazards]",
        ),
        Kind.RACE,
        "a race on shared memory in k, between a write at r.cu:12 and a read at r.cu:12 and a write at r.cu:13"
        " (racecheck; 36 hazards)",
        Tool.RACECHECK,
    ),
    "hazard": Said(
        (
            "Warning: (Warp Level Programming) Potential RAW hazard detected at __shared__ 0x8c in block (0,0,0) :",
            "    Write Thread (35,0,0) at sumKernel(int *, int *)+0x90 in warp_error.cu:44",
            "    Read Thread (32,0,0) at sumKernel(int *, int *)+0x120 in warp_error.cu:56",
            "    Current Value : 35",
        ),
        Kind.RACE,
        "a read-after-write hazard on shared memory in sumKernel, between a write at warp_error.cu:44"
        " and a read at warp_error.cu:56 (racecheck)",
        Tool.RACECHECK,
    ),
    "neighbour block": Said(
        (
            "Potential invalid __shared__ read of size 4 bytes",
            "    at RemoteAccess(int *, int)+0x170 in RaceCluster.cu:10",
            BY,
            "    Address 0x1000400 is located in a block that might have already exited",
        ),
        Kind.RACE,
        f"a race on shared memory in RemoteAccess at RaceCluster.cu:10 (racecheck; {BY_SAID})",
        Tool.RACECHECK,
    ),
    "deadlock": Said(
        ("Deadlock detected in Cuda::barrier wait called by threads starting at (32,0,0) in block (1,0,0), at k+0x1",),
        Kind.SYNC,
        "a barrier error in k: Deadlock (racecheck; thread (32,0,0), block (1,0,0))",
        Tool.RACECHECK,
    ),
    "uninitialized": Said(
        (
            "Uninitialized __global__ memory read of size 4 bytes",
            "    at vectorAdd(int *)+0x70 in memset_error.cu:41",
            BY,
            "    Address 0x7f3c7ec000fc",
        ),
        Kind.UNINITIALIZED,
        "a read of 4 bytes of global memory that nobody wrote, in vectorAdd at memset_error.cu:41"
        f" (initcheck; {BY_SAID})",
        Tool.INITCHECK,
    ),
    "uninitialized copy": Said(
        (
            "Host API memory access error at host access to 0x7f3c7ec00000 of size 256 bytes",
            "    Uninitialized access to 0x7f3c7ec00000 on access by cudaMemcpy source",
        ),
        Kind.UNINITIALIZED,
        "a read of 256 bytes that nobody wrote, by cudaMemcpy (initcheck)",
        Tool.INITCHECK,
    ),
    "unused": Said(
        (
            " Unused memory in allocation 0x7fed9f400000 of size 100 bytes",
            "    Not written 80 bytes at offset 0x14 (0x7fed9f400014)",
            "    80% of allocation were unused.",
        ),
        Kind.UNUSED,
        "an allocation of 100 bytes that was not used: Not written 80 bytes at offset 0x14 (initcheck)",
        Tool.INITCHECK,
    ),
    "barrier": Said(
        ("Barrier error detected. Divergent thread(s) in warp.", "    at k(int *)+0xa0 in s.cu:61", BY),
        Kind.SYNC,
        f"a barrier error in k at s.cu:61: Divergent thread(s) in warp (synccheck; {BY_SAID})",
        Tool.SYNCCHECK,
    ),
    "assertion": Said(
        (
            "Warp assert",
            "    at __assertfail+0x19a0",
            BY,
            "        Device Frame: look_up(const int *, int)+0x20 in a.cu:5",
        ),
        Kind.ASSERT,
        "a device-side assertion that does not hold in __assertfail, called in look_up at a.cu:5"
        f" (memcheck; {BY_SAID})",
    ),
    "an address whose memory was unmapped meanwhile": Said(
        ("Warp illegal address", "    at spin_then_sum+0x160", BY),
        Kind.ILLEGAL_ADDRESS,
        f"an access to an address that is not mapped in spin_then_sum (memcheck; {BY_SAID})",
    ),
    "trap": Said(
        ("Trace/breakpoint trap", "    at give_up()+0x20 in trap.cu:4", BY),
        Kind.TRAP,
        f"a trap in give_up at trap.cu:4 (memcheck; {BY_SAID})",
    ),
    "null pointer": Said(
        (
            "Invalid __global__ write of size 4 bytes",
            "    at write_null(int *)+0x10",
            BY,
            "    Access to 0x0 is out of bounds",
            "    and is 139,622,712,082,432 bytes before the nearest allocation at 0x7efc80000000 of size 65,536 bytes",
        ),
        Kind.OUT_OF_BOUNDS,
        f"an out-of-bounds write of 4 bytes, far from any buffer, in write_null (memcheck; {BY_SAID})",
    ),
    "stack overflow": Said(
        ("Stack overflow", "    at descend(int, int *)+0x10", BY),
        Kind.STACK_OVERFLOW,
        f"a stack overflow in descend (memcheck; {BY_SAID})",
    ),
    "the tool itself": Said(
        ("Error: Target application terminated before first instrumented API call",),
        Kind.TOOL,
        "Error: Target application terminated before first instrumented API call (memcheck)",
    ),
    "the tool itself, internally": Said(
        ("Internal Sanitizer Error: The Sanitizer encountered an error while launching k",),
        Kind.TOOL,
        "Internal Sanitizer Error: The Sanitizer encountered an error while launching k (memcheck)",
    ),
    "unknown": Said(
        ("Fatal UVM GPU fault of type invalid pde due to invalid address", "    during atomic access to 0x20be00000"),
        Kind.OTHER,
        "Fatal UVM GPU fault of type invalid pde due to invalid address (memcheck)",
    ),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_each_kind_is_told_to_a_person(said: Said) -> None:
    finding = one(*said.lines, "", tool=said.tool)
    assert finding.kind is said.kind
    assert sentence(finding) == said.sentence


def test_every_kind_but_one_has_an_example() -> None:
    assert {said.kind for said in SAID.values()} == set(Kind) - {Kind.INVALID_ACCESS}


def test_an_access_invalid_for_a_reason_of_its_own() -> None:
    finding = one("Invalid __global__ atomic of size 8 bytes", "    Address 0x1 is not valid for system-scoped atomic")
    assert (finding.kind, sentence(finding)) == (Kind.INVALID_ACCESS, "an invalid atomic of 8 bytes (memcheck)")


PLACES = {
    "at kernel(float *, float)+0x70 in write.cu:6": KernelPlace(
        function="kernel(float *, float)", file="write.cu", line=6
    ),
    "at kernel()+0x90": KernelPlace(function="kernel()"),
    "at unaligned_kernel():0x160 in demo.cu:6": KernelPlace(function="unaligned_kernel()", file="demo.cu", line=6),
    "at 0xd80 in /a/b.cu:162:void add<(bool)1, __half>(T2 *)": KernelPlace(
        function="void add<(bool)1, __half>(T2 *)", file="/a/b.cu", line=162
    ),
    "at 0x00000020 in test(int*, int*)": KernelPlace(function="test(int*, int*)"),
    "at 0x79d8": KernelPlace(),
    "at [clone myKernel(int *)] outlineSync()+0x11f0 in test.cu:42": KernelPlace(
        function="[clone myKernel(int *)] outlineSync()", file="test.cu", line=42
    ),
    "at k<T in my file>+0x1 in with space in name.cu:7": KernelPlace(
        function="k<T in my file>", file="with space in name.cu", line=7
    ),
}


@pytest.mark.parametrize(("line", "place"), PLACES.items(), ids=PLACES)
def test_places_of_every_release(line: str, place: KernelPlace) -> None:
    assert one("Invalid __global__ read of size 4", f"    {line}").place == place


def test_the_source_can_stand_on_a_line_of_its_own() -> None:
    finding = one("Invalid __global__ read of size 4 bytes", "    at k_omp_+0xca0", "       in cloud.F90:379")
    assert finding.place == KernelPlace(function="k_omp_", file="cloud.F90", line=379)


def test_the_kernel_is_the_outermost_device_frame() -> None:
    finding = one(
        "Invalid __global__ write of size 4 bytes",
        "    at out_of_bounds_function()+0xb0 in demo.cu:39",
        "        Device Frame: helper(int)+0x10 in demo.cu:41",
        "        Device Frame: out_of_bounds_kernel()+0x30 in demo.cu:44",
    )
    assert finding.kernel_name == "out_of_bounds_kernel"
    assert finding.device_frames[0] == KernelPlace(function="helper(int)", file="demo.cu", line=41)
    assert sentence(finding) == (
        "an invalid write of 4 bytes in out_of_bounds_function at demo.cu:39, "
        "called in out_of_bounds_kernel at demo.cu:44 (memcheck)"
    )


SHORT_NAMES = {
    "kernel": "kernel",
    "kernel(int *)": "kernel",
    "void ns::kernel_backward<float>(int, float const*)": "kernel_backward",
    "void wkv::detail::kernel_values<(int)64, (bool)1, (wkv::Layout)1, float>(T4 *, int)": "kernel_values",
    "void (anonymous namespace)::kernel_anonymous(float *, int)": "kernel_anonymous",
    "<unnamed>::kernel_anonymous(float *, int)": "kernel_anonymous",
    "void of_function<main::[lambda(float) (instance 1)]>(T1, float *, int)": "of_function",
    "void at::elementwise_kernel<128, 2, at::impl<add<float>>(at::Iter &)::[lambda(int)]>(int)": "elementwise_kernel",
    "[clone myKernel(int *, int *)] outlineSync()": "outlineSync",
    "cooperative_groups::__v1::grid_group::sync() const": "sync",
    "_ZN3wkv15kernel_backwardIfEEviPKT_PS1_": "_ZN3wkv15kernel_backwardIfEEviPKT_PS1_",
    "": "",
}


@pytest.mark.parametrize(("full", "short"), SHORT_NAMES.items(), ids=SHORT_NAMES)
def test_short_names(full: str, short: str) -> None:
    assert short_name(full) == short


def test_old_host_frames_have_their_module_on_the_next_line() -> None:
    finding = one(
        "Invalid __global__ write of size 4 bytes",
        "    Host Frame: [0x2ea231]",
        "               in /usr/lib/libcuda.so.1",
        "    Host Frame:cudaLaunchKernel [0x6c318]",
        "               in /usr/lib/libcudart.so",
    )
    assert finding.host_frames == ["in /usr/lib/libcuda.so.1", "cudaLaunchKernel in /usr/lib/libcudart.so"]


def test_details_that_lost_their_indentation_stay_with_their_report() -> None:
    flat = "\n".join(" ".join(line.split()) for line in report(*OUT_OF_BOUNDS).splitlines())
    assert parse(flat, Tool.MEMCHECK) == [one(*OUT_OF_BOUNDS)]


def test_the_programs_own_output_is_not_the_tools() -> None:
    own = "===== test session =====\n\x1b[32m========= 1 passed =========\x1b[0m\n========== not nine\nstep 3\n"
    mixed = own + report(*OUT_OF_BOUNDS).replace("\n", f"\n{own}", 2) + own
    assert parse(mixed, Tool.MEMCHECK) == [one(*OUT_OF_BOUNDS)]


def test_a_report_begins_where_the_program_did_not_end_its_line() -> None:
    mixed = report(*OUT_OF_BOUNDS).replace("========= Invalid", "step 3 ... \x1b[1m========= Invalid")
    assert parse(mixed, Tool.MEMCHECK) == [one(*OUT_OF_BOUNDS)]


def test_what_is_unknown_is_kept_whole() -> None:
    first, second = parse(report("Something new happened", "    of 3 kinds", "And another", ""), Tool.MEMCHECK)
    assert (first.kind, first.text) == (Kind.OTHER, "Something new happened\nof 3 kinds")
    assert (second.kind, second.text) == (Kind.OTHER, "And another")


@pytest.mark.parametrize(
    "line",
    [
        "ERROR SUMMARY: 0 errors",
        "LEAK SUMMARY: 0 bytes leaked in 0 allocations",
        "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
        "Target application returned an error",
        "Barrier called by threads starting at (32,0,0) in block (1,0,0), (active mask: 0xffffffff) at k()+0x2b0",
    ],
)
def test_closing_lines_are_no_findings(line: str) -> None:
    assert parse(report(line), Tool.MEMCHECK) == []


def swept(thread: int, distance: int) -> str:
    return report(
        "Invalid __global__ write of size 4 bytes",
        "    at sweep(int *)+0x70 in a.cu:6",
        f"    by thread ({thread},0,0) in block (0,0,0)",
        "    Access to 0x7f00 is out of bounds",
        f"    and is {distance} bytes after the nearest allocation at 0x7e00 of size 4,000 bytes",
        "",
    )


def test_the_same_fault_in_many_threads_is_one_finding_at_the_nearest_byte() -> None:
    text = swept(1, 5) + swept(0, 1) + swept(2, 9) + report(*OUT_OF_BOUNDS)
    first, second = grouped(parse(text, Tool.MEMCHECK))
    assert (first.count, first.thread, first.nearest) == (
        3,
        Dim3(0, 0, 0),
        Nearest(side="after", distance=1, size=4000),
    )
    assert sentence(first).endswith("(memcheck; thread (0,0,0), block (0,0,0); 3 times)")
    assert second == one(*OUT_OF_BOUNDS)


def test_grouping_counts_what_was_grouped_before() -> None:
    findings = parse(swept(1, 5) + swept(0, 1), Tool.MEMCHECK)
    assert grouped(grouped(findings) + findings)[0].count == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("write of size 4", "write of size 8"),
        ("write of size", "read of size"),
        ("__global__", "__shared__"),
        ("sweep(int *)", "sweep(float *)"),
        ("a.cu:6", "a.cu:7"),
        ("4,000 bytes", "8,000 bytes"),
        ("bytes after", "bytes before"),
        ("out of bounds", "misaligned"),
    ],
)
def test_what_differs_is_not_grouped(old: str, new: str) -> None:
    assert len(grouped(parse(swept(0, 1) + swept(0, 1).replace(old, new), Tool.MEMCHECK))) == 2


def test_alike_wherever_it_was_met() -> None:
    first, other = one(*OUT_OF_BOUNDS), one(*(line.replace("block (4,", "block (5,") for line in OUT_OF_BOUNDS))
    assert alike(first, other)
    assert not alike(first, one(*(line.replace("write", "read") for line in OUT_OF_BOUNDS)))


def test_summaries() -> None:
    text = report(
        "LEAK SUMMARY: 3,001,024 bytes leaked in 2 allocations",
        "Target application returned an error",
        "ERROR SUMMARY: 2752 errors",
        "ERROR SUMMARY: 2742 errors were not printed. Use --print-limit option to adjust the number of printed errors",
    )
    found = summary(text)
    assert found is not None
    assert (found.errors, found.not_printed) == (2752, 2742)


def test_a_clean_run_says_so() -> None:
    found = summary(report("ERROR SUMMARY: 0 errors"))
    assert found is not None
    assert (found.errors, found.not_printed) == (0, 0)


def test_racecheck_counts_hazards() -> None:
    found = summary(report("RACECHECK SUMMARY: 7 hazards displayed (6 errors, 1 warning)"))
    assert found is not None
    assert (found.errors, found.warnings) == (7, 1)


@pytest.mark.parametrize(
    "line",
    ["", "Error: Target application terminated before first instrumented API call", "ERROR SUMMARY: many errors"],
)
def test_without_a_summary_nothing_is_known(line: str) -> None:
    assert summary(report(line)) is None


def test_findings_survive_json() -> None:
    for said in SAID.values():
        finding = one(*said.lines, tool=said.tool)
        assert Finding.model_validate_json(finding.model_dump_json()) == finding


def test_a_capture_that_fails_for_want_of_a_cache() -> None:
    without = {it.name for it in recordings() if at_odds_with_capture(f"{it.stdout}\n{it.stderr}")}
    assert without == {f"torch_graph_capture.{label}" for label in ("uncached", "memcheck", "initcheck")}


def test_a_release_that_does_not_name_the_error() -> None:
    assert at_odds_with_capture("RuntimeError: CUDA error: operation not permitted when stream is capturing")


def test_it_was_too_late_to_attach() -> None:
    said = (
        "Error: No attachable process found. compute-sanitizer timed-out.",
        "Default timeout can be adjusted with --launch-timeout. Awaiting target completion.",
    )
    assert [finding.kind for finding in parse(report(*said), Tool.MEMCHECK)] == [Kind.TOOL]


def test_an_access_that_the_tool_does_not_name() -> None:
    finding = one("Invalid __shared__ ? of size 2048", "    at kernel()+0x10", "    Address 0x10 is out of bounds")
    assert (finding.kind, finding.space, finding.size, finding.access) == (Kind.OUT_OF_BOUNDS, "shared", 2048, None)
    assert sentence(finding).startswith("an out-of-bounds shared-memory access of 2,048 bytes in kernel")


@pytest.mark.parametrize(
    "frame",
    [
        "/usr/local/cuda/include/cub/dispatch_scan.cuh:181:void cub::DeviceScanKernel<int>(int*) [0x310]",
        "void cub::DeviceScanKernel<int>(int*) [0x310]",
    ],
)
def test_device_frames_of_all_releases(frame: str) -> None:
    finding = one(OUT_OF_BOUNDS[0], "    at agent(int)+0x10", f"    Device Frame:{frame}")
    assert finding.kernel_name == "DeviceScanKernel"


def test_optix_does_not_name_its_own_frames() -> None:
    finding = one(
        "Invalid __global__ write of size 1 bytes",
        "    at __raygen__placeholder_0x67b9a77bb7822a34+0x19b0 in /home/cuda/optixApp.cu:70",
        "    Device Frame:NVIDIA Internal [0x520]",
    )
    assert finding.kernel_name == "__raygen__placeholder_0x67b9a77bb7822a34"


@pytest.mark.parametrize("word", ["to", "at"])
def test_what_read_uninitialized_memory(word: str) -> None:
    title = "Host API memory access error at host access to 0x1303fd1400 of size 25600 bytes"
    finding = one(title, f"    Uninitialized access {word} 0x1303fd4600 on access by cudaMemcpy source.")
    assert finding.call == "cudaMemcpy"


def test_the_place_of_a_deadlock_stands_in_its_title() -> None:
    title = "Deadlock detected in Cuda::barrier wait called by threads starting at (0,0,0) in block (0,0,0), "
    finding = one(f"{title}(active mask: 0xffffffff), barrier address: 0x0 at kernel+0x1190 in app.cu:98")
    assert finding.place == KernelPlace(function="kernel", file="app.cu", line=98)


def test_the_lines_of_two_processes_are_mixed() -> None:
    title, *details = OUT_OF_BOUNDS
    assert one(title, title, *details).kind is Kind.OUT_OF_BOUNDS


def test_the_command() -> None:
    assert command(Tool.RACECHECK, ["python", "repro.py"]) == [
        *("compute-sanitizer", "--tool", "racecheck", "--print-limit", "10", "--launch-timeout", "3600"),
        *("python", "repro.py"),
    ]


UNDER_A_TOOL = [recording for recording in recordings() if recording.tool]


def test_recordings_say_what_they_should() -> None:
    assert sentences() == json.loads((DIRECTORY / "findings.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("recording", UNDER_A_TOOL, ids=lambda recording: recording.name)
def test_every_recorded_report_is_understood_and_counted(recording: Recording) -> None:
    """The tool counts its reports; it doesn't count its remark on how the program ended."""
    findings = [it for it in recording.findings() if "process didn't terminate" not in it.title]
    found = summary(recording.stdout)
    assert found is not None
    assert len(findings) + found.not_printed == found.errors
    assert not [it.text for it in findings if it.kind in {Kind.OTHER, Kind.TOOL, Kind.INVALID_ACCESS}]


def recorded(name: str) -> Finding:
    return next(recording for recording in UNDER_A_TOOL if recording.name == name).findings()[0]


def test_a_recorded_write_in_full() -> None:
    finding = recorded("kernel_names.template.memcheck")
    assert finding.model_dump(exclude_defaults=True, exclude={"text", "host_frames"}) == {
        "tool": "memcheck",
        "kind": "out-of-bounds",
        "title": "Invalid __global__ write of size 4 bytes",
        "access": "write",
        "space": "global",
        "size": 4,
        "place": {
            "function": "void wkv::kernel_backward<float>(int, const T1 *, T1 *)",
            "file": "kernel_names.cu",
            "line": 9,
        },
        "thread": (0, 0, 0),
        "block": (0, 0, 0),
        "nearest": {"side": "after", "distance": 1, "size": 256},
    }
    assert finding.host_frames == ["main in kernel_names"]


def test_a_recorded_launch_from_python_says_which_line_launched() -> None:
    assert recorded("torch_ctypes_kernel.memcheck").host_frames == [
        "raw_store_at in libraw_kernels.so",
        "launch_the_faulty_kernel in torch_ctypes_kernel.py:14",
        "<module> in torch_ctypes_kernel.py:24",
    ]


def test_a_recorded_kernel_is_found_under_the_function_it_calls() -> None:
    finding = recorded("kernel_names.call.memcheck")
    assert (finding.kernel_name, short_name(finding.place.function or "")) == ("kernel_with_call", "store")
