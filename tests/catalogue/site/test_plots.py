"""Pictures say what the numbers say, to those who see them and to those who don't."""

import xml.etree.ElementTree as ET

import pytest

from casebook_workbench.catalogue.site import plots
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Demand, Rate
from gpu_casebook.evidence import Evidence
from tests.report.example import CASE, evidence


def ran(stdout: str) -> TrialResult:
    return TrialResult(stdout=stdout, stderr="", duration_s=1.0, exit_status=0)


def printed(repro: str, fixed: str) -> Evidence:
    return evidence(ran(repro), ran(fixed))


def svgs(text: str) -> list[ET.Element]:
    return [each for each in ET.fromstring(f"<all>{text}</all>").iter() if each.tag == "svg"]


def places(picture: ET.Element, kind: str) -> list[float]:
    """Where the marks of a variant are, from left to right, without the one of the key."""
    marks = [each for each in picture.iter() if each.get("class") == f"cb-mark cb-{kind}"]
    at = [float(each.get("cx") or str(each.get("d")).split()[0].removeprefix("M")) for each in marks]
    return sorted(at[1:])


def test_a_figure_shows_both_variants_and_what_was_declared() -> None:
    (picture,) = svgs(plots.figures(printed("fwd_rel_err=5e-2\n", "fwd_rel_err=1e-7\n")))
    assert picture.get("aria-label") == (
        "fwd_rel_err, logarithmic. repro 0.05 (declared < 1e-5); fixed 1e-07 (declared < 1e-5)"
    )
    assert places(picture, "fixed")[0] < places(picture, "repro")[0]


def test_equal_figures_are_no_picture() -> None:
    assert plots.figures(printed("rows=5\nonly=1\n", "rows=5\n")) == ""


def test_zero_has_a_place_of_its_own_on_a_logarithmic_axis() -> None:
    (picture,) = svgs(plots.figures(printed("x=1e6\n", "x=0\n")))
    assert places(picture, "fixed") == [12.0]
    assert places(picture, "repro")[0] > 500


def test_negative_and_endless_values() -> None:
    (picture,) = svgs(plots.figures(printed("x=-3\ny=nan\n", "x=3\ny=nan\n")))
    assert places(picture, "repro") < places(picture, "fixed")
    (picture,) = svgs(plots.figures(printed("y=nan\n", "y=1\n")))
    assert "repro nan" in str(picture.get("aria-label"))
    assert places(picture, "repro") == []


def test_declared_figures_come_first_and_not_too_many() -> None:
    many = "".join(f"f{number}={{0}}\n" for number in range(9)) + "dq_rel_err={0}\n"
    pictures = svgs(plots.figures(printed(many.format(1), many.format(2))))
    assert len(pictures) == plots.FIGURES_SHOWN
    assert str(pictures[0].get("aria-label")).startswith("dq_rel_err")


def test_a_series_is_a_line_for_each_trial() -> None:
    def steps(growth: int) -> str:
        return "".join(f"bytes[{step}]={step * growth}\n" for step in range(5))

    (picture,) = svgs(plots.series(printed(steps(100), steps(1))))
    lines = [each for each in picture.iter() if each.tag == "polyline"]
    assert [each.get("class") for each in lines] == ["cb-line cb-repro"] * 3 + ["cb-line cb-fixed"] * 3
    last = [float(str(each.get("points")).split(",")[-1]) for each in lines]
    assert last[0] < last[-1]  # the y axis points down
    assert picture.get("aria-label") == "bytes. repro: from 0 to 400; fixed: from 0 to 4"


@pytest.mark.parametrize("rate", [Rate(k=7, n=8, low=0.53, high=0.98)])
def test_a_rate_has_its_interval(rate: Rate) -> None:
    run = evidence(rates={Variant.REPRO: rate}, demand=Demand(alpha=0.05, most=8))
    (picture,) = svgs(plots.rates([run]))
    assert picture.get("aria-label") == "Runs as declared. repro 7 of 8 as declared (95 % interval 53 to 98 %)"
    (whisker,) = [each for each in picture.iter() if each.get("class") == "cb-whisker"]
    assert str(whisker.get("d")).startswith(f"M{12 + 0.53 * 600:.1f} ")


def test_rates_are_drawn_where_trials_differ_alone() -> None:
    assert plots.rates([evidence(), evidence(rates={})]) == ""


def test_names_are_text() -> None:
    case = CASE.model_copy(update={"signature": {Variant.REPRO: ["figure x: < <b>&"]}})
    (picture,) = svgs(plots.figures(evidence(ran("x=1\n"), ran("x=2\n"), case=case)))
    assert "declared < <b>&" in str(picture.get("aria-label"))
