"""What real interpreters print, and what torch's launchers make of it."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from failure_signature.reading.tracebacks import Raised, last_raised

DATA = Path(__file__).parents[1] / "data" / "stderr"


def stderr_of(tmp_path: Path, script: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(dedent(script))
    return subprocess.run([sys.executable, path], capture_output=True, text=True, check=False).stderr


ENDED_BY = {
    "plain": ('raise ValueError("no: good")', Raised("ValueError", "no: good")),
    "without a message": ("assert False", Raised("AssertionError", "")),
    "of many lines": ('raise ValueError("one\\n\\n  two\\nthree: 3")', Raised("ValueError", "one\n\n  two\nthree: 3")),
    "syntax": ("def f(", Raised("SyntaxError", "'(' was never closed")),
    "recursion": (
        "def f(): f()\nf()",
        Raised("RecursionError", "maximum recursion depth exceeded"),
    ),
    "local class": (
        "def f():\n    class Mine(Exception): pass\n    raise Mine(1)\nf()",
        Raised("f.<locals>.Mine", "1"),
    ),
    "from": (
        'try:\n    {}["a"]\nexcept KeyError as e:\n    raise ValueError("b\\nc") from e',
        Raised("ValueError", "b\nc", ("KeyError: 'a'",)),
    ),
    "while handling": (
        """
        def inner():
            try:
                {}["a"]
            except KeyError as e:
                raise ValueError("b\\nc") from e
        try:
            inner()
        except ValueError:
            raise TypeError("d")
        """,
        Raised("TypeError", "d", ("KeyError: 'a'", "ValueError: b\nc")),
    ),
    "another was caught and logged before": (
        """
        import logging
        def f():
            try: 1 / 0
            except ZeroDivisionError: logging.exception("caught")
        f()
        raise ValueError("not caught")
        """,
        Raised("ValueError", "not caught"),
    ),
    "one is ignored afterwards": (
        """
        import atexit
        class Late:
            def __del__(self): raise KeyError("late")
        def f():
            late = Late()
            raise ValueError("first")
        atexit.register(lambda: 1 / 0)
        f()
        """,
        Raised("ValueError", "first"),
    ),
    "a thread died before": (
        """
        import threading
        def f(): raise KeyError("thread")
        t = threading.Thread(target=f); t.start(); t.join()
        raise ValueError("main")
        """,
        Raised("ValueError", "main"),
    ),
    "a type with brackets, chained": (
        """
        class RayTaskError(Exception): pass
        RayTaskError.__name__ = RayTaskError.__qualname__ = "RayTaskError(RuntimeError)"
        try:
            raise ValueError("handled")
        except ValueError:
            raise RayTaskError("ray::f() (pid=7)\\n  File \\"x.py\\", line 1, in f\\nRuntimeError: x")
        """,
        Raised(
            "RayTaskError(RuntimeError)",
            'ray::f() (pid=7)\n  File "x.py", line 1, in f\nRuntimeError: x',
            ("ValueError: handled",),
        ),
    ),
    "a type that can't be read, chained": (
        """
        class Odd(Exception): pass
        Odd.__name__ = Odd.__qualname__ = "odd name!"
        try:
            raise ValueError("handled")
        except ValueError:
            raise Odd("x")
        """,
        None,
    ),
    "a broken excepthook": (
        "import sys\ndef h(*a): 1 / 0\nsys.excepthook = h\nraise ValueError('v')",
        Raised("ValueError", "v"),
    ),
}


@pytest.mark.parametrize(("script", "raised"), ENDED_BY.values(), ids=ENDED_BY)
def test_what_python_prints(tmp_path: Path, script: str, raised: Raised | None) -> None:
    assert last_raised(stderr_of(tmp_path, script)) == raised


UNCLEAR = {
    "printed at exit": (
        """
        import atexit, sys
        atexit.register(lambda: print("CUDA error: misaligned address", file=sys.stderr))
        raise ValueError("v")
        """,
        Raised("ValueError", "v", unclear="ValueError is followed by 'CUDA error: misaligned address': was it caught?"),
    ),
    "caught and printed at module level": (
        """
        import sys, traceback
        try: 1 / 0
        except ZeroDivisionError: traceback.print_exc()
        sys.exit("no licence")
        """,
        Raised(
            "ZeroDivisionError",
            "division by zero",
            unclear="ZeroDivisionError is followed by 'no licence': was it caught?",
        ),
    ),
    "caught and logged at module level": (
        "import logging\ntry: 1 / 0\nexcept ZeroDivisionError: logging.exception('it failed')\nraise SystemExit(1)",
        Raised(
            "ZeroDivisionError",
            "division by zero",
            unclear="ZeroDivisionError follows a log record: was it caught?",
        ),
    ),
    "without a message": (
        "import sys, traceback\ntry: assert 0\nexcept AssertionError: traceback.print_exc()\nsys.exit('gave up')",
        Raised("AssertionError", "", unclear="AssertionError is followed by 'gave up': was it caught?"),
    ),
}


@pytest.mark.parametrize(("script", "raised"), UNCLEAR.values(), ids=UNCLEAR)
def test_what_is_behind_a_traceback_may_say_that_it_was_caught(tmp_path: Path, script: str, raised: Raised) -> None:
    assert last_raised(stderr_of(tmp_path, script)) == raised


@pytest.mark.parametrize(
    ("script", "kind"),
    [("import json; json.loads('{')", "json.decoder.JSONDecodeError"), ("if True:\npass", "IndentationError")],
)
def test_types(tmp_path: Path, script: str, kind: str) -> None:
    seen = last_raised(stderr_of(tmp_path, script))
    assert seen is not None
    assert seen.type == kind


def test_syntax_error_of_an_imported_module(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(")
    seen = last_raised(stderr_of(tmp_path, "import broken"))
    assert seen == Raised("SyntaxError", "'(' was never closed")


def test_exception_group(tmp_path: Path) -> None:
    script = 'try:\n    {}["a"]\nexcept KeyError as e:\n    raise ExceptionGroup("several", [ValueError("b")]) from e'
    seen = last_raised(stderr_of(tmp_path, script))
    assert seen is not None
    assert (seen.type, seen.causes) == ("ExceptionGroup", ("KeyError: 'a'",))
    assert seen.message.startswith("several (1 sub-exception)\n")
    assert "| ValueError: b\n" in seen.message


NOT_ENDED_BY = {
    "nothing": "",
    "a thread's": """
        import threading
        def f(): raise ValueError("thread")
        t = threading.Thread(target=f); t.start(); t.join()
        """,
    "a child's": """
        import multiprocessing
        def f(): raise ValueError("child")
        if __name__ == "__main__":
            p = multiprocessing.get_context("fork").Process(target=f); p.start(); p.join()
        """,
    "one caught and logged in a function": """
        import traceback
        def f():
            try: 1 / 0
            except ZeroDivisionError: traceback.print_exc()
        f()
        raise SystemExit("gave up")
        """,
    "one of `python -c`": """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "raise ValueError"])
        sys.exit(1)
        """,
    "one ignored": "class A:\n    def __del__(self): raise ValueError\nA()",
    "a quotation": 'import sys; sys.stderr.write("Traceback (most recent call last):\\nValueError: quoted\\n")',
}


@pytest.mark.parametrize("script", NOT_ENDED_BY.values(), ids=NOT_ENDED_BY)
def test_what_did_not_end_the_process(tmp_path: Path, script: str) -> None:
    assert last_raised(stderr_of(tmp_path, script)) is None


def test_triton_compilation_error() -> None:
    seen = last_raised((DATA / "triton-2.2.0.txt").read_text())
    assert seen is not None
    assert seen.type == "triton.compiler.errors.CompilationError"
    assert seen.message.startswith("at 4:45:def dq_kernel(")
    assert seen.message.endswith("at non-singleton dimension 0: [16, 64], [64, 16]')")
    assert [cause.split(",")[0] for cause in seen.causes] == ["ValueError: Cannot broadcast"]


PLAIN = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\nValueError: v\n'


@pytest.mark.parametrize(
    "noise",
    [
        "terminate called after throwing an instance of 'c10::AcceleratorError'\n  what():  CUDA error\n",
        "Exception ignored in: <function A.__del__ at 0x7f>\n" + PLAIN.replace("<module>", "__del__"),
        "[W1121 12:00:00.000000000 CudaIPCTypes.cpp:16] Producer process has been terminated\n",
        "[rank0]:[W1121 12:00:00.000000000 ProcessGroupNCCL.cpp:1496] Warning: not destroyed\n",
        "/usr/lib/python3.11/resource_tracker.py:254: UserWarning: leaked semaphore objects\n",
        "Fatal Python error: Aborted\n",
        "wandb: \nwandb: Run history:\n",
        "W0726 10:11:12.345678 12345 site-packages/torch/x.py:5] watchdog\n",
        "2024-07-26 10:11:12.345678: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:1] failed\n",
        "\r 10%|#   | 1/10 [00:01<00:09]\n",
        "(EngineCore pid=123) ERROR 07-26 10:11:12 [core.py:1] gave up\n",
        "node:123:456 [0] NCCL INFO comm 0x1 rank 0 Abort COMPLETE\n",
        PLAIN.replace('"x.py", line 1, in <module>', '"driver.pyx", line 260, in cupy_backends.cuda.moduleUnload')
        + "Exception ignored in: 'cupy.cuda.function.Module.__dealloc__'\n",
    ],
)
def test_what_is_printed_afterwards_is_not_the_message(noise: str) -> None:
    assert last_raised(PLAIN + noise) == Raised("ValueError", "v")


def test_after_a_progress_bar_on_the_same_line() -> None:
    assert last_raised("\r 10%|#   | 1/10 [00:01<00:09]" + PLAIN) == Raised("ValueError", "v")


def test_with_torchs_rank_before_every_line() -> None:
    ranked = "".join(f"[rank1]: {line}\n" for line in PLAIN.splitlines())
    assert last_raised(ranked) == Raised("ValueError", "v")


def ranked(**lines: str) -> str:
    return "".join(f"[{rank}]: {line}\n" if line else "\n" for rank, text in lines.items() for line in text.split("\n"))


def test_ranks_that_fail_alike_are_one() -> None:
    first, second = (PLAIN.replace(": v", f": device {rank}") for rank in range(2))
    mixed = [line for pair in zip(first.split("\n"), second.split("\n"), strict=True) for line in enumerate(pair)]
    text = "".join(f"[rank{1 - at}]: {line}\n" for at, line in mixed)
    assert last_raised(text) == Raised("ValueError", "device 1")


def test_ranks_that_fail_otherwise_leave_it_unclear_whoever_prints_first() -> None:
    closed = PLAIN.replace("ValueError: v", "torch.distributed.DistBackendError: Connection closed by peer")
    text = ranked(rank1=closed, rank0=PLAIN)
    seen = last_raised(text)
    assert seen == last_raised(ranked(rank0=PLAIN, rank1=closed))
    assert seen is not None
    assert seen.unclear == (
        "several ranks were ended by different exceptions: rank 0 by ValueError: v, "
        "rank 1 by torch.distributed.DistBackendError: Connection closed by peer"
    )


def test_the_chain_of_a_rank_whose_blank_lines_are_not_marked() -> None:
    chain = f"{PLAIN}\nThe above exception was the direct cause of the following exception:\n\n{PLAIN}"
    assert last_raised(ranked(rank0=chain, rank1=chain)) == Raised("ValueError", "v", ("ValueError: v",))


def test_hydra_leaves_out_the_frames_above_the_job() -> None:
    text = (
        "Error executing job with overrides: ['trainer.n_gpus_per_node=8']\n"
        + PLAIN.replace("<module>", "main").replace("ValueError: v", "RuntimeError: CUDA error: misaligned address")
        + "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    assert last_raised(text) == Raised("RuntimeError", "CUDA error: misaligned address")


RICH = """\
import rich.traceback
rich.traceback.install(width=60)
try: {}["a"]
except KeyError: raise RuntimeError("CUDA error: an illegal memory access was encountered in a kernel")
"""


def test_rich_wraps_the_message(tmp_path: Path) -> None:
    message = "CUDA error: an illegal memory access was encountered in a kernel"
    assert last_raised(stderr_of(tmp_path, RICH)) == Raised("RuntimeError", message)
    later = stderr_of(tmp_path, f"import atexit, sys\natexit.register(lambda: print('x', file=sys.stderr))\n{RICH}")
    assert last_raised(later) == Raised(
        "RuntimeError", message, unclear="RuntimeError is followed by 'x': was it caught?"
    )


def test_ipython() -> None:
    head = f"{'-' * 75}\nRuntimeError{' ' * 30}Traceback (most recent call last)\n"
    frames = "File x.py:3\n      1 def f(): ...\n----> 3 f()\n\n"
    assert last_raised(f"{head}{frames}RuntimeError: off by two\n") == Raised("RuntimeError", "off by two")


def test_the_main_modules_own_class_has_the_same_name_on_every_python() -> None:
    assert last_raised(PLAIN.replace("ValueError", "__main__.Mine")) == Raised("Mine", "v")


CUDA = "CUDA error: misaligned address\nCUDA kernel errors might be asynchronously reported\nCompile with `X` to\n"


@pytest.mark.parametrize(
    "text",
    [
        CUDA,
        "Tensor-likes are not close!\n\nMismatched elements: 1 / 2\nGreatest difference: 1\n",
        "\nNot equal to tolerance rtol=1e-07, atol=0\n\nMismatched elements: 1 / 2\n",
        "at 4:45:def dq_kernel(\n    q,\n):\n    x\n    ^\nValueError('Cannot broadcast')\n",
        "NCCL error in: x.cpp:3, invalid usage\nncclInvalidUsage: This usually\nLast error:\nDuplicate GPU detected\n",
        "backend='inductor' raised:\nCompilationError: x\n",
    ],
)
def test_messages_that_go_on(text: str) -> None:
    assert last_raised(PLAIN.replace("v\n", text)) == Raised("ValueError", text.strip("\n"))


def test_a_traceback_quoted_in_the_message_belongs_to_it() -> None:
    quoted = "\n\n-- Process 0 terminated with the following error:\n" + PLAIN.replace("<module>", "_wrap")
    seen = last_raised(
        PLAIN.replace("ValueError: v\n", "torch.multiprocessing.spawn.ProcessRaisedException: ") + quoted
    )
    assert seen is not None
    assert seen.type == "torch.multiprocessing.spawn.ProcessRaisedException"
    assert seen.message.endswith("ValueError: v")


def test_another_script_is_a_child() -> None:
    ranked = "".join(f"[rank0]: {line}\n" for line in PLAIN.splitlines())
    for script in ("", "x.py"):
        assert last_raised(PLAIN, script) == last_raised(ranked, script) == Raised("ValueError", "v")
    assert last_raised(PLAIN, "repro.py") is None
    assert last_raised(PLAIN + PLAIN.replace("x.py", "/case/repro.py"), "repro.py") == Raised("ValueError", "v")
    assert last_raised(ranked, "repro.py") == Raised("ValueError", "v")


def test_python_m_is_a_child() -> None:
    runpy = '  File "<frozen runpy>", line 198, in _run_module_as_main\n  File "x.py"'
    assert last_raised(PLAIN.replace('  File "x.py"', runpy)) is None


def test_frames_without_end_are_read_in_one_go() -> None:
    frames = '  File "x.py", line 1, in f\n' * 20_000
    assert last_raised(frames) is None
    assert last_raised(frames + PLAIN) == Raised("ValueError", "v")


@pytest.mark.parametrize("cut", range(0, len(PLAIN), 7))
def test_any_beginning_of_a_traceback_is_read_without_an_error(cut: int) -> None:
    seen = last_raised(PLAIN[:cut])
    assert seen is None or seen.type in "ValueError"
