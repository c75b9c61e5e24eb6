"""What every engine must do. Each test runs once for each engine; see `gpu_casebook.engines.base` for the promises."""

import os
import resource
import signal
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engines.subjects import (
    FAMILY,
    PATIENCE_S,
    PROCESSES,
    TOKEN,
    Bench,
    Subject,
    eventually,
    runner_with_a_trial,
)

MIB = 2**20


def test_the_architecture_is_told_as_the_kernel_names_it(bench: Bench) -> None:
    assert bench.engine.machine == bench.run("import platform; print(platform.machine())").stdout.strip()


@pytest.mark.parametrize("status", [0, 1, 3, 77])
def test_exit_status(bench: Bench, status: int) -> None:
    result = bench.run(f"import sys; sys.exit({status})")
    assert (result.exit_status, result.signal, result.infra) == (status, None, None)
    assert not result.timed_out
    assert not result.out_of_memory


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("SIGSEGV", "import ctypes; ctypes.string_at(0)"),
        ("SIGABRT", "import os; os.abort()"),
        ("SIGKILL", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
        ("SIGSEGV", "import sys; sys.exit(139)"),
    ],
)
def test_signal(bench: Bench, name: str, script: str) -> None:
    result = bench.run(script)
    assert (result.exit_status, result.signal, result.infra) == (None, name, None)
    assert not result.timed_out
    assert not result.out_of_memory


def test_signals_do_by_default_what_they_always_do(bench: Bench) -> None:
    result = bench.run(
        "import signal as s; print([s.getsignal(n).__class__.__name__ for n in (15, 1, 17)], s.getsignal(2))"
    )
    assert result.stdout.startswith("['Handlers', 'Handlers', 'Handlers'] <built-in function default_int_handler>")
    result = bench.run("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert result.signal == "SIGTERM"


def test_a_trial_that_signals_its_process_group_hits_itself_alone(bench: Bench) -> None:
    result = bench.run("import os, signal; os.killpg(0, signal.SIGKILL)")
    assert (result.signal, result.infra) == ("SIGKILL", None)


def test_streams_stay_apart(bench: Bench) -> None:
    result = bench.run("import sys; print('out'); print('err', file=sys.stderr); print('out again')")
    assert (result.stdout, result.stderr) == ("out\nout again\n", "err\n")


def test_a_stream_that_is_closed_early_is_not_the_end(bench: Bench) -> None:
    script = "import os, time; print('before', flush=True); os.close(1); os.close(2); time.sleep(0.5); os._exit(5)"
    result = bench.run(script)
    assert (result.stdout, result.exit_status) == ("before\n", 5)


def test_both_streams_are_cut_in_the_middle(bench: Bench) -> None:
    script = "import sys\nfor f in (sys.stdout, sys.stderr): f.write('head' + 'x' * 100_000 + 'tail')"
    result = bench.run(script, limits={"output_bytes": 1000})
    for text in (result.stdout, result.stderr):
        assert text.startswith("head")
        assert text.endswith("tail")
        assert "\n[... 99008 bytes cut here ...]\n" in text
        assert len(text) < 1100


def test_output_within_its_bound_is_whole(bench: Bench) -> None:
    result = bench.run("print('y' * 999)", limits={"output_bytes": 1000})
    assert result.stdout == "y" * 999 + "\n"


def test_much_output_takes_little_memory(bench: Bench) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = bench.run("for _ in range(200): print('z' * (1 << 20))")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert result.exit_status == 0
    assert len(result.stdout) < MIB
    assert f"[... {200 * (MIB + 1) - 256 * 1024} bytes cut here ...]" in result.stdout
    assert (after - before) * 1024 < 60 * MIB


def test_output_that_is_no_text(bench: Bench) -> None:
    result = bench.run("import os; os.write(1, b'\\xff\\xfe \\xc3\\xa9\\n')")
    assert result.stdout == "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} \N{LATIN SMALL LETTER E WITH ACUTE}\n"


def test_standard_input_is_empty(bench: Bench) -> None:
    assert bench.run("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


def test_arguments_variables_and_files_reach_the_trial(bench: Bench) -> None:
    script = (
        "import os, sys, helper; print(sys.argv[1:], os.environ['GIVEN'], helper.VALUE, open('data/deep/x.txt').read())"
    )
    files = {"helper.py": b"VALUE = 7", "data/deep/x.txt": b"deep"}
    result = bench.run(script, "a b", "--c", variables={"GIVEN": "yes, 'so'"}, files=files)
    assert result.stdout == "['a b', '--c'] yes, 'so' 7 deep\n", result.stderr


def test_a_wrapper_runs_in_front_of_python(bench: Bench) -> None:
    script = "import os, sys; print(os.environ['WRAPPED'], sys.argv[1:]); sys.exit(3)"
    result = bench.run(script, "a b", wrapper=["env", "WRAPPED=a b"])
    assert (result.stdout, result.exit_status) == ("a b ['a b']\n", 3), result.stderr


def test_tracebacks_name_the_case_directory(bench: Bench) -> None:
    result = bench.run("import os; print(os.getcwd()); raise ValueError('x')")
    assert result.stdout == "/case\n"
    assert 'File "/case/script.py", line 1' in result.stderr


def test_the_host_environment_stays_outside(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CASEBOOK_SECRET", "HTTPS_PROXY", "PYTHONPATH", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "do-not-tell")
    result = bench.run("import os; print(dict(os.environ))")
    assert "HOME" in result.stdout
    assert "do-not-tell" not in result.stdout


def test_scratch_space_can_be_written_and_programs_run_from_it(bench: Bench) -> None:
    script = """
import os, subprocess, tempfile
for place in (tempfile.gettempdir(), os.path.expanduser("~")):
    path = os.path.join(place, "program")
    with open(path, "w") as file:
        file.write("#!/bin/sh\\necho ran\\n")
    os.chmod(path, 0o700)
    print(subprocess.check_output([path], text=True), end="")
"""
    assert bench.run(script).stdout == "ran\nran\n"


def test_a_trial_does_not_change_the_case_for_the_next(bench: Bench) -> None:
    vandal = """
import os
for action in (lambda: open("data.txt", "w").write("spoilt"), lambda: os.remove("data.txt"), lambda: open("new", "w")):
    try:
        action()
    except OSError:
        pass
"""
    look = "import os; print(open('data.txt').read(), sorted(os.listdir('.')))"
    files = {"data.txt": b"original", "vandal.py": vandal.encode()}
    first = bench.run("import vandal", files=files)
    assert first.exit_status == 0, first.stderr
    assert bench.run(look, files=files).stdout == "original ['data.txt', 'script.py', 'vandal.py']\n"
    assert files["data.txt"] == b"original"


def test_a_timeout_ends_every_process(bench: Bench, subject: Subject) -> None:
    token = uuid.uuid4().hex
    result = bench.run(FAMILY, variables={TOKEN: token}, limits={"timeout_s": 3.0})
    assert result.timed_out
    assert not result.out_of_memory
    assert (result.signal, result.exit_status, result.infra) == ("SIGKILL", None, None)
    assert result.stdout == "started\n"
    assert subject.processes(token) == 0


def test_the_end_of_the_script_ends_every_process(bench: Bench, subject: Subject) -> None:
    token = uuid.uuid4().hex
    result = bench.run(FAMILY.replace("\ntime.sleep(600)", "\nimport sys; sys.exit(4)"), variables={TOKEN: token})
    assert result.exit_status == 4, result.stderr
    assert not result.timed_out
    assert subject.processes(token) == 0


def unlimited(bench: Bench) -> bool:
    """Whether the engine says that it limits neither memory nor processes; then what it says must be true."""
    return any("none on memory and processes" in line for line in bench.engine.isolation)


def test_the_memory_limit_ends_a_trial(bench: Bench) -> None:
    script = (
        "import time\nkept = []\nfor _ in range(64): kept.append(b'x' * (16 << 20)); time.sleep(0.02)\nprint('past it')"
    )
    result = bench.run(script, limits={"memory_bytes": 256 * MIB})
    if unlimited(bench):
        assert (result.stdout, result.out_of_memory) == ("past it\n", False)
        return
    assert result.out_of_memory
    assert not result.timed_out
    assert (result.signal, result.stdout) == ("SIGKILL", "")


def test_memory_below_the_limit_is_free_to_use(bench: Bench) -> None:
    script = "x = b'x' * (100 << 20); import time; time.sleep(0.3); print(len(x))"
    result = bench.run(script, limits={"memory_bytes": 256 * MIB})
    assert (result.stdout, result.out_of_memory) == (f"{100 * MIB}\n", False)


def test_memory_that_processes_share_counts_once(bench: Bench) -> None:
    script = """
import os, time
shared = b"x" * (100 << 20)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(1)
        os._exit(0)
for _ in range(4):
    os.wait()
print("done")
"""
    result = bench.run(script, limits={"memory_bytes": 300 * MIB})
    assert (result.stdout, result.out_of_memory) == ("done\n", False)


def test_the_process_limit_holds(bench: Bench, subject: Subject) -> None:
    script = """
import os, sys, time
for number in range(120):
    try:
        if os.fork() == 0:
            time.sleep(600)
    except OSError:
        sys.exit(9)
time.sleep(20)
print("past the limit", flush=True)
"""
    token = uuid.uuid4().hex
    result = bench.run(script, variables={TOKEN: token}, limits={"processes": 40})
    assert ("past the limit" in result.stdout) is unlimited(bench)
    assert unlimited(bench) or (result.exit_status, result.signal) in {(9, None), (None, "SIGKILL")}
    assert not result.timed_out
    assert subject.processes(token) == 0


def test_isolation_says_whether_there_is_a_network(bench: Bench) -> None:
    result = bench.run("import socket; print([name for _, name in socket.if_nameindex()])")
    if "no network" in bench.engine.isolation:
        assert result.stdout == "['lo']\n"
    else:
        assert any("network" in line and "within reach" in line for line in bench.engine.isolation)


def test_preparing_twice_gives_the_same(bench: Bench, subject: Subject) -> None:
    again = bench.engine.prepare(subject.recipe, print)
    assert (again.key, again.python) == (bench.prepared.key, bench.prepared.python)


def test_version_is_of_one_line(bench: Bench) -> None:
    assert bench.engine.version.split()[0] in {"Docker", "Podman", "Charliecloud", "uv"}
    assert "\n" not in bench.engine.version


def test_no_gpu_is_told_apart_from_an_error(bench: Bench) -> None:
    result = bench.run("import os; print(sorted(name for name in os.listdir('/dev') if name.startswith('nvidia')))")
    assert bench.engine.gpu_access() is not None or result.stdout == "[]\n"


@pytest.mark.parametrize(
    "script",
    ["pass", "raise ValueError", "import os; os.abort()", "import os; os.makedirs('/tmp/a/b'); os.chmod('/tmp/a', 0)"],
)
def test_nothing_is_left_of_a_trial(subject: Subject, script: str) -> None:
    before = set(subject.left_by(os.getpid()))
    with subject.make() as engine:
        Bench(engine, engine.prepare(subject.recipe, print)).run(script)
    assert set(subject.left_by(os.getpid())) == before


def test_an_interrupt_leaves_nothing(subject: Subject) -> None:
    token = uuid.uuid4().hex
    with runner_with_a_trial(subject, token) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert subject.processes(token) == 0
    assert subject.left_by(process.pid) == []


def test_threads_run_trials_at_once(bench: Bench) -> None:
    """Each sees its own scratch space alone, and says what it was asked."""
    script = """
import pathlib, sys, tempfile, time
place = pathlib.Path(tempfile.gettempdir())
(place / sys.argv[1]).touch()
time.sleep(1)
print(sys.argv[1], sorted(each.name for each in place.iterdir()))
"""
    bench.run("pass")  # what all of them share is there
    with ThreadPoolExecutor(3) as pool:
        said = [result.stdout for result in pool.map(lambda name: bench.run(script, name), "abc")]
    assert said == [f"{name} ['{name}']\n" for name in "abc"]


def test_the_trials_of_other_threads_can_be_ended(bench: Bench) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.run, "import time; time.sleep(1000)", limits={"timeout_s": 1000.0})
        begun = time.monotonic()
        while not running.done() and time.monotonic() < begun + PATIENCE_S:
            bench.engine.end_trials()
            time.sleep(0.2)
        assert running.done()
    assert running.result().exit_status is None


@pytest.mark.alone("what a killed run left may be swept by any other run on the engine")
def test_what_a_killed_runner_left_goes_with_the_next_sweep(subject: Subject) -> None:
    token = uuid.uuid4().hex
    with subject.make() as engine, runner_with_a_trial(subject, token) as process:
        engine.sweep()
        assert subject.processes(token) == PROCESSES, "it took away what is in use"
        assert engine.sweep(dry_run=True) == []
        process.kill()
        process.wait()
        left = engine.sweep(dry_run=True)
        assert subject.left_by(process.pid), "telling it took it away"
        removed = engine.sweep()
        assert removed
        assert lasting(left) == lasting(removed)
        assert subject.left_by(process.pid) == []
        eventually(lambda: subject.processes(token) == 0)
        assert engine.sweep() == engine.sweep(dry_run=True) == []


def lasting(lines: Sequence[str]) -> set[str]:
    """Processes may come to their end by themselves meanwhile."""
    return {line for line in lines if not line.startswith("process ")}


def test_what_is_kept_is_said_and_survives(bench: Bench, subject: Subject) -> None:
    result = bench.run("print('look at me')", keep=True)
    assert result.kept
    bench.engine.sweep()
    kept = subject.take_away(result.kept)
    assert kept == b"print('look at me')"


def test_without_keep_nothing_is_kept(bench: Bench) -> None:
    assert bench.run("pass").kept is None
