"""Cases that look right and are not, changed in one part each: the script, the manifest, the lock, the environment, the
order of the trials, what is printed. None may come out as confirmed, or as exact, by the runner's fault.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from failure_signature.trials import Verdict
from tests.fakes import locked
from tests.mutants import demo, kinds
from tests.mutants.demo import DEMO, IMPORTED, PIN
from tests.mutants.kinds import (
    COUNT,
    CUDA_PRINTED,
    CUDA_RAISED,
    EXCEPTION,
    FIGURES,
    GROWTH,
    HANG,
    ILLEGAL,
    PROOF,
    RAISES,
    RATE,
    SANITIZER,
    SIGNAL,
    Kind,
    dies_of_signal,
)
from tests.mutants.mutations import (
    CAUGHT,
    CONFIRMED,
    FIX,
    IN_CHILD,
    MISSING,
    NO_SPACE,
    NOT,
    OPEN,
    WRONG,
    Mutation,
    Part,
)

Table = Iterator[tuple[Kind, Mutation]]
WORDS = "sizes 64 and 16 differ"
OTHER = "raise ValueError('x')\n"
IN_MAIN = (
    'Traceback (most recent call last):\n  File "/case/repro.py", line 3, in {where}\n    f()\n{type}: ' + WORDS + "\n"
)


def everything() -> Table:
    yield from _of_output()
    yield from _of_scripts()
    yield from _of_hangs()
    yield from _of_the_tool()
    yield from _of_manifests()
    yield from _of_files()
    yield from _of_locks()
    yield from _of_environments()
    yield from _of_order()


def repro(name: str, right: Verdict, script: str, **more: Any) -> Mutation:
    return _whole(name=f"repro {name}", right=right, repro=script, **more)


def fixed(name: str, right: Verdict, script: str, **more: Any) -> Mutation:
    return _whole(name=f"fixed {name}", right=right, fixed=script, **more)


def _whole(**more: Any) -> Mutation:
    """As many trials as the manifest says: what is confirmed by fault shall show."""
    return Mutation(**{"trials": None, **more})


def says(text: str, status: int = 1) -> str:
    """Return a script that prints this to stderr and ends with a status."""
    return f"import os, sys\nsys.stderr.write({text!r})\nsys.stderr.flush()\nos._exit({status})\n"


def at_exit(text: str) -> str:
    return f"import atexit, sys\natexit.register(sys.stderr.write, {text!r})\n{OTHER}"


# What is printed

RAY = "type('RayTaskError(RuntimeError)', (Exception,), {'__module__': 'ray.exceptions'})('boom')"
AT_TOP = IN_MAIN.format(where="<module>", type="ValueError")
IN_FUNCTION = IN_MAIN.format(where="main", type="ValueError")
OF_RANKS = "".join(f"[rank1]: {line}\n" for line in AT_TOP.splitlines())
CONSEQUENCE = OF_RANKS.replace("rank1", "rank0").replace(WORDS, "Connection closed by peer")
HYDRA = (
    f"Error executing job with overrides: []\n{IN_FUNCTION}\nSet the environment variable HYDRA_FULL_ERROR=1 for more\n"
)
RICH = "\n".join(
    (
        f"╭{'─' * 3} Traceback (most recent call last) {'─' * 3}╮",
        f"│ {'/case/repro.py:3 in main':<39} │",
        f"╰{'─' * 41}╯",
        f"ValueError: {WORDS}\n",
    )
)
COLOURED = AT_TOP.replace("ValueError", "\x1b[1;35mValueError\x1b[0m").replace(WORDS, f"\x1b[35m{WORDS}\x1b[0m")
UNLOADED = f"Exception ignored in: <function f at 0x7f>\n{IN_FUNCTION}"
IN_THREAD = f"import threading\ndef f():\n    {RAISES}it = threading.Thread(target=f)\nit.start()\nit.join()\n"
POOL = (
    "import multiprocessing, sys\n"
    f"def work():\n    {RAISES}"
    "if __name__ == '__main__':\n    child = multiprocessing.get_context('spawn').Process(target=work)\n"
    "    child.start()\n    child.join()\n    sys.exit(child.exitcode)\n"
)
TELLS = f"""\
import subprocess, sys
try:
    subprocess.run([sys.executable, '-c', {dies_of_signal("SIGSEGV")!r}], check=True)
except subprocess.CalledProcessError as error:
    print(error, file=sys.stderr)
"""
CUDA_WORDS = ILLEGAL.removeprefix("CUDA error: ")
IN_WORDS: dict[str, Any] = {"expect": {"cuda_error": "cudaErrorIllegalAddress"}}


def _of_output() -> Table:
    def of(kind: Kind, mutations: list[Mutation]) -> Table:
        for each in mutations:
            yield kind, each

    out: dict[str, Any] = {"part": Part.OUTPUT}
    ended = {"exception": "ray.exceptions.RayTaskError(RuntimeError)", "message": "task 7 failed"}
    yield from of(
        EXCEPTION,
        [
            repro(
                "handles it, then ends by Ray's",
                WRONG,
                f"try:\n    {RAISES}except ValueError:\n    raise {RAY}\n",
                **out,
            ),
            repro("ends by Ray's", CONFIRMED, f"raise {RAY.replace('boom', 'task 7 failed')}\n", expect=ended, **out),
            repro("has its words from wandb", WRONG, at_exit(f"wandb: ERROR {WORDS}\n"), **out),
            repro("has its words from glog", WRONG, at_exit(f"W0726 10:00:00.000000 7 x.cc:1] {WORDS}\n"), **out),
            repro(
                "has its words from TensorFlow",
                WRONG,
                at_exit(f"2024-05-01 10:00:00.123456: E x.cc:1] {WORDS}\n"),
                **out,
            ),
            repro("has its words from an unload", WRONG, at_exit(UNLOADED), **out),
            repro("has it in one rank, after another's", WRONG, says(CONSEQUENCE + OF_RANKS), **out),
            repro("has it in one rank, before another's", WRONG, says(OF_RANKS + CONSEQUENCE), **out),
            repro("has it in one rank", CONFIRMED, says(OF_RANKS), **out),
            repro("has it in colour", CONFIRMED, says(COLOURED), **out),
            repro("has it as Hydra prints it", CONFIRMED, says(HYDRA), **out),
            repro("has it as rich prints it", CONFIRMED, says(RICH), **out),
            repro(
                "prints it as rich would, and goes on to fail",
                WRONG,
                f"import sys\nsys.stderr.write({RICH!r})\n{MISSING}",
                **out,
            ),
            repro("prints it and then something else", WRONG, says(f"{AT_TOP}could not save the checkpoint\n"), **out),
            repro("has it in a spawned child, and its status", WRONG, POOL, **out),
            repro("prints it on stdout alone", WRONG, f"print({AT_TOP!r})\nraise SystemExit(1)\n", **out),
            fixed(
                "has a thread that dies of it",
                FIX,
                IN_THREAD + PROOF,
                **out,
            ),
            fixed("has a child that dies of it", FIX, IN_CHILD.format(script=RAISES) + PROOF, **out),
            fixed("logs it", FIX, CAUGHT.format("logging.exception('x')") + PROOF, **out),
            fixed("prints it", FIX, CAUGHT.format("traceback.print_exc()") + PROOF, **out),
            fixed(
                "has its proof in what was cut",
                FIX,
                "print('x\\n' * 300_000)\nprint('rel_err=1e-7')\nprint('x\\n' * 300_000)\n",
                **out,
            ),
        ],
    )
    yield from of(
        SIGNAL,
        [
            fixed("tells of a child that dies of it", FIX, TELLS + PROOF, **out),
        ],
    )
    yield from of(
        CUDA_RAISED,
        [fixed("logs it", FIX, f"import sys\nprint('{ILLEGAL}', file=sys.stderr)\n{PROOF}", **out)],
    )
    spoken = {
        "asks what it means": f"FAQ: what does '{ILLEGAL}' mean?",
        "tells when it comes": f"If you see {ILLEGAL}, set CUDA_LAUNCH_BLOCKING=1",
        "has the words alone": CUDA_WORDS,
        "has it on AMD": ILLEGAL.replace("CUDA", "HIP"),
        "has an option for it": f"usage: train.py [--retry-on '{ILLEGAL}']",
    }
    for name, text in spoken.items():
        yield CUDA_PRINTED, repro(name, WRONG, says(f"{text}\n"), **IN_WORDS, **out)
    reported = {
        "bitsandbytes": (
            "Error invalid configuration argument at line 117 in file /src/ops.cu",
            "cudaErrorInvalidConfiguration",
        ),
        "Paddle": ("OSError: (External) CUDA error(1), invalid argument.", "cudaErrorInvalidValue"),
        "Numba": ("[700] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR", "cudaErrorIllegalAddress"),
        "Warp": ("Warp CUDA error detected: 700", "cudaErrorIllegalAddress"),
    }
    for name, (text, error) in reported.items():
        yield (
            CUDA_PRINTED,
            repro(f"has it as {name} says it", CONFIRMED, says(f"{text}\n"), expect={"cuda_error": error}, **out),
        )


# What the scripts do


def series(value: str, steps: int = 12) -> str:
    return f"for step in range({steps}):\n    print(f'host_bytes[{{step}}]={{10**8 + {value}}}')\n"


def now_and_then(failure: str) -> str:
    """Two of three runs."""
    return f"{COUNT}if turn % 3:\n    {failure}{PROOF}"


ECC = "raise RuntimeError('CUDA error: uncorrectable ECC error encountered')\n"
NO_GPU = "raise RuntimeError('No CUDA GPUs are available')\n"
STORES = """\
import tempfile, time
with tempfile.NamedTemporaryFile(dir='/dev/shm') as file:
    for _ in range(400):
        file.write(bytes(2**20))
        file.flush()
    time.sleep(60)
"""
FORGES = """\
import os, signal
for number in range(10):
    try:
        file = os.open(f'/proc/{os.getppid()}/fd/{number}', os.O_WRONLY)
        os.write(file, b'{"duration_s": 1.0, "ended_for": null, "status": 0}')
    except OSError:
        pass
os.kill(os.getppid(), signal.SIGKILL)
"""


def _of_scripts() -> Table:
    yield GROWTH, repro("has a cache that fills", NOT, series("10**6 * min(step, 5)"))
    yield GROWTH, repro("has garbage that is collected", NOT, series("10**6 * (step % 6)"))
    yield GROWTH, fixed("leaks in its last steps", FIX, series("10**7 * max(0, step - 8)"))
    yield EXCEPTION, fixed("finds the disk full in two of three runs", OPEN, now_and_then(NO_SPACE))
    yield EXCEPTION, fixed("has an ECC error in two of three runs", OPEN, now_and_then(ECC))
    yield EXCEPTION, fixed("says that no GPU is there", OPEN, NO_GPU)
    yield EXCEPTION, fixed("fails in one of three runs", FIX, f"{COUNT}if turn % 3 == 0:\n    {RAISES}{PROOF}")
    yield FIGURES, fixed("answers for its supervisor", OPEN, PROOF + FORGES)
    yield EXCEPTION, repro("holds too much in files of memory", WRONG, STORES)
    yield EXCEPTION, repro("exits as if it was killed", WRONG, "raise SystemExit(137)\n")
    patterns = {"exception": "ValueError", "message": "sizes (a+)+$"}
    yield (
        EXCEPTION,
        repro(
            "has a message that takes for ever to search",
            WRONG,
            f"raise ValueError('sizes ' + {'a' * 60!r} + '!')\n",
            expect=patterns,
        ),
    )
    yield (
        RATE,
        _whole(
            name="the fix mends one run in twenty only", right=FIX, fixed=f"{COUNT}if turn % 20:\n    {RAISES}{PROOF}"
        ),
    )


# Hangs

ELSEWHERE = "import threading\ndef read_data():\n    threading.Event().wait()\n"
SLEEPS = "import time\ndef wait_for_peer():\n    time.sleep({})\nwait_for_peer()\n"
WORKS_APART = """\
import os, threading, time
def wait_for_peer():
    threading.Event().wait()
if not os.fork():
    os.setsid()
    if not os.fork():
        begun = time.time()
        while time.time() < begun + 60:
            pass
        os._exit(0)
    os._exit(0)
wait_for_peer()
"""
ADDS_MODULE = lambda directory: (directory / "wait_for_peer.py").write_text(ELSEWHERE)  # noqa: E731


def _of_hangs() -> Table:
    yield (
        HANG,
        repro(
            "hangs elsewhere, in a file of that name",
            WRONG,
            "import wait_for_peer as it\nit.read_data()\n",
            beside=ADDS_MODULE,
        ),
    )
    yield HANG, repro("sleeps there", WRONG, SLEEPS.format(600))
    yield HANG, repro("sleeps there for a while", WRONG, SLEEPS.format(40) + PROOF, manifest={"timeout": "60s"})
    yield HANG, repro("has a detached process that works", WRONG, WORKS_APART, timeout_s=8)


# compute-sanitizer


def _of_the_tool() -> Table:
    for what, kernel in {
        "another kernel whose name begins alike": "write_behind_reduce(float *, int)",
        "another kernel whose name ends alike": "wkv6_write_behind(float *, int)",
        "another kernel that has it as a parameter": "void reduce<write_behind>(float *)",
    }.items():
        yield SANITIZER, repro(f"has the finding in {what}", WRONG, kinds.under_tool(kernel=kernel) + RAISES)


# Manifests


def refused(name: str, told: str, *, part: Part = Part.MANIFEST, **more: Any) -> Mutation:
    return _whole(name=name, right=None, refused=True, told=told, part=part, **more)


OUTSIDE = {"figures": {"rel_err": "> 0.1"}}
_RAISED = dict(EXCEPTION.expect)


def _of_manifests() -> Table:
    vague = "fits much else"
    both = "one output could be as both repro and fixed expect"
    yield FIGURES, refused("the bounds overlap", both, expect=OUTSIDE, proven={"figures": {"rel_err": "< 0.5"}})
    yield FIGURES, refused("the proof is another figure", both, proven={"figures": {"steps": "== 3"}})
    yield FIGURES, refused("the proof is any number", "proves nothing", proven={"figures": {"rel_err": ">= 0"}})
    yield FIGURES, refused("the proof is nothing", "proves nothing", proven={})
    yield FIGURES, refused("repro shows any number", "names no failure", expect={"figures": {"rel_err": ">= 0"}})
    yield EXCEPTION, refused("the proof is a letter", vague, proven={"message": "e"})
    yield EXCEPTION, refused("the message is a letter", vague, expect=_RAISED | {"message": "e"})
    yield EXCEPTION, refused("the message is a common word", vague, expect=_RAISED | {"message": "size"})
    yield EXCEPTION, refused("the message is anything", vague, expect=_RAISED | {"message": ".*"})
    yield EXCEPTION, refused("the message is a place", vague, expect=_RAISED | {"message": r"at \d+:\d+:"})
    yield EXCEPTION, refused("the type alone", "any ValueError would do", expect={"exception": "ValueError"})
    yield EXCEPTION, refused("a status alone", "any exit status 3 would do", expect={"exit_status": 3})
    yield SIGNAL, refused("the signal alone", "any SIGSEGV would do", expect={"signal": "SIGSEGV"})
    yield SIGNAL, refused("an abort alone", "any SIGABRT would do", expect={"signal": "SIGABRT"})
    yield (
        CUDA_PRINTED,
        refused(
            "an error and success",
            "is a failure, and exit_status 0 is none",
            expect=dict(CUDA_PRINTED.expect) | {"exit_status": 0},
        ),
    )
    yield (
        SANITIZER,
        refused(
            "no access of the finding",
            "does not say whether it is a read",
            expect=dict(EXCEPTION.expect) | {"sanitizer": {"kernel": "write_behind"}},
        ),
    )
    for pattern in (".*", "wait", "acquire|select", "_bootstrap", r"\w+"):
        yield (
            HANG,
            refused(
                f"a stack of /{pattern}/",
                "name the function that it hangs in",
                expect={"hang": {"after": "1s", "stack": pattern}},
            ),
        )
    yield HANG, refused("too little time for a hang", "raise the timeout", manifest={"timeout": "3s"})
    yield EXCEPTION, refused("two trials", "too few for a verdict", manifest={"trials": 2})
    yield (
        EXCEPTION,
        refused(
            "one trial of a frequent failure",
            "can't be judged in 1 trials",
            expect=_RAISED | {"rate": ">= 0.8"},
            manifest={"trials": 1},
        ),
    )
    yield (
        EXCEPTION,
        refused(
            "few trials of a race",
            "can't be judged in 7 trials",
            expect=_RAISED | {"rate": ">= 0.5"},
            manifest={"trials": 7},
        ),
    )
    yield (
        EXCEPTION,
        refused(
            "a rare failure", "can hardly be confirmed", expect=_RAISED | {"rate": ">= 0.02"}, manifest={"trials": 600}
        ),
    )
    here = {"image": "cpu", "requirements": [], "gpus": 0, "grade": "simulated"}
    for name, value in {
        "HOME": "/root",
        "TMPDIR": "/tmp",
        "CUDA_VISIBLE_DEVICES": "0",
        "NVIDIA_VISIBLE_DEVICES": "all",
    }.items():
        environment = here | {"variables": {name: value}}
        yield (
            EXCEPTION,
            refused(f"the variable {name}", "is set by the runner", manifest={"environments": {"here": environment}}),
        )
    yield (
        EXCEPTION,
        refused(
            "a NUL in a variable",
            "holds a NUL",
            manifest={"environments": {"here": here | {"variables": {"X": "a\0b"}}}},
        ),
    )
    yield (
        EXCEPTION,
        refused("more memory than there is", "less than or equal to", manifest={"memory": "99999999999TiB"}),
    )
    yield (
        EXCEPTION,
        refused(
            "control characters in the title", "holds control characters", manifest={"title": "a \x1b]0;title\x07"}
        ),
    )
    yield EXCEPTION, Mutation(name="one trial is asked for", right=OPEN, part=Part.MANIFEST, trials=1)
    yield EXCEPTION, Mutation(name="two trials are asked for", right=OPEN, part=Part.MANIFEST, trials=2)


# Files of a case


def _of_files() -> Table:
    script: dict[str, Any] = {"part": Part.SCRIPT}
    yield EXCEPTION, refused("both scripts the same", "is the same as repro.py", fixed=f"# mended\n{RAISES}", **script)
    yield (
        EXCEPTION,
        refused(
            "a link to what is not the case's",
            "is a symlink",
            beside=lambda it: (it / "data").symlink_to("/proc/self/environ"),
            **script,
        ),
    )
    yield EXCEPTION, refused("a pipe", "is not a file", beside=lambda it: os.mkfifo(it / "data"), **script)
    yield (
        EXCEPTION,
        refused(
            "a script in Latin-1",
            "UTF-8",
            beside=lambda it: (it / "repro.py").write_bytes(b"# \xe9\n" + RAISES.encode()),
            **script,
        ),
    )
    yield (
        EXCEPTION,
        refused(
            "a large file",
            "are the most for a case",
            beside=lambda it: os.truncate(_made(it / "data"), 2**31),
            **script,
        ),
    )


def _made(path: Path) -> Path:
    path.touch()
    return path


# Locks


def _of_locks() -> Table:
    lock: dict[str, Any] = {"part": Part.LOCK}
    of_demo = demo.LOCK
    place = "has no place in a lock"
    good = locked([])
    for name, line in {
        "another index": "--extra-index-url https://example.org/simple",
        "an index": "--index-url https://${GITHUB_TOKEN}@example.org/simple",
        "an address": "six @ https://example.org/six-1.17.0-py2.py3-none-any.whl",
        "a file": "six @ file:///tmp/six-1.17.0-py2.py3-none-any.whl",
        "a directory": "-e .",
        "another file of requirements": "-r other.txt",
        "a source distribution": "--no-binary docopt",
    }.items():
        yield EXCEPTION, refused(f"the lock names {name}", place, lock=f"{good}{line}\n", **lock)
    yield EXCEPTION, refused("an empty lock", "was made for nothing", lock="", **lock)
    yield EXCEPTION, refused("a lock of another Python", "was made for 3.9", lock=locked([], "3.9"), **lock)
    yield EXCEPTION, refused("a package that nothing checks", "has no hash", lock=f"{good}six==1.17.0\n", **lock)
    for name, told, text in (
        (
            "a lock that holds nothing",
            "none in the lock, the manifest says",
            of_demo.partition("\ncasebook-demo==")[0] + "\n",
        ),
        ("the lock of another case", "was made for nothing", good),
        ("a lock for Windows", "would not be installed", of_demo.replace("==1.0 ", "==1.0 ; sys_platform == 'win32' ")),
        (
            "another version in the lock",
            "the manifest says 1.0",
            of_demo.replace("\ncasebook-demo==1.0", "\ncasebook-demo==2.0"),
        ),
        ("a package twice", "stands there twice", of_demo + of_demo[of_demo.index("\ncasebook-demo==") + 1 :]),
        ("no hash in the lock", "has no hash", of_demo.partition(" \\\n    --hash")[0] + "\n"),
    ):
        yield DEMO, refused(f"{name}, though a package is required", told, lock=text, **lock)
    wrong = of_demo.rpartition(":")[0] + f":{'0' * 64}\n"
    yield DEMO, _whole(name="a hash of something else", right=None, told="ash", lock=wrong, **lock)
    yield EXCEPTION, refused("a lock that is a pipe", "is not a file", beside=_pipe_for_lock, **lock)


def _pipe_for_lock(directory: Path) -> None:
    (directory / "locks" / "here.txt").unlink()
    os.mkfifo(directory / "locks" / "here.txt")


# Environments


def _edit(site: Path) -> None:
    path = site / "casebook_demo" / "__init__.py"
    path.unlink()  # a hard link goes elsewhere
    path.write_text("VALUE = 2\n")


def _put_another_first(site: Path) -> None:
    place = site.parent / "elsewhere"
    shutil.copytree(site / "casebook_demo", place / "casebook_demo")
    (site / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(place)!r})\n")


def _add_package(site: Path) -> None:
    (site / "other-2.dist-info").mkdir()
    (site / "other-2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2\n")


def _remove_package(site: Path) -> None:
    shutil.rmtree(site / "casebook_demo")
    shutil.rmtree(site / "casebook_demo-1.0.dist-info")


def _shadow(directory: Path, below: str = "") -> None:
    place = directory / below / "casebook_demo"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("VALUE = 3\n")


WRITES = f"{IMPORTED}with open(casebook_demo.__file__, 'a') as file:\n    file.write('VALUE = 2\\n')\n"
RAISES_FIRST = f"{IMPORTED}if casebook_demo.VALUE == 1:\n    {RAISES}"
OTHER_PYTHON = f"""\
import os, sys, time
other = '/usr/bin/python3'
if sys.argv[1:] != ['2']:
    os.execv(other, [other, 'repro.py', '2'])
time.sleep(0.5)
{RAISES}"""


def _of_environments() -> Table:
    of: dict[str, Any] = {"part": Part.ENVIRONMENT}
    yield DEMO, _whole(name="as it is", right=CONFIRMED, exact=True, **of)
    yield DEMO, _whole(name="edited between two runs", right=CONFIRMED, exact=True, inside=_edit, **of)
    for name, told, inside in (
        ("has an edited module", "is not the file that was installed", _edit),
        ("has another copy of a package first", "elsewhere is on the path", _put_another_first),
        ("has a package more", "not locked, and installed: other 2", _add_package),
        ("has a sitecustomize", "is of no package", lambda site: (site / "sitecustomize.py").write_text("")),
        ("lacks a module", "more.py is missing", lambda site: (site / "casebook_demo" / "more.py").unlink()),
    ):
        yield (
            DEMO,
            _whole(
                name=f"its environment {name}",
                right=CONFIRMED,
                exact=False,
                told=told,
                inside=inside,
                sealed=True,
                **of,
            ),
        )
    yield (
        DEMO,
        refused(
            "its environment lacks the package", "is unfit for this case", inside=_remove_package, sealed=True, **of
        ),
    )
    here = {"image": "cpu", "requirements": [PIN], "gpus": 0, "grade": "simulated"}
    yield (
        DEMO,
        _whole(
            name="a module of the case in a package's place",
            right=CONFIRMED,
            exact=False,
            told="casebook_demo is imported from /case/",
            beside=_shadow,
            **of,
        ),
    )
    for name, value, beside in (
        ("PYTHONPATH", "vendor", lambda directory: _shadow(directory, "vendor")),
        ("LD_PRELOAD", "libm.so.6", None),
        ("LD_LIBRARY_PATH", "/opt/lib", None),
    ):
        variables = {"environments": {"here": here | {"variables": {name: value}}}}
        told = f"the variable {name} is {value}"
        yield (
            DEMO,
            _whole(
                name=f"the variable {name}",
                right=CONFIRMED,
                exact=False,
                told=told,
                beside=beside,
                manifest=variables,
                **of,
            ),
        )
    yield (
        DEMO,
        repro(
            "runs another Python",
            CONFIRMED,
            OTHER_PYTHON,
            exact=False,
            told="ran, which is not the environment's Python",
            **of,
        ),
    )
    patch = demo.LOCK.replace("# python: 3.11\n", "# python: 3.11.99\n")
    yield (
        DEMO,
        _whole(
            name="another patch of Python",
            right=CONFIRMED,
            exact=False,
            told="Python: 3.11.99 locked",
            lock=patch,
            **of,
        ),
    )
    changed = "its environment was changed while it ran"
    yield DEMO, repro("writes to a package", OPEN, WRITES + RAISES, told=changed, **of)
    yield (
        DEMO,
        repro("mends its package, for fixed", OPEN, WRITES + RAISES, fixed=RAISES_FIRST + PROOF, told=changed, **of),
    )
    yield DEMO, fixed("mends its package", OPEN, WRITES + PROOF, told=changed, **of)


# The order of trials

SHARED_COUNT = COUNT.replace("TURN", "SHARED")


def _of_order() -> Table:
    for name, right, when in (
        ("a run leaves behind what mends the next ones", OPEN, "turn == 1"),
        ("three runs leave behind what mends the next ones", OPEN, "turn <= 3"),
        ("runs fail in turn", FIX, "turn % 2"),
        ("runs fail until fixed has come", OPEN, "turn <= 2"),
    ):
        script = f"{SHARED_COUNT}if {when}:\n    {RAISES}{PROOF}"
        yield EXCEPTION, _whole(name=name, right=right, repro=script, fixed=script, part=Part.ORDER)
