"""Trials in containers of Podman. It speaks Docker's API, and here is what it does otherwise."""

import resource
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from gpu_casebook.daemon import client as daemon
from gpu_casebook.daemon import podman
from gpu_casebook.daemon.client import Container, Ulimit
from gpu_casebook.devices.driver import CDI_KIND, passthrough
from gpu_casebook.engines.docker import options
from gpu_casebook.engines.docker.engine import DockerEngine
from gpu_casebook.engines.docker.options import Part
from gpu_casebook.engines.podman import memory
from gpu_casebook.trial import GpuAccess, TrialRequest

_CDI_SINCE = (5, 4)
"""Podman takes CDI devices over the Docker API from this version (podman PR 25171)."""
_HOME = "/home/trial"  # which no image has
_PROCESSES = 32768
"""What Podman's service sets as its own limit. It can't give a container more, and asks for more unless it is told."""


class PodmanEngine(DockerEngine):
    """Podman as root or as the user, by its service."""

    name = "podman"
    _connect = staticmethod(podman.connect)

    @cached_property
    def _limited(self) -> bool:
        """Whether limits hold: without root they need the second version of control groups."""
        return not (self._info.get("Rootless") and str(self._info.get("CgroupVersion")) == "1")

    @property
    def isolation(self) -> Sequence[str]:  # type: ignore[override]  # it depends on who runs the service
        *others, limits = super().isolation
        if self._limited:
            return [*others, limits]
        return [*others, "limits on time and output; none on memory and processes (Podman without root on cgroup v1)"]

    def gpu_access(self) -> GpuAccess | None:
        if not self.local:
            return None
        version = tuple(int(part) for part in self.version.split()[1].split(".") if part.isdecimal())
        if CDI_KIND in self._host.cdi_kinds and version >= _CDI_SINCE:
            return GpuAccess(mode="cdi", detail=f"the engine knows {CDI_KIND} devices by CDI")
        return passthrough(self._host)

    def _container_options(self, request: TrialRequest, *, payload: str, gpu: Part, tools: Part) -> dict[str, Any]:
        made = super()._container_options(request, payload=payload, gpu=gpu, tools=tools)
        del made["healthcheck"]  # to have none it asks systemd, which may not be there
        # Before 5.6.3 it refuses the owner of a tmpfs, and over a directory of the image it keeps that one's.
        made["tmpfs"] = {place: f"{options.scratch(request.limits)},mode=1777" for place in ("/tmp", _HOME)}  # noqa: S108
        made["environment"]["HOME"] = _HOME
        # Otherwise it asks for limits of its own, which a confined host does not allow.
        most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        made["ulimits"] += [
            Ulimit(name="nofile", soft=min(1024, most_files), hard=most_files),
            Ulimit(name="nproc", soft=_PROCESSES, hard=_PROCESSES),
        ]
        return made

    def _memory_watch(self, container: Container) -> Callable[[], bool]:
        pid = None
        if self.local:
            with daemon.only_if_present():
                container.reload()
                pid = int(container.attrs["State"]["Pid"]) or None
        return memory.watch(pid)
