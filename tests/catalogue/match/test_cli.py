import io
from pathlib import Path

import pytest

from gpu_casebook.errors import UsageError
from tests.cli.test_cli import casebook
from tests.conftest import PLAIN, Checkout

MESSAGE = "RuntimeError: the expanded size of the tensor (64) must match the existing size (16)"


@pytest.fixture(autouse=True)
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    manifest = checkout.write()
    manifest.write_text(
        manifest.read_text().replace("failure:", "symptom: The expanded size of a tensor is another\nfailure:", 1)
    )
    (manifest.parent / "README.md").write_text(f"# x\n\n## What users saw\n{MESSAGE} in dq_kernel\n")
    monkeypatch.chdir(checkout.root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(checkout.root / "cache"))
    return checkout.root


def test_words(here: Path) -> None:
    status, said = casebook("match", "expanded", "size", "of", "the", "tensor", "dq_kernel", "existing", "match", "64")
    assert status == 0
    assert said.startswith("1. tiny")
    assert "The expanded size of a tensor is another" in said
    assert "fits: " in said
    assert "then nox -s case-tiny" in said
    assert "cases/tiny/README.md" in said


def test_a_log_by_its_name(here: Path) -> None:
    (here / "log.txt").write_bytes(b"\xff" + MESSAGE.encode() + b" in dq_kernel\n")
    assert casebook("match", "log.txt")[1].startswith("1. tiny")


def test_what_comes_on_stdin(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{MESSAGE} in dq_kernel".encode())))
    from casebook_workbench.catalogue.cli import _text

    assert _text([]) == f"{MESSAGE} in dq_kernel"


def test_nothing_fits() -> None:
    status, said = casebook("match", "a kitchen is on fire")
    assert status == 0
    assert said == "no case fits, of 1: nothing that one declares, and too few of its words\n"


@pytest.mark.parametrize(
    ("message", "sure"), [("sizes differ in the whole of it", True), ("one of the sizes differs", False)]
)
def test_a_trace_with_all_that_the_case_declares_is_its_failure(
    here: Path,
    checkout: Checkout,
    message: str,
    sure: bool,  # noqa: FBT001
) -> None:
    """By the rule of `judge`. What is only likely, as its words are, is not said to be it."""
    checkout.write(PLAIN.replace("message: sizes differ}", "message: sizes differ in the whole}"), name="plain")
    trace = f'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nValueError: {message}\n'
    (here / "log.txt").write_text(trace)
    (here / "cases" / "plain" / "README.md").write_text(f"# x\n\n## What users saw\n{message}\n")
    said = casebook("match", "log.txt")[1]
    assert said.startswith("1. plain")
    assert ("it is this failure: the text has all that the case declares of it" in said) == sure
    assert ("none of them is likely" in said) <= (not sure)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("",), "nothing to look for; give a log's file or words, or pipe a log in"),
        (("x", "--packages", "gone.txt"), "gone.txt: can't be read: No such file or directory"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], told: str) -> None:
    status, said = casebook("match", *words)
    assert (status, told in said) == (UsageError.exit_status, True)
