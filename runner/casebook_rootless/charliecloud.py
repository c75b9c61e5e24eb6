"""Trials by Charliecloud's ch-run: a user namespace, the image read-only, and nothing else that is the trial's own."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from casebook_rootless.unpacked import DRIVER, UnpackedEngine
from failure_signature.result import CASE_DIRECTORY
from gpu_casebook.engines import scratch
from gpu_casebook.errors import EngineError

_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")


class CharliecloudEngine(UnpackedEngine):
    """ch-run, as root or as the user."""

    name = "charliecloud"
    title = "Charliecloud"
    program = "ch-run"
    install = "sudo apt-get install charliecloud"
    complaint = "ch-run["
    isolation = (
        "weaker than a container: the host's network, its devices and its other processes are within reach",
        "each trial in an unpacked image that it can't change; the host's files are out of its reach",
        "a user namespace without capabilities, no new privileges",
        "a private copy of the case and private scratch space, nothing of the host's environment variables",
        "limits on memory (with files in scratch space and shared memory), processes, time and output, from outside",
    )

    @classmethod
    def connect(cls, root: Path) -> Self:
        engine = super().connect(root)
        with suppress(OSError):
            if not int(_NAMESPACES.read_text(encoding="ascii")):
                raise EngineError("users may make no namespaces here: sudo sysctl user.max_user_namespaces=15000")
        return engine

    def command(self, image: Path, binds: Mapping[str, Path], gpus: Sequence[int]) -> list[str]:  # noqa: ARG002 all are there
        places = [f"--bind={path}:{target}" for target, path in binds.items()]
        return [
            "ch-run",
            "--uid=1000",
            "--gid=1000",
            "--no-passwd",
            "--private-tmp",
            *places,
            f"--cd={CASE_DIRECTORY}",
            str(image),
            "--",
        ]

    def driver(self, directory: Path) -> tuple[Mapping[str, Path], Mapping[str, str]]:
        """Lay the driver's files over empty ones: ch-run makes no mount points, and the image stays as it is."""
        empty = directory / "driver"
        libraries = dict(self._host.libraries)
        libraries.setdefault("libcuda.so", libraries["libcuda.so.1"])  # what a compiler links against
        files = {f"lib64/{name}": path for name, path in libraries.items()}
        files |= {f"bin/{name}": path for name, path in self._host.programs.items()}
        scratch.lay_out(empty, dict.fromkeys(files, b""))
        binds = {DRIVER: empty, **{f"{DRIVER}/{name}": path for name, path in files.items()}}
        return binds, {"LD_LIBRARY_PATH": f"{DRIVER}/lib64", "PATH": f"{DRIVER}/bin"}
