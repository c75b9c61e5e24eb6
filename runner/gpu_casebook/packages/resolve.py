"""Requirements -> locks, resolved by uv against the package index."""

import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name, parse_wheel_filename

from failure_signature.kinds import Variant
from gpu_casebook.errors import BuildError
from gpu_casebook.files import write_whole
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages import index, uv
from gpu_casebook.packages.lock import _ENTRY, PLATFORM, alone, basis, read_lock, without
from gpu_casebook.packages.settings import for_install
from gpu_casebook.packages.sources import locked
from gpu_casebook.pins import CPU_BUILD, ORDINARY, SourceFile, Special, pin, source_pins
from gpu_casebook.trial import Note

# Settings of uv, without UV_: where files may come from, and which versions are chosen.
_ELSEWHERE = ("FIND_LINKS", "EXTRA_INDEX_URL", "INDEX", "INDEX_STRATEGY", "NO_INDEX", "TORCH_BACKEND")
_OTHERWISE = ("RESOLUTION", "PRERELEASE", "FORK_STRATEGY", "CONSTRAINT", "OVERRIDE", "EXCLUDE", "NO_BINARY", "NO_BUILD")


def write_locks(case: Case, note: Note, say: Note = lambda _line: None) -> list[Path]:
    """Write every lock of the case: all, or none if one can't be made. Raises BuildError. `say` is told of doubts.

    Pins that a lock has stay as they are wherever the requirements still allow it.
    """
    texts: dict[Path, str] = {}
    for name, spec in case.manifest.environments.items():
        for variant in Variant:
            path = case.lock_path(name, variant)
            if path not in texts:
                note(f"resolving {path.name}")
                previous = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
                sources = case.sources(name, variant)
                wanted = case.requirements(name, variant)
                texts[path] = lock_text(wanted, spec.python, previous, special=spec.special, sources=sources, say=say)
    for path, text in texts.items():
        write_whole(path, text)
    return list(texts)


def remove_stale(case: Case) -> list[Path]:
    """Remove the locks that belong to no environment any more, and return them."""
    wanted = {case.lock_path(name, variant) for name in case.manifest.environments for variant in Variant}
    stale = [path for path in sorted((case.directory / "locks").glob("*.txt")) if path not in wanted]
    for path in stale:
        path.unlink()
    return stale


def lock_text(
    requirements: Sequence[str],
    python: str,
    previous: str = "",
    *,
    special: Special = ORDINARY,
    sources: Sequence[SourceFile] = (),
    say: Note = lambda _line: None,
) -> str:
    """Return a requirements file with hashes and a header of ours, resolved against the package index.

    `previous` is a lock whose pins are kept where they fit. Raises BuildError where the index is unreachable, a
    version does not exist, a file would not come from the index, or one of `sources` can't be had. Where PyTorch's own
    index can't be reached, the hash of a wheel in a local directory is taken, and `say` is told.
    """
    pinned = sorted(map(pin, requirements))
    body, size = _resolve(pinned, python, previous, special, say) if requirements else ("", 0)
    header = basis([*requirements, *source_pins(sources)], python, special) | {
        "download-bytes": "unknown" if size is None else str(size)
    }
    return "\n".join(["# Written by `nox -s lock`, not by hand.", *_header(header), body + locked(sources)])


def _header(told: Mapping[str, str]) -> list[str]:
    return [f"# {key}: {value}".rstrip() for key, value in told.items()]


def scratch_lock(
    requirements: Sequence[str],
    python: str,
    previous: str = "",
    *,
    special: Special = ORDINARY,
    sources: Sequence[SourceFile] = (),
    anywhere: bool = False,
    pre: bool = False,
) -> str:
    """Return a lock that never leaves this machine, resolved in one go and without sizes. Raises BuildError.

    `requirements` need not be pinned. `previous` is a lock whose pins are kept where they fit. With `anywhere` files
    may come from wherever the host's settings say, such as a local build of PyTorch; with `pre` releases before the
    final one will do.
    """
    environ = index_settings(os.environ) | ({"UV_PRERELEASE": "allow"} if pre else {})
    if anywhere and not special.indexes:
        settings = for_install(os.environ)
        environ |= {name: settings[name] for each in _ELSEWHERE if (name := f"UV_{each}") in settings}
        names = _local_packages(environ.get("UV_FIND_LINKS", ""))
        previous = without(previous, names)
    with tempfile.TemporaryDirectory(prefix="casebook-lock-") as scratch:
        environ = uv.configured(_settings(special), Path(scratch), environ)
        lock, _ = _lock(Path(scratch), requirements, python, previous, environ=environ, special=special)
        body = lock.read_text()
    return "\n".join([*_header(basis([], python, special)), body + locked(sources)])


def _local_packages(find_links: str) -> set[str]:
    """Return the packages that local directories have wheels of: those versions are preferred to a lock's."""
    wheels = (path for place in find_links.split(",") if place for path in Path(place).glob("*.whl"))
    return {canonicalize_name(path.name.partition("-")[0]) for path in wheels}


def _resolve(
    requirements: Sequence[str], python: str, previous: str, special: Special, say: Note
) -> tuple[str, int | None]:
    """Return a lock's entries, and the bytes of their files."""
    environ = index_settings(os.environ)
    with tempfile.TemporaryDirectory(prefix="casebook-lock-") as scratch:
        environ = uv.configured(_settings(special), Path(scratch), environ)
        lock, found_in = _lock(Path(scratch), requirements, python, previous, environ=environ, special=special, say=say)
        files = lock.with_name("pylock.toml")  # which files the lock's hashes are of, where from, and their sizes
        options = ["--no-deps", "--format", "pylock.toml", *_from_source(special)]
        _compile(lock, files, python, *options, environ=found_in)
        body, packages = lock.read_text(), tomllib.loads(files.read_text()).get("packages", [])
        size = _download_bytes(packages)
    if special.indexes:
        body = _of_this_platform(body, packages)
    _only_from_the_index(body, packages, special)
    return body, size


def _of_this_platform(body: str, packages: Iterable[Mapping[str, Any]]) -> str:
    """Return a lock's entries with the hashes of the wheels that fit alone, for the packages of PyTorch's own index.

    It is the same lock then, whether a wheel comes from the index, which has it for every platform, or a directory.
    """
    fitting = {package["name"]: [file["hashes"]["sha256"] for file in _files(package)] for package in packages}

    def fewer(entry: re.Match[str]) -> str:
        name, version = canonicalize_name(entry[1]), entry[2]
        if not version.endswith(CPU_BUILD):
            return entry[0]
        return " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{each}" for each in sorted(fitting[name]))])

    return _ENTRY.sub(fewer, body)


def _lock(
    directory: Path,
    requirements: Sequence[str],
    python: str,
    previous: str,
    *,
    environ: Mapping[str, str],
    special: Special,
    say: Note = lambda _line: None,
) -> tuple[Path, Mapping[str, str]]:
    """Lock the requirements in a scratch directory; return the file, and uv's environment in which all was found."""
    asked, lock = directory / "requirements.in", directory / "lock.txt"
    asked.write_text("".join(f"{requirement}\n" for requirement in requirements))
    lock.write_text(previous)
    options = ["--generate-hashes", "--no-annotate", *_from_source(special)]
    builds = index.candidates(requirements, os.environ) if special.indexes else []
    local = {**environ, "UV_FIND_LINKS": str(_linked(builds, directory / "wheels"))}
    # Of two variants one alone may pin such a build. What is not pinned is to be the newest: of its kind.
    if builds and index.wheels(previous, os.environ):
        environ = local
    elif special.indexes and any(each.endswith(CPU_BUILD) or "==" not in each for each in requirements):
        environ = index.reaching(environ, for_install(os.environ))
    try:
        _compile(asked, lock, python, *options, environ=environ)
    except index.UnreachableError:
        if not builds or environ is local:
            raise
        for place in {path.parent for path in builds}:
            say(f"the index {index.NAME} can't be reached: hashes are those of {place}, not compared with its own")
        _compile(asked, lock, python, *options, environ=local)
        environ = local
    return lock, environ


def addressed(text: str, python: str) -> str:
    """Return a lock for pip, which has no torch backends: with the addresses of the files that PyTorch's index has.

    Raises BuildError where the index can't be reached.
    """
    wanted = {name: str(version) for name, version in index.pinned(text)}
    if not wanted:
        return text
    found: dict[str, str] = {
        parse_wheel_filename(path.name)[0]: path.as_uri() for path in index.wheels(text, os.environ)
    }
    with tempfile.TemporaryDirectory(prefix="casebook-lock-") as scratch:
        asked, files = Path(scratch, "asked.txt"), Path(scratch, "pylock.toml")
        asked.write_text("".join(f"{name}=={version}\n" for name, version in wanted.items()))
        if not found:
            environ = index.reaching(index_settings(os.environ), for_install(os.environ))
            _compile(asked, files, python, "--no-deps", "--format", "pylock.toml", environ=environ)
            found = {each["name"]: _files(each)[0]["url"] for each in tomllib.loads(files.read_text())["packages"]}
    return _ENTRY.sub(
        lambda entry: entry[0].replace(f"=={entry[2]}", f" @ {found[entry[1]]}") if entry[1] in wanted else entry[0],
        text,
    )


def _linked(paths: Iterable[Path], directory: Path) -> Path:
    """Return a directory that has these wheels and no others."""
    directory.mkdir()
    for path in paths:
        (directory / path.name).symlink_to(path.resolve())
    return directory


def _settings(special: Special) -> str:
    return alone([*special.build, *special.without_dependencies])


def _from_source(special: Special) -> list[str]:
    return [word for name in special.build for word in ("--no-binary", name)]


def _compile(source: Path, output: Path, python: str, *options: str, environ: Mapping[str, str]) -> None:
    target = ["--python", sys.executable, "--python-version", python, "--python-platform", PLATFORM]
    # Wheels say what they need; a source distribution's own code would have to be run for that, on this machine.
    quiet = ["--only-binary", ":all:", "--no-header", "--no-progress", "--color=never"]
    command = [uv.program(), "pip", "compile", source.name, "--output-file", output.name, *target, *quiet, *options]
    ended = uv.captured(command, environ, source.parent)
    if ended.returncode:
        words = uv.last_words(ended.stderr)
        if index.unreachable(words):
            builds = (each.partition("==")[::2] for each in source.read_text().split() if "+" in each)
            advice = index.advice(words, builds, environ)
            raise index.UnreachableError(
                advice or f"the package index can't be reached, so nothing was locked: {words}"
            )
        hint = "; an environment names in `build` what has no wheel" if "no usable wheels" in words else ""
        raise BuildError(f"the requirements can't be locked: {words}{hint}")


def index_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for uv with the default index alone: no file or version comes from anywhere else.

    A lock names no index, so whoever installs it has only the default one: a hash from another (a local build of
    PyTorch, say) would fit nowhere but here.
    """
    dropped = {f"UV_{name}" for name in (*_ELSEWHERE, *_OTHERWISE)}
    return {name: value for name, value in for_install(environ).items() if name not in dropped}


def _only_from_the_index(body: str, packages: Iterable[Mapping[str, Any]], special: Special = ORDINARY) -> None:
    """Raise BuildError for a lock that could not be installed on another machine."""
    for package in packages:
        if special.indexes and str(package.get("version")).endswith(CPU_BUILD):
            continue
        if any(not str(file.get("url", "")).startswith(("https://", "http://")) for file in _files(package)):
            name = f"{package['name']}=={package.get('version')}"
            raise BuildError(f"{name} comes from a file of this machine; a lock may hold the package index's alone")
    bare = [each.name for each in read_lock(body).pins if not each.hashed]
    if bare:
        raise BuildError(f"there is no hash for {', '.join(bare)}, so it can't be locked")


def _files(package: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the candidates for installation: the wheels that fit, or else the source."""
    return list(
        package.get("wheels") or filter(None, (package.get(kind) for kind in ("sdist", "archive", "vcs", "directory")))
    )


def _download_bytes(packages: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the bytes of all packages together, of each the largest file that fits; None if the index hides one."""
    sizes = [[_size(file) for file in _files(package)] for package in packages]
    if any(size is None for each in sizes for size in each):
        return None
    return sum(max(filter(None, each), default=0) for each in sizes)


def _size(file: Mapping[str, Any]) -> int | None:
    if str(file.get("url", "")).startswith("file:"):
        return Path(unquote(urlsplit(file["url"]).path)).stat().st_size
    return int(file["size"]) if "size" in file else None
