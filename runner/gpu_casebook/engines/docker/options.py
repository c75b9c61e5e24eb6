"""What a trial's container may and may not do, as options of its creation. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from failure_signature.result import CASE_DIRECTORY
from failure_signature.text import path_list
from gpu_casebook.daemon.client import DeviceRequest, LogConfig, Mount, Ulimit
from gpu_casebook.devices.driver import CDI_KIND, HostFacts
from gpu_casebook.engines.base import VARIABLES
from gpu_casebook.trial import GpuAccess, Limits, TrialRequest

HOME = "/home/case"
TOOLS = "/casebook"  # where a container has what watches its trial
_UID = 1000  # as in our images; an image that is used as it stands may have another name for it, or none
# With the group: the kernel lets nobody look at a process who shares only one of the two with it.
TRIAL_USER = f"{_UID}:{_UID}"

_DRIVER = "/usr/local/nvidia"
_COMMON_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PLACES = {"HOME": HOME, "TMPDIR": "/tmp"}  # noqa: S108
# What every trial gets besides the image's own variables.
TRIAL_VARIABLES = {**VARIABLES, **_PLACES}


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a container needs in addition, for its GPUs or to be watched."""

    options: Mapping[str, Any] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    variables: Mapping[str, str] = field(default_factory=dict)  # set on top of the image's and the trial's own


def container_options(request: TrialRequest, *, payload: str, gpu: Part, tools: Part) -> dict[str, Any]:
    """Return the options of `containers.create`. `payload` is the volume that holds the trial's files."""
    # What keeps a trial in its place comes after its own variables.
    own = {**VARIABLES, **request.variables, **_PLACES, "NVIDIA_VISIBLE_DEVICES": "void"}
    return {
        "init": True,  # so that a signal which kills the script is seen, and orphans are reaped
        "working_dir": CASE_DIRECTORY,
        "user": TRIAL_USER,
        "environment": {**own, **gpu.variables, **tools.variables},
        "mounts": [_volume(CASE_DIRECTORY, payload), *gpu.mounts, *tools.mounts],
        "log_config": LogConfig(type="none"),  # output is read as it comes and never fills the engine's disk
        "healthcheck": {"test": ["NONE"]},
        "use_config_proxy": False,
        **_confinement(request.limits),
        **gpu.options,
    }


def _volume(target: str, name: str) -> Mount:
    return Mount(target, name, type="volume", read_only=True, no_copy=True)


def tools_part(tools: str, *, known: Mapping[str, str]) -> Part:
    """Return what a watched trial needs. `tools` is a volume, `known` the variables set anyway."""
    path = path_list(f"{TOOLS}/site", known.get("PYTHONPATH"))
    return Part(mounts=[_volume(TOOLS, tools)], variables={"PYTHONPATH": path})


def scratch(limits: Limits) -> str:
    """Return the options of a tmpfs for scratch space: it counts as memory, and compiled kernels are loaded from it."""
    return f"rw,exec,nosuid,nodev,size={limits.memory_bytes}"


def _confinement(limits: Limits) -> dict[str, Any]:
    own = f"mode=0700,uid={_UID},gid={_UID}"
    return {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "read_only": True,
        "tmpfs": {"/tmp": f"{scratch(limits)},mode=1777", HOME: f"{scratch(limits)},{own}"},  # noqa: S108
        "shm_size": limits.memory_bytes,  # which counts as memory: that it is full is the trial's own doing
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,
        "pids_limit": limits.processes,
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
    }


def gpu_part(
    access: GpuAccess, gpus: Sequence[int], *, host: HostFacts, minors: Mapping[int, int], known: Mapping[str, str]
) -> Part:
    """Return what a container needs to use these GPUs.

    `minors` are the numbers of their device files by index, `known` the variables that are set anyway.
    """
    match access.mode:
        case "toolkit":
            wanted = [str(index) for index in gpus]
            request = DeviceRequest(device_ids=wanted, capabilities=[["gpu", "compute", "utility"]])
            variables = {"NVIDIA_VISIBLE_DEVICES": ",".join(wanted), "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
            return Part(options={"device_requests": [request]}, variables=variables)
        case "cdi":
            request = DeviceRequest(driver="cdi", device_ids=[f"{CDI_KIND}={index}" for index in gpus])
            return Part(options={"device_requests": [request]})
        case _:
            return _passthrough([minors.get(index, index) for index in gpus], host, known)


def _passthrough(minors: Sequence[int], host: HostFacts, known: Mapping[str, str]) -> Part:
    devices = [f"/dev/nvidia{minor}" for minor in minors] + [name for name in _COMMON_DEVICES if name in host.devices]
    libraries = dict(host.libraries)
    libraries.setdefault("libcuda.so", libraries["libcuda.so.1"])  # what a compiler links against
    files = {f"{_DRIVER}/lib64/{name}": path for name, path in libraries.items()}
    files |= {f"{_DRIVER}/bin/{name}": path for name, path in host.programs.items()}
    return Part(
        options={
            "devices": [f"{name}:{name}:rw" for name in devices],
            "group_add": [str(group) for group in host.groups],
        },
        mounts=[Mount(target, str(path), type="bind", read_only=True) for target, path in sorted(files.items())],
        variables={
            "LD_LIBRARY_PATH": path_list(f"{_DRIVER}/lib64", known.get("LD_LIBRARY_PATH")),
            "PATH": path_list(known.get("PATH", _SYSTEM_PATH), f"{_DRIVER}/bin"),
        },
    )
