"""Look at this machine and at what the cases need of it.

Cheap: no process is started but `ldconfig`, and nothing goes over the network unless asked.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

from casebook_workbench.doctor.facts import Directory, DockerFacts, Facts, Need
from failure_signature.kinds import Variant
from gpu_casebook.devices import hardware, kernel_log
from gpu_casebook.devices.driver import host_facts
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, ManifestError, UsageError
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages import uv
from gpu_casebook.packages.lock import ROOM_PER_WHEEL_BYTE, installed_bytes, read_lock, wheel_bytes
from gpu_casebook.packages.settings import for_uv
from gpu_casebook.places import reports_of
from gpu_casebook.run.plan import recipes
from gpu_casebook.trial import Recipe

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_BUNDLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "UV_SSL_CERT_FILE")
_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")
_ONLINE_S = 10


def gather(root: Path, cases: Sequence[Case], *, online: bool = False) -> tuple[Facts, list[Need]]:
    """Return the facts of this machine, and what each environment of the cases needs.

    `root` is the checkout; with `online` the package index is asked too.
    """
    every = _recipes(cases)
    docker, in_images = _docker(root, every)
    traces = host_facts()
    facts = Facts(
        python=platform.python_version(),
        system=platform.system(),
        machine=platform.machine(),
        glibc=platform.libc_ver()[1] or None,
        root_user=os.geteuid() == 0,
        uv=uv.version().removeprefix("uv "),
        docker=docker,
        charliecloud=_why_not("charliecloud", root),
        gpus=hardware.gpus(),
        driver_traces=[*traces.devices, *(str(path) for name, path in traces.libraries.items() if "libcuda" in name)],
        directories=_directories(root, docker),
        proxies=proxies(os.environ),
        bundles={name: Path(os.environ[name]).exists() for name in _BUNDLES if os.environ.get(name)},
        ptrace=_ptrace_scope(),
        kernel_log=kernel_log.is_readable(),
        shared_memory_bytes=_shared_memory_bytes(),
        pythons=_pythons(),
        index_error=_index_error() if online else None,
    )
    in_environments = _in_environments(root, every)
    return facts, [need for case in cases for need in needs(case, in_images, in_environments)]


# The machine


def _recipes(cases: Sequence[Case]) -> list[Recipe]:
    """Return the recipes of the cases that have all their locks."""
    every = []
    for case in cases:
        with suppress(ManifestError):
            every += recipes(case)
    return list(dict.fromkeys(every))


def _docker(root: Path, every: Sequence[Recipe]) -> tuple[DockerFacts, set[str]]:
    """Return the facts of the Docker engine, and the locks that it has an image of."""
    host = os.environ.get("DOCKER_HOST")
    try:
        with registry.kind(registry.capable("has_images")).connect(root) as engine:
            access = engine.gpu_access()
            facts = DockerFacts(
                version=engine.version.removeprefix("Docker "),
                host=host,
                local=engine.local,
                gpu_mode=access.mode if access else None,
                root=str(engine.storage) if engine.storage else None,
                builds=_builds(),
                machine=engine.machine,
            )
            return facts, _ready(engine, every)
    except CasebookError as error:
        return DockerFacts(error=str(error), host=host), set()


def _why_not(engine: str, root: Path) -> str | None:
    try:
        registry.kind(engine).connect(root)
    except UsageError:  # its plug-in is not here
        return None
    except CasebookError as error:
        return str(error)
    return None


def _builds() -> bool:
    from gpu_casebook.daemon.buildkit import program  # noqa: PLC0415 the SDK takes a while to import

    with suppress(CasebookError):
        return bool(program())
    return False


def _in_environments(root: Path, every: Sequence[Recipe]) -> set[str]:
    """Return the locks that there is a virtual environment of."""
    with suppress(CasebookError), registry.kind(registry.capable("uses_host_python")).connect(root) as engine:
        return _ready(engine, every)
    return set()


def _ready(engine: Engine, every: Sequence[Recipe]) -> set[str]:
    return {recipe.lock for recipe in every} - {recipe.lock for recipe in engine.absent(every)}


def _directories(root: Path, docker: DockerFacts) -> list[Directory]:
    """Return what gets large: reports, virtual environments, uv's downloads, and images if the engine is here."""
    uv_cache = Path(os.environ.get("UV_CACHE_DIR") or user_cache_path("uv"))
    found = [
        directory("reports", reports_of(root)),
        directory("environments", user_cache_path("casebook")),
        directory("downloads", uv_cache),
    ]
    if docker.local and docker.root:
        found.append(directory("images", Path(docker.root), ours=False))
    return found


def directory(name: str, path: Path, *, ours: bool = True) -> Directory:
    """Return facts of a directory, or of its nearest parent that exists. `ours`: this user must be able to write it."""
    # Not Path.is_dir, which raises where this user may not look.
    nearest = next(each for each in (path, *path.absolute().parents) if os.path.isdir(each))  # noqa: PTH112
    free = shutil.disk_usage(nearest).free
    return Directory(name=name, path=str(path), free_bytes=free, writable=not ours or os.access(nearest, os.W_OK))


def proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name proxies, without the user and password that may be in them."""
    names = [name for each in _PROXIES for name in (each, each.upper()) if environ.get(name)]
    return {name: re.sub(r"^(\w+://)?.*@", r"\1", environ[name]) for name in names}


def _ptrace_scope() -> int:
    with suppress(OSError):
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii"))
    return 0


def _shared_memory_bytes() -> int | None:
    with suppress(OSError):
        return shutil.disk_usage("/dev/shm").total  # noqa: S108
    return None


def _pythons() -> list[str]:
    """Return the minor versions of Python on PATH, and this one."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    return sorted({here, *(f"3.{minor}" for minor in range(9, 20) if shutil.which(f"python3.{minor}"))})


def _index_error() -> str | None:
    """Return why the package index does not answer: uv itself asks it for one package, with all of its settings."""
    try:
        done = subprocess.run(
            [uv.program(), "pip", "compile", "--no-cache", "--no-deps", "--quiet", "--python-version", "3.11", "-"],
            input="packaging\n",
            env=for_uv(os.environ) | {"UV_HTTP_TIMEOUT": str(_ONLINE_S), "UV_HTTP_RETRIES": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=3 * _ONLINE_S,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {3 * _ONLINE_S} s"
    return uv.last_words(done.stderr) if done.returncode else None


# The cases


def needs(case: Case, in_images: Collection[str] = (), in_environments: Collection[str] = ()) -> list[Need]:
    """Return what each environment needs. The two sets are locks that are built already."""
    return [_need(case, name, in_images, in_environments) for name in case.manifest.environments]


def _need(case: Case, name: str, in_images: Collection[str], in_environments: Collection[str]) -> Need:
    paths = {case.lock_path(name, variant): variant for variant in Variant}
    locks = list[str]()
    for variant in paths.values():
        with suppress(ManifestError):
            locks.append(case.lock(name, variant))
    pins = {pin.name: pin.version for lock in locks for pin in read_lock(lock).pins}
    downloads = {lock: wheel_bytes(lock) or 0 for lock in locks}
    return Need(
        case=case.id,
        environment=name,
        spec=case.environment(name),
        torch=pins.get("torch"),
        cuda=cuda_of(pins),
        locked=len(locks) == len(paths),
        image_bytes=sum(ROOM_PER_WHEEL_BYTE * size for lock, size in downloads.items() if lock not in in_images),
        environment_bytes=sum(installed_bytes(size) for lock, size in downloads.items() if lock not in in_environments),
    )


def cuda_of(pins: Mapping[str, str]) -> str | None:
    """Return the CUDA version, as "12.1", that the pinned packages were built with, or None if they do not say."""
    runtime = next((pins[name] for name in _RUNTIMES if name in pins), None)
    if runtime:
        return ".".join(runtime.split(".")[:2])
    tagged = re.search(r"\+cu(\d\d)(\d)\b", pins.get("torch", ""))
    return f"{tagged[1]}.{tagged[2]}" if tagged else None
