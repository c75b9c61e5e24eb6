"""Manifests and evidence that nobody meant to write: each is taken, or refused in a line, and none takes long.

A sample of them in every run; ten thousand of each with the slow tests.
"""

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from casebook_workbench.author.check import check_all
from casebook_workbench.corpus import reuse
from casebook_workbench.corpus.model import facts
from failure_signature.text import utc
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Evidence, evidence_files
from gpu_casebook.report.case_page import case_page
from gpu_casebook.report.headline import summary
from gpu_casebook.report.pages import index
from gpu_casebook.trial import Recipe
from tests.conftest import MANIFEST, Checkout

ROOT = Path(__file__).parents[1]
LONGEST_S = 2.0
EXTREMES: list[Any] = [
    *(None, True, 0, -1, 2**31, 2**63, 10**40, -(10**40), 0.0, -0.0, 1e308, -1e308, 5e-324, [], {}, [[]] * 50),
    *("Infinity", "-Infinity", "NaN", "1e999", "", " ", "=", ": ", "- a", "&a *a", "!!python/object:os.system x", "%"),
    *(
        "x" * 100_000,
        "a\nb",
        "\t",
        "\0",
        "\x1b]0;x\x07",
        "\u202e\u2066",
        "\u200b",
        "\ud7ff\ue000",
        "../../etc",
        "readme",
    ),
    *("|`*_<b>&[x](y)", "{{ 7 * 7 }}", "podman", "^(a+)+$", {"": ""}, {"x": {"y": [1]}}),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30"),
]


def numbers(few: int) -> list[Any]:
    return [pytest.param(few), pytest.param(10_000, marks=pytest.mark.slow)]


@contextmanager
def in_time(what: object) -> Iterator[None]:
    begun = time.thread_time()
    yield
    took = time.thread_time() - begun
    assert took < LONGEST_S, f"{took:.1f} s: {what}"


def changed(data: Any, chance: random.Random) -> Any:
    """The same with one value, wherever, replaced, removed, doubled or put under another key."""
    if isinstance(data, dict | list) and data and chance.random() < 0.92:
        key = chance.choice(list(data) if isinstance(data, dict) else range(len(data)))
        copy: Any = data.copy()
        match chance.randrange(12):
            case 0:
                del copy[key]
            case 1 if isinstance(copy, dict):
                copy[str(chance.choice(EXTREMES))[:1000]] = copy.pop(key)
            case 2 if isinstance(copy, list):
                copy += [copy[key]] * chance.choice([1, 50])
            case _:
                copy[key] = changed(copy[key], chance)
        return copy
    return chance.choice(EXTREMES)


def edited(text: bytes, chance: random.Random) -> bytes:
    """The same text with a few pieces cut, doubled, moved or replaced."""
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randrange(len(text) + 1), chance.choice([1, 3, 20, 200])
        piece = text[at : at + length]
        other = chance.choice(
            [b"", piece * 2, piece[::-1], bytes([chance.randrange(256)]), str(chance.choice(EXTREMES)).encode()[:2000]]
        )
        text = text[:at] + other + text[at + length :]
    return text


def is_a_line(text: str) -> bool:
    return len(text) < 1000 and re.search(r"[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text) is None


@pytest.mark.parametrize("count", numbers(250))
def test_manifests(checkout: Checkout, count: int) -> None:
    sources = [MANIFEST.encode(), *(path.read_bytes() for path in sorted(ROOT.glob("cases/*/case.yaml")))]
    path = checkout.write()
    for number in range(count):
        chance = random.Random(number)
        text = edited(chance.choice(sources), chance)
        path.write_bytes(text)
        with in_time(text):
            problems = check_all(checkout.root, ["tiny"])
        assert all(is_a_line(str(each)) for each in problems), (number, problems)


WANTED = reuse.Wanted(
    digest="", locks={}, recipe=Recipe(image="cpu", lock=""), gpus=1, command=lambda engine: engine, engine=None
)


def used(found: Evidence) -> None:
    """All that a run of the corpus and the reports do with evidence."""
    here = reuse.Here(now=utc(found.started), max_age_s=1e9, devices=[])
    wanted = reuse.Wanted(**WANTED.__dict__ | {"digest": found.case.digest, "locks": found.environment.locks})
    reuse.why_not(found, wanted, here)
    facts(found)
    summary(found)
    case_page([found])
    index([found])


@pytest.mark.parametrize("count", numbers(250))
def test_evidence(tmp_path: Path, count: int) -> None:
    sources = [json.loads(path.read_bytes()) for path in evidence_files(ROOT / "reports")]
    path = tmp_path / "x.json"
    how: list[Callable[[Any, random.Random], bytes]] = [
        lambda data, chance: json.dumps(changed(data, chance)).encode(),
        lambda data, chance: json.dumps(changed(changed(data, chance), chance)).encode(),
        lambda data, chance: edited(json.dumps(data).encode(), chance),
    ]
    taken = 0
    for number in range(count):
        chance = random.Random(number)
        path.write_bytes(chance.choice(how)(chance.choice(sources), chance))
        with in_time(number):
            try:
                found = Evidence.read(path)
            except CasebookError as error:
                assert is_a_line(str(error)), (number, str(error))  # noqa: PT017
                continue
            used(found)
            taken += 1
    assert taken > count / 20
