from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_casebook.author.complaints import SECTIONS, of_links, of_manifest, of_privacy, of_readme, of_script
from gpu_casebook.author.draft import Draft, files
from gpu_casebook.author.review import static
from gpu_casebook.errors import Problem, Severity
from gpu_casebook.manifest.case import discover
from gpu_casebook.manifest.model import Manifest
from tests.conftest import IMAGES, MANIFEST

ROOT = Path(__file__).parents[2]
DOC = '"""What to look for."""\n'
README = "# Title\n\n" + "\n".join(f"## {usual}\nSome words.\n" for _, usual in SECTIONS.values())


def told(findings: Iterable[Problem], severity: Severity = Severity.WARNING) -> list[str]:
    return [f"{each.line}: {each.what}" for each in findings if each.severity is severity]


def of(text: str) -> list[str]:
    return told(of_script(text, "repro.py"))


class TestReadme:
    def test_good(self) -> None:
        assert told(of_readme(README, "README.md", lambda _: True)) == []

    @pytest.mark.parametrize(
        ("heading", "missing"),
        [
            ("What users saw", "symptom"),
            ("Why", "mechanism"),
            ("The fix", "fix"),
            ("History", "history"),
            ("What is established, and what is inferred", "established and inferred"),
            ("Is your failure this one?", "is it yours"),
        ],
    )
    def test_each_section_has_to_be_there(self, heading: str, missing: str) -> None:
        text = README.replace(f"## {heading}\n", "## Apples\n")
        assert told(of_readme(text, "README.md", lambda _: True)) == [
            f"1: says nothing on {missing}: add a section, such as ## {heading}"
        ]

    def test_an_empty_section_is_none(self) -> None:
        text = README.replace("## Why\nSome words.\n", "## Why\n\n")
        line = text.splitlines().index("## Why") + 1
        assert told(of_readme(text, "README.md", lambda _: True)) == [f"{line}: the section Why is empty"]

    def test_a_heading_inside_of_a_fence_is_none(self) -> None:
        text = README.replace("## Why\n", "```\n## Why\n```\n")
        assert len(told(of_readme(text, "README.md", lambda _: True))) == 1


class TestLinks:
    @pytest.mark.parametrize(
        ("link", "wrong"),
        [
            ("https://github.com/o/n/issue/3", "write /issues/ for /issue/"),
            ("https://github.com/o/n/pulls/3", "write /pull/ for /pulls/"),
            ("https://github.com/o/n/issues/abc", "has no number"),
            ("https://github.com/o/n/blob/main/x.py#L3", "leads to a branch"),
            ("http://example.org/x", "write it with https://"),
            ("https://joe:pw@example.org/x", "has a user name or password in it"),
        ],
    )
    def test_wrong(self, link: str, wrong: str) -> None:
        for text in (f"see [it]({link}).", f"see <{link}>", f"see {link}."):
            (line,) = told(of_links(f"\n{text}\n", "README.md"))
            assert line.startswith(f"2: {link}: {wrong}")

    @pytest.mark.parametrize(
        "link",
        [
            "https://github.com/o/n/issues/3",
            "https://github.com/o/n/issues",
            "https://github.com/o/n/pull/3/files#diff",
            "https://github.com/o/n/blob/1547448b998a163fdb33c49266da699db13f2dc8/x.py#L3",
            "https://github.com/o/n/commit/1547448b998a163fdb33c49266da699db13f2dc8",
            "https://github.com/o/n/blob/v2.1.0/x.py",
            "#why",
        ],
    )
    def test_right(self, link: str) -> None:
        assert told(of_links(f"[it]({link})", "README.md")) == []

    def test_a_relative_one_has_to_lead_somewhere(self) -> None:
        text = "[there](../other/README.md) [gone](x.md#part)"
        assert told(of_links(text, "README.md", lambda path: path != "x.md")) == ["1: x.md#part: leads to nothing"]


class TestScripts:
    @pytest.mark.parametrize(
        "code",
        [
            "import torch\ntorch.manual_seed(0)\nx = torch.randn(3)\n",
            "import numpy\nx = numpy.random.default_rng(0).normal(3)\n",
            "from transformers import LlamaConfig\n",
            "try:\n    x = 1\nexcept ValueError:\n    pass\n",
            "model.from_pretrained(directory)\n",
        ],
    )
    def test_good(self, code: str) -> None:
        assert of(DOC + code) == []

    @pytest.mark.parametrize(
        ("code", "line"),
        [
            ("import torch\nx = torch.randn(3)\n", "3: draws random numbers and sets no seed, so each run is another"),
            ("import requests\n", "2: uses requests; trials have no network"),
            ("from urllib.request import urlopen\n", "2: uses urllib.request; trials have no network"),
            ("m = M.from_pretrained('gpt2')\n", "2: from_pretrained downloads, and trials have no network"),
            ("load_dataset('x')\n", "2: load_dataset downloads, and trials have no network"),
            ("x = input()\n", "2: asks for input, and a trial has none"),
            ("try:\n    x = 1\nexcept:\n    pass\n", "4: catches everything"),
            ("print(__file__)\n", "2: looks at its own name"),
            ("import sys\nfixed = 'fixed' in sys.argv[0]\n", "3: looks at its own name"),
        ],
    )
    def test_complaints(self, code: str, line: str) -> None:
        (found,) = of(DOC + code)
        assert found.startswith(line)

    def test_no_docstring(self) -> None:
        assert of("x = 1\n") == ["1: has no docstring: say in a few lines what to look for in its output"]

    def test_length(self) -> None:
        assert of(DOC + "x = 1\n" * 119) == []
        (found,) = of(DOC + "x = 1\n" * 120)
        assert found.startswith("120: has 121 lines; 120 are what fits a bug report")

    def test_what_is_private(self) -> None:
        text = 'a\npath = "/home/jdoe/data"\nkey = "ghp_' + "a1B2c3D4" * 4 + '"\n'
        assert told(of_privacy(text, "x")) == [
            "2: holds what looks private: home path",
            "3: holds what looks private: token",
        ]


class TestManifest:
    def findings(self, **changed: Any) -> list[Problem]:
        data = yaml.safe_load(MANIFEST) | changed
        manifest = Manifest.model_validate(data, context={"images": IMAGES})
        return list(of_manifest(manifest, "case.yaml", {"title": 3, "repro.expect": 20}))

    def upstream(self, **changed: Any) -> dict[str, Any]:
        return {"project": "o/n", "status": "fixed", "issue": "https://example.org/1", "fixed": "1.2"} | changed

    def test_good(self) -> None:
        assert self.findings(upstream=self.upstream()) == []

    @pytest.mark.parametrize(
        ("changed", "line"),
        [
            ({"title": "x" * 111}, "3: has 111 characters, of 110"),
            ({"title": "It fails."}, "3: ends with a full stop, and a title has none"),
            ({"repro": {"expect": {"cuda_error": "cudaErrorIllegalAddress"}}}, "20: any failure of this kind would do"),
            ({"repro": {"expect": {"hang": {"after": "20s", "stack": "all_reduce"}}}}, "20: any failure of this kind"),
            ({"repro": {"expect": {"exception": "ValueError", "message": r".*\d+ of"}}}, "20: the message '.*"),
        ],
    )
    def test_complaints(self, changed: dict[str, Any], line: str) -> None:
        (found,) = told(self.findings(upstream=self.upstream(), **changed))
        assert found.startswith(line)

    def test_upstream(self) -> None:
        assert told(self.findings(upstream=self.upstream(issue=None))) == [
            "1: has no link to a report; readers look there first"
        ]
        assert told(self.findings(upstream=self.upstream(fixed=None))) == ["1: by which version or commit? Add fixed:"]

    def test_notes(self) -> None:
        environments = {"current": {"image": "cuda13", "requirements": ["numpy==2.2.6"], "gpus": 1}}
        notes = told(self.findings(upstream=self.upstream(), environments=environments), Severity.NOTE)
        assert len(notes) == 1
        proof = {"expect": {"message": "all of it is good"}}
        assert told(self.findings(upstream=self.upstream(), fixed=proof), Severity.NOTE) == [
            "1: a message alone proves it; a figure with a bound says more"
        ]


def test_a_draft_that_is_filled_in_has_the_sections_that_a_reviewer_looks_for() -> None:
    text = files(Draft(id="x", script="x = 1\n"))["README.md"]
    assert told(of_readme(text, "README.md", lambda _: True)) == []


@pytest.mark.parametrize("name", discover(ROOT))
def test_no_case_of_the_corpus_has_anything_private_or_a_wrong_link(name: str) -> None:
    wrong = [str(each) for each in static(ROOT, name)[1] if each.what.startswith(("holds what", "http"))]
    assert wrong == []
