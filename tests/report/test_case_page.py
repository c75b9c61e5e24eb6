from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from failure_signature.judging.decision import Terms, decide
from failure_signature.kinds import Variant
from failure_signature.reading.findings import Summary, Tool
from failure_signature.result import ProcessStack, TrialResult
from failure_signature.trials import Outcome, SanitizerReport, Verdict
from gpu_casebook.evidence import Evidence, SanitizerProbe
from gpu_casebook.manifest.model import Provenance
from gpu_casebook.report.case_page import case_page
from gpu_casebook.revision import SEMANTICS
from tests.report.example import (
    ATTESTATION,
    CASE,
    ENVIRONMENT,
    FIXED,
    REPRO,
    REPRO_STDERR,
    evidence,
    simulated,
    trial,
)
from tests.report.golden import assert_golden
from tests.report.hostile import hostile
from tests.report.html import html

PROJECT = "fla-org/flash-linear-attention"
TRL = "https://github.com/huggingface/trl"
GITHUB = f"https://github.com/{PROJECT}"
SCRIPTS = [f"../cases/rwkv6-backward/{name}" for name in ("README.md", "repro.py", "fixed.py", "case.yaml")]
ISSUE_LIMIT = 65_536
"""Characters that GitHub takes in an issue."""


def test_golden() -> None:
    assert_golden("rwkv6-backward.md", case_page([simulated(), evidence()]))


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("release", f"Releases of {PROJECT} ran, one with the defect and one without it."),
        ("release-workaround", f"A release of {PROJECT} ran, with the defect; the fixed script works around it."),
        ("sources", f"Files of {PROJECT} ran, as they are at a commit."),
        (
            "distilled",
            f"No code of {PROJECT} ran: the scripts are minimal code with the same defect, written for this corpus.",
        ),
        ("pattern", f"No code of {PROJECT} ran: the scripts illustrate a mechanism."),
    ],
)
def test_the_second_line_says_what_of_the_project_ran(word: str, line: str) -> None:
    assert {word} <= {*Provenance}
    page = case_page([evidence(case=CASE.model_copy(update={"provenance": word}))])
    assert page.split("\n\n")[1] == line
    assert f"- Case `rwkv6-backward`: compile-error, {word}.\n" in page


def test_of_older_evidence_nobody_can_say_that() -> None:
    # It called the real package that is worked around "distilled" or "release".
    told = case_page([evidence(semantics=2)]).split("\n\n")[1]
    assert told == f"Recorded as distilled, before the record said what of {PROJECT} ran."


def test_golden_hostile() -> None:
    assert_golden("hostile.md", case_page([hostile()]))


def test_hostile_output_changes_nothing_about_the_page() -> None:
    tame, wild = html(case_page([evidence()])), html(case_page([hostile()]))
    assert set(wild.tags) <= {*tame.tags, "blockquote"}
    for tag in ("h1", "h2", "details", "summary"):
        assert wild.tags.count(tag) == tame.tags.count(tag), tag
    assert [link for link in wild.links if not link.startswith("evidence/")] == SCRIPTS


def test_hostile_output_leaves_only_text_in_the_source() -> None:
    page = case_page([hostile()])
    assert not [character for character in page if character < " " and character != "\n"]
    assert not {"\u202e", "\u2028", "\x9b", "\x7f"} & set(page)
    assert "progress 99 %" in page
    assert "progress 1 %" not in page  # it was written over


def test_a_page_of_any_output_fits_in_an_issue() -> None:
    lines = "y" * 300 + "\n"
    loud = replace(REPRO, stdout=lines * 1_000, stderr=lines * 1_000 + REPRO_STDERR)
    assert len(case_page([evidence(loud, replace(FIXED, stderr=lines * 1_000))])) < ISSUE_LIMIT
    assert len(case_page([hostile()])) < ISSUE_LIMIT


def test_every_row_has_every_cell() -> None:
    for page in (html(case_page([simulated(), evidence()])), html(case_page([hostile()]))):
        assert {len(row) for row in page.rows} == {9, 3}


def test_same_evidence_same_bytes_in_any_order() -> None:
    runs = [evidence(), simulated(), evidence(started=datetime(2026, 11, 20, tzinfo=UTC), command="older")]
    assert case_page(runs) == case_page(runs[::-1])


def order(*runs: Evidence) -> list[str]:
    return [line for line in case_page(runs).splitlines() if line.startswith("## ") and line != "## The fix"]


def test_hardware_first_then_newest_and_skipped_last() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    none = evidence(verdict=Verdict.SKIPPED, reasons=["Not run: no GPU"], rates={}, trials=[], started=late)
    assert order(none, simulated(started=late), evidence(started=early), evidence(started=late)) == [
        "## confirmed: `upstream` on NVIDIA H200, 2026-02-01",
        "## confirmed: `upstream` on NVIDIA H200, 2026-01-01",
        "## confirmed: `front-end` on CPU, 2026-02-01",
        "## skipped: `upstream` on NVIDIA H200, 2026-02-01",
    ]


@pytest.mark.parametrize(
    "started",
    [
        datetime(2026, 11, 21, 1, 30, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 11, 20, 23, 30),  # noqa: DTZ001  evidence that names no zone
        datetime(2026, 11, 20, 23, 30, tzinfo=UTC),
    ],
)
def test_dates_are_utc_on_every_machine(started: datetime) -> None:
    assert "begun 2026-11-20 23:30 UTC" in case_page([evidence(started=started)])


def test_runs_without_a_zone_sort_with_the_others() -> None:
    runs = [evidence(started=datetime(2026, 1, 2)), evidence(started=datetime(2026, 1, 1, tzinfo=UTC))]  # noqa: DTZ001
    assert [line[-10:] for line in order(*runs)] == ["2026-01-02", "2026-01-01"]


def test_no_runs_or_several_cases_are_no_page() -> None:
    other = evidence(case=CASE.model_copy(update={"id": "other"}))
    with pytest.raises(ValueError, match="about one case, not about 2"):
        case_page([evidence(), other])
    with pytest.raises(ValueError, match="about one case, not about 0"):
        case_page([])


def declared_and_seen(run: Evidence, variant: Variant) -> dict[str, list[str]]:
    """By aspect what was declared and seen, from the table of the variant."""
    _, _, part = case_page([run]).partition(f"### {variant}")
    return {row[0]: row[1:] for row in html(part.partition("\n###")[0]).rows[1:]}


def test_what_was_declared_stands_next_to_what_was_seen() -> None:
    table = declared_and_seen(evidence(), Variant.REPRO)
    assert table["exception"] == ["triton.compiler.errors.CompilationError"] * 2
    assert table["message"][0].startswith(r"Cannot broadcast, the expanded size of the tensor \(64\)")
    assert table["message"][1].startswith("ValueError('Cannot broadcast, the expanded size of the tensor (64)")
    assert declared_and_seen(evidence(), Variant.FIXED)["dq_rel_err"] == ["< 1e-5", "9.5e-08"]


def mixed(*results: TrialResult) -> Evidence:
    trials = [trial(Variant.REPRO, number, result) for number, result in enumerate(results, 1)]
    decision = decide(trials, Terms(trials=1))
    return evidence(trials=trials, verdict=decision.verdict, reasons=list(decision.reasons), rates=decision.rates)


def test_what_differs_between_trials_is_counted() -> None:
    crash = TrialResult(stdout="fwd_rel_err=2\n", stderr="", duration_s=1, signal="SIGSEGV")
    table = declared_and_seen(mixed(REPRO, REPRO, crash), Variant.REPRO)
    assert table["exit status"] == ["not 0", "1 (2 of 3); SIGSEGV (1 of 3)"]
    assert table["exception"][1] == "triton.compiler.errors.CompilationError (2 of 3); - (1 of 3)"
    assert table["fwd_rel_err"] == ["< 1e-5", "1e-07 (2 of 3); 2 (1 of 3)"]


def test_the_output_shown_is_that_of_a_trial_that_went_otherwise() -> None:
    page = case_page([mixed(REPRO, TrialResult(stdout="it went well\n", stderr="", duration_s=1, exit_status=0))])
    assert "Output of repro, run 2: otherwise" in page
    assert "it went well" in page


def test_trials_that_the_machine_spoiled_are_told_apart() -> None:
    spoiled = TrialResult(stdout="", stderr="", duration_s=1, infra="the disk is full")
    page = case_page([mixed(REPRO, spoiled)])
    assert "repro: as declared in 1 of 1 runs" in page
    assert "Not counted, because the machine was to blame: 1." in page
    assert "No run counts: the machine was to blame in 1." in case_page([mixed(spoiled)])
    assert mixed(spoiled).trials[0].outcome is Outcome.INFRA


def test_figures_that_nobody_declared_are_shown_too() -> None:
    fixed = replace(FIXED, stdout="fwd_rel_err=0\ndq_rel_err=0\nsteps=4\nbad=nan\n")
    table = declared_and_seen(evidence(fixed=fixed), Variant.FIXED)
    assert table["steps"] == ["", "4"]
    assert table["bad"] == ["", "nan"]


def test_a_figure_that_contradicts_itself() -> None:
    fixed = replace(FIXED, stdout="fwd_rel_err=0\ndq_rel_err=0\ndq_rel_err=1\n")
    table = declared_and_seen(evidence(fixed=fixed), Variant.FIXED)
    assert table["dq_rel_err"] == ["< 1e-5", "contradicts itself"]


def test_a_message_that_no_longer_is_a_pattern_spoils_no_page() -> None:
    case = CASE.model_copy(update={"signature": {Variant.REPRO: ["message: (unclosed"]}})
    assert declared_and_seen(evidence(case=case), Variant.REPRO)["message"][1].startswith(
        "ValueError('Cannot broadcast"
    )


def test_time_limit_is_seen() -> None:
    slow = replace(REPRO, timed_out=True, exit_status=None, signal="SIGKILL")
    assert declared_and_seen(evidence(slow), Variant.REPRO)["exit status"][1] == "ended at the time limit"


@pytest.mark.parametrize(
    ("run", "says", "omits"),
    [
        (evidence(), ["exact, every one, and each of its files, as locked in `upstream.txt`"], ["> "]),
        (
            simulated(),
            [
                "> simulated: not on the device",
                "> drifted: what",
                "in what the failure can depend on:\n  - python 3.11.2, not 3.12\n",
                "in the rest:\n  - numpy 1.26.4, not 1.26.3\n",
            ],
            ["exact,"],
        ),
        (
            evidence(environment=ENVIRONMENT.model_copy(update={"drift": ["pip: not locked"], "aside": 1})),
            ["> drifted aside: what", "| drifted aside |", "in the rest:\n  - pip: not locked\n"],
            ["exact,", "can depend on:"],
        ),
        (
            evidence(
                environment=ENVIRONMENT.model_copy(
                    update={"attestation": ATTESTATION.model_copy(update={"content": None})}
                ),
            ),
            ["> by version: packages", "| by version |", "- Packages: every version as locked in `upstream.txt`"],
            ["exact,"],
        ),
        (
            evidence(semantics=SEMANTICS - 1),
            [f"> older rules: judged by version {SEMANTICS - 1} of what a verdict means"],
            [],
        ),
        (
            evidence(environment=ENVIRONMENT.model_copy(update={"attestation": None})),
            ["> not attested:", "- Packages: not attested"],
            ["exact,"],
        ),
    ],
    ids=["exact", "simulated and drifted", "drifted aside", "by version", "older", "not attested"],
)
def test_what_the_evidence_is_worth(run: Evidence, says: list[str], omits: list[str]) -> None:
    page = case_page([run])
    assert all(said in page for said in says)
    assert not any(omitted in page for omitted in omits)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, "fixed in [`1547448b998a`](https://github.com/fla-org/flash-linear-attention/commit/1547448b"),
        ({"fixed": "0.14.0"}, "fixed in `0.14.0`."),
        ({"fixed": f"{GITHUB}/pull/7"}, f"fixed in [fla-org/flash-linear-attention/pull/7]({GITHUB}/pull/7)."),
        ({"issue": None}, "introduced in `f3309729d3de`, fixed in `1547448b998a`."),
        ({"issue": "https://gitlab.example/a/b/1"}, "[issue](https://gitlab.example/a/b/1), introduced in `f3309"),
        ({"status": "open", "fixed": None}, "not fixed upstream yet"),
        ({"links": ["https://example.org/x"]}, ", [example.org/x](https://example.org/x)."),
        (
            {"links": [f"{GITHUB}/issues/18", f"{GITHUB}/commit/{CASE.upstream.fixed}"]},
            f"/commit/{CASE.upstream.fixed}).",
        ),
        # A change elsewhere has a part in it: the commit may be that repository's, and a link to it here a dead one.
        ({"links": ["https://github.com/a/b/pull/42"]}, "introduced in `f3309729d3de`, fixed in `1547448b998a`, [a/b/"),
        ({"links": ["https://github.com/a/b/issues/4"]}, "fixed in [`1547448b998a`]("),
    ],
)
def test_upstream(changed: dict[str, Any], told: str) -> None:
    case = CASE.model_copy(update={"upstream": CASE.upstream.model_copy(update=changed)})
    assert told in case_page([evidence(case=case)])


def test_scripts_that_were_others_then_show_their_own_change() -> None:
    old = evidence(
        case=CASE.model_copy(update={"fix_diff": "-old\n+older\n"}), started=datetime(2025, 1, 1, tzinfo=UTC)
    )
    page = case_page([evidence(), old])
    assert page.count("The scripts were others then") == 1
    assert "-old\n+older" in page
    assert page.index("Cannot broadcast") < page.index("-old\n+older")


def test_a_release_case_has_no_change_in_its_scripts() -> None:
    environment = ENVIRONMENT.model_copy(
        update={"variant_requirements": {Variant.REPRO: ["trl==0.13.0"], Variant.FIXED: ["trl==0.14.0"]}}
    )
    page = case_page([evidence(case=CASE.model_copy(update={"fix_diff": ""}), environment=environment)])
    assert "The scripts are the same but for the versions." in page
    assert "\n`trl` 0.13.0 -> 0.14.0; fixed upstream in [`1547448b998a`](" in page
    assert "- repro has besides: `trl==0.13.0`\n- fixed has besides: `trl==0.14.0`\n" in page


def test_what_was_installed_in_another_way_is_said() -> None:
    changed = ENVIRONMENT.model_copy(update={"without_dependencies": ["vllm"], "build": ["docopt", "six"]})
    page = case_page([evidence(environment=changed)])
    assert (
        "- Installed without what they depend on: `vllm`\n- Built from source in the image: `docopt`, `six`\n" in page
    )
    assert "without what they depend on" not in case_page([evidence()])
    few = ENVIRONMENT.model_copy(update={"without_dependencies": ["vllm"], "only_files": ["vllm/a.so", "vllm/b/*.py"]})
    assert (
        "- Installed without what they depend on: `vllm`; of their files only `vllm/a.so`, `vllm/b/*.py`\n- "
        in case_page([evidence(environment=few)])
    )


def test_a_tool_that_looked_at_a_run_without_the_failure_says_so() -> None:
    signature = {Variant.REPRO: ["exit status: 0", "figure err_2: > 0.5", "figure err_3: > 0.5"]}
    case = CASE.model_copy(update={"signature": signature})
    report = SanitizerReport(tool=Tool.MEMCHECK, summary=Summary(errors=0))

    def page(stdout: str, variant: Variant = Variant.REPRO) -> str:
        return case_page([evidence(case=case, probes=[SanitizerProbe(variant=variant, report=report, stdout=stdout)])])

    absent = "- the failure did not occur in this run: err_3=1e-07 (declared > 0.5)\n- nothing: 0 errors\n"
    assert f"memcheck on repro, a probe:\n{absent}" in page("err_2=0.9\nerr_3=1e-7\nundeclared=0\n")
    for shown in (page("err_2=0.9\nerr_3=0.8\n"), page(""), page("err_3=1e-7\n", Variant.FIXED)):
        assert "did not occur" not in shown


def test_a_long_change_is_cut_and_says_so() -> None:
    long = CASE.model_copy(update={"fix_diff": "+a line of the fix\n" * 3000})
    page = case_page([evidence(case=long)])
    assert "more lines ...]" in page
    assert len(page) < ISSUE_LIMIT


def test_wrong_failure_is_told_in_full() -> None:
    stderr = (
        'Traceback (most recent call last):\n  File "/case/repro.py", line 1, in <module>\n    import triton\n'
        "ModuleNotFoundError: No module named 'triton'\n"
    )
    run = evidence(TrialResult(stdout="", stderr=stderr, duration_s=0.2, exit_status=1))
    assert run.verdict is Verdict.WRONG_FAILURE
    page = case_page([run])
    expected = (
        "- repro: exception: expected triton.compiler.errors.CompilationError, saw ModuleNotFoundError: No module"
    )
    assert "**wrong-failure** on NVIDIA H200" in page
    assert expected in page
    assert declared_and_seen(run, Variant.REPRO)["exception"][1] == "ModuleNotFoundError"


def test_what_changed_between_two_releases_of_the_accused_project() -> None:
    own = {Variant.REPRO: ["trl==0.13.0", "numpy==2.0.0"], Variant.FIXED: ["trl==0.14.0", "numpy==2.0.0"]}
    upstream = CASE.upstream.model_copy(update={"project": "huggingface/trl", "issue": f"{TRL}/issues/2617"})
    case = CASE.model_copy(update={"fix_diff": "", "upstream": upstream})
    page = case_page([evidence(case=case, environment=ENVIRONMENT.model_copy(update={"variant_requirements": own}))])
    assert f"`trl` 0.13.0 -> 0.14.0 ([what changed between them]({TRL}/compare/v0.13.0...v0.14.0)); fixed" in page
    assert "`numpy` 2.0.0 ->" not in page


DOCSTRINGS = '''\
--- repro.py
+++ fixed.py
@@ -1,9 +1,8 @@
 # /// script
-# dependencies = ["trl==0.13.0"]
+# dependencies = ["trl==0.14.0"]
 # ///
-"""The loss is wrong.
+"""The same, right.

-Look for: loss=8.
+Look for: loss=1.
 """

 import trl
@@ -20,4 +19,5 @@
 def loss(x):
-    """Eight times."""
+    """Once."""
     source = """
-wrong
+right
     """
'''


def test_the_fix_is_code_without_docstrings_and_headers() -> None:
    page = case_page([evidence(case=CASE.model_copy(update={"fix_diff": DOCSTRINGS}))])
    assert '@@ -20,4 +19,5 @@\n def loss(x):\n     source = """\n-wrong\n+right\n     """\n```' in page
    assert "trl" not in page.partition("## The fix")[2]
    assert "Look for" not in page
    none = DOCSTRINGS.partition("@@ -20")[0]
    assert "The scripts are the same but" in case_page([evidence(case=CASE.model_copy(update={"fix_diff": none}))])


def test_the_mechanism_is_the_first_two_sentences_of_the_readmes_why() -> None:
    page = case_page([evidence()], "The `mask` is\ntransposed, e.g. 16 x 64. So it fails. And more.\n\nLater.")
    assert page.split("\n\n")[3] == "The `mask` is transposed, e.g. 16 x 64. So it fails."


def test_case_scripts_and_evidence_are_linked() -> None:
    local = [link for link in html(case_page([evidence()])).links if not link.startswith("http")]
    assert local == [*SCRIPTS, "evidence/rwkv6-backward/upstream.docker.nvidia-h200.json"]


def test_the_command_is_one_that_a_stranger_can_give() -> None:
    own = (
        "nox -s case-rwkv6-backward -- --environment upstream --engine docker --image casebook/host:latest --no-probes"
    )
    page = case_page([evidence(command=own)])
    assert "(this run was in an image of its host's own):\n\n```sh\nnox -s case-rwkv6-backward -- " in page
    assert "--engine docker --no-probes\n```" in page
    assert "host:latest" not in page
    assert "To run it again:" in case_page([evidence()])


def test_variables_of_the_trials_are_told() -> None:
    variables = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "2"}
    page = case_page([evidence(environment=ENVIRONMENT.model_copy(update={"variables": variables}))])
    assert "- Variables: `TRITON_INTERPRET=1`, `OMP_NUM_THREADS=2`\n" in page


def test_whole_numbers_are_whole() -> None:
    fixed = replace(FIXED, stdout="fwd_rel_err=0\ndq_rel_err=0\nrows=520192\ncudnn=91900\n")
    table = declared_and_seen(evidence(fixed=fixed), Variant.FIXED)
    assert (table["rows"], table["cudnn"]) == (["", "520192"], ["", "91900"])


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_message_is_shown_from_where_it_matched(stream: str) -> None:
    case = CASE.model_copy(update={"signature": {Variant.REPRO: ["message: cuMemCreate: .*MEMORY"]}})
    run = evidence(case=case)
    trials = [each.model_copy(update={stream: "at first\ncuMemCreate: OUT_OF_MEMORY\n"}) for each in run.trials]
    run = run.model_copy(update={"trials": trials})
    assert declared_and_seen(run, Variant.REPRO)["message"][1] == "cuMemCreate: OUT_OF_MEMORY"


def test_equal_figures_are_told_in_the_place_of_an_interval() -> None:
    page = case_page([evidence()])
    assert "Figures equal to the last digit in all of them; each run took 6.8 s." in page
    other = mixed(REPRO, replace(REPRO, stdout="fwd_rel_err=1.1e-07\n"))
    assert "95 % interval 34 to 100 %; each run took 6.8 s." in case_page([other])


def test_a_hang_is_shown_where_the_script_stands() -> None:
    main = 'Thread (idle): "MainThread"\n    0x7f (libc.so.6)\n    wait (libc.so)\n    step (repro.py:8)\n    go (s.py)'
    idle = 'Thread (idle): "Thread-1"\n    pthread_cond_wait (libc.so.6)'
    first = ProcessStack(number=2, parent=1, rank=0, command="spawn", source="py-spy", text=f"{idle}\n{main}")
    second = first.model_copy(update={"number": 3, "rank": 1})
    helper = ProcessStack(number=4, parent=1, command="multiprocessing.resource_tracker", source="py-spy", text=idle)
    run = evidence()
    hung = run.trials[0].observation.model_copy(update={"stacks": [first, second, helper]})
    page = case_page([run.model_copy(update={"trials": [run.trials[0].model_copy(update={"observation": hung})]})])
    shown = page.partition("Where its processes stood")[2].partition("</details>")[0]
    assert shown.count('```text\nThread (idle): "MainThread"\n    wait (libc.so)\n    step (repro.py:8)\n```') == 2
    assert "resource_tracker" not in shown
    assert "Thread-1" not in shown
