"""README, its picture and the issue form are as the corpus is."""

import contextlib
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from failure_signature.kinds import Area, Failure, Variant
from gpu_casebook import cli
from gpu_casebook.evidence import Evidence
from tests import picture

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = ("README.md", "docs/zh/README.md")
FORM = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "failure.yml").read_text())["body"]


def test_the_readme_is_short() -> None:
    assert 60 <= len(README.splitlines()) <= 80


@pytest.mark.parametrize("name", PAGES)
def test_it_counts_the_cases_by_what_breaks(name: str) -> None:
    text = (ROOT / name).read_text()
    counted = dict(
        re.findall(r"^\| \[[^\]]+\]\((?:\.\./\.\./)?reports/README\.md#([\w-]+)\) \| (\d+) \|", text, re.MULTILINE)
    )
    areas = Counter(re.findall(r"(?m)^area: (\w+)", "".join(map(Path.read_text, ROOT.glob("cases/*/case.yaml")))))
    assert counted == {area.heading.lower().replace(" ", "-"): str(areas[area]) for area in Area}


def test_every_page_of_docs_is_linked_from_it_or_beside_its_command() -> None:
    text = README.replace("](docs/", "](") + (ROOT / "docs" / "commands.md").read_text()
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(re.findall(r"\]\(([\w-]+\.md)", text))


def slug(heading: str) -> str:
    """As GitHub makes the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"(?s)```.*?```|`[^`]*`", "", page.read_text())
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in map(slug, re.findall(r"(?m)^#+ (.*)", target.read_text())), link


def test_the_picture_shows_what_the_evidence_has() -> None:
    """Later evidence of the same need not be drawn again: memory differs by a page or two."""
    evidence = Evidence.model_validate_json(picture.EVIDENCE.read_bytes())
    drawn, kept = picture.picture(evidence), picture.PICTURE.read_text()
    assert re.findall(r"<text.*?>(.*?)</text>", drawn) == re.findall(r"<text.*?>(.*?)</text>", kept)
    for variant in Variant:
        trials = [each for each in evidence.trials if each.variant is variant]
        most = max(size for each in trials for _, size in each.observation.series[picture.SERIES]) / picture.MEGABYTE
        (shown,) = re.findall(rf"{variant}\b[^,]*? (\d+) MB", README)
        assert float(shown) == pytest.approx(most, rel=0.05)


def test_the_form_offers_what_a_manifest_takes() -> None:
    options = {field["id"]: field["attributes"].get("options") for field in FORM if "id" in field}
    assert options["kind"] == [*Failure]
    assert options["area"] == [*Area]


def test_the_form_asks_for_what_add_does() -> None:
    asked = {field["id"] for field in FORM if "id" in field}
    said = CliRunner().invoke(cli.app, ["add", "--help"]).output
    assert asked - {"area", "symptom", "rate", "hardware"} <= set(re.findall(r"--([a-z-]+)", said))
    assert {"title", "kind", "issue", "from", "require", "fix", "why", "yours"} <= asked


@pytest.mark.parametrize("name", PAGES)
def test_what_match_says_there_is_what_it_says(name: str) -> None:
    text = (ROOT / name).read_text()
    (words, shown) = re.findall(r'^\$ nox -s match -- --top 1 "(.*)"\n(.*?)^\$', text, re.MULTILINE | re.DOTALL)[0]
    with contextlib.chdir(ROOT):
        said = CliRunner().invoke(cli.app, ["match", "--top", "1", words]).output
    telling = re.compile("; words: .*")  # with each new case other words can be the most telling
    assert telling.sub("", said) == telling.sub("", shown)
