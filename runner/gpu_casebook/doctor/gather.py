"""Look at this machine. Cheap: no process is started but `ldconfig`, and nothing goes over the network unless asked."""

import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from gpu_casebook.devices import hardware
from gpu_casebook.devices.driver import host_facts
from gpu_casebook.doctor.facts import DockerFacts, Facts, GpuFacts, Place
from gpu_casebook.doctor.needs import Built
from gpu_casebook.engines.watching import py_spy
from gpu_casebook.errors import CasebookError, ManifestError
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages import uv
from gpu_casebook.run.plan import recipes
from gpu_casebook.trial import Recipe

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_BUNDLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "UV_SSL_CERT_FILE")
_ONLINE_S = 10


class Found(NamedTuple):
    facts: Facts
    built: Built


def gather(root: Path, cases: Sequence[Case], *, online: bool = False) -> Found:
    """All facts of this machine. `root` is the checkout; with `online` the package index is asked too."""
    docker, imaged = _docker(root, cases)
    traces = host_facts()
    facts = Facts(
        python=platform.python_version(),
        system=platform.system(),
        root_user=os.geteuid() == 0,
        uv=_uv(),
        docker=docker,
        gpus=[_gpu(gpu) for gpu in hardware.gpus()],
        driver_traces=[*traces.devices, *(str(path) for name, path in traces.libraries.items() if "libcuda" in name)],
        places=_places(root, docker),
        proxies=proxies(os.environ),
        bundles=bundles(os.environ),
        ptrace=_number("/proc/sys/kernel/yama/ptrace_scope") or 0,
        py_spy=py_spy() is not None,
        kernel_log=_can_read_kernel_log(),
        shared_memory_bytes=_total(Path("/dev/shm")),  # noqa: S108
        locked_memory_bytes=_limit(resource.RLIMIT_MEMLOCK),
        pythons=_pythons(),
        index_error=_index_error() if online else None,
    )
    return Found(facts, Built(frozenset(imaged), frozenset(_built_here(cases))))


def _docker(root: Path, cases: Sequence[Case]) -> tuple[DockerFacts, set[str]]:
    """The engine, and the locks that it has an image of."""
    from gpu_casebook.daemon.client import connect  # noqa: PLC0415
    from gpu_casebook.engines.docker.engine import DockerEngine  # noqa: PLC0415 the SDK takes a quarter of a second to import
    from gpu_casebook.images.build import absent, ensure  # noqa: PLC0415

    host, every = os.environ.get("DOCKER_HOST"), _recipes(cases)
    try:
        client = connect()
    except CasebookError as error:
        return DockerFacts(error=str(error), host=host), set()
    try:
        engine = DockerEngine(client, lambda client, recipe, note: ensure(client, root, recipe, note))
        access = engine.gpu_access()
        facts = DockerFacts(
            version=engine.version.removeprefix("Docker "),
            host=host,
            local=engine.local,
            gpu_mode=access.mode if access else None,
            root=client.info().get("DockerRootDir"),
        )
        missing = {recipe.lock for recipe in absent(client, root, every).recipes}
        return facts, {recipe.lock for recipe in every} - missing
    except CasebookError as error:
        return DockerFacts(error=str(error), host=host), set()
    finally:
        client.close()


def _built_here(cases: Sequence[Case]) -> set[str]:
    """The locks that there is a virtual environment of."""
    from gpu_casebook.engines.venv.engine import VenvEngine  # noqa: PLC0415

    try:
        engine = VenvEngine()
    except CasebookError:
        return set()
    return {recipe.lock for recipe in _recipes(cases) if engine.has(recipe)}


def _recipes(cases: Sequence[Case]) -> list[Recipe]:
    """Of the cases that have all their locks."""
    every = []
    for case in cases:
        with suppress(ManifestError):
            every += recipes(case)
    return list(dict.fromkeys(every))


def _uv() -> str | None:
    try:
        return uv.version().removeprefix("uv ")
    except (metadata.PackageNotFoundError, ImportError):
        return None


def _gpu(gpu: hardware.HostGpu) -> GpuFacts:
    return GpuFacts(
        index=gpu.index,
        name=gpu.name,
        compute_capability=gpu.compute_capability,
        driver=gpu.driver,
        memory_bytes=gpu.memory_bytes,
        aside=gpu.aside,
    )


def _places(root: Path, docker: DockerFacts) -> list[Place]:
    """What gets large: reports, virtual environments, uv's downloads, and the engine's images if it is here."""
    cache = user_cache_path("casebook")
    uv_cache = Path(os.environ.get("UV_CACHE_DIR") or user_cache_path("uv"))
    places = [
        place("reports", root / "reports"),
        place("environments", cache),
        place("downloads", uv_cache),
    ]
    if docker.there and docker.local and docker.root:
        places.append(place("images", Path(docker.root), ours=False))
    return places


def place(name: str, path: Path, *, ours: bool = True) -> Place:
    """The directory, or where it will be: the nearest that is there tells. `ours` is what this user must write to."""
    there = next((each for each in (path, *path.parents) if each.is_dir()), Path("/"))
    try:
        free = shutil.disk_usage(there).free
    except OSError:
        free = None
    return Place(name=name, path=str(path), free_bytes=free, writable=not ours or os.access(there, os.W_OK))


def proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that name proxies, without the user and password that may stand in them."""
    names = [name for each in _PROXIES for name in (each, each.upper())]
    return {name: _without_credentials(environ[name]) for name in names if environ.get(name)}


def _without_credentials(address: str) -> str:
    return re.sub(r"^(\w+://)?.*@", r"\1", address)


def bundles(environ: Mapping[str, str]) -> dict[str, bool]:
    """Variables that name certificates, and whether what they name is there."""
    return {name: Path(environ[name]).exists() for name in _BUNDLES if environ.get(name)}


def _number(path: str) -> int | None:
    with suppress(OSError, ValueError):
        return int(Path(path).read_text(encoding="ascii"))
    return None


def _can_read_kernel_log() -> bool:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _total(path: Path) -> int | None:
    with suppress(OSError):
        return shutil.disk_usage(path).total
    return None


def _limit(which: int) -> int | None:
    """The most that a process may ask for; None for no limit."""
    most = resource.getrlimit(which)[1]
    return None if most == resource.RLIM_INFINITY else most


def _pythons() -> list[str]:
    """Minor versions on PATH, and this one."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    return sorted({here, *(f"3.{minor}" for minor in range(9, 20) if shutil.which(f"python3.{minor}"))})


def _index_error() -> str | None:
    """Why the package index does not answer: uv itself asks it for one package, with all settings that it has."""
    command = [uv.program(), "pip", "compile", "--no-cache", "--no-deps", "--quiet", "--no-header", "-"]
    try:
        done = subprocess.run(
            [*command, "--python-version", "3.11"],
            input="packaging\n",
            env=uv.settings(os.environ) | {"UV_HTTP_TIMEOUT": str(_ONLINE_S), "UV_HTTP_RETRIES": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=3 * _ONLINE_S,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {3 * _ONLINE_S} s"
    return uv.last_words(done.stderr) if done.returncode else None
