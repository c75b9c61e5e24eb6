import pytest

from tests.catalogue.match.reports import ROOT, Report, reports, score, table

REPORTS = reports()


def test_there_are_enough_of_each_kind() -> None:
    assert sum(report.case is not None for report in REPORTS) >= 60
    assert sum(report.case is None for report in REPORTS) >= 40
    assert len({report.url for report in REPORTS}) == len(REPORTS)


@pytest.mark.parametrize("report", [each for each in REPORTS if each.case], ids=lambda each: each.url)
def test_no_case_links_a_report_that_is_to_be_found(report: Report) -> None:
    directory = ROOT / "cases" / str(report.case)
    thread = report.url.partition("github.com/")[2] or report.url
    assert not [path for path in directory.glob("*.*") if f"{thread})" in path.read_text()]
    assert (directory / "case.yaml").is_file()


def test_the_frozen_half_is_told_apart() -> None:
    found = score(each for each in REPORTS if each.frozen)
    assert found.first >= 0.80
    assert found.among_three >= 0.92
    assert found.mistaken <= 0.05


def test_the_table_has_both_halves() -> None:
    assert [line.split()[0] for line in table().splitlines()[1:]] == ["open", "frozen"]
