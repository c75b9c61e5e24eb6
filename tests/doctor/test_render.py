from casebook_workbench.doctor.facts import DockerFacts, Facts
from casebook_workbench.doctor.render import lines
from casebook_workbench.doctor.rules import Shortcoming
from gpu_casebook.errors import Severity
from tests.doctor.test_rules import NEED, WELL


def test_what_is_here_comes_first() -> None:
    first, last = lines(WELL, [NEED], [])
    assert first == "Python 3.11.2; uv 0.7.0; Docker 28.2.1, GPUs by toolkit; NVIDIA H200 (9.0), driver 580.159.04"
    assert last == "1 environment looked at: all is well"


def test_what_is_not_here_too() -> None:
    facts = Facts(python="3.12.0", uv="0.7.0", docker=DockerFacts(error="none"))
    assert next(lines(facts, [], [])) == "Python 3.12.0; uv 0.7.0; no Docker; no GPU"
    elsewhere = Facts(python="3.12.0", uv="0.7.0", docker=DockerFacts(version="27.0", local=False))
    assert "Docker 27.0 on another machine" in next(lines(elsewhere, [], []))


def test_two_lines_for_each_finding() -> None:
    findings = [
        Shortcoming(
            rule="a", severity=Severity.ERROR, what="it is broken", fix="repair it", about=["x/1", "x/2", "y/1", "y/2"]
        ),
        Shortcoming(rule="b", severity=Severity.NOTE, what="it is small", fix="grow it"),
    ]
    assert list(lines(WELL, [NEED, NEED], findings))[1:] == [
        "error:   x/1, x/2, y/1 and 1 more: it is broken",
        "    fix: repair it",
        "note:    it is small",
        "    fix: grow it",
        "2 environments looked at: 1 error, 1 note",
    ]
