"""What the environments of a case need, from the manifest and the locks."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gpu_casebook.corpus.disk import installed_bytes
from gpu_casebook.doctor.facts import Need
from gpu_casebook.evidence import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages.lock import read_lock, wheel_bytes

ROOM_FOR_IMAGE = 6
"""Bytes of disk for each byte of wheels, while an image is built: see `gpu_casebook.images.build.peak_bytes`."""

_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")


class Built(NamedTuple):
    """The texts of the locks that there is an image of, and those that there is a virtual environment of."""

    images: frozenset[str] = frozenset()
    environments: frozenset[str] = frozenset()


def needs(case: Case, built: Built) -> list[Need]:
    """One for each environment."""
    return [_need(case, name, built) for name in case.manifest.environments]


def _need(case: Case, name: str, built: Built) -> Need:
    paths = list(dict.fromkeys(case.lock_path(name, variant) for variant in Variant))
    locks = [_text(path) for path in paths]
    pins = {pin.name: pin.version for lock in locks for pin in read_lock(lock).pins}
    return Need(
        case=case.id,
        environment=name,
        spec=case.environment(name),
        torch=pins.get("torch"),
        cuda=cuda_of(pins),
        locked=all(path.is_file() for path in paths),
        image_bytes=sum(ROOM_FOR_IMAGE * _bytes(lock) for lock in locks if lock not in built.images),
        environment_bytes=sum(installed_bytes(_bytes(lock)) for lock in locks if lock not in built.environments),
    )


def _bytes(lock: str) -> int:
    """Of its download; 0 where it does not tell."""
    return wheel_bytes(lock) or 0


def cuda_of(pins: Mapping[str, str]) -> str | None:
    """The CUDA version, as "12.1", that the pinned packages were built with; None where they do not tell."""
    runtime = next((pins[name] for name in _RUNTIMES if name in pins), None)
    if runtime:
        return ".".join(runtime.split(".")[:2])
    tagged = re.search(r"\+cu(\d\d)(\d)\b", pins.get("torch", ""))
    return f"{tagged[1]}.{tagged[2]}" if tagged else None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
