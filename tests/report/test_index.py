from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_casebook.evidence import Evidence, Verdict
from gpu_casebook.report.pages import index
from gpu_casebook.report.words import seen_on
from gpu_casebook.revision import SEMANTICS
from tests.report.example import ATTESTATION, CASE, ENVIRONMENT, H200, evidence, simulated
from tests.report.golden import assert_golden
from tests.report.hostile import hostile
from tests.report.html import html

OTHER = CASE.model_copy(update={"id": "a-first-case", "title": "A case | with a pipe"})
PROJECT = CASE.upstream.project


def test_golden() -> None:
    runs = [simulated(), evidence(), evidence(case=OTHER, verdict=Verdict.NOT_REPRODUCED)]
    assert_golden("index.md", index(runs))


def test_a_row_for_each_case() -> None:
    older = evidence(started=datetime(2026, 1, 1, tzinfo=UTC), verdict=Verdict.FIX_FAILS)
    page = html(index([older, simulated(), evidence(), simulated(case=OTHER)]))
    assert page.rows[1:] == [
        ["a-first-case", OTHER.title, PROJECT, "fixed", "confirmed", "CPU simulated, drifted"],
        ["rwkv6-backward", CASE.title, PROJECT, "fixed", "confirmed", "H200 exact CPU simulated, drifted"],
    ]
    assert page.links == ["a-first-case.md", CASE.upstream.issue, "rwkv6-backward.md", CASE.upstream.issue]


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
