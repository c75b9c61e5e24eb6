"""Where the index has a case, and on which architectures of GPUs it can run and ran."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from failure_signature.kinds import Area
from failure_signature.trials import Verdict
from gpu_casebook.evidence import Evidence
from gpu_casebook.files import read_text
from gpu_casebook.manifest.case import MAX_CASE_BYTES
from gpu_casebook.manifest.model import INDEX_LINES

_CAPABLE = re.compile(r"""(?m)^ +compute_capability: *["']([^"'\n]+)""")
_CAPABLE_FROM = re.compile(r"(?m)^ +(capability_from: .*)")
_LINKED = re.compile(r"(.*) \((https://[^\s()]+)\)")
_ENVIRONMENT = re.compile(r"(?m)^  (?=\w)")
_NAMES = {"7.0": "Volta", "7.5": "Turing", "8.0": "Ampere", "8.6": "Ampere", "8.9": "Ada", "9.0": "Hopper"}
_NAMES |= dict.fromkeys(("10.0", "10.3", "12.0", "12.1"), "Blackwell")
"""Of architectures, by compute capability."""


class Capable(NamedTuple):
    """A range of compute capabilities, and where it comes from; without that it is a guess."""

    range: str
    source: str | None = None

    def __str__(self) -> str:
        return self.range if self.source else f"{self.range} (a guess)"

    @property
    def linked(self) -> tuple[str, str]:
        """Return the source without the link in parentheses that it may end in, and that link."""
        found = _LINKED.fullmatch(self.source or "")
        return (found[1], found[2]) if found else (self.source or "a guess, which nobody has measured", "")


def architectures(runs: Sequence[Evidence], capable: Sequence[Capable] = ()) -> str:
    """Return the GPUs' architectures that a case was seen on, and of which range; the CPU has none."""
    found = (run.environment.attestation for run in runs if run.verdict is not Verdict.SKIPPED)
    seen = {gpu.compute_capability for each in found if each for gpu in each.gpus}
    named = [f"{_NAMES.get(each, 'GPU')} (sm_{each.replace('.', '')})" for each in sorted(seen)]
    if not capable:
        return ", ".join(named)
    return f"{', '.join(named) or 'none yet'}, of {' or '.join(map(str, capable))}"


class Placed(NamedTuple):
    """Where the index has a case, and what it says of it: `symptom` stands in for the title where it is given."""

    area: Area | None = None
    symptom: str | None = None
    capable: tuple[Capable, ...] = ()  # what it may run on


def placed(manifest: Path) -> Placed:
    """Return what a case's manifest says for the index; nothing where there is none.

    A few lines of it are read, not the whole: there may be a thousand, and the index is written after each run.
    """
    try:
        text = read_text(manifest, MAX_CASE_BYTES)
        found = yaml.safe_load("".join(each for each in re.findall(INDEX_LINES, text) if each[0] != " ")) or {}
        area, symptom = Area(found["area"]) if "area" in found else None, str(found.get("symptom") or "") or None
        return Placed(area, symptom, tuple(dict.fromkeys(_capable(text))))
    except (OSError, ValueError, yaml.YAMLError):
        return Placed()


def _capable(manifest: str) -> Iterator[Capable]:
    for environment in _ENVIRONMENT.split(manifest):
        if found := _CAPABLE.search(environment):
            source = _CAPABLE_FROM.search(environment)
            yield Capable(found[1], yaml.safe_load(source[1])["capability_from"] if source else None)


def unseen(places: Mapping[str, Placed], seen: Container[str]) -> list[tuple[str, tuple[Capable, ...]]]:
    """Return the cases that need a GPU and were never run, with what it must be capable of."""
    return [(case, place.capable) for case, place in sorted(places.items()) if place.capable and case not in seen]
