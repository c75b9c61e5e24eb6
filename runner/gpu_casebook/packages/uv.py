"""Building the environment of a lock with uv, with the host's own index, proxy and certificate settings."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version as installed
from pathlib import Path

from gpu_casebook.errors import BuildError, CasebookError, MachineError
from gpu_casebook.packages import index
from gpu_casebook.packages.lock import alone, installable, read_lock
from gpu_casebook.packages.settings import for_install
from gpu_casebook.packages.sources import lay_out
from gpu_casebook.trial import Note, Recipe

_SHOWN = 700
"""Characters of uv's error in a message; the log has all of it."""

_CROSS = "\N{MULTIPLICATION SIGN}"
_FRAME = f" \t\N{BOX DRAWINGS LIGHT VERTICAL}\N{BOX DRAWINGS LIGHT ARC UP AND RIGHT}─▶├{_CROSS}"


def program() -> str:
    """Return the path of the uv that the runner depends on."""
    from uv import find_uv_bin  # noqa: PLC0415 a bundle with an image leaves uv out: nothing gets installed there

    return find_uv_bin()


def version() -> str:
    return f"uv {installed('uv')}"


def captured(
    command: Sequence[str], environ: Mapping[str, str], directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run uv or pip without input; return how it ended and what it printed."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        cwd=directory,
        env=dict(environ),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def default_index(environ: Mapping[str, str] | None = None) -> str | None:
    """Return uv's default index, or None if uv does not say.

    `environ` is the environment for uv. Without it, neither variables nor the host's configuration files count.
    """
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"UV_NO_CONFIG": "1"}
    with tempfile.TemporaryDirectory(prefix="casebook-index-") as elsewhere:  # no project's pyproject.toml counts
        command = [program(), "pip", "compile", "--quiet", "--emit-index-url", "-"]
        ended = captured(command, bare if environ is None else environ, Path(elsewhere))
    found = re.search(r"^--index-url (\S+)", ended.stdout, re.MULTILINE)
    return found[1] if found else None


def make(directory: Path, *, python: str, store: Path, log: Path, note: Note) -> None:
    """Make an empty virtual environment; begin the log. Raises as `install`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    _uv(["venv", "--python", python, "--no-project", str(directory)], store, log, note)


def configured(settings: str, directory: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which uv, run in this directory, has these settings, a uv.toml, besides the host's."""
    if not settings:
        return dict(environ)
    own = directory / "uv.toml"
    hosts = "" if environ.get("UV_NO_CONFIG") else environ.get("UV_CONFIG_FILE", "")
    before = f"{Path(hosts).read_text(encoding='utf-8')}\n" if hosts else ""
    own.write_text(before + settings, encoding="utf-8")
    left = {name: value for name, value in environ.items() if name != "UV_NO_CONFIG"}
    # Otherwise it finds its file by itself, and adds the user's and the system's.
    return left if left == dict(environ) and not hosts else left | {"UV_CONFIG_FILE": str(own)}


def install(
    directory: Path, recipe: Recipe, *, store: Path, log: Path, note: Note, wheels: Sequence[Path] = ()
) -> None:
    """Install a recipe's lock into the virtual environment, every file checked against its hash: wheels only.

    With `wheels`, which the lock names too, nothing is said of what they or others depend on.

    Its files are hard links to those in `store`, a uv cache on the same file system. Raises BuildError for what is no
    lock, or with uv's error and the log's path, or MachineError if the disk is full.
    """
    with tempfile.TemporaryDirectory(prefix="casebook-lock-") as scratch:
        file = Path(scratch, "lock.txt")
        file.write_text(installable(recipe.lock, recipe.python), encoding="utf-8")
        lay_out(recipe.sources, file.parent)
        environ = index.installing(recipe.lock, for_install(os.environ))
        environ = configured(alone(read_lock(recipe.lock).special.without_dependencies), file.parent, environ)
        for path in wheels:
            (file.parent / path.name).symlink_to(path.resolve())
        if recipe.sources or wheels:
            environ["UV_FIND_LINKS"] = ",".join(filter(None, [environ.get("UV_FIND_LINKS"), scratch]))
        command = ["pip", "install", "--python", str(directory / "bin" / "python"), "--require-hashes"]
        command += ["--no-deps" if wheels else "--strict"]
        command += ["--only-binary", ":all:", "--link-mode", "hardlink", "--requirements", str(file)]
        try:
            _uv(command, store, log, note, place=file.parent, environ=environ)
        except BuildError as error:
            raise index.explained(error, recipe.lock) from None
    (directory / ".lock").unlink(missing_ok=True)  # uv's own


def compile_bytecode(directory: Path) -> None:
    """Compile all modules of an environment, without running a line of them: not a .pth file's either."""
    command = [str(directory / "bin" / "python"), "-I", "-S", "-m", "compileall", "-q", "-j0", str(directory / "lib")]
    quiet = subprocess.DEVNULL
    # Its workers wait for ever once it is killed, so that an interrupt must end all of them.
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, env={}, start_new_session=True) as process:
        try:
            process.wait()  # status 1 is a module for another Python
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def forget(packages: Sequence[str], store: Path) -> None:
    """Remove these packages from the store: they will be fetched again."""
    captured([program(), "cache", "clean", "--cache-dir", str(store), *packages], for_install(os.environ))


def _uv(
    arguments: Sequence[str],
    store: Path,
    log: Path,
    note: Note,
    *,
    place: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    with log.open("ab") as file:
        process = subprocess.Popen(
            [program(), *arguments, "--cache-dir", str(store)],
            cwd=place,
            env=environ or for_install(os.environ),
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
        raise failure(log.read_text(encoding="utf-8", errors="replace"), log)


def failure(output: str, log: Path) -> CasebookError:
    """Return the exception for a failed uv, by what it printed."""
    if re.search(r"no space left on device|\(os error (?:28|122)\)", output, re.IGNORECASE):
        why = "the disk is full: the environment could not be built"
        return MachineError(f"{why}; free some: nox -s clean -- --unused (the whole log: {log})")
    return BuildError(f"the environment could not be built: {last_words(output)} (the whole log: {log})")


def last_words(output: str) -> str:
    """Return the error that uv or pip ends with, as one line: from "error:" or a cross to the end of the output."""
    lines = output.splitlines()
    begins = [number for number, line in enumerate(lines) if line.lstrip().lower().startswith(("error:", _CROSS))]
    words = " ".join(line.strip(_FRAME) for line in lines[begins[-1] if begins else -5 :])
    words = " ".join(words.split())
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]} ..."
