"""Whether the kernel ended a process of a container for lack of memory, on hosts where Podman does not tell.

With the first version of control groups conmon 2.1.6 notes it where Podman 4.3.1 does not look. The kernel tells
whoever registered for it before: cgroup-v1/memory.rst of its documentation, section 10. Only root may register.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup/memory")
_PATIENCE_S = 1.0


def watch(pid: int | None) -> Callable[[], bool]:
    """Return what says, once the container of the process `pid` has ended, whether it had run out of memory.

    It says no where nobody can know, and where Podman is told by the kernel itself (control groups, version 2).
    """
    group = _memory_group(pid) if pid else None
    if group is None:
        return lambda: False
    try:
        events = _register(group)
    except OSError:  # the container is gone already, or this is not root
        return lambda: False
    seen = threading.Event()

    def wait() -> None:
        with suppress(OSError):
            os.eventfd_read(events)
            if group.exists():  # its removal, a moment after the container's end, is an event too
                seen.set()
        os.close(events)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()

    def ran_out() -> bool:
        thread.join(_PATIENCE_S)
        return seen.is_set()

    return ran_out


def _memory_group(pid: int) -> Path | None:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return _GROUPS / path.lstrip("/")
    return None


def _register(group: Path) -> int:
    """Return a descriptor that becomes readable when the group runs out of memory, or is removed. Raises OSError."""
    events = os.eventfd(0, os.EFD_CLOEXEC)
    try:
        control = os.open(group / "memory.oom_control", os.O_RDONLY)
        try:
            (group / "cgroup.event_control").write_text(f"{events} {control}", encoding="utf-8")
        finally:
            os.close(control)
    except OSError:
        os.close(events)
        raise
    return events
