from xml.etree import ElementTree as ET

import pytest

from casebook_workbench.corpus.model import End, OnGpu, Run
from casebook_workbench.corpus.report import strips
from casebook_workbench.corpus.report.strips import MOST_ROWS, kept
from failure_signature.kinds import Variant
from failure_signature.trials import Rate, Verdict
from tests.corpus.report.example import RWKV, TODAY, YESTERDAY, broke, finished, job, run

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = [strips.durations, strips.rates]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def nights(cases: int, count: int) -> list[Run]:
    return [
        run([finished(job(f"case-{number:03}"), duration_s=1.0 + number) for number in range(cases)], night=night)
        for night in range(count)
    ]


def test_only_runs_with_a_verdict_have_a_place() -> None:
    nights = [
        run([finished(RWKV, Verdict.NOT_REPRODUCED)], night=1),
        run([broke(RWKV)], night=2),
        run([finished(RWKV, end=End.REUSED)], night=3),
    ]
    assert {name: list(verdicts) for name, verdicts in kept(nights).jobs.items()} == {RWKV.name: [0, 2]}


def test_at_the_right_stands_what_it_came_to_last() -> None:
    rates = {Variant.REPRO: Rate(k=1, n=4, low=0, high=1)}
    nights = [run([finished(RWKV)], night=1), run([finished(RWKV, end=End.REUSED, rates=rates)], night=2)]
    assert "25 / - %" in texts(strips.rates(nights))
    assert "44.6 s" in texts(strips.durations(nights))  # what is reused took no time of its own


def test_only_cases_that_the_last_run_has() -> None:
    assert "retired/current" not in kept([YESTERDAY, TODAY]).jobs
    assert kept([]) == ({}, 0)


def test_where_there_are_too_many_cases_those_that_take_longest_stay() -> None:
    runs = nights(MOST_ROWS + 2, 1)
    jobs, left_out = kept(runs)
    assert (len(jobs), left_out) == (MOST_ROWS, 2)
    assert "case-000/current" not in jobs
    assert "2 shorter ones are left out" in texts(strips.durations(runs))


@pytest.mark.parametrize("draw", DRAWN)
@pytest.mark.parametrize(("cases", "count"), [(1, 1), (14, 30), (200, 2)])
def test_every_case_has_its_name_inside_the_picture(draw: object, cases: int, count: int) -> None:
    assert callable(draw)
    svg = draw(nights(cases, count))
    root = ET.fromstring(svg)
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    shown = [element for element in root.iter(f"{SVG}text") if (element.text or "").startswith("case-")]
    assert len(shown) == cases
    assert all(0 <= float(each.attrib["x"]) <= width for each in shown)
    assert all(0 <= float(each.attrib["y"]) <= height for each in shown)
    rows = [(each.attrib["x"], each.attrib["y"]) for each in shown]
    assert len(set(rows)) == cases


@pytest.mark.parametrize("draw", DRAWN)
def test_same_runs_same_bytes(draw: object) -> None:
    assert callable(draw)
    runs = [YESTERDAY, TODAY]
    assert draw(runs) == draw(runs)


def test_the_background_is_white_whatever_lies_behind() -> None:
    svg = strips.rates([TODAY])
    assert next(ET.fromstring(svg).iter(f"{SVG}rect")).attrib == {"class": "paper", "width": "100%", "height": "100%"}
    assert ".paper { fill: #fff; }" in svg


def test_what_is_not_confirmed_is_red() -> None:
    def boxes(of: Run) -> int:
        return strips.rates([of]).count('<rect class="wrong"') - 1  # one is the legend's

    assert boxes(run([finished(RWKV, Verdict.NOT_REPRODUCED)])) == 1
    assert boxes(run([finished(RWKV)])) == 0


def test_hostile_names_are_text() -> None:
    names = ["$x^2$", "</text><script>", "a\u202eb\x00", "\U0001f4a5" * 3, "x" * 500, "--><!--"]
    shown = texts(strips.durations([run([finished(job(name)) for name in names])]))
    assert "$x^2$/current" in shown
    assert "</text><script>/current" in shown
    assert max(map(len, shown)) < 100


def test_nothing_to_draw() -> None:
    assert texts(strips.rates([run([])]))


def test_trials_have_their_place_on_their_gpu() -> None:
    spans = [OnGpu(after_s=1.0, duration_s=4.0), OnGpu(after_s=6.0, duration_s=2.5)]
    of = run([finished(RWKV, on_gpus=(0,), trials=spans), finished(job("beside"), on_gpus=(1,), trials=spans[:1])])
    svg = strips.gpus(of)
    assert {RWKV.name, "beside/current", "6.5 s", "4.0 s", "on GPU 0", "on GPU 1"} <= set(texts(svg))
    bars = [svg.count(f'<rect class="gpu{number}"') - 1 for number in range(2)]  # one is the legend's
    assert bars == [2, 1]
    assert strips.gpus(of) == svg


@pytest.mark.parametrize(("took", "said", "labels"), [(0.0, "0 s", {"0", "0.2"}), (250.0, "4 min 10 s", {"0", "100"})])
def test_the_axis_has_its_labels(took: float, said: str, labels: set[str]) -> None:
    of = run([finished(RWKV, on_gpus=(0,), trials=[OnGpu(after_s=0.0, duration_s=took)])])
    of = of.model_copy(update={"started": of.finished[0].started})
    assert {said, *labels} <= set(texts(strips.gpus(of)))
