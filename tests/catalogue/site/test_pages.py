"""The pages of a small corpus, as they are handed to the generator."""

import json
import re
from pathlib import Path

import pytest

from casebook_workbench.catalogue.site.lists import BY
from casebook_workbench.catalogue.site.pages import Written, anchor, write
from casebook_workbench.corpus import journal
from failure_signature.result import ProcessStack
from gpu_casebook.evidence import evidence_path
from tests.conftest import Checkout
from tests.corpus.report.example import RWKV, finished, run
from tests.report.example import evidence, simulated

ROOT = Path(__file__).parents[3]
README = """# A title

## What users saw
It fails, see [the other](../tiny/README.md) and [gone](gone.md).

## Why
Because.

```text
## no heading
```

## The fix
Swap them.

## History
Long.

## Is your failure this one?
Perhaps.
"""


@pytest.fixture
def corpus(checkout: Checkout) -> Checkout:
    """One case with evidence from two devices, and one without any."""
    manifest = (ROOT / "cases" / "rwkv6-backward" / "case.yaml").read_text()
    directory = checkout.write(manifest, name="rwkv6-backward").parent
    (directory / "README.md").write_text(README)
    checkout.write()
    (checkout.root / "README.md").write_text("# Casebook\n\nSee [a case](cases/tiny/README.md), [how](docs/how.md).\n")
    (checkout.root / "docs" / "zh").mkdir(parents=True)
    (checkout.root / "docs" / "zh" / "README.md").write_text("# 案例\n")
    (checkout.root / "docs" / "how.md").write_text("# How\n\nBack to [the start](../README.md).\n")
    for each in (evidence(), simulated()):
        each.write(evidence_path(checkout.root / "reports", each))
    return checkout


def written(corpus: Checkout, **options: str) -> Written:
    return write(corpus.root, corpus.root / "reports", corpus.root / "out", **options)


def page(corpus: Checkout, name: str) -> str:
    return (corpus.root / "out" / name).read_text()


def headings(text: str) -> list[str]:
    return re.findall(r"(?m)^## (.+)$", text)


def test_a_case_tells_its_story_and_what_was_measured(corpus: Checkout) -> None:
    written(corpus)
    text = page(corpus, "cases/rwkv6-backward/README.md")
    assert headings(text) == [
        *("What users saw", "Is your failure this one?", "Why", "The fix"),
        *("Run it", "Evidence", "History"),
    ]
    assert '<a href="../tiny/index.html">the other</a> and gone.' in text
    assert "## no heading</code>" in text
    assert '<span class="gi">' in text
    assert "<strong>confirmed</strong> on NVIDIA H200, 2026-11-21" in text
    assert "$ nox -s case-rwkv6-backward" in re.sub("<.*?>", "", text)
    assert 'href="../../reports/rwkv6-backward.html"' in text
    assert 'href="repro.py"' in text
    assert 'case: "rwkv6-backward"' in text


def test_a_hang_shows_where_it_stood(corpus: Checkout) -> None:
    hung = evidence()
    frames = "Thread 1\n    f (repro.py:3)"
    stack = ProcessStack(number=1, command="python repro.py", source="py-spy", text=frames)
    trials = [
        trial.model_copy(update={"observation": trial.observation.model_copy(update={"hung": True, "stacks": [stack]})})
        for trial in hung.trials
    ]
    hung = hung.model_copy(update={"trials": trials})
    hung.write(evidence_path(corpus.root / "reports", hung))
    written(corpus)
    assert "f (repro.py:3)" in re.sub("<.*?>", "", page(corpus, "cases/rwkv6-backward/README.md"))


def test_a_case_that_nobody_ran_says_so(corpus: Checkout) -> None:
    made = written(corpus)
    text = page(corpus, "cases/tiny/README.md")
    assert "there is no evidence" in text
    assert "<p>What failed, and why.</p>" in text  # a README without sections
    assert "reports/tiny" not in text
    assert not (corpus.root / "out" / "reports" / "tiny.md").exists()
    assert made.cases == 2


def test_the_page_of_every_run_is_that_of_the_reports(corpus: Checkout) -> None:
    written(corpus)
    text = page(corpus, "reports/rwkv6-backward.md")
    assert "Output of repro, run 1" in text
    assert 'href="../cases/rwkv6-backward/repro.py"' in text
    assert 'href="evidence/rwkv6-backward/upstream.docker.nvidia-h200.json"' in text


def test_every_case_is_in_every_list(corpus: Checkout) -> None:
    written(corpus)
    for by in BY:
        text = page(corpus, by.page)
        assert 'href="cases/rwkv6-backward/index.html"' in text
        assert 'href="cases/tiny/index.html"' in text
    assert headings(page(corpus, "card.md")) == ["CPU (simulated)", "H200", "Not confirmed anywhere yet"]


def test_the_front_page_asks(corpus: Checkout) -> None:
    written(corpus)
    text = page(corpus, "index.md")
    assert "# What did you see?" in text
    assert "2 failures of GPUs" in text
    assert '<form class="cb-search" id="cb-search" role="search"' in text
    assert f'href="area.html#{anchor("Attention and kernels")}"' in text


def test_pages_of_the_checkout_come_along(corpus: Checkout) -> None:
    made = written(corpus)
    assert 'href="cases/tiny/index.html"' in page(corpus, "about.md")
    assert 'href="docs/how.html"' in page(corpus, "about.md")
    assert 'href="../about.html"' in page(corpus, "docs/how.md")
    assert made.nav[-1] == {"About": [{"Casebook": "about.md"}, "docs/how.md", {"中文": "docs/zh/README.md"}]}


def test_what_stands_beside_the_pages(corpus: Checkout) -> None:
    made = written(corpus, address="https://example.org/")
    assert "https://example.org/cases/rwkv6-backward/index.html" in made.texts["feed.xml"]
    assert ">cases 2</text>" in made.texts["badge.svg"]
    assert ">confirmed on H200 1</text>" in made.texts["badge.svg"]
    assert [each["id"] for each in json.loads(made.texts["signatures.json"])] == ["rwkv6-backward", "tiny"]
    assert all(path.is_file() for path in made.files.values())
    assert 'href="feed.xml"' in page(corpus, "changes.md")
    assert 'src="badge.svg"' in page(corpus, "index.md")
    assert "uv run https://example.org/cases/tiny/repro.py" in re.sub("<.*?>", "", page(corpus, "cases/tiny/README.md"))


def test_nights_are_there_if_they_are(corpus: Checkout) -> None:
    assert all("Nights" not in each for each in written(corpus).nav)
    reports = corpus.root / "reports"
    night = run([finished(RWKV)])
    (reports / "runs" / night.id).mkdir(parents=True)
    with journal.Journal.create(reports, night.model_copy(update={"finished": []})) as record:
        record.append(night.finished)
    (reports / "runs" / night.id / "README.md").write_text("# A night\n")
    assert {"Nights": "nights.md"} in written(corpus).nav
    assert f'href="reports/runs/{night.id}/index.html"' in page(corpus, "nights.md")
    assert f'href="../../reports/runs/{night.id}/index.html"' in page(corpus, f"cases/{RWKV.case}/README.md")


def test_evidence_that_cannot_be_read_is_told(corpus: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    (corpus.root / "reports" / "evidence" / "tiny").mkdir()
    (corpus.root / "reports" / "evidence" / "tiny" / "a.venv.cpu.json").write_text("{")
    written(corpus)
    assert "left out: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("Attention and kernels", "attention-and-kernels"),
        ("fla-org/flash", "fla-orgflash"),
        ("CPU (simulated)", "cpu-simulated"),
    ],
)
def test_anchors_are_the_generators(heading: str, name: str) -> None:
    from markdown.extensions.toc import slugify

    assert anchor(heading) == slugify(heading, "-") == name
