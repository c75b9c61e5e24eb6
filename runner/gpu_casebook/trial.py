"""What one trial is: what it is made from, what is asked of it, and how it ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

from gpu_casebook.document import Document
from gpu_casebook.pins import SourceFile


class GpuAccess(Document):
    """How a trial gets at the GPU: docker by toolkit, CDI or passthrough; venv directly."""

    mode: Literal["toolkit", "cdi", "passthrough", "direct"]
    detail: str = ""


Note = Callable[[str], None]
"""Takes one short line about what is being done right now (a build step, a download)."""


PYTHON = "3.11"
"""The minor version that the images have (Debian bookworm's), and that an environment has unless it says otherwise."""


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
