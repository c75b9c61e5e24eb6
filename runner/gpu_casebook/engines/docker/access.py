"""Which way to a GPU a Docker engine has. Pure."""

from collections.abc import Mapping
from typing import Any

from gpu_casebook.devices.driver import CDI_KIND, HostFacts, passthrough
from gpu_casebook.trial import GpuAccess


def choose_gpu_access(info: Mapping[str, Any], *, local: bool, host: HostFacts) -> GpuAccess | None:
    """Return the best way to a GPU that a Docker engine has, or None.

    `info` is the answer of the engine's API to /info; `host` counts only where the engine is `local`.
    """
    if "nvidia" in (info.get("Runtimes") or {}):
        return GpuAccess(mode="toolkit", detail="the engine has the NVIDIA container toolkit's runtime")
    if _has_cdi(info, local=local, host=host):
        return GpuAccess(mode="cdi", detail=f"the engine knows {CDI_KIND} devices by CDI")
    return passthrough(host) if local else None


def _has_cdi(info: Mapping[str, Any], *, local: bool, host: HostFacts) -> bool:
    if not info.get("CDISpecDirs"):
        return False
    # Engines list their CDI devices since 28.2. Older ones only name the directories of the specifications.
    listed = info.get("DiscoveredDevices")
    if listed is not None:
        return any(str(device.get("ID", "")).startswith(f"{CDI_KIND}=") for device in listed)
    return local and CDI_KIND in host.cdi_kinds
