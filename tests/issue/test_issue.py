import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook_workbench.issue.issue import LIMIT, Source, best, compose, form_of, middle_cut
from casebook_workbench.redact import Private
from failure_signature.kinds import Grade, Variant
from failure_signature.reading.findings import Finding, Kind, Tool
from failure_signature.trials import Rate, SanitizerReport, Trial, Verdict
from gpu_casebook.evidence import Evidence, SanitizerProbe
from tests.report.example import CASE, ENVIRONMENT, FIXED, REPRO, REQUIREMENTS, evidence, simulated

RAN = "Releases of owner/name ran, one with the defect and one without it."
SCRIPT = '# /// script\n# requires-python = "==3.11.*"\n# dependencies = [PINS]\n# ///\nimport torch\n'.replace(
    "PINS", ", ".join(f'"{pin}"' for pin in REQUIREMENTS)
)
FORMS = {
    "pytorch/pytorch": ["### 🐛 Describe the bug", "### Versions"],
    "triton-lang/triton": ["### Describe the bug", "### Environment details"],
    "vllm-project/vllm": ["### Your current environment", "### 🐛 Describe the bug"],
    "huggingface/transformers": [
        "### System Info",
        "### Who can help?",
        "### Information",
        "### Tasks",
        "### Reproduction",
    ],
    "huggingface/peft": ["### System Info", "### Who can help?", "### Reproduction", "### Expected behavior"],
    "huggingface/trl": ["### System Info", "### Information", "### Tasks", "### Reproduction", "### Expected behavior"],
    "huggingface/accelerate": ["### System Info", "### Information", "### Tasks", "### Reproduction"],
    "fla-org/flash-linear-attention": ["### Checklist", "### Describe the Bug", "### Steps to Reproduce the Bug"],
    "linkedin/Liger-Kernel": ["### 🐛 Describe the bug", "### Reproduce", "### Versions"],
    "microsoft/DeepSpeed": [
        "**Describe the bug**",
        "**To Reproduce**",
        "**Expected behavior**",
        "**ds_report output**",
    ],
    "axolotl-ai-cloud/axolotl": ["### Expected Behavior", "### Current behaviour", "### Steps to reproduce"],
    "somebody/else": ["### Describe the bug", "### To reproduce", "### Expected behavior", "### Environment"],
}


def about(project: str, run: Evidence | None = None, **changed: object) -> Evidence:
    run = run or evidence()
    upstream = run.case.upstream.model_copy(update={"project": project})
    return run.model_copy(update={"case": run.case.model_copy(update={"upstream": upstream, **changed})})


def body(run: Evidence | None = None, script: str = SCRIPT, **known: object) -> str:
    return compose(Source(ran=RAN, run=run or evidence(), script=script, **known)).body  # type: ignore[arg-type]


def with_output(run: Evidence, stderr: str, stdout: str = "") -> Evidence:
    def changed(trial: Trial) -> Trial:
        return trial.model_copy(update={"stderr": stderr, "stdout": stdout or trial.stdout})

    return run.model_copy(update={"trials": [changed(trial) for trial in run.trials]})


class TestForms:
    @pytest.mark.parametrize("project", FORMS)
    def test_the_headings_are_the_projects_own_in_its_order(self, project: str) -> None:
        text = body(about(project))
        places = [re.search(rf"^{re.escape(heading)}$", text, re.MULTILINE) for heading in FORMS[project]]
        assert all(places)
        assert [place.start() for place in places if place] == sorted(place.start() for place in places if place)

    @pytest.mark.parametrize("project", FORMS)
    def test_what_ran_comes_first(self, project: str) -> None:
        assert body(about(project)).startswith(f"{RAN}\n\n{FORMS[project][0][:2]}")

    @pytest.mark.parametrize("project", FORMS)
    def test_whatever_the_form_all_is_in_it(self, project: str) -> None:
        text = body(about(project), link="https://github.com/o/n/tree/HEAD/cases/rwkv6-backward")
        for part in (
            "# dependencies = [",
            "uv run repro.py",
            "Cannot broadcast, the expanded size of the tensor (64)",
            "`triton.compiler.errors.CompilationError`",
            "3 of 3 fresh processes. Figures are equal to the last digit",
            "dq_rel_err=9.5e-08",
            "PyTorch version: 2.2.2",
            "NVIDIA H200",
            "+    keep = (rv < V)[:, None]",
            "1547448b998a163fdb33c49266da699db13f2dc8",
            "https://github.com/o/n/tree/HEAD/cases/rwkv6-backward",
        ):
            assert part in text, part

    def test_titles_begin_as_the_project_wants_them(self) -> None:
        titles = {project: compose(Source(ran=RAN, run=about(project), script=SCRIPT)).title for project in FORMS}
        assert titles["vllm-project/vllm"] == f"[Bug]: {CASE.title}"
        assert titles["microsoft/DeepSpeed"] == f"[BUG] {CASE.title}"
        assert titles["somebody/else"] == CASE.title

    def test_a_project_is_known_however_it_is_written(self) -> None:
        assert form_of("PyTorch/PyTorch") == form_of("pytorch/pytorch")

    def test_boxes_are_left_to_the_person(self) -> None:
        text = body(about("huggingface/transformers"))
        assert "- [x] My own modified scripts" in text
        assert "- [ ] The official example scripts" in text
        assert "### Who can help?\n\n_No response_\n" in text


class TestContents:
    def test_what_the_sanitizer_found_is_a_sentence(self) -> None:
        finding = Finding(
            tool=Tool.MEMCHECK, kind=Kind.OUT_OF_BOUNDS, title="Invalid write", access="write", size=4, text=""
        )
        probe = SanitizerProbe(report=SanitizerReport(tool=Tool.MEMCHECK, findings=[finding]))
        assert "compute-sanitizer (memcheck) finds " in body(evidence(probes=[probe]))
        assert "compute-sanitizer" not in body()

    def test_simulated_evidence_says_so(self) -> None:
        assert "simulated: not on the device" in body(simulated())

    def test_an_edited_script_says_so(self) -> None:
        assert "edited since" in body(stale=True)
        assert "edited since" not in body()

    def test_fences_are_longer_than_any_in_the_text(self) -> None:
        script = SCRIPT + 'print("""\n````\nnot the end\n""")\n'
        text = body(script=script)
        assert f"`````python\n{script.strip()}\n`````" in text

    def test_output_can_not_break_out_or_call_anybody(self) -> None:
        run = about("pytorch/pytorch", title="A @mention of #12 and <b>html</b>")
        text = body(run)
        assert "@mention" not in text
        assert r"\<b>" in text


class TestWorthPasting:
    def test_the_mechanism_comes_before_the_script(self) -> None:
        why = "The `mask` is transposed, see [the page](../../reports/x.md) and [18](https://github.com/o/n/issues/18)."
        text = body(why=why)
        told = "The `mask` is transposed, see the page and [18](https://github.com/o/n/issues/18)."
        assert text.index(told) < text.index("```python")

    def test_what_was_expected_and_what_came_stand_first(self) -> None:
        signature = {
            Variant.REPRO: ["figure x: > 1", "figure y: > 1", "figure same: < 1"],
            Variant.FIXED: ["figure x: == 0"],
        }
        shown = replace(REPRO, stdout="x=520192\ny=2.5\nsame=0.5\n"), replace(FIXED, stdout="x=0\ny=0.25\nsame=0.5\n")
        text = body(evidence(*shown, case=CASE.model_copy(update={"signature": signature})))
        first = "\n\n- `x`: got `520192`, expected `== 0`\n- `y`: got `2.5`, with the fix `0.25`\n\n"
        assert text.index(first) < text.index("exit status" if "exit status" in text else "With the fix")
        assert "`same`: got" not in text

    def test_the_command_has_the_variables(self) -> None:
        assert "```sh\nTRITON_INTERPRET=1 X='a b' uv run repro.py\n```" in body(
            variables={"TRITON_INTERPRET": "1", "X": "a b"}
        )

    def test_the_command_has_the_packages_of_the_run_where_the_header_has_others(self) -> None:
        text = body(simulated(), script=SCRIPT.replace("triton==2.2.0", "triton==3.6.0"))
        packages = "--with triton==2.2.0 --with numpy==1.26.4 --with setuptools==69.5.1"
        assert f"```sh\nuv run --no-project --python 3.11 {packages} python repro.py\n```" in text
        assert "this run's packages, where the script's header names another environment's:" in text
        assert "header names another" not in body(simulated())

    def test_the_command_has_the_release_where_the_run_had_a_local_build(self) -> None:
        builds = ["triton==2.2.0+cpu", "numpy==1.26.4", "setuptools==69.5.1"]
        run = evidence(environment=simulated().environment.model_copy(update={"requirements": builds}))
        packages = "--with triton==2.2.0 --with numpy==1.26.4 --with setuptools==69.5.1"
        assert f"uv run --no-project --python 3.11 {packages} python repro.py\n" in body(run, script="pass")

    def test_noise_is_left_out(self) -> None:
        warning = "/env/torch/x.py:279: UserWarning: Failed to initialize\n  cpu = convert()\n[W1121 x.cpp:9] no\n"
        steps = "".join(f"bytes[{n}]={n}\n" for n in range(40))
        text = body(with_output(evidence(), f"{warning}ValueError: x\n", steps))
        assert "UserWarning" not in text
        assert "[W1121" not in text
        assert "```text\nValueError: x\n```" in text
        assert "```text\nbytes[0]=0\nbytes[1]=1\nbytes[2]=2\n[... 34 more ...]\nbytes[37]=37\n" in text

    def test_releases_are_told_and_compared(self) -> None:
        own = {Variant.REPRO: ["trl==0.13.0"], Variant.FIXED: ["trl==0.14.0"]}
        run = about(
            "huggingface/trl", evidence(environment=ENVIRONMENT.model_copy(update={"variant_requirements": own}))
        )
        upstream = run.case.upstream.model_copy(update={"issue": "https://github.com/huggingface/trl/issues/1"})
        run = run.model_copy(update={"case": run.case.model_copy(update={"upstream": upstream, "fix_diff": ""})})
        compared = "https://github.com/huggingface/trl/compare/v0.13.0...v0.14.0"
        told = f"With `trl` 0.14.0 in the place of 0.13.0 it passes ([what changed between them]({compared}))."
        assert told in body(run)

    def test_the_processor_is_told(self) -> None:
        seen = ENVIRONMENT.attestation
        assert seen
        seen = seen.model_copy(update={"cpu": "AMD EPYC 9654", "cpus": 16})
        text = body(evidence(environment=ENVIRONMENT.model_copy(update={"attestation": seen})))
        assert "CPU:\nModel name: AMD EPYC 9654\nCPU(s): 16\n" in text

    def test_equal_figures_are_told_in_the_place_of_an_interval(self) -> None:
        assert "passes in 3 of 3 fresh processes. Figures are equal to the last digit in all of them." in body()


OPEN = CASE.upstream.model_copy(update={"status": "open", "fixed": None})


class TestOpenReport:
    @pytest.mark.parametrize(
        ("changed", "first"),
        [
            ({}, "Still so"),
            ({"issue": f"https://github.com/{CASE.upstream.project}/pull/7"}, "Still so"),
            ({"status": "fixed"}, "Checklist"),
            ({"issue": None}, "Checklist"),
            ({"issue": "https://github.com/other/project/issues/18"}, "Checklist"),
            ({"issue": f"https://github.com/{CASE.upstream.project}/discussions/18"}, "Checklist"),
        ],
    )
    def test_it_goes_there_as_a_comment(self, changed: dict[str, object], first: str) -> None:
        upstream, there = OPEN.model_copy(update=changed), first == "Still so"
        made = compose(
            Source(ran=RAN, run=evidence(case=CASE.model_copy(update={"upstream": upstream})), script=SCRIPT)
        )
        new = f"https://github.com/{CASE.upstream.project}/issues/new"
        assert (made.comment, made.target) == (there, upstream.issue if there else new)
        assert made.body.startswith(f"{RAN}\n\n### {first}")

    def test_a_comment_says_with_what_and_where_and_does_not_link_its_own_report(self) -> None:
        text = body(evidence(case=CASE.model_copy(update={"upstream": OPEN})))
        assert "`setuptools==69.5.1` on NVIDIA H200, 2026-11-21, in 3 of 3 fresh processes." in text
        assert "issues/18" not in text
        assert SCRIPT.strip() in text


class TestLimit:
    @pytest.mark.parametrize("project", FORMS)
    def test_a_huge_output_is_cut_in_its_middle_and_it_is_said(self, project: str) -> None:
        stderr = "first line\n" + "x" * 900_000 + "\nlast line"
        made = compose(Source(ran=RAN, run=with_output(about(project), stderr, "`" * 400_000), script=SCRIPT))
        assert len(made.body) < LIMIT
        assert "first line" in made.body
        assert "last line" in made.body
        assert made.cut
        assert re.search(r"\[\.\.\. \d+ characters cut here \.\.\.\]", made.body)
        assert SCRIPT.strip() in made.body

    def test_a_huge_script_gives_way_after_the_outputs(self) -> None:
        script = SCRIPT + "x = 1\n" * 30_000
        made = compose(Source(ran=RAN, run=about("pytorch/pytorch"), script=script))
        assert len(made.body) < LIMIT
        assert "# dependencies" in made.body
        assert "### Versions" in made.body

    def test_everything_huge(self) -> None:
        huge = "y" * 300_000
        run = with_output(about("pytorch/pytorch", fix_diff=huge, title=huge), huge)
        assert len(compose(Source(ran=RAN, run=run, script=huge)).body) < LIMIT

    def test_nothing_is_cut_that_fits(self) -> None:
        made = compose(Source(ran=RAN, run=evidence(), script=SCRIPT))
        assert not made.cut

    @given(text=st.text(max_size=400), limit=st.integers(80, 300))
    def test_a_cut_keeps_both_ends_and_counts_what_is_gone(self, text: str, limit: int) -> None:
        cut = middle_cut(text, limit)
        assert len(cut) <= limit or len(text) <= limit
        if cut != text:
            head, gone, tail = re.split(r"\n\[\.\.\. (\d+) characters cut here \.\.\.\]\n", cut)
            assert text.startswith(head)
            assert text.endswith(tail)
            assert len(head) + int(gone) + len(tail) == len(text)

    @settings(max_examples=20, deadline=None)  # the first one compiles the template
    @given(size=st.integers(0, 200_000), project=st.sampled_from(sorted(FORMS)))
    def test_whatever_the_size_it_is_under_the_limit(self, size: int, project: str) -> None:
        assert len(body(with_output(about(project), "z `" * (size // 3)))) < LIMIT


class TestPrivacy:
    def test_secrets_in_outputs_and_scripts_do_not_get_out(self) -> None:
        token = "hf_" + "AbCdEfGh" * 4
        stderr = f'File "/home/jdoe/train.py"\nHF_TOKEN={token}\nconnect 10.1.2.3\n'
        run = with_output(evidence(command="python /home/jdoe/x.py"), stderr)
        made = compose(Source(ran=RAN, run=run, script=f"{SCRIPT}TOKEN = '{token}'  # jdoe\n"))
        for secret in (token, "jdoe", "10.1.2.3"):
            assert secret not in made.body
        assert made.removed["token"] >= 2

    def test_a_secret_at_a_cut_does_not_get_out_by_halves(self) -> None:
        token = "hf_" + "AbCdEfGh" * 4
        for before in (0, 3_970, 3_990, 3_999, 4_003, 5_000, 5_960, 5_985, 5_996, 6_010, 9_000):
            stderr = "x" * (2 * before) + " " + token + " y" * 40_000
            text = body(with_output(evidence(), stderr))
            assert "AbCdEfGh" not in text

    def test_what_is_known_of_this_machine_goes_too(self) -> None:
        known = Private(hosts=frozenset({"gpubox17"}))
        assert "gpubox17" not in body(with_output(evidence(), "on gpubox17: failed"), private=known)


class TestBest:
    def test_hardware_before_simulated_then_the_newest(self) -> None:
        old, new = (evidence(started=datetime(2026, 11, day, tzinfo=UTC)) for day in (1, 20))
        model = simulated(started=datetime(2026, 11, 21, tzinfo=UTC))
        assert best([model, old, new]) is new
        assert best([model]) is model

    def test_where_the_failure_was_not_seen_is_last(self) -> None:
        unseen = evidence(
            verdict=Verdict.NOT_REPRODUCED,
            rates={Variant.REPRO: Rate(k=0, n=3, low=0, high=0.6)},
            environment=ENVIRONMENT,
        )
        assert unseen.environment.grade is Grade.HARDWARE
        model = simulated()
        assert best([unseen, model]) is model

    def test_nothing_that_ran(self) -> None:
        assert best([]) is None
        assert best([evidence(verdict=Verdict.SKIPPED)]) is None
