"""Cases as the site's lists and its search have them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from casebook_workbench.catalogue.entry import Entry
from casebook_workbench.catalogue.site.lists import BY, grouped, searched
from failure_signature.trials import Verdict
from gpu_casebook.evidence import Evidence
from gpu_casebook.manifest.case import Case, load
from tests.conftest import IMAGES, MANIFEST, Checkout
from tests.report.example import evidence, simulated

PLACED = MANIFEST.replace("failure:", "symptom: 'all is well, and wrong'\narea: training\nfailure:", 1)
FAILS = """repro:
  expect: {exception: torch.OutOfMemoryError, message: 'tried to (allocate|map)'}
"""


def entry(case: Case, runs: Sequence[Evidence]) -> Entry:
    return Entry(case, {Path(f"{number}.json"): run for number, run in enumerate(runs)})


def written(checkout: Checkout, manifest: str, *, name: str = "tiny") -> Entry:
    text = manifest.replace("id: tiny", f"id: {name}", 1)
    return entry(load(checkout.write(text, name=name), IMAGES, checkout.root), [])


def test_where_a_case_is_listed(checkout: Checkout) -> None:
    placed, other = written(checkout, PLACED), written(checkout, MANIFEST, name="other")
    listed = {
        by.page: {heading: [one.case.id for one in each] for heading, each in grouped([placed, other], by).items()}
        for by in BY
    }
    assert listed == {
        "area.md": {"Others": ["other"], "Training loop": ["tiny"]},
        "kind.md": {"wrong-numbers": ["tiny", "other"]},
        "project.md": {"owner/name": ["tiny", "other"]},
        "status.md": {"Fixed upstream": ["tiny", "other"]},
        "card.md": {"Not confirmed anywhere yet": ["tiny", "other"]},
    }


def test_a_card_counts_where_the_case_was_confirmed(checkout: Checkout) -> None:
    one = written(checkout, MANIFEST)
    runs = [simulated(), evidence(), evidence(), evidence(verdict=Verdict.NOT_REPRODUCED)]
    assert entry(one.case, runs).confirmed_on == ["H200", "CPU (simulated)"]
    assert entry(one.case, runs[-1:]).confirmed_on == []


def test_lists_need_no_output_of_trials(checkout: Checkout) -> None:
    assert [run.trials for run in entry(written(checkout, MANIFEST).case, [evidence()]).without_output().newest] == [[]]


def test_what_the_search_compares(checkout: Checkout) -> None:
    before, repro, after = PLACED.partition("repro:\n")
    told = searched(written(checkout, before + FAILS + after[after.index("fixed:") :] if repro else ""))
    assert told["messages"] == ["tried to (allocate|map)"]
    assert told["errors"] == ["torch.OutOfMemoryError"]
    assert told["kernels"] == []
    assert (told["id"], told["symptom"]) == ("tiny", "all is well, and wrong")


@pytest.mark.parametrize("readme", [None, b"\xff\xfe"])
def test_a_case_without_a_story(checkout: Checkout, readme: bytes | None) -> None:
    one = written(checkout, MANIFEST)
    path = one.case.directory / "README.md"
    path.unlink()
    if readme:
        path.write_bytes(readme)
    assert one.readme == ("", [])
