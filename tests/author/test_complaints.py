from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from casebook_workbench.author.complaints import (
    SECTIONS,
    of_figures,
    of_links,
    of_manifest,
    of_privacy,
    of_readme,
    of_script,
    of_title,
)
from casebook_workbench.author.draft import Draft, files
from casebook_workbench.author.review import static
from failure_signature.bounds import Bound
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


def test_the_heading_is_the_title() -> None:
    assert told(of_title("# A `sum` is off\n", "README.md", "A sum is off")) == []
    assert told(of_title("# Another\n", "README.md", "A sum is off")) == [
        "1: has another title than case.yaml: A sum is off"
    ]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("rel_err=0.52", None),
        ("it prints `rel_err=0.523`, twice", None),
        ("loss_ratio=7", None),
        ("`max_steps=3` is set; lr=1e-5", None),
        ("rel_err=0.9", "rel_err=0.9: no evidence and no bound of this case has that value"),
        ("`loss_ratio=1.5`", "loss_ratio=1.5: no evidence and no bound of this case has that value"),
        ("leaked_per_call=2.000", "leaked_per_call=2.000: no script of this case prints leaked_per_call"),
    ],
)
def test_quoted_figures_are_those_that_were_seen(line: str, wrong: str | None) -> None:
    known: dict[str, list[float | Bound]] = {"rel_err": [0.5214], "loss_ratio": [Bound.parse("> 6, < 8")]}
    found = told(of_figures(f"# T\n\n{line}\n", "README.md", known, "train(max_steps=3)"))
    assert found == ([f"3: {wrong}"] if wrong else [])


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
            (
                {"repro": {"expect": {"cuda_error": "cudaErrorIllegalAddress"}}, "failure": "illegal-access"},
                "20: any failure of this kind would do",
            ),
            (
                {"repro": {"expect": {"hang": {"after": "20s", "stack": "all_reduce"}}}, "failure": "hang"},
                "20: any failure of this kind",
            ),
            (
                {"repro": {"expect": {"exception": "ValueError", "message": r".*\d+ of"}}, "failure": "exception"},
                "20: the message '.*",
            ),
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

    @pytest.mark.parametrize(
        ("kind", "expect", "line"),
        [
            (
                "hang",
                {"figures": {"rel_err": "> 1e-2"}},
                "1: hang shows in hang, and repro's expectation names none of it",
            ),
            ("crash", {"figures": {"rel_err": "> 1e-2"}}, "1: crash shows in signal or exit_status, and repro's"),
            ("leak", {"growth": {"series": "held", "per_step": "> 1"}}, None),
            ("wrong-numbers", {"figures": {"rel_err": "> 1e-2"}}, None),
        ],
    )
    def test_the_kind_is_one_that_the_expectation_can_show(
        self, kind: str, expect: dict[str, Any], line: str | None
    ) -> None:
        found = told(self.findings(upstream=self.upstream(), failure=kind, repro={"expect": expect}))
        assert [each.startswith(line or "") for each in found] == [True] * bool(line)

    def test_a_hang_is_called_one(self) -> None:
        hang = {"expect": {"hang": {"after": "20s", "stack": "all_reduce"}, "figures": {"rel_err": "> 1e-2"}}}
        found = told(self.findings(upstream=self.upstream(), repro=hang))
        assert found == ["1: repro's expectation is a hang, and this says wrong-numbers"]

    def test_the_issue_is_the_projects_or_another_link_is(self) -> None:
        other = self.upstream(issue="https://github.com/else/where/issues/1")
        line = "1: is o/n, and the issue is one of else/where; no link leads to the former"
        assert told(self.findings(upstream=other)) == [line]
        assert told(self.findings(upstream=other | {"links": ["https://github.com/O/n/pull/3"]})) == []

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
