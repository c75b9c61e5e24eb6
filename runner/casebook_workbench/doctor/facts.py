"""What is known of a machine, and what an environment of a case needs. Plain data: rules look at nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.manifest.model import EnvironmentSpec


@dataclass(frozen=True, kw_only=True)
class DockerFacts:
    """A Docker engine, or why there is none."""

    version: str | None = None
    error: str | None = None
    host: str | None = None  # DOCKER_HOST
    local: bool = True  # whether it runs on this machine
    gpu_mode: str | None = None  # how trials get access to a GPU; None if they can't
    root: str | None = None  # where it keeps images
    machine: str | None = None  # its architecture, as `uname -m` has it
    builds: bool = True  # whether a docker command here can build images for it

    @property
    def there(self) -> bool:
        return self.error is None

    @property
    def denied(self) -> bool:
        """Whether it is running, but not for this user."""
        return "permission denied" in (self.error or "").lower()


@dataclass(frozen=True, kw_only=True)
class Directory:
    """A directory that gets large."""

    name: str
    path: str
    free_bytes: int
    writable: bool = True

    @property
    def clear(self) -> str:
        """The command that makes room in it, or shows where to."""
        commands = {"images": "nox -s images -- --remove-unused", "environments": "nox -s clean -- --unused"}
        return commands.get(self.name, f"du -sh {self.path}/* | sort -h")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One machine."""

    python: str
    system: str = "Linux"
    machine: str = "x86_64"
    glibc: str | None = None  # None where the C library is another one
    root_user: bool = False
    uv: str
    docker: DockerFacts = field(default_factory=DockerFacts)
    charliecloud: str | None = None  # why it can't be used, and what fixes that
    gpus: Sequence[HostGpu] = ()
    driver_traces: Sequence[str] = ()  # devices and libraries of an NVIDIA driver, whether or not it answers
    directories: Sequence[Directory] = ()
    proxies: Mapping[str, str] = field(default_factory=dict)  # by variable, without credentials
    bundles: Mapping[str, bool] = field(default_factory=dict)  # variable that names certificates -> whether they exist
    ptrace: int = 0  # kernel.yama.ptrace_scope; 0 also where the kernel has no such restriction
    kernel_log: bool = True
    shared_memory_bytes: int | None = None
    pythons: Sequence[str] = ()
    index_error: str | None = None  # None also where the index was not asked

    @property
    def trials_on(self) -> str:
        """Architecture of the machine on which trials run."""
        return self.docker.machine or self.machine

    @property
    def driver(self) -> str | None:
        return self.gpus[0].driver if self.gpus else None


@dataclass(frozen=True, kw_only=True)
class Need:
    """What an environment of a case needs."""

    case: str
    environment: str
    spec: EnvironmentSpec
    torch: str | None = None  # as its lock pins it
    cuda: str | None = None  # such as "12.1"
    locked: bool = True
    image_bytes: int = 0  # disk to build its image; 0 if it is built already, or the lock does not say
    environment_bytes: int = 0  # the same of its virtual environment

    @property
    def name(self) -> str:
        return f"{self.case}/{self.environment}"
