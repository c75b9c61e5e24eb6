"""Trials forked from a zygote must be what fresh ones are; and what does not allow that is told."""

import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.docker.engine import DockerEngine
from gpu_casebook.engines.docker.payload import archive_of
from gpu_casebook.engines.forking import Nursery, Unfit, imports
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import Evidence, Outcome
from gpu_casebook.guest import keeper, zygote
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import find
from gpu_casebook.report.pages import publish
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.trial import TrialRequest, TrialResult, Watch
from tests.conftest import Checkout, write_locks
from tests.engines.subjects import (
    FAMILY,
    FORGER,
    ROOT,
    TOKEN,
    Bench,
    DockerSubject,
    VenvSubject,
    eventually,
    runner_with_a_trial,
)
from tests.fakes import FIXED, REPRO, FakeEngine

FORKED = "forked from a process that had imported"
PACKAGE = "counted.py"


@pytest.fixture(scope="module")
def venv_forks(venv_subject: VenvSubject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """An environment of its own, as modules are put into it."""
    cache = tmp_path_factory.mktemp("cache")
    with VenvEngine(cache=cache, place=tmp_path_factory.mktemp("place")) as engine:
        yield Bench(engine, engine.prepare(venv_subject.recipe, print))


@pytest.fixture(scope="module")
def docker_forks(docker_subject: DockerSubject) -> Iterator[Bench]:
    """Modules are put into images of its own, each on top of the last one."""
    with docker_subject.make() as engine:
        bench = Bench(engine, engine.prepare(docker_subject.recipe, print))
        first = bench.prepared.key
        yield bench
    if bench.prepared.key != first:
        docker_subject.client.images.remove(bench.prepared.key, force=True)  # and those below it


@pytest.fixture(scope="module", params=["venv", pytest.param("docker", marks=pytest.mark.docker)])
def forking_bench(request: pytest.FixtureRequest) -> Bench:
    bench: Bench = request.getfixturevalue(f"{request.param}_forks")
    return bench


def forked(bench: Bench, script: str, *arguments: str, **options: Any) -> TrialResult:
    result = bench.run(script, *arguments, zygote=True, **options)
    assert result.zygote
    assert result.zygote.startswith(FORKED), result.zygote
    return result


def install(bench: Bench, name: str, source: str) -> None:
    """Put a module into the environment, as if it had been there when that was sealed."""
    if isinstance(bench.engine, DockerEngine):
        place = bench.run("import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        labels, client = bench.engine._labels(), bench.engine._client
        container = client.containers.create(bench.prepared.key, ["true"], labels=labels)
        container.put_archive(place, archive_of({f"{name}.py": textwrap.dedent(source).encode()}))
        bench.prepared = replace(bench.prepared, key=str(container.commit().id))
        container.remove()
        return
    directory = Path(bench.prepared.python).parents[1]
    (site,) = directory.glob("lib/python3*/site-packages")
    (site / f"{name}.py").write_text(textwrap.dedent(source))
    assert isinstance(bench.engine, VenvEngine)
    recipe, _ = bench.engine._made[bench.prepared.python]
    bench.engine._made[bench.prepared.python] = recipe, Seal.of(directory).write()


class TestImports:
    def test_all_that_come_before_anything_else(self) -> None:
        source = b'"""Doc."""\nfrom __future__ import annotations\nimport a, b.c as d\nN = 3\nfrom e.f import g, h\n'
        assert imports(source, ["script.py"]) == [("a", []), ("b.c", []), ("e.f", ["g", "h"])]

    @pytest.mark.parametrize(
        "statement",
        [
            "os.environ['X'] = '1'",
            "x = f()",
            "x[0] = 1",
            "if y:\n    import z",
            "print()",
            "@w\ndef f(): ...",
            "from . import z",
            "try:\n    f()\nexcept E:\n    pass",
            "import own",
            "from own.sub import x",
        ],
    )
    def test_nothing_after_what_may_matter_to_it(self, statement: str) -> None:
        assert imports(f"import a\n{statement}\nimport b\n".encode(), ["own/sub.py"]) == [("a", [])]

    def test_what_is_tried_is_imported(self) -> None:
        source = b"try:\n    import a\nexcept ImportError:\n    a = f()\nimport b\n"
        assert imports(source, []) == [("a", []), ("b", [])]

    @pytest.mark.parametrize("source", [b"import a\nthis is no Python", b"\0", b""])
    def test_a_script_that_is_none_imports_nothing(self, source: bytes) -> None:
        assert imports(source, []) == []


class FakeZygote:
    """Forks a trial as soon as `goes_on` is set."""

    story = f"{FORKED} json"

    def __init__(self) -> None:
        self.goes_on, self.trials, self.closed = threading.Event(), 0, False
        self.end: BaseException | TrialResult = REPRO

    def run(self, _request: TrialRequest) -> TrialResult:
        assert not self.closed
        self.trials += 1
        assert self.goes_on.wait(30)
        assert not self.closed, "it was ended during a trial"
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end


class TestNursery:
    """Which trials are forked from what, if threads run them."""

    def setup_method(self) -> None:
        self.made: list[FakeZygote] = []
        self.fresh, self.waits = 0, True
        self.nursery = Nursery(self._make)

    @contextmanager
    def _make(self, _prepared: Prepared, request: TrialRequest, _imports: object) -> Iterator[FakeZygote]:
        if "unfit" in request.arguments:
            raise Unfit("of a reason")
        zygote = FakeZygote()
        if not self.waits:
            zygote.goes_on.set()
        self.made.append(zygote)
        yield zygote
        zygote.closed = True

    def _fresh(self, *_: object) -> TrialResult:
        self.fresh += 1
        return FIXED

    def begin(self, pool: ThreadPoolExecutor, script: str = "script.py", *arguments: str) -> "Future[TrialResult]":
        request = TrialRequest(files={script: b"import json"}, arguments=[script, *arguments])
        return pool.submit(self.nursery.run, Prepared(key="k", python="python"), request, self._fresh)

    @contextmanager
    def two(self) -> Iterator[tuple[ThreadPoolExecutor, list["Future[TrialResult]"]]]:
        """Two trials of a variant that go on at once."""
        with ThreadPoolExecutor(2) as pool:
            begun = [self.begin(pool)]
            eventually(lambda: self.made and self.made[0].trials)
            begun.append(self.begin(pool))
            eventually(lambda: len(self.made) == 2 and self.made[1].trials)
            try:
                yield pool, begun
            finally:
                for zygote in self.made:
                    zygote.goes_on.set()

    def test_one_zygote_forks_one_trial_at_a_time(self) -> None:
        with self.two() as (pool, begun):
            for zygote in self.made:
                zygote.goes_on.set()
            assert [str(each.result().zygote)[: len(FORKED)] for each in begun] == [FORKED] * 2
            self.begin(pool).result()
            assert [zygote.closed for zygote in self.made] == [False, False]
        self.nursery.close()
        assert [zygote.closed for zygote in self.made] == [True, True]
        assert [zygote.trials for zygote in self.made] in ([2, 1], [1, 2])

    def test_none_is_ended_while_a_trial_is_forked_from_it(self) -> None:
        with self.two() as (_, begun):
            self.made[0].goes_on.set()
            begun[0].result()
            self.nursery.close()
            assert [zygote.closed for zygote in self.made] == [True, False]
            self.made[1].goes_on.set()
            assert begun[1].result().exit_status == 0
        assert self.made[1].closed
        assert self.fresh == 0

    @pytest.mark.parametrize(
        ("end", "fresh", "why"),
        [
            (Unfit("it has ended"), 2, "it has ended"),
            (TrialResult(stdout="", stderr="", duration_s=0.0, infra="full"), 1, "one of them could not be run"),
        ],
    )
    def test_one_that_is_unfit_means_no_others(self, end: Unfit | TrialResult, fresh: int, why: str) -> None:
        with self.two() as (pool, begun):
            self.made[0].end = end
            self.made[0].goes_on.set()
            begun[0].result()
            assert f"fresh processes, not forked: {why}" in str(self.begin(pool).result().zygote)
            self.made[1].goes_on.set()
            assert str(begun[1].result().zygote).startswith(FORKED)
        assert [zygote.closed for zygote in self.made] == [True, True]
        assert self.fresh == fresh

    def test_an_interrupt_ends_the_one_that_it_came_to(self) -> None:
        with self.two() as (_, begun):
            self.made[0].end = KeyboardInterrupt()
            self.made[0].goes_on.set()
            with pytest.raises(KeyboardInterrupt):
                begun[0].result()
            assert [zygote.closed for zygote in self.made] == [True, False]

    def test_two_variants_are_kept(self) -> None:
        self.waits = False
        with ThreadPoolExecutor(1) as pool:
            for script in ("a.py", "b.py", "a.py", "c.py"):
                self.begin(pool, script).result()
        assert [zygote.closed for zygote in self.made] == [False, True, False]  # of a, b and c: b was used before a

    def test_why_not_is_found_out_once(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            told = [self.begin(pool, "script.py", "unfit").result().zygote for _ in range(2)]
        assert told == ["fresh processes, not forked: of a reason"] * 2
        assert self.fresh == 2


ENDS = {
    "end of the script": "import json\nprint('out'); import sys; print('err', file=sys.stderr)",
    "exit status": "import sys\nsys.exit(77)",
    "exit message": "import sys\nsys.exit('bye')",
    "exit none": "import sys\nsys.exit()",
    "exit in a function": "import json\ndef f(): raise SystemExit(3)\nf()",
    "exception": "import json\ndef f():\n    json.loads('{')\nf()",
    "chained": "import json\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('x') from e",
    "a group": "raise ExceptionGroup('several', [ValueError(1), KeyError('k')])",
    "a module that is not there": "import json, nosuch_thing",
    "no Python": "import json\nthis is no Python",
    "an excepthook": "import sys\nsys.excepthook = lambda *a: print('hooked', a[0], a[2].tb_next)\nraise ValueError",
    "interrupt": "raise KeyboardInterrupt",
    "abort": "import os\nos.abort()",
    "segfault": "import ctypes\nctypes.string_at(0)",
    "faulthandler": "import faulthandler, os\nfaulthandler.enable()\nos.kill(os.getpid(), 11)",
    "kill": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "term": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "atexit": "import atexit, sys\natexit.register(print, 'last words')\nsys.exit(5)",
    "a thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('done'))).start()",
    "a failing thread": "import threading\nthreading.Thread(target=lambda: 1 / 0, name='t').start()",
    "quick": "import os\nprint('x'); os._exit(9)",
    "the stack": "import traceback\ntraceback.print_stack()",
    "a warning": "import warnings\nwarnings.warn('old', DeprecationWarning, 2)",
    "input": "import sys\nprint(repr(sys.stdin.read()))",
    "a child": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import sys; print(sys.path[1:2])'])",
    "spawn": """
import multiprocessing
def f(x): print("in it", x, __name__)
if __name__ == "__main__":
    p = multiprocessing.get_context("spawn").Process(target=f, args=(3,))
    p.start(); p.join(); print(p.exitcode)
""",
}


@pytest.mark.parametrize("name", ENDS)
def test_every_end_is_that_of_a_fresh_process(venv_forks: Bench, name: str) -> None:
    fresh = venv_forks.run(ENDS[name])
    assert essence(forked(venv_forks, ENDS[name])) == essence(fresh)


@pytest.mark.docker
@pytest.mark.parametrize("name", ["exit status", "exception", "segfault", "kill", "a failing thread", "input", "spawn"])
def test_every_end_is_that_of_a_fresh_container(docker_forks: Bench, name: str) -> None:
    fresh = docker_forks.run(ENDS[name])
    assert essence(forked(docker_forks, ENDS[name])) == essence(fresh)


def essence(result: TrialResult) -> TrialResult:
    """Without what differs from one fresh process to another."""
    return replace(result, zygote=None, duration_s=0, stderr=re.sub(r"0x[0-9a-f]{12,16}", "0x", result.stderr))


LOOK = """
import os, signal, sys, threading
print(sys.argv, sys.orig_argv[1:], sys.path, sys.flags, __name__, __file__, __spec__, os.getcwd())
print(sorted(os.environ.items()))
print(os.getpgid(0) == os.getpid(), os.umask(0), sorted(os.listdir("/proc/self/fd")), threading.active_count())
print([signal.getsignal(n) for n in range(1, 32)], signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(sys.stdout.isatty(), sys.stdout.line_buffering, sys.stdout.seekable(), sys.stderr.encoding)
print(sorted(os.listdir()), [os.listdir(os.environ[place]) for place in ("HOME", "TMPDIR")])
print(sorted(vars(sys.modules["__main__"])), sys.gettrace(), len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("watch", [None, Watch(after_s=50)])
def test_a_script_finds_what_it_finds_in_a_fresh_process(forking_bench: Bench, watch: Watch | None) -> None:
    variables = {"OWN": "1", "PYTHONPATH": "/opt/x"}
    options: dict[str, Any] = {"variables": variables, "files": {"d.txt": b"x"}, "watch": watch}
    fresh, second = (run(forking_bench, LOOK, "-a", "b c", **options) for run in (Bench.run, forked))
    assert fresh.exit_status == 0, fresh.stderr
    assert without_host(second.stdout) == without_host(fresh.stdout)


def without_host(text: str) -> str:
    """Without a container's own name."""
    return re.sub(r"\('HOSTNAME', '\w+'\)", "", text)


def test_the_imports_are_done_once_and_what_they_said_is_said_in_every_trial(forking_bench: Bench) -> None:
    install(forking_bench, "counted", "import os; print('imported by', os.getpid())")
    said = {forked(forking_bench, "import counted\nprint('script')").stdout for _ in range(3)}
    assert len(said) == 1
    assert said.pop().split()[-1] == "script"


def test_a_trial_leaves_nothing_to_the_next(forking_bench: Bench) -> None:
    install(forking_bench, "shared", "state = []")
    vandal = """
import json, os, shared, shutil, sys, tempfile
print(shared.state, os.environ.get("MARK"), sorted(os.listdir()), os.listdir(os.environ["HOME"]), open("d.txt").read())
print(os.listdir(tempfile.gettempdir()), hasattr(json, "mark"), "/mark" in sys.path)
if os.access(".", os.W_OK):
    open("new", "w"); open("d.txt", "w").write("spoilt")
shared.state.append(1); os.environ["MARK"] = "1"; json.mark = 1; sys.path.append("/mark")
os.chmod(tempfile.mkdtemp(), 0); os.makedirs(os.path.expanduser("~/x/y")); os.chmod(os.path.expanduser("~/x"), 0)
if os.access(".", os.W_OK):
    os.chmod(os.getcwd(), 0); os.chdir("/"); shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
"""
    first, second = (forked(forking_bench, vandal, files={"d.txt": b"original"}) for _ in range(2))
    assert first.exit_status == 0, first.stderr
    assert first.stdout == second.stdout == "[] None ['d.txt', 'script.py'] [] original\n[] False False\n"


def test_trials_at_once_share_no_scratch_space(forking_bench: Bench) -> None:
    script = """
        import pathlib, tempfile, time
        place = pathlib.Path(tempfile.gettempdir())
        assert not list(place.iterdir()), list(place.iterdir())
        (place / str(time.time())).touch()
        began = time.time()
        time.sleep(1)
        print(began, time.time(), len(list(place.iterdir())))
        """
    script = textwrap.dedent(script)

    def three_at_once() -> bool:
        with ThreadPoolExecutor(3) as pool:
            results = list(pool.map(lambda _: forked(forking_bench, script), range(3)))
        begun, ended, files = zip(*(map(float, result.stdout.split()) for result in results), strict=True)
        assert files == (1, 1, 1), [result.stderr for result in results]
        return bool(max(begun) < min(ended))

    forked(forking_bench, script)  # what it came from is there for one of the three
    eventually(three_at_once)  # the first time they may wait for what they are forked from


def test_what_imports_wrote_is_there_in_every_trial(forking_bench: Bench) -> None:
    install(forking_bench, "writes", "import os; open(os.path.expanduser('~/cache'), 'w').write('warm')")
    script = "import os, writes\np = os.path.expanduser('~/cache'); print(open(p).read()); os.remove(p)"
    assert [forked(forking_bench, script).stdout for _ in range(2)] == ["warm\n"] * 2


def test_generators_that_nobody_seeded_are_seeded_anew(forking_bench: Bench) -> None:
    assert len({forked(forking_bench, "import random\nprint(random.random())").stdout for _ in range(3)}) == 3


@pytest.mark.parametrize("name", ["torch", "numpy.random"])
def test_generators_of_libraries_are_seeded_anew(venv_forks: Bench, name: str) -> None:
    source = """
        import os, sys
        class Generator:
            def seed(self): self.value = os.urandom(8)
        default_generator = Generator()
        default_generator.seed()
        seed = default_generator.seed
        sys.modules["numpy.random"] = sys.modules[__name__]
    """
    install(venv_forks, name.partition(".")[0], source)
    script = f"import {name}\nimport sys\nprint(sys.modules['{name}'].default_generator.value)"
    assert len({forked(venv_forks, script).stdout for _ in range(3)}) == 3


def test_a_trial_that_can_not_begin_is_nobodys_failure(forking_bench: Bench) -> None:
    install(forking_bench, "torch", "x = 1")  # its generators can't be seeded
    result = forking_bench.run("import torch", zygote=True)
    assert result.infra == "the trial could not be run: its supervisor ended: it was killed"
    assert (forking_bench.run("import torch", zygote=True).zygote or "").startswith("fresh processes, not forked")


def test_limits_hold(venv_forks: Bench) -> None:
    hungry = "import time\nkept = [b'x' * (16 << 20) for _ in range(64)]; time.sleep(60)"
    result = forked(venv_forks, hungry, limits={"memory_bytes": 256 << 20})
    assert (result.out_of_memory, result.timed_out, result.signal) == (True, False, "SIGKILL")
    many = "import time, threading\nfor _ in range(40): threading.Thread(target=time.sleep, args=(60,)).start()"
    result = forked(venv_forks, many, limits={"processes": 20})
    assert (result.signal, "more than 20 processes" in result.stderr) == ("SIGKILL", True)
    assert "bytes cut here" in forked(venv_forks, "print('x' * 9999)", limits={"output_bytes": 1000}).stdout


def test_a_forked_trial_can_not_answer_for_its_supervisor(forking_bench: Bench) -> None:
    result = forked(forking_bench, FORGER)
    assert (result.stdout, result.exit_status) == ("sent\n", None)
    assert result.infra == "the trial could not be run: its supervisor ended: it was killed"


@pytest.mark.parametrize(("end", "status"), [("\ntime.sleep(600)", None), ("\nimport sys; sys.exit(4)", 4)])
def test_the_end_of_a_trial_is_the_end_of_its_processes(
    venv_forks: Bench, venv_subject: VenvSubject, end: str, status: int | None
) -> None:
    token = uuid.uuid4().hex
    script = FAMILY.replace("\ntime.sleep(600)", end)
    options: dict[str, Any] = {"variables": {TOKEN: token}, "limits": {"timeout_s": 60.0 if status else 3.0}}
    result = forked(venv_forks, script, **options)
    assert (result.exit_status, result.timed_out, result.stdout) == (status, status is None, "started\n")
    assert venv_subject.processes(token) == 1, "the zygote, and nothing else"
    assert forked(venv_forks, script, **options).stdout == "started\n", "which goes on"


def test_a_hang_is_seen_with_its_stacks(forking_bench: Bench) -> None:
    script = "import time\ndef waits(): time.sleep(600)\nwaits()"
    result = forked(forking_bench, script, watch=Watch(after_s=1, still_s=1, interval_s=0.3))
    assert result.hung
    told = next(stack.text for stack in result.stacks if stack.source == "faulthandler")
    assert "in waits" in told
    assert "zygote" not in told
    assert "sitecustomize" not in told


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", "1 threads"),
        ("raise RuntimeError", "importing unfit raised RuntimeError"),
        ("import nosuch_thing", "importing unfit raised ModuleNotFoundError"),
        ("import sys; sys.exit(1)", "importing unfit raised SystemExit"),
        (
            "import os, socket; socket.socket(socket.AF_UNIX).bind(os.environ['TMPDIR'] + '/left')",
            "left a file that can't be copied",
        ),
        ("import os; os._exit(0)", "its imports ended the process"),
        ("import os; os.kill(os.getpid(), 11)", "its imports ended the process"),
    ],
)
def test_imports_that_allow_no_fork_mean_fresh_processes(venv_forks: Bench, module: str, why: str) -> None:
    install(venv_forks, "unfit", module)
    script = f"import unfit\nprint({uuid.uuid4().hex!r})"
    fresh = venv_forks.run(script)
    result = venv_forks.run(script, zygote=True)
    assert result.zygote is not None
    assert result.zygote.startswith("fresh processes, not forked: ")
    assert why in result.zygote
    assert essence(result) == essence(fresh)


def test_an_open_gpu_means_fresh_processes(venv_forks: Bench, tmp_path: Path) -> None:
    """No GPU is needed: it is the name of an open file that tells."""
    source = Path(str(zygote.__file__)).read_text()
    assert '"/dev/nvidia"' in source
    install(venv_forks, "opens", f"file = open({str(tmp_path / 'nvidiactl')!r}, 'w')")
    with pytest.MonkeyPatch.context() as patch:
        (tmp_path / "zygote.py").write_text(source.replace('"/dev/nvidia"', repr(str(tmp_path / "nvidia"))))
        patch.setattr(zygote, "__file__", str(tmp_path / "zygote.py"))
        result = venv_forks.run("import opens\nprint('ran')", zygote=True)
    assert result.zygote == "fresh processes, not forked: its imports opened the GPU, which no forked process can use"
    assert result.stdout == "ran\n"


def test_imports_that_take_too_much_memory_mean_fresh_processes(venv_forks: Bench) -> None:
    install(venv_forks, "hungry", "import time; kept = b'x' * (300 << 20); time.sleep(0.3)")
    result = venv_forks.run("import hungry, time\ntime.sleep(60)", zygote=True, limits={"memory_bytes": 256 << 20})
    assert result.zygote == "fresh processes, not forked: its imports take more memory than a trial may"
    assert result.out_of_memory


def test_imports_without_end_mean_fresh_processes(forking_bench: Bench) -> None:
    install(forking_bench, "slow", "import time; time.sleep(600)")
    result = forking_bench.run("import slow", zygote=True, limits={"timeout_s": 1.0})
    assert result.zygote == "fresh processes, not forked: its imports took longer than a trial may"
    assert result.timed_out


def test_a_zygote_that_was_killed_means_fresh_processes(venv_forks: Bench) -> None:
    token = uuid.uuid4().hex
    script = f"import json\nprint({token!r})"
    forked(venv_forks, script, variables={TOKEN: token})
    for process in with_token(token):
        process.kill()
        process.wait(60)
    result = venv_forks.run(script, variables={TOKEN: token}, zygote=True)
    assert result.zygote == "fresh processes, not forked: the process that they are forked from has ended"
    assert result.stdout == f"{token}\n"


def with_token(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN) == token:
                found.append(process)
        except psutil.Error:
            continue
    return found


RUNNER = """
import sys
from pathlib import Path
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.errors import ExitStatus
from gpu_casebook.trial import Limits, TrialRequest
from tests.engines.subjects import FAMILY, TOKEN
python, cache, token = sys.argv[1:]
files = {"script.py": FAMILY.encode()}
variables = {TOKEN: token}
limits = Limits(timeout_s=600)
request = TrialRequest(files=files, arguments=["script.py"], limits=limits, variables=variables, zygote=True)
try:
    with VenvEngine(cache=Path(cache), place=Path(cache, "place")) as engine:
        engine.run(Prepared(key="k", python=python), request)
except KeyboardInterrupt:
    sys.exit(ExitStatus.INTERRUPTED)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_runner_that_ends_leaves_no_process(venv_forks: Bench, tmp_path: Path, number: signal.Signals) -> None:
    token = uuid.uuid4().hex
    command = [sys.executable, "-c", RUNNER, venv_forks.prepared.python, str(tmp_path), token]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        eventually(lambda: len(with_token(token)) >= 5)  # the zygote, a supervisor, the script and two grandchildren
        process.send_signal(number)
        assert process.wait(60) == (130 if number is signal.SIGINT else -9)
    eventually(lambda: not with_token(token))
    if number is signal.SIGINT:
        assert list((tmp_path / "place").iterdir()) == []
    else:
        assert any("scratch directory" in line for line in VenvEngine(cache=tmp_path, place=tmp_path / "place").sweep())


def test_leaving_the_engine_ends_the_zygote(venv_forks: Bench, tmp_path: Path) -> None:
    token = uuid.uuid4().hex
    with VenvEngine(cache=tmp_path, place=tmp_path / "place") as engine:
        forked(Bench(engine, venv_forks.prepared), "import json", variables={TOKEN: token})
        assert len(with_token(token)) == 1
    assert with_token(token) == []
    assert list((tmp_path / "place").iterdir()) == []


def test_what_was_asked_for_but_not_done_is_told(forking_bench: Bench) -> None:
    told = forking_bench.run("import json", zygote=True, wrapper=["env"]).zygote
    assert told is not None
    assert told.startswith("fresh processes, not forked: ")
    assert forking_bench.run("import json").zygote is None


@pytest.mark.docker
class TestInAContainer:
    def test_imports_that_allow_no_fork_mean_fresh_containers(self, docker_forks: Bench) -> None:
        install(docker_forks, "unfit", "import os, socket; socket.socket(socket.AF_UNIX).bind('/dev/shm/left')")
        result = docker_forks.run("import unfit\nprint('ran')", zygote=True)
        why = "fresh processes, not forked: its imports left a file that can't be copied, such as a socket"
        assert (result.zygote, result.stdout) == (why, "ran\n")

    def test_each_fork_has_a_container_of_its_own_by_looks(self, docker_forks: Bench) -> None:
        """Whatever a trial leaves where it may write, no other one finds it; what the imports left, it finds again."""
        install(docker_forks, "warm", "import os; os.mkdir('/dev/shm/w'); open('/tmp/warm', 'w').write('warm')")
        script = """
import ctypes, os, warm
libc = ctypes.CDLL(None, use_errno=True)
for place in ("/tmp", os.path.expanduser("~"), "/dev/shm", "/dev/mqueue"):
    print(place, sorted(os.listdir(place)))
print(open("/tmp/warm").read(), [len(open(f"/proc/sysvipc/{kind}").readlines()) for kind in ("shm", "sem")])
os.remove("/tmp/warm"); os.rmdir("/dev/shm/w")
open("/dev/shm/x", "w"); os.makedirs("/tmp/a/b"); open("/tmp/a/b/c", "w"); os.chmod("/tmp/a/b", 0)
os.chmod("/tmp/a", 0)
deep = os.path.expanduser("~")
for _ in range(1200):
    os.mkdir(os.path.join(deep, "d")); os.chdir(deep); deep = "d"
assert libc.mq_open(b"/queue", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0
assert libc.shmget(7, 4096, 0o1600) >= 0 and libc.semget(7, 1, 0o1600) >= 0
"""
        first, second = (forked(docker_forks, script) for _ in range(2))
        assert first.exit_status == 0, first.stderr
        said = "/tmp ['warm']\n/home/case []\n/dev/shm ['w']\n/dev/mqueue []\nwarm [1, 1]\n"
        assert first.stdout == second.stdout == said

    def test_limits_hold(self, docker_forks: Bench) -> None:
        hungry = "import time\nkept = []\nfor _ in range(64): kept.append(b'x' * (16 << 20))\nprint('past it')"
        filling = "open('/dev/shm/x', 'wb').write(b'x' * (300 << 20))\nprint('past it')"
        limits = {"memory_bytes": 256 << 20}
        for script in (hungry, filling):
            for _ in range(2):  # what they are forked from lives on
                result = forked(docker_forks, script, limits=limits)
                assert (result.out_of_memory, result.timed_out, result.signal) == (True, False, "SIGKILL")
                assert result.stdout == ""
        many = "import threading, time\nfor _ in range(40): threading.Thread(target=time.sleep, args=(60,)).start()"
        result = forked(docker_forks, many, limits={"processes": 20, "timeout_s": 3.0})
        assert "can't start new thread" in result.stderr
        assert not forked(docker_forks, "pass").out_of_memory

    def test_memory_is_counted_where_the_kernel_does_not(
        self, docker_forks: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = Path(str(keeper.__file__)).read_text()
        assert "/sys/fs/cgroup" in source
        (tmp_path / "keeper.py").write_text(source.replace("/sys/fs/cgroup", "/nowhere"))
        monkeypatch.setattr(keeper, "__file__", str(tmp_path / "keeper.py"))
        limited = DockerEngine._container_options

        def unlimited(self: DockerEngine, *given: Any, **more: Any) -> dict[str, Any]:
            made = limited(self, *given, **more)
            return {name: value for name, value in made.items() if name not in {"mem_limit", "memswap_limit"}}

        monkeypatch.setattr(DockerEngine, "_container_options", unlimited)
        filling = "import json, time\nopen('/tmp/x', 'wb').write(b'x' * (200 << 20))\nkept = b'x' * (50 << 20)"
        result = forked(docker_forks, f"{filling}\ntime.sleep(60)", limits={"memory_bytes": 256 << 20})
        assert (result.out_of_memory, result.timed_out) == (True, False)

    @pytest.mark.parametrize(("end", "status"), [("\ntime.sleep(600)", None), ("\nimport sys; sys.exit(4)", 4)])
    def test_the_end_of_a_trial_is_the_end_of_its_processes(
        self, docker_forks: Bench, docker_subject: DockerSubject, end: str, status: int | None
    ) -> None:
        token = uuid.uuid4().hex
        script = FAMILY.replace("\ntime.sleep(600)", end)
        options: dict[str, Any] = {"variables": {TOKEN: token}, "limits": {"timeout_s": 60.0 if status else 3.0}}
        result = forked(docker_forks, script, **options)
        assert (result.exit_status, result.timed_out, result.stdout) == (status, status is None, "started\n")
        assert docker_subject.processes(token) == 2, "the keeper and the zygote, and nothing else"
        assert forked(docker_forks, script, **options).stdout == "started\n", "which go on"

    def test_what_was_killed_with_them_means_fresh_containers(self, docker_forks: Bench) -> None:
        script = "import json\nimport os\nprint('ran')\nif os.getppid() != 1: os.kill(-1, 9)"
        assert forked(docker_forks, script).infra == "the trial could not be run: its supervisor ended: it was killed"
        result = docker_forks.run(script, zygote=True)
        assert result.zygote == "fresh processes, not forked: one of them could not be run"
        assert result.stdout == "ran\n"

    def test_the_variants_take_turns_and_keep_their_containers(
        self, docker_forks: Bench, docker_subject: DockerSubject
    ) -> None:
        token = uuid.uuid4().hex
        for _ in range(2):
            for script in ("import json", "import os"):
                forked(docker_forks, script, variables={TOKEN: token})
        assert docker_subject.processes(token) == 4

    def test_what_it_loads_is_seen(self, docker_forks: Bench) -> None:
        script = "import subprocess, time\nsubprocess.run(['/usr/bin/python3', '-c', 'import time; time.sleep(2)'])"
        assert forked(docker_forks, script, loaded=True).pythons == ["/usr/bin/python3"]

    def test_all_trials_can_be_ended(self, docker_forks: Bench) -> None:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(docker_forks.run, "import json, time; time.sleep(1000)", zygote=True)
            while not running.done():
                docker_forks.engine.end_trials()
                time.sleep(0.2)
            assert running.result().exit_status is None

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_a_runner_that_ends_leaves_nothing(self, docker_subject: DockerSubject, number: signal.Signals) -> None:
        token = uuid.uuid4().hex
        with runner_with_a_trial(docker_subject, token, forked=True) as process:
            process.send_signal(number)
            assert process.wait(60) == (130 if number is signal.SIGINT else -9)
        eventually(lambda: docker_subject.processes(token) == 0)
        if number is signal.SIGINT:
            assert docker_subject.left_by(process.pid) == []
        else:
            with docker_subject.make() as engine:
                assert any("container" in line for line in engine.sweep())


def test_evidence_command_and_report_say_it(checkout: Checkout, tmp_path: Path) -> None:
    directory = checkout.write().parent
    write_locks(directory)
    story = f"{FORKED} json"
    engine = FakeEngine({"repro.py": [replace(REPRO, zygote=story)], "fixed.py": [replace(FIXED, zygote="not forked")]})
    options = Options(zygote=True, environment="interpreter")
    result = run_case(find(checkout.root, "tiny", IMAGES), options, engine, Console(sys.stdout))
    assert isinstance(result, Evidence)
    assert all(request.zygote for request in engine.requests)
    assert result.zygotes == {story: [Variant.REPRO], "not forked": [Variant.FIXED]}
    assert result.command.endswith(" --zygote")
    page = publish(tmp_path, result).read_text()
    assert f"- Processes of repro: {story}\n- Processes of fixed: not forked\n" in page


def test_other_engines_do_not_fork() -> None:
    case = find(ROOT, "rwkv6-backward", IMAGES)
    engine = FakeEngine({})
    engine.name, engine.can_fork = "other", False
    with pytest.raises(UsageError, match="--zygote: the other engine can't fork trials; add --engine docker, or leave"):
        run_case(case, Options(zygote=True), engine, Console(sys.stdout))


IMAGES = [path.name for path in (ROOT / "images").iterdir()]
HERE = {"rwkv6-backward": "front-end", "rwkv6-nan-grads": "interpreter"}
"""None that needs upstream's files, which are fetched from where they are."""


@pytest.mark.slow
@pytest.mark.parametrize("case", HERE)
def test_outcomes_of_the_corpus_are_the_same(case: str) -> None:
    found, results = find(ROOT, case, IMAGES), list[Evidence]()
    with VenvEngine() as engine:
        for forks in (False, True):
            options = Options(environment=HERE[case], trials=2, zygote=forks)
            result = run_case(found, options, engine, Console(sys.stdout))
            assert isinstance(result, Evidence)
            results.append(result)
    fresh, second = results
    assert second.verdict is fresh.verdict
    assert second.reasons == fresh.reasons
    for one, other in zip(fresh.trials, second.trials, strict=True):
        assert (one.outcome, one.observation, one.stdout) == (other.outcome, other.observation, other.stdout)
        assert one.outcome is Outcome.AS_EXPECTED
        assert other.zygote
        assert other.zygote.startswith(FORKED)
    assert "--zygote" in second.command
    assert second.zygotes == {trial.zygote: list(Variant) for trial in second.trials}
