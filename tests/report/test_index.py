import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from failure_signature.kinds import Area
from failure_signature.trials import Verdict
from gpu_casebook.evidence import Evidence
from gpu_casebook.manifest.case import discover, find, known_images
from gpu_casebook.report.pages import index
from gpu_casebook.report.placement import Capable, Placed, architectures, placed
from gpu_casebook.report.worth import seen_on
from gpu_casebook.revision import SEMANTICS
from tests.report.example import ATTESTATION, CASE, ENVIRONMENT, H200, evidence, simulated
from tests.report.golden import assert_golden
from tests.report.hostile import hostile
from tests.report.html import html

OTHER = CASE.model_copy(update={"id": "a-first-case", "title": "A case | with a pipe"})
ROOT = Path(__file__).resolve().parents[2]
PROJECT = CASE.upstream.project


def test_golden() -> None:
    runs = [simulated(), evidence(), evidence(case=OTHER, verdict=Verdict.NOT_REPRODUCED)]
    assert_golden("index.md", index(runs))


def test_a_row_for_each_case() -> None:
    older = evidence(started=datetime(2026, 1, 1, tzinfo=UTC), verdict=Verdict.FIX_FAILS)
    page = html(index([older, simulated(), evidence(), simulated(case=OTHER)]))
    assert page.rows[1:] == [
        ["a-first-case", OTHER.title, PROJECT, "fixed", "CPU simulated, drifted", ""],
        ["rwkv6-backward", CASE.title, PROJECT, "fixed", "H200 exact CPU simulated, drifted", "Hopper (sm_90)"],
    ]
    assert page.links == ["a-first-case.md", CASE.upstream.issue, "rwkv6-backward.md", CASE.upstream.issue]


def test_cases_stand_by_what_breaks_with_what_users_see() -> None:
    places = {CASE.id: Placed(Area.KERNELS, "CompilationError: Cannot | broadcast"), OTHER.id: Placed(None, None)}
    text = index([evidence(), evidence(case=OTHER)], places=places)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[:2] == ["Attention and kernels", "Others"]
    assert [row[:2] for row in html(text).rows if row[0] != "case"] == [
        [CASE.id, "CompilationError: Cannot | broadcast"],
        [OTHER.id, OTHER.title],
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("title: x\nsymptom: 'it says: \"no\"'\narea: data\n", Placed(Area.DATA, 'it says: "no"')),
        ("symptom: RuntimeError\n  # not this one\n  area: data\n", Placed(None, "RuntimeError")),
        (
            "  a:\n    compute_capability: \">=8.0\"  # why\n  b:\n    compute_capability: '>=9.0,<10.0'\n",
            Placed(None, None, (Capable(">=8.0"), Capable(">=9.0,<10.0"))),
        ),
        (
            "  b:\n    compute_capability: '>=9.0,<10.0'\n    capability_from: 'its README: \"Hopper\"'\n  c:\n",
            Placed(None, None, (Capable(">=9.0,<10.0", 'its README: "Hopper"'),)),
        ),
        ("area: kitchen\nsymptom: x\n", Placed()),
        ("symptom: 'x\n", Placed()),
        (None, Placed()),
    ],
)
def test_the_place_of_a_case_is_in_its_manifest(tmp_path: Path, text: str | None, found: Placed) -> None:
    manifest = tmp_path / "case.yaml"
    if text is not None:
        manifest.write_text(text)
    assert placed(manifest) == found


def test_every_case_of_the_corpus_has_a_place() -> None:
    """As the index reads it, which is what the whole manifest says."""
    for id_ in discover(ROOT):
        manifest = find(ROOT, id_, known_images(ROOT)).manifest
        bound = [spec for spec in manifest.environments.values() if spec.compute_capability]
        ranges = tuple(dict.fromkeys(Capable(spec.compute_capability or "", spec.capability_from) for spec in bound))
        assert placed(ROOT / "cases" / id_ / "case.yaml") == (manifest.area, manifest.symptom, ranges), id_
        assert manifest.area, id_
        assert manifest.symptom, id_


def on(gpu: str, **changed: Any) -> Evidence:
    seen = ATTESTATION.model_copy(update={"gpus": [H200.model_copy(update={"name": gpu})]})
    return evidence(environment=ENVIRONMENT.model_copy(update={"attestation": seen, **changed}))


EARLIER = evidence(case=CASE.model_copy(update={"fix_diff": "-was\n+is\n"}), started=datetime(2026, 1, 1, tzinfo=UTC))
"""Of other scripts than the case has by now."""


@pytest.mark.parametrize(
    ("runs", "seen"),
    [
        ([on("NVIDIA H100 80GB HBM3")], ["H100 exact"]),
        ([on("NVIDIA A100-SXM4-40GB"), on("NVIDIA GeForce RTX 4090")], ["A100 exact", "RTX 4090 exact"]),
        ([on("Tesla V100-SXM2-16GB"), on("GH200 480GB")], ["V100 exact", "GH200 exact"]),
        ([on("NVIDIA H200", drift=["x"]), on("NVIDIA H200"), on("NVIDIA H200", drift=["x"], aside=1)], ["H200 exact"]),
        ([on("NVIDIA H200", drift=["x"]), on("NVIDIA H200", drift=["x"], aside=1)], ["H200 drifted aside"]),
        ([evidence(semantics=SEMANTICS - 1)], ["H200 exact, older rules"]),
        ([evidence(verdict=Verdict.NOT_REPRODUCED)], ["H200 not-reproduced"]),
        ([evidence(verdict=Verdict.FIX_FAILS), on("NVIDIA H200", drift=["x"])], ["H200 drifted"]),
        ([EARLIER, simulated()], ["H200 exact, earlier scripts", "CPU simulated, drifted"]),
        ([EARLIER, evidence(environment=EARLIER.environment)], ["H200 exact"]),  # newer, of the same card
        ([], []),
    ],
)
def test_seen_on_a_card_with_the_worth_of_its_best_evidence(runs: list[Evidence], seen: list[str]) -> None:
    assert seen_on(runs) == seen


def test_a_case_that_was_never_on_the_architecture_it_needs_is_seen() -> None:
    only_cpu = CASE.model_copy(update={"id": "only-cpu"})
    hopper, old = Capable(">=9.0,<10.0", "its README"), Capable(">=7.0,<10.0", "its README")
    ranges = {"never-run": (hopper,), "only-cpu": (Capable(">=9.0"),), CASE.id: (old, Capable(">=8.0")), "any": ()}
    places = {case: Placed(capable=capable) for case, capable in ranges.items()}
    page = html(index([evidence(), simulated(case=only_cpu)], places=places))
    assert [row[-1] for row in page.rows[1:]] == [
        "none yet, of >=9.0 (a guess)",
        "Hopper (sm_90), of >=7.0,<10.0 or >=8.0 (a guess)",
    ]
    assert "in need of a GPU: never-run (compute capability >=9.0,<10.0)." in page.text


def test_a_run_that_was_skipped_was_on_no_architecture() -> None:
    skipped = [evidence(verdict=Verdict.SKIPPED)]
    assert architectures(skipped, [Capable(">=8.0", "its README")]) == "none yet, of >=8.0"
    assert architectures([evidence(), on("another card")]) == "Hopper (sm_90)"


def test_same_evidence_same_bytes_in_any_order() -> None:
    runs = [evidence(), simulated(), evidence(case=OTHER)]
    assert index(runs) == index(runs[::-1])


def test_counts() -> None:
    assert "1 case in 1 run: 1 confirmed." in index([evidence()])
    runs = [evidence(), evidence(case=OTHER, verdict=Verdict.FIX_FAILS)]
    assert "2 cases in 2 runs: 1 confirmed, 1 fix-fails." in index(runs)


def test_nothing_yet() -> None:
    page = html(index([]))
    assert page.rows == []
    assert "Nothing yet" in page.text


def test_hostile_evidence_stays_in_its_cells() -> None:
    page = html(index([hostile()]))
    assert [len(row) for row in page.rows] == [6, 6]
    assert page.links == ["rwkv6-backward.md"]
