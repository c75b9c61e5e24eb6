import re
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from casebook_workbench.corpus.model import Lost, Run
from casebook_workbench.corpus.report.markdown import COMMENT_BYTES, Picture, comment, headline, job_summary, page
from casebook_workbench.corpus.report.model import JobCounts, RunSummary
from casebook_workbench.corpus.report.summary import summarise
from failure_signature.trials import Verdict
from tests.corpus.report.example import PAIR, RWKV, START, TODAY, YESTERDAY, broke, finished, job, run
from tests.report.golden import assert_golden
from tests.report.hostile import HOSTILE
from tests.report.html import html

PICTURES = [Picture("durations.svg", "How long"), Picture("rates.svg", "How often")]


@cache
def today() -> RunSummary:
    return summarise(TODAY, [YESTERDAY])


def big(cases: int) -> Run:
    reason = "the engine went away; " + "`code` | <b>@octocat</b> #1 " * 20
    done = [finished(job(f"case-{number:04}"), Verdict.WRONG_FAILURE, reason=reason) for number in range(cases)]
    return run([*done, *(broke(job(f"broke-{number:04}"), reason) for number in range(cases))])


def test_page_golden() -> None:
    assert_golden("corpus.page.md", page(today(), PICTURES))


def test_job_summary_golden() -> None:
    assert_golden("corpus.job.md", job_summary(today()))


def test_comment_golden() -> None:
    assert_golden("corpus.comment.md", comment(today()))


def test_a_run_that_goes_on_says_what_is_left() -> None:
    text = page(summarise(run([finished(RWKV)], left=[PAIR])))
    assert "It has not come to its end: 1 of 2 are left, and `--resume` goes on with them." in text
    assert "`--resume`" not in page(today())


def test_links_lead_to_case_pages_evidence_and_plots() -> None:
    links = html(page(summarise(run([finished(RWKV)])), PICTURES)).links
    evidence = "../../evidence/rwkv6-backward/current.docker.nvidia-h200.json"
    assert set(links) == {"durations.svg", "rates.svg", "../../rwkv6-backward.md", evidence}


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "javascript:alert(1)", "a b", "a)b"])
def test_evidence_that_lies_elsewhere_is_not_linked(path: str) -> None:
    assert html(page(summarise(run([finished(RWKV, evidence=path)])))).links == ["../../rwkv6-backward.md"] * 2


def test_what_ci_shows_links_to_no_file() -> None:
    assert html(job_summary(today())).links == []
    assert html(comment(today())).links == []


@pytest.mark.parametrize(
    ("tally", "told"),
    [
        (JobCounts(), "**No verdict**."),
        (JobCounts(judged=2, confirmed=2, verdicts={Verdict.CONFIRMED: 2}), "**2 of 2 confirmed**."),
        (
            JobCounts(
                judged=2, confirmed=1, reused=1, drifted=2, verdicts={Verdict.CONFIRMED: 1, Verdict.FIX_FAILS: 1}
            ),
            "**1 of 2 confirmed**, 1 fix-fails (1 reused, 2 drifted).",
        ),
        (
            JobCounts(broke=1, skipped=2, left=3),
            "**No verdict**. Without a verdict: 1 broke, 2 skipped, 3 not come to.",
        ),
    ],
)
def test_headline(tally: JobCounts, told: str) -> None:
    assert headline(tally) == told


@pytest.mark.parametrize("cases", [0, 1, 200, 2000])
def test_a_comment_fits_and_is_whole_markdown(cases: int) -> None:
    text = comment(summarise(big(cases), [YESTERDAY]))
    assert len(text.encode()) <= COMMENT_BYTES
    assert "details" in html(text).tags
    assert ("more are left out" in text) == (cases >= 200)
    assert f"{cases} wrong-failure" in text or not cases


def test_a_comment_uses_the_room_there_is() -> None:
    assert len(comment(summarise(big(2000))).encode()) > COMMENT_BYTES * 0.9


def test_a_job_summary_fits() -> None:
    assert len(job_summary(summarise(big(500)), limit=100_000).encode()) <= 100_000


@pytest.mark.parametrize("render", [page, job_summary, comment])
def test_hostile_text_stays_text(render: object) -> None:
    of = job(HOSTILE[:300], HOSTILE[:300], gpus=2)
    lost = [Lost(worker=HOSTILE, reason=HOSTILE, after_s=1.0)]
    done = finished(of, Verdict.WRONG_FAILURE, reason=HOSTILE, device=HOSTILE, lost=lost, infra_trials=1)
    words: dict[str, Any] = {
        "host": HOSTILE,
        "runner": HOSTILE,
        "command": HOSTILE,
        "selection": HOSTILE,
        "id": "2027 `|<b>@octocat",
    }
    summary = summarise(run([done], **words), [run([finished(of)])], [HOSTILE])
    assert callable(render)
    found = html(render(summary))
    assert {"script", "b", "!--", "pre"}.isdisjoint(found.tags)
    assert all(re.fullmatch(r"\.\./\.\./[a-z0-9./-]+\.(md|json)", link) for link in found.links)
    assert {len(row) for row in found.rows} <= {7, 8}


def test_trouble_stands_apart_from_verdicts() -> None:
    lost = [Lost(worker="w", reason="killed", after_s=3.0)]
    text = page(summarise(run([finished(RWKV, lost=lost, infra_trials=1), broke(PAIR, "no engine")])))
    trouble = text.partition("## Trouble with machines")[2].partition("##")[0]
    assert "`pair-hang/current` broke: no engine" in trouble
    assert "`rwkv6-backward/current` lost w after 3.0 s: killed" in trouble
    assert "1 trial spoiled by the machine" in trouble
    assert "None: nothing broke" in page(summarise(run([finished(RWKV)])))


def test_longest_first() -> None:
    done = [finished(job(f"c{number}"), duration_s=float(number)) for number in range(1, 30)]
    text = page(summarise(run(done, ended=START + timedelta(seconds=500))))
    table = text.partition("The longest:")[2].partition("##")[0]
    assert table.index("c29") < table.index("c28")
    assert "c14" not in table
