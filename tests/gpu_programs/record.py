"""Compile every program here, run it bare and under compute-sanitizer, and keep what came out.

    python tests/gpu_programs/record.py OUT [--only NAME ...] [--jobs 6] [--compile-only]

On a machine with one GPU, nvcc, compute-sanitizer, PyTorch and Triton. Writes OUT/gpu-recordings.tar.gz, to be
unpacked into tests/data/gpu: one text file a run, and machine.txt with what it ran on. In the recorded text the Python
prefix, this directory and the scratch directory are replaced by <python>, <programs> and <scratch>; nothing else is.
"""

import argparse
import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 30.0
PYTHON_TIMEOUT_S = 75.0
KEPT_BYTES = 100_000
SANITIZER = ("compute-sanitizer", "--print-limit", "10")
BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
FLAGS = ("-std=c++17", "-O2", "-lineinfo", "-arch=sm_90")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process. `tool` holds compute-sanitizer's arguments; None runs the program bare."""

    label: str
    program: str
    arguments: Sequence[str] = ()
    tool: Sequence[str] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False

    @property
    def name(self) -> str:
        return f"{Path(self.program).stem}.{self.label}"


def memcheck(*options: str) -> tuple[str, ...]:
    return ("--tool", "memcheck", *options)


def racecheck(report: str) -> tuple[str, ...]:
    return ("--tool", "racecheck", "--racecheck-report", report)


def with_tools(program: str, tools: Mapping[str, Sequence[str]], *, bare: bool = True) -> Iterator[Run]:
    if bare:
        yield Run(label="bare", program=program)
    for label, tool in tools.items():
        yield Run(label=label, program=program, tool=tool)


def cuda_runs() -> Iterator[Run]:
    plain = {"memcheck": memcheck()}
    yield from with_tools(
        "clean.cu",
        {
            "memcheck": memcheck("--leak-check", "full"),
            "racecheck": racecheck("all"),
            "initcheck": ("--tool", "initcheck"),
            "synccheck": ("--tool", "synccheck"),
        },
    )
    yield from with_tools(
        "global_write_behind.cu",
        {
            **plain,
            "memcheck-simple-names": memcheck("--demangle", "simple"),
            "memcheck-mangled-names": memcheck("--demangle", "no"),
            "memcheck-kernel-only": memcheck("--destroy-on-device-error", "kernel"),
            "memcheck-full-backtrace": memcheck("--backtrace-short", "no"),
            "memcheck-exit-code": memcheck("--error-exitcode", "77"),
            "memcheck-no-api": memcheck("--report-api-errors", "no"),
        },
    )
    yield from with_tools("global_write_behind_many.cu", plain)
    for program in (
        "global_write_before.cu",
        "global_read_far.cu",
        "global_atomic_behind.cu",
        "shared_write_behind.cu",
        "misaligned_read.cu",
        "null_write.cu",
        "double_free.cu",
        "device_double_free.cu",
        "use_after_free.cu",
        "stack_overflow.cu",
        "copy_too_large.cu",
        "device_assert.cu",
        "trap.cu",
        "out_of_memory.cu",
        "no_kernel_image.cu",
        "invalid_device.cu",
    ):
        yield from with_tools(program, plain)
    leaks = {"memcheck": memcheck("--leak-check", "full")}
    yield from with_tools("leak.cu", leaks)
    yield from with_tools("device_leak.cu", leaks, bare=False)
    for index in ("16", "300", "100000", "2000000"):
        yield Run(label=f"{index}.bare", program="local_write_behind.cu", arguments=[index])
        yield Run(label=f"{index}.memcheck", program="local_write_behind.cu", arguments=[index], tool=memcheck())
    for program in ("race_write_after_read.cu", "race_read_after_write.cu", "race_write_after_write.cu"):
        yield from with_tools(program, {f"racecheck-{kind}": racecheck(kind) for kind in ("analysis", "hazard", "all")})
    initcheck = ("--tool", "initcheck")
    yield from with_tools(
        "uninitialized_read.cu", {"initcheck": initcheck, "initcheck-unused": (*initcheck, "--track-unused-memory")}
    )
    yield from with_tools("uninitialized_copy.cu", {"initcheck": initcheck}, bare=False)
    synccheck = {"synccheck": ("--tool", "synccheck")}
    yield from with_tools("barrier_divergent_warp.cu", synccheck)
    yield from with_tools("barrier_divergent_block.cu", synccheck)
    yield from with_tools("barrier_invalid_mask.cu", synccheck, bare=False)
    for kind in ("template", "values", "anonymous", "c", "function", "lambda", "pack", "call"):
        yield Run(label=f"{kind}.memcheck", program="kernel_names.cu", arguments=[kind], tool=memcheck())
    host = memcheck("--show-backtrace", "host")
    yield Run(label="call.memcheck-host-frames", program="kernel_names.cu", arguments=["call"], tool=host)
    for which in ("block", "grid", "empty", "shared", "bounds"):
        yield Run(label=f"{which}.bare", program="launch_errors.cu", arguments=[which])
    yield Run(label="block.memcheck", program="launch_errors.cu", arguments=["block"], tool=memcheck())


def python_runs() -> Iterator[Run]:
    library = "./libraw_kernels.so"
    asynchronous: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("torch_index_assert.py", ()),
        ("torch_raw_kernel.py", ("far",)),
        ("triton_out_of_bounds.py", ("far",)),
    )
    for program, arguments in asynchronous:
        yield Run(label="bare", program=program, arguments=arguments)
        yield Run(label="blocking", program=program, arguments=arguments, variables=BLOCKING)
    faulty: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("torch_ctypes_kernel.py", (library, "behind")),
        ("triton_out_of_bounds.py", ("behind",)),
        ("torch_raw_kernel.py", ("behind",)),
        ("torch_index_assert.py", ()),
    )
    for program, arguments in faulty:
        yield Run(label="memcheck", program=program, arguments=arguments, tool=memcheck(), variables=UNCACHED)
    capture, initcheck = "torch_graph_capture.py", ("--tool", "initcheck")
    yield Run(label="bare", program=capture)
    yield Run(label="uncached", program=capture, variables=UNCACHED)
    yield Run(label="memcheck", program=capture, tool=memcheck(), variables=UNCACHED)
    yield Run(label="memcheck-cached", program=capture, tool=memcheck())
    yield Run(label="initcheck", program=capture, tool=initcheck, variables=UNCACHED)
    yield Run(label="behind.bare", program="triton_out_of_bounds.py", arguments=["behind"])
    yield Run(label="far.bare", program="torch_ctypes_kernel.py", arguments=[library, "far"])
    yield Run(label="configuration.bare", program="torch_raw_kernel.py", arguments=["configuration"])
    for program in (
        "torch_out_of_memory.py",
        "torch_cublas_after_fault.py",
        "cublas_status.py",
        "nccl_result.py",
        "torch_nccl_duplicate_gpu.py",
        "torch_uncaught_cpp_exception.py",
        "torch_fault_at_exit.py",
        "torch_backward_fault.py",
        "torch_exception_chain.py",
        "triton_out_of_resources.py",
        "triton_compile_error.py",
    ):
        yield Run(label="bare", program=program)
    yield Run(label="bare", program="torch_cublas_full_device.py", alone=True)


def compile_program(source: Path, scratch: Path) -> str:
    """Empty, or why it did not compile."""
    flags: tuple[str, ...] = FLAGS
    target = scratch / source.stem
    if source.stem == "no_kernel_image":
        flags = ("-std=c++17", "-gencode", "arch=compute_100,code=sm_100")
    if source.stem == "kernel_names":
        flags = (*FLAGS, "--extended-lambda")
    if source.stem == "raw_kernels":
        flags = (*FLAGS, "-shared", "-Xcompiler", "-fPIC")
        target = scratch / "libraw_kernels.so"
    done = subprocess.run(
        ["nvcc", *flags, "-o", str(target), str(source)], capture_output=True, text=True, check=False, timeout=300
    )
    return "" if done.returncode == 0 else f"{source.name}: {done.stdout}{done.stderr}"


def command_of(run: Run) -> list[str]:
    python = run.program.endswith(".py")
    program = [sys.executable, run.program] if python else [f"./{Path(run.program).stem}"]
    tool: list[str] = []
    if run.tool is not None:
        tool = [*SANITIZER, *run.tool]
    return [*tool, *program, *run.arguments]


def record(run: Run, scratch: Path) -> str:
    """The text of the run's file. Never raises: one run that can't start must not lose the others."""
    try:
        return _record(run, scratch)
    except OSError as error:
        return f"command: {run.name}\nvariables:\nexit status: none: {error}\nseconds: 0\n----- stdout\n----- stderr\n"


def _record(run: Run, scratch: Path) -> str:
    command = command_of(run)
    limit = PYTHON_TIMEOUT_S if run.program.endswith(".py") else TIMEOUT_S
    environment = {**os.environ, **run.variables, "TRITON_CACHE_DIR": str(scratch / "triton" / run.name)}
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            cwd=scratch,
            env=environment,
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a group of its own, so that a time-out ends the tool's children as well
        )
        try:
            status = str(process.wait(limit))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = f"none: ended after {limit:g} s"
        took = time.monotonic() - started
        streams = [_kept(stream) for stream in (out, err)]
    variables = " ".join(f"{key}={value}" for key, value in run.variables.items())
    lines = [
        f"command: {' '.join(command)}",
        f"variables: {variables}",
        f"exit status: {status}",
        f"seconds: {took:.1f}",
    ]
    for title, text in zip(("stdout", "stderr"), streams, strict=True):
        lines += [f"----- {title}", text]
    return _scrubbed("\n".join(lines), scratch)


def _kept(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(KEPT_BYTES).decode("utf-8", "replace")


def _scrubbed(text: str, scratch: Path) -> str:
    text = text.replace(str(scratch), "<scratch>").replace(str(HERE), "<programs>")
    return text if sys.prefix in {"/usr", "/usr/local"} else text.replace(sys.prefix, "<python>")


def machine() -> str:
    """Versions, one line each, of what the programs ran on."""
    torch = "import torch, triton; print(torch.__version__, triton.__version__, torch.cuda.get_device_name())"
    commands = (
        ["nvcc", "--version"],
        ["compute-sanitizer", "--version"],
        ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv,noheader"],
        [sys.executable, "--version"],
        [sys.executable, "-c", torch],
    )
    return "\n".join(filter(None, map(_output, commands)))


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return f"$ {Path(command[0]).name} {' '.join(command[1:])}\n{(done.stdout + done.stderr).strip()}"


def compile_all(scratch: Path, jobs: int, only: Sequence[str]) -> list[str]:
    sources = [s for s in sorted(HERE.glob("*.cu")) if _wanted(s.stem, only) or s.stem == "raw_kernels"]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(filter(None, pool.map(lambda source: compile_program(source, scratch), sources)))


def _wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(part in name for part in only)


def run_all(runs: Sequence[Run], scratch: Path, results: Path, jobs: int) -> None:
    def keep(run: Run) -> None:
        text = record(run, scratch)
        (results / f"{run.name}.txt").write_text(text, encoding="utf-8")
        print(f"{run.name}: {text.splitlines()[2]}, {text.splitlines()[3]}", flush=True)

    # The slow ones first, so that the end is not one long wait.
    together = sorted((run for run in runs if not run.alone), key=lambda run: run.program.endswith(".cu"))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(keep, together))
    for run in runs:
        if run.alone:
            keep(run)


def main() -> int:
    parser = argparse.ArgumentParser(description="Record what the programs here do on this machine's GPU.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="parts of program names")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--compile-only", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-programs-") as name:
        scratch, results = Path(name), Path(name) / "results"
        results.mkdir()
        for script in HERE.glob("*.py"):
            shutil.copy(script, scratch)
        failures = compile_all(scratch, options.jobs if not options.compile_only else 2, options.only)
        print(*failures, sep="\n", end="" if not failures else "\n", flush=True)
        if options.compile_only:
            return 1 if failures else 0
        (results / "machine.txt").write_text(machine() + "\n", encoding="utf-8")
        runs = [run for run in (*cuda_runs(), *python_runs()) if _wanted(Path(run.program).stem, options.only)]
        run_all(runs, scratch, results, options.jobs)
        with tarfile.open(options.out / "gpu-recordings.tar.gz", "w:gz") as archive:
            for path in sorted(results.iterdir()):
                archive.add(path, arcname=path.name)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
