from failure_signature.kinds import Variant
from failure_signature.trials import Rate
from gpu_casebook.report import figures, versions, words
from tests.report.example import CASE, ENVIRONMENT, evidence


def test_share_and_interval() -> None:
    rate = Rate(k=3, n=3, low=0.4385, high=1.0)
    assert words.share(rate) == "3 of 3"
    assert words.interval(rate) == "95 % interval 44 to 100 %"
    assert words.share(Rate(k=0, n=0, low=0, high=1)) == "none"


def test_a_requirement_that_is_no_pin_changes_no_version() -> None:
    requirements = {Variant.REPRO: ["NaN", "torch==2.11.0", "=="], Variant.FIXED: ["torch==2.13.0", "x>1"]}
    run = evidence(environment=ENVIRONMENT.model_copy(update={"variant_requirements": requirements}))
    assert [row[:3] for row in versions.changed_versions(run)] == [("torch", "2.11.0", "2.13.0")]


def test_releases_are_compared_by_their_tags_which_name_no_build() -> None:
    requirements = {Variant.REPRO: ["flash-linear-attention==0.1"], Variant.FIXED: ["flash-linear-attention==0.2+cpu"]}
    run = evidence(environment=ENVIRONMENT.model_copy(update={"variant_requirements": requirements}))
    ((*_, compared),) = versions.changed_versions(run)
    assert compared == "https://github.com/fla-org/flash-linear-attention/compare/v0.1...v0.2"


def test_a_signature_that_is_none_declares_no_figure() -> None:
    case = CASE.model_copy(update={"signature": {Variant.REPRO: ["figure err", "", "figure err: twice"]}})
    assert list(figures.without_failure(evidence(case=case), "err=1\n")) == []
