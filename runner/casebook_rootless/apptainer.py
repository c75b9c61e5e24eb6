"""Trials by `apptainer exec`. Written from Apptainer's documentation, tested as a command line, and never run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from casebook_rootless.unpacked import UnpackedEngine
from failure_signature.result import CASE_DIRECTORY


class ApptainerEngine(UnpackedEngine):
    """Apptainer 1.1 or newer, with user namespaces or installed setuid."""

    name = "apptainer"
    title = "Apptainer"
    program = "apptainer"
    install = "install it as its Admin Guide says, or ask the site to"
    complaint = "FATAL"
    isolation = (
        "as Apptainer documents its options; the runner's authors have not run it",
        "each trial in an unpacked image, read-only, with process, IPC and mount namespaces and few devices of its own",
        "no network",
        "no capabilities, no new privileges, this user",
        "a private copy of the case and private scratch space, nothing of the host's environment variables",
        "limits on memory (with files in scratch space, not in /dev/shm), processes, time and output, from outside",
    )

    def command(self, image: Path, binds: Mapping[str, Path], gpus: Sequence[int]) -> list[str]:
        places = [f"--bind={path}:{target}" for target, path in binds.items()]
        gpu = ["--nv"] if gpus else []
        contained = ["--containall", "--cleanenv", "--no-home", "--no-privs", "--net", "--network=none"]
        return ["apptainer", "--silent", "exec", *contained, *gpu, *places, f"--pwd={CASE_DIRECTORY}", str(image)]

    def driver(self, directory: Path) -> tuple[Mapping[str, Path], Mapping[str, str]]:  # noqa: ARG002
        """Return where `--nv` has the driver's libraries: the variable that it sets itself does not reach a trial."""
        return {}, {"LD_LIBRARY_PATH": "/.singularity.d/libs"}
