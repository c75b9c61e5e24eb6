from gpu_casebook.evidence import Rate
from gpu_casebook.report import words


def test_share_and_interval() -> None:
    rate = Rate(k=3, n=3, low=0.4385, high=1.0)
    assert words.share(rate) == "3 of 3"
    assert words.interval(rate) == "95 % interval 44 to 100 %"
    assert words.share(Rate(k=0, n=0, low=0, high=1)) == "none"
