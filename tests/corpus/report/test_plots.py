import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from gpu_casebook.corpus.model import End, Run
from gpu_casebook.corpus.report import plots
from gpu_casebook.corpus.report.history import MOST_ROWS, History, Point, Series, history
from gpu_casebook.evidence import Rate, Variant, Verdict
from tests.corpus.report.example import RWKV, TODAY, YESTERDAY, broke, finished, job, run

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = [plots.durations, plots.rates]


def texts(svg: bytes) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def nights(cases: int, count: int) -> list[Run]:
    return [
        run([finished(job(f"case-{number:03}"), duration_s=1.0 + number) for number in range(cases)], night=night)
        for night in range(count)
    ]


def test_history_has_a_point_for_each_run_with_a_verdict() -> None:
    rates = {Variant.REPRO: Rate(k=1, n=4, low=0, high=1)}
    found = history(
        [
            run([finished(RWKV, Verdict.NOT_REPRODUCED)], night=1),
            run([broke(RWKV)], night=2),
            run([finished(RWKV, end=End.REUSED)], night=3),
            run([finished(RWKV, rates=rates)], night=4),
        ]
    )
    assert found.series == [
        Series(
            RWKV.name,
            [
                Point(0, confirmed=False, duration_s=44.6, repro=0.0, fixed=1.0),
                Point(2, confirmed=True, duration_s=None, repro=1.0, fixed=1.0),
                Point(3, confirmed=True, duration_s=44.6, repro=0.25, fixed=None),
            ],
        )
    ]


def test_history_is_of_the_cases_that_the_last_run_has() -> None:
    assert "retired/current" not in [each.name for each in history([YESTERDAY, TODAY]).series]
    assert history([]) == History([], [])


def test_where_there_are_too_many_cases_those_that_take_longest_stay() -> None:
    found = history(nights(MOST_ROWS + 2, 1))
    assert (len(found.series), found.left_out) == (MOST_ROWS, 2)
    assert "case-000/current" not in [each.name for each in found.series]
    assert "2 shorter ones are left out" in texts(plots.durations(found))


@pytest.mark.parametrize("draw", DRAWN)
@pytest.mark.parametrize(("cases", "count"), [(1, 1), (14, 30), (200, 2)])
def test_every_case_has_its_name_inside_the_picture(draw: object, cases: int, count: int) -> None:
    assert callable(draw)
    svg = draw(history(nights(cases, count)))
    root = ET.fromstring(svg)
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    shown = [element for element in root.iter(f"{SVG}text") if (element.text or "").startswith("case-")]
    assert len(shown) == cases
    assert all(0 <= float(each.attrib["x"]) <= width for each in shown)
    assert all(0 <= float(each.attrib["y"]) <= height for each in shown)
    rows = [(each.attrib["x"], each.attrib["y"]) for each in shown]
    assert len(set(rows)) == cases


@pytest.mark.parametrize("draw", DRAWN)
def test_same_history_same_bytes_without_a_date(draw: object) -> None:
    assert callable(draw)
    over = history([YESTERDAY, TODAY])
    assert draw(over) == draw(over)
    assert b"<dc:date>" not in draw(over)


def test_the_background_is_white_whatever_lies_behind() -> None:
    first = next(ET.fromstring(plots.rates(history([TODAY]))).iter(f"{SVG}path"))
    assert "fill: #ffffff" in first.attrib["style"]


def test_what_is_not_confirmed_is_red() -> None:
    assert plots.WRONG in _strips(run([finished(RWKV, Verdict.NOT_REPRODUCED)]))
    assert plots.WRONG not in _strips(run([finished(RWKV)]))


def _strips(of: Run) -> str:
    """The picture without its legend, which is the first box of each colour."""
    svg = plots.rates(history([of])).decode()
    wrong = re.findall(rf'd="([^"]*)"[^>]*fill: {plots.WRONG}', svg)
    return plots.WRONG if any(path.count("M ") > 1 for path in wrong) else ""


def test_hostile_names_are_text() -> None:
    names = ["$x^2$", "</text><script>", "a\u202eb\x00", "\U0001f4a5" * 3, "x" * 500, "--><!--"]
    shown = texts(plots.durations(history([run([finished(job(name)) for name in names])])))
    assert "$x^2$/current" in shown
    assert "</text><script>/current" in shown
    assert max(map(len, shown)) < 100


def test_nothing_to_draw() -> None:
    assert texts(plots.rates(history([run([])])))


def test_matplotlib_is_imported_when_something_is_drawn_and_not_before() -> None:
    code = "import sys, gpu_casebook.corpus.report; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
