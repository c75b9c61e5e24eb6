"""What one trial is: what it is made from, what is asked of it, and how it ended."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Self

from gpu_casebook.document import Document
from gpu_casebook.pins import SourceFile


class ProcessStack(Document):
    """Where the threads of one process of a trial stood, from one source; a process may have several of these.

    `number` counts the trial's processes from 1, its first one; `parent` is such a number too. `rank` is what the
    process's variable RANK says. "kernel" is no stack, but the kernel's word for what the process waits in.
    """

    number: int
    parent: int | None = None
    rank: int | None = None
    command: str
    source: Literal["faulthandler", "py-spy", "py-spy native", "kernel"]
    text: str


class GpuAccess(Document):
    """How a trial gets at the GPU: docker by toolkit, CDI or passthrough; venv directly."""

    mode: Literal["toolkit", "cdi", "passthrough", "direct"]
    detail: str = ""


Note = Callable[[str], None]
"""Takes one short line about what is being done right now (a build step, a download)."""


PYTHON = "3.11"
"""The minor version that the images have (Debian bookworm's), and that an environment has unless it says otherwise."""
CASE_DIRECTORY = "/case"
"""What reports call the directory in which a trial finds its scripts, whichever engine ran it."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides what an environment contains.

    `lock` is the text of a requirements file with hashes; `python` a minor version such as "3.11". `sources` are the
    files that the lock has as one package (`gpu_casebook.packages.sources`).
    `use_image` names an image to be used as it stands: nothing is built, and the lock is not installed.
    `over` are wheels and requirements that are put over what is locked (`gpu_casebook.packages.overlay`), with `pre`
    also releases before the final one.
    """

    image: str
    lock: str
    python: str = PYTHON
    sources: tuple[SourceFile, ...] = ()
    use_image: str | None = None
    over: tuple[str, ...] = ()
    pre: bool = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on one trial: seconds, bytes of memory, number of processes, bytes kept of each output stream."""

    timeout_s: float = 120.0
    memory_bytes: int = 16 * 2**30
    processes: int = 1024
    output_bytes: int = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Look for a hang, in seconds: from `after_s` after the start on, every `interval_s`, for `still_s` of no progress.

    `spins` says that burning a core may be waiting, as it is for a thread that waits for a GPU. What counts as
    progress, and why: `gpu_casebook.engines.watching`.
    """

    after_s: float
    still_s: float = 3.0
    interval_s: float = 1.0
    spins: bool = False

    @classmethod
    def from_second(cls, after_s: float, *, gpus: bool) -> Self:
        """Watch from this second on.

        CPU time says nothing with GPUs: there, nothing may move for the longer of `after_s` / 2 and 10 s.
        """
        return cls(after_s=after_s, still_s=max(10.0, after_s / 2), spins=True) if gpus else cls(after_s=after_s)

    @property
    def settled_s(self) -> float:
        """Seconds after which a trial that hung from `after_s` on is known to hang, with two samples to spare."""
        return self.after_s + self.still_s + 2 * self.interval_s


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """One fresh process: `arguments` go to the environment's Python, which starts in a directory that holds `files`.

    `wrapper` is a command that is put in front of that Python, as `env X=1` would be; the end of a wrapped trial is the
    end of its wrapper. `files` maps relative paths to contents. `gpus` are indices as the NVIDIA driver counts them.
    `keep` leaves what the trial ran in (container or scratch directory) for a person to look at; `TrialResult.kept`
    says where it is. With `watch` a directory of the engine's comes first on PYTHONPATH, so that each Python can say
    where it stands. With `loaded` the engine looks from outside at what the trial's processes load.
    """

    files: Mapping[str, bytes]
    arguments: Sequence[str]
    limits: Limits = field(default_factory=Limits)
    variables: Mapping[str, str] = field(default_factory=dict)
    gpus: Sequence[int] = ()
    keep: bool = False
    wrapper: Sequence[str] = ()
    watch: Watch | None = None
    loaded: bool = False


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """How one process ended, before anybody judges it.

    Exactly one of `exit_status` and `signal` ("SIGSEGV") is set, unless `infra` says why there is neither.
    An exit status of 128 + n is read as signal n, as shells do. `stdout` and `stderr` are decoded as UTF-8 with
    replacement; where one was longer than its bound the middle is replaced by a line that says how many bytes
    are missing. `timed_out`, `hung` and `out_of_memory` say that the engine ended the trial, with every process of it;
    `slow` that a trial which ran into its time limit made progress; `stacks` where the processes of a watched trial
    stood before the engine ended it. `libraries` are the paths of CUDA libraries that its processes had loaded, and
    `pythons` those of Pythons that ran and are not the environment's, as far as both were seen while it ran.
    """

    stdout: str
    stderr: str
    duration_s: float
    exit_status: int | None = None
    signal: str | None = None
    timed_out: bool = False
    hung: bool = False
    hung_after_s: float | None = None
    slow: bool = False
    stacks: Sequence[ProcessStack] = ()
    out_of_memory: bool = False
    infra: str | None = None
    started: datetime | None = None
    kept: str | None = None
    libraries: Sequence[str] = ()
    pythons: Sequence[str] = ()


def status_and_signal(status: int | None) -> tuple[int | None, str | None]:
    """Return exit status and signal of a process; `status` is None if unknown, negative for the signal that killed it.

    Shells and container engines say 128 + n for signal n.
    """
    if status is not None:
        number = -status if status < 0 else status - 128
        if number > 0 and number in {known.value for known in signal.Signals}:
            return None, signal.Signals(number).name
    return status, None
