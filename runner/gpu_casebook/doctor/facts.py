"""What is known of a machine, and what an environment of a case needs. Plain data: rules look at nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpu_casebook.manifest.model import EnvironmentSpec


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """As `gpu_casebook.devices.hardware.HostGpu` has them; `aside` says why it is not to be used."""

    index: int
    name: str
    compute_capability: str
    driver: str
    memory_bytes: int
    aside: str | None = None


@dataclass(frozen=True, kw_only=True)
class DockerFacts:
    """An engine, or why there is none. `gpu_mode` is how trials get at a GPU; None where they can't.

    `local` says whether it runs on this machine; `root` is where it keeps images.
    """

    version: str | None = None
    error: str | None = None
    host: str | None = None
    local: bool = True
    gpu_mode: str | None = None
    root: str | None = None

    @property
    def there(self) -> bool:
        return self.error is None


@dataclass(frozen=True, kw_only=True)
class Place:
    """A directory that gets large. Free bytes are None where they can't be told."""

    name: str
    path: str
    free_bytes: int | None = None
    writable: bool = True


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One machine. `proxies` have no credentials in them. `index_error` is None where nobody asked, too.

    `bundles` maps variables that name certificates to whether what they name is there. `ptrace` is
    kernel.yama.ptrace_scope, 0 where there is no such restriction. `driver_traces` are devices and libraries of an
    NVIDIA driver, whether or not it answers.
    """

    python: str
    system: str = "Linux"
    root_user: bool = False
    uv: str | None = None
    docker: DockerFacts = field(default_factory=DockerFacts)
    gpus: Sequence[GpuFacts] = ()
    driver_traces: Sequence[str] = ()
    places: Sequence[Place] = ()
    proxies: Mapping[str, str] = field(default_factory=dict)
    bundles: Mapping[str, bool] = field(default_factory=dict)
    ptrace: int = 0
    py_spy: bool = True
    kernel_log: bool = True
    shared_memory_bytes: int | None = None
    locked_memory_bytes: int | None = None
    pythons: Sequence[str] = ()
    index_error: str | None = None

    @property
    def driver(self) -> str | None:
        return self.gpus[0].driver if self.gpus else None

    def place(self, name: str) -> Place | None:
        return next((place for place in self.places if place.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Need:
    """An environment of a case. `torch` and `cuda` ("12.1") are what its lock pins; `locked` whether there is one.

    `image_bytes` is the disk that building its image takes, `environment_bytes` the same of its virtual environment; 0
    where it is there already, or where nobody knows.
    """

    case: str
    environment: str
    spec: EnvironmentSpec
    torch: str | None = None
    cuda: str | None = None
    locked: bool = True
    image_bytes: int = 0
    environment_bytes: int = 0

    @property
    def name(self) -> str:
        return f"{self.case}/{self.environment}"
