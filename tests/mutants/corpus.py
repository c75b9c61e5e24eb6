"""What is done to the cases of the corpus that can run here: text before or in the place of their scripts.

Those that can: environments without a GPU, and of these three cases unless CASEBOOK_MUTANTS=all. The others are named.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from failure_signature.kinds import Variant
from failure_signature.trials import Verdict
from gpu_casebook.manifest.case import Case, discover, find, known_images
from tests.mutants.mutations import FIX, MISSING, NO_SPACE, NOT, OPEN, WRONG

ROOT = Path(__file__).resolve().parents[2]
ALL = os.environ.get("CASEBOOK_MUTANTS") == "all"
_ALWAYS = {"rwkv6-backward", "datasets-map-rows-misaligned", "tokenizers-wordpiece-order"}
"""A minute each. One whose scripts differ, one with releases, one whose runs differ from each other."""

_FAILS_AT_THE_END = "import atexit, os\natexit.register(os._exit, 3)\n"
_DIES = "import os\nos.kill(os.getpid(), 11)\n"
_LEAVES = "raise SystemExit(0)\n"


class Subject(NamedTuple):
    """A case in one of its environments."""

    case: Case
    environment: str


class Change(NamedTuple):
    """New texts of both scripts. `locks`: whose packages repro and fixed have, where each has some of its own."""

    name: str
    repro: str
    fixed: str
    right: Verdict
    locks: tuple[Variant, Variant] = (Variant.REPRO, Variant.FIXED)


def subjects() -> tuple[list[Subject], list[str]]:
    """Those that can run here, and a line about each environment without a GPU that is left out."""
    images, able, left_out = known_images(ROOT), [], []
    for id_ in discover(ROOT):
        case = find(ROOT, id_, images)
        for name, spec in case.manifest.environments.items():
            if spec.gpus == 0 and not ALL and id_ not in _ALWAYS:
                left_out.append(f"{id_}, {name}: left out without CASEBOOK_MUTANTS=all")
            elif spec.gpus == 0:
                able.append(Subject(case, name))
    return able, left_out


def has_releases(subject: Subject) -> bool:
    """Return whether the variants have packages of their own."""
    return bool(subject.case.manifest.repro.requirements)


def takes_many(subject: Subject) -> bool:
    """Return whether one run says nothing of this failure: it is that runs differ, or shows in a part of them."""
    expected = subject.case.expectation(subject.environment, Variant.REPRO)
    return bool(expected.differs or expected.rate)


def changes(subject: Subject) -> Iterator[Change]:
    """The scripts changed, and the verdict that is right then. The case as it is comes first."""
    case, environment = subject
    repro, fixed = (case.script(variant).read_text(encoding="utf-8") for variant in Variant)
    expected = case.expectation(environment, Variant.REPRO)
    yield Change("as it is", repro, fixed, Verdict.CONFIRMED)
    yield Change("variants swapped", fixed, repro, NOT, (Variant.FIXED, Variant.REPRO))
    yield Change("repro is fixed", fixed, fixed, NOT, (Variant.FIXED, Variant.FIXED))
    yield Change("repro ends well before its check", _LEAVES + repro, fixed, NOT)
    yield Change("repro lacks a package", MISSING + repro, fixed, WRONG)
    if expected.hang is None and expected.signal is None:  # what hangs or is killed does not come to its end
        yield Change("repro ends otherwise", _FAILS_AT_THE_END + repro, fixed, WRONG)
    yield Change("repro finds the disk full", NO_SPACE + repro, fixed, OPEN)
    yield Change("fixed is repro", repro, repro, FIX, (Variant.REPRO, Variant.REPRO))
    yield Change("fixed empty", repro, "", FIX)
    yield Change("fixed lacks a package", repro, MISSING + fixed, FIX)
    yield Change("fixed dies", repro, _DIES + fixed, FIX)
    yield Change("fixed fails after its proof", repro, _FAILS_AT_THE_END + fixed, FIX)
    yield Change("fixed finds the disk full", repro, NO_SPACE + fixed, OPEN)
    forged = "".join(f"print('{name}=12345')\n" for name in expected.figures)
    if forged:
        fails = bool(expected.exception or expected.signal or expected.exit_status or expected.hang)
        yield Change("repro gives its figures twice", forged + repro, fixed, WRONG if fails else NOT)
        yield Change("fixed gives its figures twice", repro, forged + fixed, FIX)
