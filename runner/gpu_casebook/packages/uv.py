"""Building the environment of a lock with uv, with the host's own index, proxy and certificate settings."""

import errno
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version as installed
from pathlib import Path

from gpu_casebook.errors import BuildError, CasebookError, MachineError
from gpu_casebook.packages.settings import pip_files, pip_options
from gpu_casebook.trial import Note

_SHOWN = 700
"""Characters of uv's last words in a message; all of them are in the log."""

_CROSS = "\N{MULTIPLICATION SIGN}"
_FRAME = f" \t\N{BOX DRAWINGS LIGHT VERTICAL}\N{BOX DRAWINGS LIGHT ARC UP AND RIGHT}─▶├{_CROSS}"

_ALSO = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL", "PIP_INDEX_URL", "index-url"),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL", "extra-index-url"),
    "UV_FIND_LINKS": ("PIP_FIND_LINKS", "find-links"),
    "UV_INSECURE_HOST": ("PIP_TRUSTED_HOST", "trusted-host"),
    "UV_HTTP_TIMEOUT": ("PIP_DEFAULT_TIMEOUT", "timeout"),
    "SSL_CERT_FILE": ("PIP_CERT", "REQUESTS_CA_BUNDLE", "cert"),
}
"""Where uv does not look, and pip does."""
_LISTED = {"UV_FIND_LINKS": ","}
"""What uv puts between several values, where it is not a space as it is for pip."""


def program() -> str:
    """Path of the uv that came with the runner."""
    from uv import find_uv_bin  # noqa: PLC0415 a bundle with an image leaves uv out: nothing gets installed there

    return find_uv_bin()


def version() -> str:
    return f"uv {installed('uv')}"


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv: the host's, with what it says to pip alone, or in pip's files, said to uv too."""
    told = dict(environ)
    says = pip_options(pip_files(environ)) | dict(environ)
    for name, others in _ALSO.items():
        value = next((says[other] for other in others if says.get(other)), None)
        if value and not told.get(name):
            told[name] = _LISTED.get(name, " ").join(value.split())
    if "UV_INDEX" in told:
        told.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")  # as pip does it; the lock's hashes decide
    return told | {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}


def build(directory: Path, *, python: str, lock: Path, log: Path, note: Note) -> None:
    """Make the virtual environment `directory` with all that `lock` names, every file checked against its hash.

    Raises BuildError with uv's last words and the log's path, or MachineError where the disk is full.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    interpreter = directory / "bin" / "python"
    _uv(["venv", "--python", python, "--no-project", str(directory)], log, note)
    install = ["pip", "install", "--python", str(interpreter), "--require-hashes", "--compile-bytecode", "--strict"]
    _uv([*install, "--requirements", str(lock)], log, note)


def _uv(arguments: Sequence[str], log: Path, note: Note) -> None:
    with log.open("ab") as file:
        begun = file.tell()
        process = subprocess.Popen(
            [program(), *arguments],
            env=settings(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        with process:
            try:
                for line in process.stdout or ():
                    file.write(line)
                    note(line.decode("utf-8", "replace").strip())
            except BaseException:
                process.kill()
                raise
    if process.returncode:
        raise failure(log.read_bytes()[begun:].decode("utf-8", "replace"), log)


def failure(output: str, log: Path) -> CasebookError:
    """What uv's output says about why it failed."""
    if re.search(r"no space left on device|\(os error (?:28|122)\)", output, re.IGNORECASE):
        return MachineError(f"the disk is full: the environment could not be built (the whole log: {log})")
    return BuildError(f"the environment could not be built: {last_words(output)} (the whole log: {log})")


def last_words(output: str) -> str:
    """The error that uv ends with, as one line. It begins with "error:" or a cross, and goes on to the end."""
    lines = output.splitlines()
    begins = [number for number, line in enumerate(lines) if line.lstrip().startswith(("error:", _CROSS))]
    words = " ".join(line.strip(_FRAME) for line in lines[begins[-1] if begins else -5 :])
    words = " ".join(words.split())
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]} ..."


def disk_is_full(error: OSError) -> bool:
    return error.errno in {errno.ENOSPC, errno.EDQUOT}
