"""One small case for each kind of failure. The scripts need nothing but Python; a GPU's words are printed as recorded.

In a script TURN stands for the path of a file that outlives the trials, for what must change from trial to trial; each
variant has one of its own. SHARED is one that both have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import locked

PROOF = "print('rel_err=1e-7')\n"
PROVEN = {"figures": {"rel_err": "< 1e-5"}}

COUNT = """\
with open(TURN, "a+") as turns:
    turns.write("x")
    turns.flush()
    turns.seek(0)
    turn = len(turns.read())
"""
"""After it `turn` is 1 in the first trial that runs it, then 2, and so on."""

RAISES = "raise ValueError('sizes 64 and 16 differ')\n"
ILLEGAL = "CUDA error: an illegal memory access was encountered"
ACCELERATOR_ERROR = "class AcceleratorError(RuntimeError): pass\nAcceleratorError.__module__ = 'torch'\n"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A synthetic case: both scripts, what is expected of each, and further keys of the manifest."""

    name: str
    failure: str
    repro: str
    expect: Mapping[str, Any]
    fixed: str = PROOF
    proven: Mapping[str, Any] = field(default_factory=lambda: PROVEN)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    requirements: Sequence[str] = ()
    lock: str = field(default_factory=lambda: locked([]))

    @property
    def measured(self) -> bool:
        return bool({"rate", "differs"} & set(self.expect))


def aborts(message: str) -> str:
    """What C++ does with an exception that nobody catches."""
    told = f"terminate called after throwing an instance of 'c10::AcceleratorError'\n  what():  {message}\n"
    return f"import os, sys\nsys.stderr.write({told!r})\nsys.stderr.flush()\nos.abort()\n"


def dies_of_signal(name: str) -> str:
    return f"import os, signal\nos.kill(os.getpid(), signal.{name})\n"


def grows(by: int, steps: int = 12) -> str:
    return f"for step in range({steps}):\n    print(f'host_bytes[{{step}}]={{10**8 + {by} * step}}')\n"


def waits_in(function: str) -> str:
    return f"import threading\ndef {function}():\n    threading.Event().wait()\n{function}()\n"


EXCEPTION = Kind(
    name="exception",
    failure="exception",
    repro=RAISES,
    expect={"exception": "ValueError", "message": "sizes 64 and 16"},
)
MESSAGE = Kind(
    name="message",
    failure="wrong-numbers",
    repro="print('the loss rose at step 3')\nprint('rises=1')\n",
    expect={"message": "the loss rose at step 3", "figures": {"rises": "== 1"}},
    fixed="print('the loss fell in all steps')\nprint('rises=0')\n",
    proven={"message": "the loss fell in all steps", "figures": {"rises": "== 0"}},
)
SIGNAL = Kind(
    name="signal",
    failure="crash",
    repro=f"print('reached=1', flush=True)\n{dies_of_signal('SIGSEGV')}",
    expect={"signal": "SIGSEGV", "figures": {"reached": "== 1"}},
)
STATUS = Kind(
    name="exit status",
    failure="crash",
    repro="print('page 7 is corrupt')\nraise SystemExit(3)\n",
    expect={"exit_status": 3, "message": "page 7 is corrupt"},
)
CUDA_RAISED = Kind(
    name="CUDA error raised",
    failure="illegal-access",
    repro=f"{ACCELERATOR_ERROR}raise AcceleratorError('{ILLEGAL}\\nSearch for `cudaErrorIllegalAddress')\n",
    expect={"exception": "torch.AcceleratorError", "cuda_error": "cudaErrorIllegalAddress"},
)
CUDA_ABORT = Kind(
    name="CUDA error in an abort",
    failure="illegal-access",
    repro=aborts(ILLEGAL),
    expect={"signal": "SIGABRT", "cuda_error": "cudaErrorIllegalAddress"},
)
CUDA_PRINTED = Kind(
    name="CUDA error printed",
    failure="illegal-access",
    repro="import sys\nsys.stderr.write('cudaDeviceSynchronize: cudaErrorMisalignedAddress: misaligned address\\n')\n"
    "sys.exit(1)\n",
    expect={"cuda_error": "cudaErrorMisalignedAddress"},
)
FIGURES = Kind(
    name="figures",
    failure="wrong-numbers",
    repro="print('rel_err=0.25')\n",
    expect={"figures": {"rel_err": "> 0.24, < 0.26"}},
)
NON_FINITE = Kind(
    name="non-finite",
    failure="non-finite",
    repro="print('worst=nan')\nprint('nonfinite=557')\n",
    expect={"figures": {"nonfinite": "== 557"}},
    fixed="print('worst=1e-6')\nprint('nonfinite=0')\n",
    proven={"figures": {"nonfinite": "== 0", "worst": "< 1e-4"}},
)
RATE = Kind(
    name="rate",
    failure="race",
    repro=f"{COUNT}if turn % 4:\n    {RAISES}",
    expect={"exception": "ValueError", "message": "sizes 64 and 16", "rate": ">= 0.5"},
    manifest={"trials": 10, "alpha": 0.1},
)
GROWTH = Kind(
    name="growth",
    failure="leak",
    repro=grows(by=10**6),
    expect={"growth": {"series": "host_bytes", "per_step": "> 1e5", "warm_up": 1}},
    fixed=grows(by=0),
    proven={"growth": {"series": "host_bytes", "per_step": "< 1e3", "warm_up": 1}},
)
DIFFERS = Kind(
    name="differs",
    failure="wrong-numbers",
    repro="import os\nprint(f'out=sha256:{os.urandom(32).hex()}')\n",
    expect={"differs": ["out"]},
    fixed=f"print('out=sha256:{'ab' * 32}')\n",
    proven={"same": ["out"]},
    manifest={"trials": 40, "alpha": 0.1},
)
HANG = Kind(
    name="hang",
    failure="hang",
    repro=waits_in("wait_for_peer"),
    expect={"hang": {"after": "1s", "stack": "wait_for_peer"}},
    manifest={"timeout": "20s"},
)

QUICK = (
    EXCEPTION,
    MESSAGE,
    SIGNAL,
    STATUS,
    CUDA_RAISED,
    CUDA_ABORT,
    CUDA_PRINTED,
    FIGURES,
    NON_FINITE,
    RATE,
    GROWTH,
    DIFFERS,
)
"""All but those whose trials take seconds, or need more than an environment with nothing in it."""

_TOOL_SAYS = """\
========= COMPUTE-SANITIZER
{finding}========= ERROR SUMMARY: {errors} error{s}
"""


def under_tool(*, size: int = 4, errors: int = 1, ends: bool = True, kernel: str = "write_behind(float *, int)") -> str:
    """A script that prints, where it runs under the stand-in for compute-sanitizer, what the tool would."""
    at = "" if not errors else "=" * 9 + f" Invalid __global__ write of size {size} bytes\n"
    for line in (f"at {kernel}+0x60 in x.cu:4", "by thread (0,0,0) in block (0,0,0)") if errors else ():
        at += "=" * 9 + f"     {line}\n"
    at += "=" * 9 + " \n" if errors else ""
    said = _TOOL_SAYS.format(finding=at, errors=errors, s="" if errors == 1 else "s")
    said = said if ends else said.rpartition("=" * 9)[0]
    return f"import os\nif os.environ.get('STAND_IN'):\n    print({said!r})\n"


SANITIZER = Kind(
    name="sanitizer",
    failure="illegal-access",
    repro=under_tool() + RAISES,
    expect={
        "exception": "ValueError",
        "sanitizer": {"tool": "memcheck", "access": "write", "size": 4, "kernel": "write_behind"},
    },
    fixed=under_tool(errors=0) + PROOF,
)
