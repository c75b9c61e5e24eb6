"""What only a reader can see: pairs of scripts that are confirmed and show nothing, or show something else.

Each is run, and comes out as confirmed; and what `check` says of the two scripts is compared with what stands here. It
says something, or there is a sentence on why no rule can.

Most are made of one script, in which two small modules beside it take the place of torch and Triton.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from failure_signature.trials import Verdict
from tests.mutants.kinds import COUNT, EXCEPTION, FIGURES, HANG, SIGNAL, Kind
from tests.mutants.mutations import Mutation, Part

TORCH = '''\
"""As much of torch as the script needs: vectors of Python's own floats."""
import math
import random

class Scalar(float):
    def __truediv__(self, other): return Scalar(float(self) / other)
    def item(self): return float(self)

class Tensor:
    def __init__(self, values, device, dtype="float32"):
        self.values, self.device, self.dtype, self.hooks = list(values), device, dtype, []
    def __len__(self): return len(self.values)
    def __getitem__(self, at): return self.values[at]
    def __setitem__(self, at, value): self.values[at] = value
    def _with(self, other, how):
        others = other.values if isinstance(other, Tensor) else [other] * len(self)
        return self._like(map(how, self.values, others))
    def _like(self, values): return Tensor(values, self.device, self.dtype)
    def __add__(self, other): return self._with(other, lambda one, two: one + two)
    def __sub__(self, other): return self._with(other, lambda one, two: one - two)
    def __mul__(self, other): return self._with(other, lambda one, two: one * two)
    def double(self): return Tensor(self.values, self.device, "float64")
    def norm(self): return Scalar(math.sqrt(sum(value * value for value in self.values)))
    def copy_(self, other): self.values = list(other.values)
    def new_empty(self, n): return self._like([0.0] * n)
    def register_hook(self, hook): self.hooks.append(hook)
    def backward(self): [hook(self) for hook in self.hooks]

def manual_seed(seed): random.seed(seed)
def randn(n, device): return Tensor([random.gauss(0, 1) for _ in range(n)], device)
def ones(n, device): return Tensor([1.0] * n, device)
def empty_like(x): return x.new_empty(len(x))
def rand_like(x): return x._like(random.random() for _ in x.values)
'''
TRITON = '''\
"""As much of Triton as the script needs: a kernel runs once for each element."""

class Kernel:
    def __init__(self, function): self.function = function
    def __getitem__(self, grid): return lambda x, y, n: [self.function(x, y, at) for at in range(n)]

def jit(function): return Kernel(function)
'''
HEADER = """\
# /// script
# requires-python = "==3.11.*"
# dependencies = []
# ///
"""
BROKEN, RIGHT = "x[n] * 0.5", "x[n] * 2.0"
SCRIPT = f'''\
{HEADER}"""Look for rel_err."""
import threading
import time

import torch
import triton

N = 704
DEVICE = "cuda"

@triton.jit
def scale_kernel(x, y, n):
    y[n] = {BROKEN}

def scaled(x):
    y = torch.empty_like(x)
    scale_kernel[(1,)](x, y, len(x))
    return y

def relative_error(got, exact):
    return ((got.double() - exact).norm() / exact.norm()).item()

def main():
    torch.manual_seed(0)
    x = torch.randn(N, device=DEVICE)
    got = scaled(x)
    exact = x.double() * 2
    error = relative_error(got, exact)
    print(f"rel_err={{error:.3e}}")
    assert error < 1, f"relative error {{error:.2f}}"
    print("compared all of it")

main()
'''
LAUNCH = "    scale_kernel[(1,)](x, y, len(x))\n"
GOT = "    got = scaled(x)\n"
CHECKED = '    assert error < 1, f"relative error {error:.2f}"\n'
STRICT = CHECKED.replace("< 1,", "< 1e-3,")
TRIED = f"    try:\n    {STRICT}    except AssertionError:\n        pass\n"
PAIR = Kind(
    name="a pair",
    failure="wrong-numbers",
    repro=SCRIPT,
    expect={"figures": {"rel_err": "> 0.05"}},
    fixed=SCRIPT.replace(BROKEN, RIGHT),
)
RAISED: Mapping[str, Any] = {"exception": "AssertionError", "message": "relative error 0.75"}
COMPARED: Mapping[str, Any] = {"message": "compared all of it"}


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def write_stand_ins(directory: Path) -> None:
    (directory / "torch.py").write_text(TORCH)
    (directory / "triton.py").write_text(TRITON)


def told(name: str, said: str, *changes: tuple[str, str], repro: str = SCRIPT, **more: Any) -> Mutation:
    """Return a pair of which `check` says something. `changes` make fixed.py out of repro.py."""
    fixed = more.pop("fixed", None) or changed(repro, *changes)
    return Mutation(name=name, right=Verdict.CONFIRMED, repro=repro, fixed=fixed, said=said, **_trials(more))


def untold(name: str, why_not: str, *, repro: str, fixed: str, **more: Any) -> Mutation:
    """Return a pair of which no rule can say anything."""
    return Mutation(name=name, right=Verdict.CONFIRMED, repro=repro, fixed=fixed, why_not=why_not, **_trials(more))


def _trials(more: dict[str, Any]) -> dict[str, Any]:
    return {"beside": write_stand_ins, "trials": None} | more


HOOK = "    x.register_hook(lambda grad: threading.Event().wait())\n"
BACKWARD = (GOT, f"{GOT}    x.backward()\n")
RAISES_ITSELF = "    raise ValueError('the sizes differ')\n"
BY_DEVICE = changed(SCRIPT, (BROKEN, 'x[n] * (0.5 if x.device == "cuda" else 2.0)'))
BY_DTYPE = changed(SCRIPT, (BROKEN, 'x[n] * (0.5 if x.dtype == "float32" else 2.0)'))
BY_SIGN = changed(SCRIPT, (BROKEN, "x[n] * (0.5 if x[n] < 0 else 2.0)"))
BY_SIZE = changed(SCRIPT, (BROKEN, "x[n] * (0.5 if n >= 640 else 2.0)"))
FEW = changed(BY_SIGN, ("N = 704", "N = 3"))
ASSERTED = changed(SCRIPT, (CHECKED, STRICT))
BEHIND = changed(SCRIPT, ("    y[n] = x[n] * 0.5\n", "    y[n + 1] = x[n] * 0.5\n"))
NAMED = changed(
    SCRIPT, (BROKEN, "x[n] * (2.0 if 'fixed' in sys.argv[0] else 0.5)"), ("import thr", "import sys\nimport thr")
)
NO_MODEL = f'{HEADER}"""Look for rel_err."""\nimport torch\n\nx = torch.ones(3, device="cpu")\nprint("rel_err={{}}")\n'

PAIRS = (
    told("fixed prints a constant", "error: prints a constant as rel_err", ("{error:.3e}", "0")),
    told(
        "fixed compares the reference with itself",
        "error: compares exact",
        ("got, exact)\n    p", "exact, exact)\n    p"),
    ),
    told(
        "fixed takes its result as the reference",
        "warning: computes rel_err",
        ("exact = x.double() * 2", "exact = got"),
    ),
    told("fixed leaves the kernel out", "error: no longer uses scale_kernel", (LAUNCH, "    y.copy_(x * 2)\n")),
    told("fixed has another implementation", "error: no longer uses scaled", (GOT, "    got = x * 2\n")),
    told(
        "fixed leaves the package out",
        "error: does nothing with triton",
        ("@triton.jit\n", ""),
        (LAUNCH, "    for at in range(len(x)):\n        y[at] = 2 * x[at]\n    scale_kernel(x, x, 0)\n"),
        fixed=changed(
            SCRIPT,
            ("@triton.jit\n", ""),
            (BROKEN, RIGHT),
            (LAUNCH, "    for at in range(len(x)):\n        scale_kernel(x, y, at)\n"),
        ),
    ),
    told(
        "fixed catches the failure",
        "error: a new try/except",
        (STRICT, TRIED),
        repro=ASSERTED,
        expect=RAISED,
        proven=COMPARED,
    ),
    told("fixed ends before its check", "error: ends early", (GOT, f"    print('rel_err=0')\n    exit()\n{GOT}")),
    told("fixed has smaller inputs", "warning: draws other random numbers", ("N = 704", "N = 640"), repro=BY_SIZE),
    told("fixed draws other numbers", "warning: draws other random numbers", ("seed(0)", "seed(1)"), repro=FEW),
    told(
        "fixed has ones for inputs", "error: no longer calls torch.randn", ("torch.randn", "torch.ones"), repro=BY_SIGN
    ),
    told(
        "fixed has a wider tolerance",
        "warning: does not assert",
        ("< 1e-3,", "< 1e3,"),
        repro=ASSERTED,
        expect=RAISED,
        proven=COMPARED,
    ),
    told(
        "fixed runs on another device",
        "warning: draws other random numbers",
        ('DEVICE = "cuda"', 'DEVICE = "cpu"'),
        repro=BY_DEVICE,
    ),
    untold(
        "fixed runs in another precision",
        "A conversion that was missing is what many a fix is; the page shows what differs.",
        repro=BY_DTYPE,
        fixed=changed(BY_DTYPE, (GOT, "    got = scaled(x.double())\n")),
    ),
    told("fixed scales its error", "warning: computes rel_err", ("{error:.3e}", "{error / 1e9:.3e}")),
    told(
        "repro adds noise",
        "error: no longer calls torch.rand_like",
        repro=changed(PAIR.fixed, (GOT, f"{GOT}    got = got + torch.rand_like(got)\n")),
        fixed=PAIR.fixed,
    ),
    told(
        "repro has a hook that waits",
        "warning: waits by itself",
        repro=changed(PAIR.fixed, (GOT, f"{HOOK}{GOT}    x.backward()\n")),
        fixed=changed(PAIR.fixed, BACKWARD),
        expect={"hang": {"after": "1s", "stack": "backward"}},
        manifest={"failure": "hang", "timeout": "30s"},
    ),
    told(
        "repro raises what is declared",
        "warning: raises by itself",
        repro=changed(PAIR.fixed, (GOT, f"{RAISES_ITSELF}{GOT}")),
        fixed=PAIR.fixed,
        expect={"exception": "ValueError", "message": "the sizes differ"},
    ),
    told(
        "both print figures and run no model",
        "error: computes no figure",
        repro=NO_MODEL.format(0.5),
        fixed=NO_MODEL.format(1e-7),
    ),
    told("both look at their name", "warning: looks at its own name", repro=NAMED, fixed=f"{NAMED}pass\n"),
    untold(
        "repro has another defect in the same kernel",
        "It differs in the kernel, as a fix does: only upstream's commit tells which defect it was.",
        repro=changed(SCRIPT, (BROKEN, "x[n] * (2.0 if n % 2 else 1.0)")),
        fixed=PAIR.fixed,
    ),
    untold(
        "repro gets its failure from code around the kernel",
        "Code around a kernel can be what was wrong; the README has to say where upstream changed it.",
        repro=changed(PAIR.fixed, ("    return y\n", "    return y + 1\n")),
        fixed=PAIR.fixed,
    ),
    untold(
        "fixed has room to spare where repro.py writes past the end",
        "A larger buffer is what many a fix is; compute-sanitizer shows where the kernel still writes.",
        repro=changed(PAIR.fixed, ("    y[n] =", "    y[n + 1 if n == N - 1 else n] =")),
        fixed=changed(
            PAIR.fixed,
            ("    y[n] =", "    y[n + 1 if n == N - 1 else n] ="),
            ("torch.empty_like(x)", "x.new_empty(len(x) + 1)"),
        ),
        expect={"exception": "IndexError", "message": "list assignment index out of range"},
        proven=COMPARED,
    ),
)


# Others


def whole(text: str) -> str:
    return f'{HEADER}"""Made up."""\n{text}'


JOINS = """\
import sys
import traceback

def joined(size):
    if size != 16:
        raise ValueError(f"sizes {size} and 16 differ")
    return size

try:
    print(f"rel_err={joined(64) - 64}")
except ValueError:
    traceback.print_exc()
    sys.exit(1)
"""
COUNTS = f"""\
{COUNT.replace("TURN", "SHARED")}if turn in (1, 3, 5):
    raise ValueError("sizes 64 and 16 differ")
print(f"rel_err={{turn * 0}}")
"""
SELDOM = f"""\
{COUNT}if turn % 20 == 0:
    raise ValueError("sizes 64 and 16 differ")
print(f"rel_err={{1e-7 / turn}}")
"""
DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
CHILD = f"""\
import os
import subprocess
import sys

DIES = {DIES!r}
print("reached=1", flush=True)
"""
OF_CHILD = "print(f'rel_err={child.returncode * 0}')\n"
HELD = """\
import atexit
import threading

held = threading.Lock()

def wait_for_peer():
    held.acquire()

"""
STEPS = """\
def forward(size):
    if size != 16:
        raise ValueError(f"sizes {size} and 16 differ")
    return size

def backward(size):
    if size % 16:
        raise ValueError(f"sizes {size} and 16 differ")
    return size

print(f"rel_err={backward(forward(64)) - 64}")
"""
LATER = "import time; print('rel_err=1e-7', flush=True); time.sleep(60)"
OUTLIVES = f"""\
import subprocess
import sys
import time

def work():
    return subprocess.Popen([sys.executable, "-c", {LATER!r}])

work()
time.sleep(1)
"""
HANGS_AT_EXIT = f"""\
{HELD}held.acquire()
atexit.register(wait_for_peer)
print(f"rel_err={{held.locked() * 1e-7}}")
"""
WAITS = """\
import threading

def wait_for_peer(seconds):
    return threading.Event().wait(seconds)

print(f"rel_err={wait_for_peer(40) * 1e-7}")
"""
WAITS_FOR_PROGRAM = """\
import subprocess

def wait_for_peer(seconds):
    return subprocess.run(["sleep", str(seconds)]).returncode

status = wait_for_peer(40)
print(f"rel_err={status * 1e-7}")
"""
MINUTE: Mapping[str, Any] = {"timeout": "60s"}

OTHERS = (
    (
        EXCEPTION,
        untold(
            "repro prints the traceback itself and ends with status 1",
            "That is what Python does of an exception that nobody caught, to the byte, and the exception was raised.",
            repro=whole(JOINS),
            fixed=whole(JOINS.replace("if size != 16:", "if size % 16:")),
            beside=None,
        ),
    ),
    (
        EXCEPTION,
        untold(
            "both count the runs of either",
            "What keeps count in a place that outlives its runs can play any part; a container has no such place.",
            repro=whole(COUNTS),
            fixed=whole(f"{COUNTS}turn = None\n"),
            part=Part.ORDER,
            beside=None,
        ),
    ),
    (
        EXCEPTION,
        untold(
            "fixed fails in one run of twenty",
            "Four clean runs can't tell; the headline says in how many runs it may still fail.",
            repro=whole(SELDOM.replace("turn % 20 == 0", "turn")),
            fixed=whole(SELDOM),
            told="fails in at most 53 % of runs at 95 % confidence",
            beside=None,
        ),
    ),
    (
        EXCEPTION,
        untold(
            "repro fails in another function that says the same",
            "Which function a message came from it tells only where it has a name in it, and the manifest has that.",
            repro=whole(STEPS),
            fixed=whole(STEPS.replace("if size != 16:", "if size % 16:", 1)),
            beside=None,
        ),
    ),
    (
        SIGNAL,
        untold(
            "fixed has a child that dies of it unseen",
            "Nothing tells of a child but its parent: a script about one has to print its status as a figure.",
            repro=whole(f"{CHILD}os.execv(sys.executable, [sys.executable, '-c', DIES])\n"),
            fixed=whole(f"{CHILD}child = subprocess.run([sys.executable, '-c', DIES])\n{OF_CHILD}"),
            beside=None,
        ),
    ),
    (
        FIGURES,
        untold(
            "fixed has its proof from a child that outlives it",
            "Launchers print by their children, and whose line it was is not seen.",
            repro=whole("import math\nprint(f'rel_err={math.sqrt(1 / 16)}')\n"),
            fixed=whole(OUTLIVES),
            beside=None,
        ),
    ),
    (
        HANG,
        untold(
            "repro has done its work and hangs at its end",
            "A process that can't end hangs too, as where groups wait for their peers when they are destroyed; the "
            "page has the stack, and what was printed before.",
            repro=whole(HANGS_AT_EXIT),
            fixed=whole(HANGS_AT_EXIT.replace("held.acquire()\natexit", "atexit")),
            beside=None,
        ),
    ),
    (
        HANG,
        told(
            "repro waits for a while",
            "warning: wait_for_peer, where the manifest says that it hangs, waits by itself",
            ("(40)", "(0)"),
            repro=whole(WAITS),
            manifest=MINUTE,
            beside=None,
        ),
    ),
    (
        HANG,
        untold(
            "repro waits for a while in another program",
            "A long wait is one without end until it is over; `after` has to be longer than what the script can wait.",
            repro=whole(WAITS_FOR_PROGRAM),
            fixed=whole(WAITS_FOR_PROGRAM.replace("(40)", "(0)")),
            manifest=MINUTE,
            beside=None,
        ),
    ),
)


def everything() -> Iterator[tuple[Kind, Mutation]]:
    yield PAIR, Mutation(name="as it is", right=Verdict.CONFIRMED, beside=write_stand_ins)
    for mutation in PAIRS:
        yield PAIR, mutation
    yield from OTHERS
