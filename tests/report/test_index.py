from datetime import UTC, datetime

from gpu_casebook.evidence import Verdict
from gpu_casebook.report.pages import index
from tests.report.example import CASE, evidence, simulated
from tests.report.golden import assert_golden
from tests.report.hostile import hostile
from tests.report.html import html

OTHER = CASE.model_copy(update={"id": "a-first-case", "title": "A case | with a pipe"})


def test_golden() -> None:
    runs = [simulated(), evidence(), evidence(case=OTHER, verdict=Verdict.NOT_REPRODUCED)]
    assert_golden("index.md", index(runs))


def test_by_case_then_hardware_then_newest() -> None:
    older = evidence(started=datetime(2026, 1, 1, tzinfo=UTC))
    page = html(index([older, simulated(), evidence(), simulated(case=OTHER)]))
    assert [(row[0], row[5], row[10]) for row in page.rows[1:]] == [
        ("a-first-case", "CPU", "2026-11-21"),
        ("rwkv6-backward", "NVIDIA H200", "2026-11-21"),
        ("rwkv6-backward", "NVIDIA H200", "2026-01-01"),
        ("rwkv6-backward", "CPU", "2026-11-21"),
    ]
    assert page.links == ["a-first-case.md", *["rwkv6-backward.md"] * 3]


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
    assert [len(row) for row in page.rows] == [11, 11]
    assert page.links == ["rwkv6-backward.md"]
