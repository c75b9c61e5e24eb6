import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from casebook_workbench.author.check import blanks
from casebook_workbench.author.complaints import SECTIONS
from casebook_workbench.author.draft import (
    EMPTY_SCRIPT,
    Draft,
    Proposal,
    Report,
    files,
    header,
    manifest,
    parse_report,
    scalar,
    script,
)
from casebook_workbench.author.header import script_header
from failure_signature.kinds import Failure, Variant
from gpu_casebook.errors import ManifestError, UsageError
from gpu_casebook.manifest.case import load
from gpu_casebook.manifest.rules import BLANK
from tests.conftest import IMAGES

SCRIPT = '"""Sums lose small terms.\n\nLook at rel_err.\n"""\n\nimport numpy\n\nprint("rel_err=0.5")\n'
PROPOSAL = Proposal(
    failure=Failure.WRONG_NUMBERS,
    repro={"exception": "ValueError", "message": r"it's 'off' by \(2\)", "figures": {"rel_err": "> 6e-02"}},
    fixed={"figures": {"rel_err": "< 1e-5"}},
    seen="ValueError: it's off",
    figures={"rel_err": 0.6, "not_bounded": float("nan")},
)
DRAFTS = {
    "from nothing": Draft(id="tiny", script=EMPTY_SCRIPT, unknown=["which packages?"]),
    "from a script": Draft(id="tiny", script=SCRIPT, pins=["numpy==2.2.6"], report=Report("o/n", "pull", 7)),
    "with a trial": Draft(id="tiny", script=SCRIPT, pins=["jax[cuda]==0.5.0"], proposal=PROPOSAL, timeout_s=240.0),
    "a hang": Draft(
        id="tiny", script=SCRIPT, proposal=Proposal(Failure.HANG, {"hang": {"after": "20s", "stack": "wait|barrier"}})
    ),
    "a status": Draft(id="tiny", script=SCRIPT, proposal=Proposal(Failure.EXCEPTION, {"exit_status": 3})),
    "with figures alone": Draft(
        id="tiny",
        script=SCRIPT,
        proposal=Proposal(repro={"figures": {"ratio": "> 7.92, < 8.08"}}, seen="ratio=8", figures={"ratio": 8.0}),
    ),
    "on a GPU": Draft(id="tiny", script=SCRIPT, pins=["torch==2.11.0"], image="cuda13", gpus=1),
    "with a CPU build": Draft(id="tiny", script=SCRIPT, pins=["torch==2.13.0+cpu"]),
    "a release": Draft(
        id="tiny",
        script=SCRIPT,
        pins=["numpy==2.2.6"],
        own={Variant.REPRO: ["trl==0.13.0"], Variant.FIXED: ["trl==0.14.0"]},
        proposal=PROPOSAL,
        proof=Proposal(fixed={"figures": {"rel_err": "< 1e-5", "rows": "== 3"}}, seen="rows=3"),
    ),
}


def write(directory: Path, draft: Draft) -> Path:
    place = directory / "tiny"
    place.mkdir()
    for name, text in files(draft).items():
        (place / name).write_text(text)
    return place / "case.yaml"


REFUSED = {
    "a hang": "repro.expect.hang.stack: matches whatever waits, in wait",
    "a status": "repro.expect: any exit status 3 would do",
    "with figures alone": "fixed.expect: proves nothing",
}
"""Drafts of what one trial shows too little of, and what their author is told."""


@pytest.mark.parametrize("name", DRAFTS)
def test_a_draft_is_a_manifest_or_one_place_is_left_to_its_author(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, DRAFTS[name])
    if name not in REFUSED:
        assert load(path, IMAGES).id == "tiny"
        return
    with pytest.raises(ManifestError, match=REFUSED[name]) as caught:
        load(path, IMAGES)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("name", DRAFTS)
def test_what_has_to_be_filled_in_is_marked(name: str) -> None:
    texts = files(DRAFTS[name])
    for file in ("case.yaml", "README.md", "fixed.py"):
        assert list(blanks(texts[file]))


@pytest.mark.parametrize(("name", "fix"), [("a release", []), ("from a script", ["put the fix here"])])
def test_the_docstring_of_fixed_py_is_marked(name: str, fix: list[str]) -> None:
    marked = [what.partition(";")[0] for _, what in blanks(files(DRAFTS[name])["fixed.py"])]
    assert marked == [*fix, "the docstring is repro.py's: say what to look for with the fix"]
    assert BLANK not in files(DRAFTS[name])["repro.py"]
    bare = replace(DRAFTS[name], script="print('rel_err=0.5')\n")
    assert [what.partition(";")[0] for _, what in blanks(files(bare)["fixed.py"])] == fix


@pytest.mark.parametrize("name", sorted(DRAFTS.keys() - REFUSED.keys()))
def test_headers_are_in_step_with_the_manifest(name: str, tmp_path: Path) -> None:
    case = load(write(tmp_path, DRAFTS[name]), IMAGES)
    for variant in Variant:
        found = script_header(script(DRAFTS[name], variant))
        assert found
        wanted = case.requirements(DRAFTS[name].environment, variant)
        assert sorted(found.requirements) == sorted(each.removesuffix("+cpu") for each in wanted)
        assert found.requires_python == ">=3.11,<3.13"


@pytest.mark.parametrize("name", DRAFTS)
def test_pytorchs_index_is_named_where_a_build_comes_from_it(name: str) -> None:
    assert ("    index: pytorch-cpu\n" in manifest(DRAFTS[name])) == (name == "with a CPU build")
    assert "+cpu" not in script(DRAFTS[name], Variant.REPRO)


def test_what_was_seen_is_declared() -> None:
    data = yaml.safe_load(manifest(DRAFTS["with a trial"]))
    assert data["failure"] == "wrong-numbers"
    assert data["repro"]["expect"] == PROPOSAL.repro
    assert data["fixed"]["expect"] == PROPOSAL.fixed
    assert data["timeout"] == "240s"
    told = [what for _, what in blanks(manifest(DRAFTS["with a trial"]))]
    assert "confirm, and remove this line. Trials showed: ValueError: it's off" in told


@pytest.mark.parametrize(
    ("name", "environment"), [("from a script", "cpu"), ("on a GPU", "current"), ("from nothing", "current")]
)
def test_an_environment_without_a_gpu_is_called_so(name: str, environment: str) -> None:
    assert [*yaml.safe_load(manifest(DRAFTS[name]))["environments"]] == [environment]


def test_figures_stand_on_a_line_each() -> None:
    lines = manifest(DRAFTS["a release"]).splitlines()
    at = lines.index("      rows: '== 3'")
    assert lines[at - 2 : at] == ["    figures:", "      rel_err: '< 1e-5'"]


def fixed_of(draft: Draft) -> tuple[dict[str, Any], str]:
    """What the fixed variant is held to, and the blank in its place."""
    text = manifest(draft)
    found = [what for _, what in blanks(text.partition("\nfixed:\n")[2])]
    assert len(found) == 1
    return yaml.safe_load(text)["fixed"]["expect"], found[0]


def test_what_fixed_py_is_held_to_says_what_it_rests_on() -> None:
    expect, what = fixed_of(DRAFTS["a release"])
    assert what == "confirm, and remove this line. Trials showed: rows=3"
    expect, what = fixed_of(DRAFTS["with a trial"])
    assert what.endswith("Not tried, but guessed after a trial of repro.py: ValueError: it's off")
    expect, what = fixed_of(replace(DRAFTS["with a trial"], proposal=replace(PROPOSAL, fixed={})))
    assert expect == {"figures": {"rel_err": "!= 0.6"}}
    assert what.startswith("bounds for what fixed.py prints when its check passes; these only shut out")
    expect, what = fixed_of(DRAFTS["a status"])
    assert expect == {"message": f"{BLANK}: {what}"}


def test_a_release_case_gives_each_variant_its_version() -> None:
    data = yaml.safe_load(manifest(DRAFTS["a release"]))
    assert (data["provenance"], data["upstream"]["status"], data["upstream"]["fixed"]) == (
        "release",
        "fixed",
        "trl==0.14.0",
    )
    assert data["repro"]["requirements"] == ["trl==0.13.0"]
    assert data["fixed"]["expect"]["figures"] == {"rel_err": "< 1e-5", "rows": "== 3"}
    scripts = [script(DRAFTS["a release"], variant).partition('\n"""')[2] for variant in Variant]
    assert scripts[0] == scripts[1]


def test_the_issue_gives_project_and_link() -> None:
    data = yaml.safe_load(manifest(DRAFTS["from a script"]))
    assert data["upstream"]["project"] == "o/n"
    assert data["upstream"]["issue"] == "https://github.com/o/n/pull/7"
    assert "[o/n 7](https://github.com/o/n/pull/7)" in files(DRAFTS["from a script"])["README.md"]


def test_the_docstring_gives_the_title() -> None:
    assert yaml.safe_load(manifest(DRAFTS["from a script"]))["title"] == "Sums lose small terms"


def test_a_header_that_is_there_is_replaced() -> None:
    old = '#!/usr/bin/env python\n# /// script\n# dependencies = ["numpy"]\n# ///\nimport numpy\n'
    text = script(Draft(id="tiny", script=old, pins=["numpy==2.2.6"]), Variant.REPRO)
    assert text == "#!/usr/bin/env python\n" + header(["numpy==2.2.6"]) + "import numpy\n"
    found = script_header(text)
    assert found
    assert found.requirements == ["numpy==2.2.6"]


def test_many_requirements_stand_on_a_line_each() -> None:
    text = header([f"package-{number}==1.0.{number}" for number in range(9)])
    assert max(map(len, text.splitlines())) <= 120
    found = script_header(text)
    assert found
    assert len(found.requirements) == 9


def test_the_readme_has_every_section() -> None:
    text = files(DRAFTS["from nothing"])["README.md"]
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        *(usual for _, usual in list(SECTIONS.values())[:3]),
        "The scripts",
        *(usual for _, usual in list(SECTIONS.values())[3:]),
    ]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80))
def test_any_text_is_a_scalar_that_reads_back(text: str) -> None:
    if any(character in text for character in "\ufeff\ufffe\uffff"):
        return
    assert yaml.safe_load(f"key: {scalar(text)}  # comment\n") == {"key": text}


@given(body=st.text(max_size=200))
def test_a_script_keeps_its_meaning(body: str) -> None:
    source = f"x = {body!r}\n"
    text = script(Draft(id="tiny", script=source), Variant.FIXED)
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(source))


class TestLink:
    @pytest.mark.parametrize(
        ("text", "url"),
        [
            ("https://github.com/o/n/issues/12", "https://github.com/o/n/issues/12"),
            ("http://www.github.com/o/n/issues/12/", "https://github.com/o/n/issues/12"),
            ("github.com/o/n/pull/3/files#diff-1", "https://github.com/o/n/pull/3"),
            ("https://github.com/o/n.x/discussions/7?sort=new#c-1", "https://github.com/o/n.x/discussions/7"),
            ("o/n#9", "https://github.com/o/n/issues/9"),
        ],
    )
    def test_what_is_understood(self, text: str, url: str) -> None:
        assert parse_report(text).url == url

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "12",
            "o/n",
            "https://github.com/o/n",
            "https://github.com/o/n/issues",
            "https://github.com/o/n/issues/x",
            "https://github.com/o/n/issues/0",
            "https://github.com/o/n/actions/runs/1",
            "https://gitlab.com/o/n/-/issues/3",
            "https://github.com.evil.org/o/n/issues/3",
            "javascript:alert(1)",
        ],
    )
    def test_anything_else_is_refused_with_the_forms(self, text: str) -> None:
        with pytest.raises(UsageError, match="not a report on GitHub; write https://github"):
            parse_report(text)
