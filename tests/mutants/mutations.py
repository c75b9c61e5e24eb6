"""What is done to a case, and the verdict that is right then. None: there must be no verdict, but an error."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from failure_signature.kinds import Variant
from failure_signature.trials import Verdict
from tests.mutants import kinds
from tests.mutants.kinds import ACCELERATOR_ERROR, COUNT, ILLEGAL, PROOF, QUICK, RAISES, Kind, aborts, dies_of_signal

CONFIRMED, NOT, WRONG = Verdict.CONFIRMED, Verdict.NOT_REPRODUCED, Verdict.WRONG_FAILURE
FIX, OPEN = Verdict.FIX_FAILS, Verdict.INCONCLUSIVE

MISSING = "import not_there_at_all\n"
NO_SPACE = "raise OSError(28, 'No space left on device')\n"
KILLS_SUPERVISOR = "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)\n"
TAKES_MEMORY = "import time\nheld = b'x' * (400 * 2**20)\ntime.sleep(60)\n"
SLEEPS = "import time\ntime.sleep(600)\n"
TRACEBACK = (
    "Traceback (most recent call last):\\n"
    '  File "/case/repro.py", line 1, in <module>\\n'
    "    f()\\n"
    "ValueError: sizes 64 and 16 differ\\n"
)
IN_FUNCTION = f"""\
import traceback
def f():
    try:
        {RAISES}    except ValueError:
        traceback.print_exc()
f()
"""
CAUGHT = f"import logging, sys, traceback\ntry:\n    {RAISES}except ValueError:\n    {{}}\n"
SAID_AT_EXIT = "import atexit, sys\natexit.register(sys.stderr.write, 'sizes 64 and 16 differ\\n')\n"
CONTRADICTED_IN_THE_CUT = "noise = 'x\\n' * 500_000\nprint('{0}', noise, '{1}', noise, '{0}', sep='\\n')\n"
IN_CHILD = "import subprocess, sys\nchild = subprocess.run([sys.executable, '-c', {script!r}])\n"


class Part(StrEnum):
    """What of a case is changed."""

    SCRIPT = "script"
    MANIFEST = "manifest"
    LOCK = "lock"
    ENVIRONMENT = "environment"
    ORDER = "order"
    OUTPUT = "output stream"


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """What is changed of a kind, and what must come of it. None leaves what the kind has."""

    name: str
    right: Verdict | None
    repro: str | None = None
    fixed: str | None = None
    gone: Variant | None = None
    """The engine goes away in the first such trial."""
    timeout_s: float | None = None
    trials: int | None = 1
    """None for as many as the manifest says."""
    no_tool: bool = False
    part: Part = Part.SCRIPT
    expect: Mapping[str, Any] | None = None
    proven: Mapping[str, Any] | None = None
    manifest: Mapping[str, Any] | None = None
    """Further keys of the manifest."""
    lock: str | None = None
    beside: Callable[[Path], object] | None = None
    """Done to the case's directory."""
    inside: Callable[[Path], object] | None = None
    """Done to the environment's packages before the run; the environment is its own."""
    sealed: bool = False
    """Whether what was done inside looks as if it was installed."""
    refused: bool = False
    """Whether a rule refuses it, so that nothing is run."""
    exact: bool | None = None
    """Whether the packages are exact; None where that does not matter."""
    told: str = ""
    """What must be said: in the reasons, the differences of the environment, the error."""
    said: str = ""
    """Of what only a reader can see: what `check` says of the scripts."""
    why_not: str = ""
    """The same where it says nothing: why no rule can."""

    @property
    def for_a_reader(self) -> bool:
        return bool(self.said or self.why_not)


def repro(name: str, right: Verdict, script: str, **more: Any) -> Mutation:
    return Mutation(name=f"repro {name}", right=right, repro=script, **more)


def fixed(name: str, right: Verdict, script: str, **more: Any) -> Mutation:
    return Mutation(name=f"fixed {name}", right=right, fixed=script, **more)


def of_any(kind: Kind) -> Iterator[Mutation]:
    """What can be done to every case."""
    yield Mutation(name="as it is", right=CONFIRMED)
    yield Mutation(name="variants swapped", right=NOT, repro=kind.fixed, fixed=kind.repro)
    yield repro("empty", NOT, "")
    yield repro("is fixed", NOT, kind.fixed)
    yield repro("raises another exception", WRONG, "{}['key']\n")
    yield repro("has another CUDA error", WRONG, f"{ACCELERATOR_ERROR}raise AcceleratorError('CUDA error: {LAUNCH}')\n")
    yield repro("lacks a package", WRONG, MISSING)
    yield repro("dies of another signal", WRONG, dies_of_signal("SIGBUS"))
    yield repro("finds the disk full", OPEN, NO_SPACE)
    yield repro("prints a traceback and ends well", NOT, f"print('{TRACEBACK}')\n")
    yield Mutation(name="engine goes away in repro", right=None, gone=Variant.REPRO)
    yield fixed("is repro", FIX, kind.repro)
    yield fixed("empty", FIX, "")
    yield fixed("fails after its proof", FIX, f"{kind.fixed}{{}}['key']\n")
    yield fixed("fails before its check", FIX, f"{{}}['key']\n{kind.fixed}")
    yield fixed("ends well before its check", FIX, f"raise SystemExit(0)\n{kind.fixed}")
    yield fixed("lacks a package", FIX, f"{MISSING}{kind.fixed}")
    yield fixed("dies of a signal after its proof", FIX, kind.fixed + dies_of_signal("SIGSEGV"))
    yield fixed("finds the disk full", OPEN, NO_SPACE)
    yield Mutation(name="engine goes away in fixed", right=None, gone=Variant.FIXED)


LAUNCH = "unspecified launch failure"


def of_single(kind: Kind) -> Iterator[Mutation]:
    """What takes long, for cases with few trials."""
    yield repro("takes too much memory", WRONG, TAKES_MEMORY)
    yield fixed("takes too much memory", FIX, f"{kind.fixed}{TAKES_MEMORY}")
    yield repro("takes too long", WRONG, SLEEPS, timeout_s=2)
    yield fixed("takes too long", FIX, f"{kind.fixed}{SLEEPS}", timeout_s=10)
    yield repro("loses its supervisor", OPEN, KILLS_SUPERVISOR)
    yield fixed("loses its supervisor", OPEN, KILLS_SUPERVISOR)


def intermittent(kind: Kind) -> Iterator[Mutation]:
    """Every second time only, where no rate is declared."""
    indented = "".join(f"    {line}\n" for line in kind.repro.splitlines())
    yield repro("fails now and then", OPEN, f"{COUNT}if turn % 2:\n{indented}", trials=2)
    indented = "".join(f"    {line}\n" for line in kind.fixed.splitlines())
    yield fixed("proves it now and then", FIX, f"{COUNT}if turn % 2:\n{indented}", trials=2)
    late = f"{COUNT}if turn == 1:\n    {NO_SPACE}"
    yield repro("finds the disk full once", CONFIRMED, late + kind.repro)
    # A machine does not choose a variant: what only fixed meets may be its own doing.
    yield fixed("finds the disk full once", OPEN, late + kind.fixed, trials=None)


FORGED_PROOFS = (
    fixed("gives another value as well", FIX, f"{PROOF}print('rel_err=0.3')\n"),
    fixed("takes back its first value", FIX, f"print('rel_err=0.3')\n{PROOF}"),
    fixed("gives its figure on stderr", FIX, "import sys\nprint('rel_err=1e-7', file=sys.stderr)\n"),
    fixed("gives its figure within a line", FIX, "print('the rel_err=1e-7 of it')\n"),
    fixed("gives NaN", FIX, "print('rel_err=nan')\n"),
    fixed("gives a value out of bounds", FIX, "print('rel_err=2e-5')\n"),
    fixed("gives another figure", FIX, "print('abs_err=1e-7')\n"),
    fixed("ends with status 1 after its proof", FIX, f"{PROOF}raise SystemExit(1)\n"),
)
"""For any kind whose fixed has to print rel_err."""

OF_KIND: dict[str, Sequence[Mutation]] = {
    "exception": (
        repro("has another message", WRONG, "raise ValueError('sizes 64 and 32 differ')\n"),
        repro("raises a namesake", WRONG, f"class ValueError(Exception): __module__ = 'other'\n{RAISES}"),
        repro("raises a subclass", WRONG, "raise UnicodeError('sizes 64 and 16 differ')\n"),
        repro("prints it to stderr and ends well", NOT, f"import sys\nsys.stderr.write('{TRACEBACK}')\n"),
        repro("forges a traceback on stdout and fails", WRONG, f"print('{TRACEBACK}')\nraise SystemExit(1)\n"),
        repro("exits with its words", WRONG, "raise SystemExit('ValueError: sizes 64 and 16 differ')\n"),
        repro("catches it, logs it, ends well", NOT, IN_FUNCTION),
        repro("catches it, logs it, lacks a package", WRONG, IN_FUNCTION + MISSING),
        repro("catches it, logs it, ends with status 1", WRONG, f"{IN_FUNCTION}raise SystemExit(1)\n"),
        repro(
            "raises it in a thread",
            NOT,
            f"import threading\ndef f():\n    {RAISES}threading.Thread(target=f).start()\n",
        ),
        repro("raises it in a child and ends well", NOT, IN_CHILD.format(script=f"def f():\n    {RAISES}f()")),
        repro(
            "has it as the cause of another",
            WRONG,
            f"try:\n    {RAISES}except ValueError as it:\n    raise KeyError from it\n",
        ),
        repro(
            "ends at once with status 3 afterwards", WRONG, f"import atexit, os\natexit.register(os._exit, 3)\n{RAISES}"
        ),
        repro("does not compile", WRONG, "def f(:\n"),
        repro("prints it and gives up", WRONG, CAUGHT.format("traceback.print_exc()") + "sys.exit('no licence')\n"),
        repro("logs it and ends with status 1", WRONG, CAUGHT.format("logging.exception('x')") + "sys.exit(1)\n"),
        repro("ends with status 1 as its child raises it", WRONG, f"{IN_CHILD.format(script=RAISES)}sys.exit(1)\n"),
        repro(
            "ends with status 1 as another script raises it",
            WRONG,
            "import subprocess, sys, tempfile\nother = tempfile.NamedTemporaryFile('w', suffix='.py')\n"
            f"other.write({RAISES!r})\nother.flush()\nsubprocess.run([sys.executable, other.name])\nsys.exit(1)\n",
        ),
        repro("has its words from an exit handler", WRONG, f"{SAID_AT_EXIT}raise ValueError('x')\n"),
        repro(
            "handles it, then raises a nameless type",
            WRONG,
            f"try:\n    {RAISES}except ValueError:\n    raise type('no name!', (Exception,), {{}})\n",
        ),
    ),
    "message": (
        repro("says it and fails", WRONG, "print('the loss rose at step 3\\nrises=1')\nraise SystemExit(1)\n"),
        repro("says something else", NOT, "print('the loss rose at step 4\\nrises=1')\n"),
        repro("says it and dies", WRONG, "print('the loss rose at step 3\\nrises=1')\n" + dies_of_signal("SIGSEGV")),
        fixed("says something else", FIX, "print('the loss fell in most steps\\nrises=0')\n"),
        fixed("says it and fails", FIX, "print('the loss fell in all steps\\nrises=0')\nraise SystemExit(1)\n"),
    ),
    "signal": (
        repro("says so and fails", WRONG, "print('Segmentation fault (core dumped)')\nraise SystemExit(1)\n"),
        repro("says so and ends well", NOT, "print('Segmentation fault (core dumped)')\n"),
        repro("has a child that dies of it", NOT, IN_CHILD.format(script=dies_of_signal("SIGSEGV"))),
        repro(
            "fails as its child dies of it",
            WRONG,
            IN_CHILD.format(script=dies_of_signal("SIGSEGV")) + "raise SystemExit(1)\n",
        ),
        repro("aborts", WRONG, "import os\nos.abort()\n"),
        repro("raises instead", WRONG, RAISES),
    ),
    "exit status": (
        repro("lacks the message", WRONG, "raise SystemExit(3)\n"),
        repro("has another message", WRONG, "print('page 8 is corrupt')\nraise SystemExit(3)\n"),
        repro("has another status", WRONG, "print('page 7 is corrupt')\nraise SystemExit(4)\n"),
        repro("says it and ends well", NOT, "print('page 7 is corrupt')\n"),
        repro("says it and dies", WRONG, "print('page 7 is corrupt')\n" + dies_of_signal("SIGABRT")),
    ),
    "CUDA error raised": (
        repro("raises it as another type", WRONG, f"raise RuntimeError('{ILLEGAL}')\n"),
        repro("survives it", NOT, f"print('{ILLEGAL}')\n"),
        repro("survives it, then lacks a package", WRONG, f"print('{ILLEGAL}', flush=True)\n{MISSING}"),
        repro("aborts with it", WRONG, aborts(ILLEGAL)),
        repro(
            "only says an access was illegal", WRONG, f"{ACCELERATOR_ERROR}raise AcceleratorError('illegal access')\n"
        ),
        repro(
            "has an assertion on the device",
            WRONG,
            f"{ACCELERATOR_ERROR}raise AcceleratorError('CUDA error: device-side assert triggered')\n",
        ),
        repro("has it on AMD", WRONG, kinds.CUDA_RAISED.repro.replace("CUDA", "HIP").replace("cuda", "hip")),
        repro("finds no GPU", OPEN, "raise RuntimeError('No CUDA GPUs are available')\n"),
    ),
    "CUDA error in an abort": (
        repro("aborts with another", WRONG, aborts(f"CUDA error: {LAUNCH}")),
        repro("aborts without any", WRONG, "import os\nos.abort()\n"),
        repro("says it and ends with status 1", WRONG, aborts(ILLEGAL).replace("os.abort()", "sys.exit(1)")),
        repro("says it and ends well", NOT, aborts(ILLEGAL).replace("os.abort()", "sys.exit(0)")),
        repro(
            "says it and dies of another signal",
            WRONG,
            aborts(ILLEGAL).replace("os.abort()", "os.kill(os.getpid(), 11)"),
        ),
        repro("raises it", WRONG, kinds.CUDA_RAISED.repro),
        repro("cannot reach the driver", OPEN, aborts("CUDA error: no CUDA-capable device is detected")),
    ),
    "CUDA error printed": (
        repro("ends well", NOT, kinds.CUDA_PRINTED.repro.replace("exit(1)", "exit(0)")),
        repro("prints another", WRONG, "import sys\nsys.exit('cudaErrorLaunchFailure')\n"),
        repro(
            "prints another behind it",
            WRONG,
            kinds.CUDA_PRINTED.repro.replace("sys.exit(1)", "sys.exit('cudaErrorAssert')"),
        ),
        repro("prints it, then raises", WRONG, kinds.CUDA_PRINTED.repro.replace("sys.exit(1)", RAISES)),
        repro("prints the words alone", WRONG, "import sys\nsys.exit('misaligned address')\n"),
        repro("only speaks of it", WRONG, "import sys\nsys.exit('usage: x [--on-error cudaErrorMisalignedAddress]')\n"),
        repro("finds the GPU busy", OPEN, "import sys\nsys.exit('cudaErrorDevicesUnavailable')\n"),
    ),
    "figures": (
        repro("gives another value as well", NOT, "print('rel_err=0.25')\nprint('rel_err=1e-7')\n"),
        repro("gives its figure on stderr", NOT, "import sys\nprint('rel_err=0.25', file=sys.stderr)\n"),
        repro("gives a value out of bounds", NOT, "print('rel_err=0.27')\n"),
        repro("gives NaN", NOT, "print('rel_err=nan')\n"),
        repro("gives its figure and fails", WRONG, "print('rel_err=0.25')\nraise SystemExit(1)\n"),
        repro("gives its figure and dies", WRONG, "print('rel_err=0.25')\n" + dies_of_signal("SIGSEGV")),
        repro("gives its figure within a line", NOT, "print('it is rel_err=0.25 here')\n"),
        repro("contradicts itself unseen", NOT, CONTRADICTED_IN_THE_CUT.format("rel_err=0.25", "rel_err=0")),
        fixed("contradicts itself unseen", FIX, CONTRADICTED_IN_THE_CUT.format("rel_err=1e-7", "rel_err=1")),
    ),
    "non-finite": (
        repro("has another count", NOT, "print('nonfinite=556')\n"),
        repro("counts and fails", WRONG, "print('nonfinite=557')\nraise SystemExit(2)\n"),
        fixed("has NaN left where it measures", FIX, "print('worst=nan')\nprint('nonfinite=0')\n"),
        fixed("has a few left", FIX, "print('worst=1e-6')\nprint('nonfinite=1')\n"),
        fixed("counts without measuring", FIX, "print('nonfinite=0')\n"),
    ),
    "rate": (
        repro("is much rarer", OPEN, f"{COUNT}if turn == 1:\n    {RAISES}", trials=None),
        repro(
            "finds the disk full once",
            CONFIRMED,
            f"{COUNT}if turn == 3:\n    {NO_SPACE}if turn % 4:\n    {RAISES}",
            trials=None,
        ),
        repro("fails otherwise in most trials", OPEN, f"{COUNT}if turn == 1:\n    {RAISES}{MISSING}", trials=None),
        fixed("still fails now and then", FIX, f"{COUNT}if turn == 3:\n    {RAISES}{PROOF}", trials=None),
        fixed("lacks its proof once", FIX, f"{COUNT}if turn != 2:\n    {PROOF}", trials=None),
    ),
    "growth": (
        repro("has too few steps", NOT, kinds.grows(by=10**6, steps=10)),
        repro("grows at one late step only", NOT, kinds.grows(by=0).replace("0 * step", "10**9 * (step > 9)")),
        repro("grows at one step only", NOT, kinds.grows(by=0).replace("0 * step", "10**9 * (step > 6)")),
        fixed("grows at one step", FIX, kinds.grows(by=0).replace("0 * step", "10**9 * (step > 6)")),
        repro("grows less", NOT, kinds.grows(by=10**4)),
        repro("grows on stderr", NOT, kinds.grows(by=10**6).replace("}')", "}', file=__import__('sys').stderr)")),
        repro("contradicts itself", NOT, kinds.grows(by=10**6) + kinds.grows(by=0)),
        repro("grows and fails", WRONG, kinds.grows(by=10**6) + "raise SystemExit(1)\n"),
        fixed("still grows a little", FIX, kinds.grows(by=10**4)),
        fixed("has too few steps", FIX, kinds.grows(by=0, steps=10)),
        fixed("is not finite", FIX, "for step in range(12):\n    print(f'host_bytes[{step}]=nan')\n"),
        fixed("contradicts itself", FIX, kinds.grows(by=0) + kinds.grows(by=10**6)),
    ),
    "differs": (
        repro("has no digest", NOT, "print('out=unknown')\n", trials=None),
        repro("contradicts itself", NOT, kinds.DIFFERS.repro + kinds.DIFFERS.repro, trials=None),
        repro("has its digest and fails", WRONG, kinds.DIFFERS.repro + "raise SystemExit(1)\n", trials=None),
        repro("prints a figure by that name", NOT, "print('out=0.5')\n", trials=None),
        fixed("differs once", FIX, f"{COUNT}print(f'out=sha256:{{turn == 3:064x}}')\n", trials=None),
        fixed("has no digest", FIX, "print('all good')\n", trials=None),
        fixed("has another digest each time", FIX, f"{COUNT}print(f'out=sha256:{{turn:064x}}')\n", trials=None),
    ),
}

_PROGRESS = (
    "import itertools, time\nfor i in itertools.count():\n    print('step', i, flush=True)\n    time.sleep(0.05)\n"
)

OF_HANG = (
    Mutation(name="as it is", right=CONFIRMED),
    repro("hangs elsewhere", WRONG, kinds.waits_in("read_data")),
    repro(
        "hangs elsewhere beside a thread that waits",
        WRONG,
        "import threading, time\ndef wait_for_peer(): time.sleep(600)\n"
        f"threading.Thread(target=wait_for_peer).start()\n{kinds.waits_in('read_data')}",
    ),
    repro("is slow", WRONG, _PROGRESS, timeout_s=15),
    repro("fails instead", WRONG, RAISES),
    repro("dies instead", WRONG, dies_of_signal("SIGSEGV")),
    repro("ends by itself", NOT, "print('wait_for_peer')\n"),
    repro("lacks a package", WRONG, MISSING),
    repro("finds the disk full", OPEN, NO_SPACE),
    fixed("hangs elsewhere", FIX, PROOF + kinds.waits_in("read_data")),
    fixed("is repro", FIX, kinds.HANG.repro),
    fixed("is slow", FIX, PROOF + _PROGRESS, timeout_s=15),
    fixed("empty", FIX, ""),
    fixed("fails after its proof", FIX, PROOF + RAISES),
    Mutation(name="engine goes away in repro", right=None, gone=Variant.REPRO),
)

OF_SANITIZER = (
    Mutation(name="as it is", right=CONFIRMED),
    Mutation(name="variants swapped", right=NOT, repro=kinds.SANITIZER.fixed, fixed=kinds.SANITIZER.repro),
    Mutation(name="the tool is not there", right=OPEN, no_tool=True),
    repro("has no finding", WRONG, kinds.under_tool(errors=0) + RAISES),
    repro("has another finding", WRONG, kinds.under_tool(size=8) + RAISES),
    repro("has the finding and another failure", WRONG, kinds.under_tool() + MISSING),
    repro("has the finding and no failure", NOT, kinds.under_tool()),
    repro("ends before the tool does", OPEN, kinds.under_tool(errors=0, ends=False) + RAISES),
    fixed("has the finding", FIX, kinds.under_tool() + PROOF),
    fixed("has another finding", FIX, kinds.under_tool(size=8) + PROOF),
    fixed("ends before the tool does", OPEN, kinds.under_tool(errors=0, ends=False) + PROOF),
    fixed("empty", FIX, ""),
    fixed(
        "lacks its proof under the tool",
        FIX,
        f"{kinds.under_tool(errors=0)}if not os.environ.get('STAND_IN'):\n    {PROOF}",
    ),
)

_SINGLE = ("exception", "CUDA error raised", "figures")


def mutations(kind: Kind) -> Iterator[Mutation]:
    """Everything that is done to a kind."""
    if kind is kinds.HANG:
        yield from OF_HANG
    elif kind is kinds.SANITIZER:
        yield from OF_SANITIZER
    else:
        yield from of_any(kind)
        yield from OF_KIND[kind.name]
        yield from FORGED_PROOFS if kind.fixed == PROOF and kind.name in {"exception", "figures"} else ()
        yield from () if kind.measured else intermittent(kind)
        yield from of_single(kind) if kind.name in _SINGLE else ()


def every() -> Iterator[tuple[Kind, Mutation]]:
    for kind in (kinds.HANG, *QUICK, kinds.SANITIZER):
        for mutation in mutations(kind):
            yield kind, mutation
