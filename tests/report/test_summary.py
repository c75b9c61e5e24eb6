from gpu_casebook.report import summary
from tests.report.example import evidence, simulated
from tests.report.hostile import hostile


def test_the_verdict_comes_first_and_then_why() -> None:
    first, second, *rest = summary(evidence())
    assert first == "confirmed: rwkv6-backward, environment upstream on NVIDIA H200"
    assert second.startswith("  Reproduces in 3 of 3 runs: triton.compiler.errors.CompilationError: ")
    assert second.endswith("; the fix holds in 3 of 3.")
    assert rest == []


def test_what_lowers_the_worth_is_told() -> None:
    lines = summary(simulated())
    assert lines[2].startswith("  simulated: not on the device")
    assert lines[3].startswith("  drifted: ")
    assert lines[4:] == ["  drift: python 3.11.2, not 3.12", "  drift: numpy 1.26.4, not 1.26.3"]


def test_much_drift_is_left_to_the_report() -> None:
    environment = simulated().environment.model_copy(update={"drift": [f"package-{n}" for n in range(7)]})
    lines = summary(simulated(environment=environment))
    assert lines[-2:] == ["  drift: package-4", "  drift: 2 more, which the report lists"]


def test_nothing_in_it_moves_the_cursor() -> None:
    for line in summary(hostile()):
        assert line.isprintable(), line
        assert len(line) <= 402
