"""Exit statuses stand once, and what is written of them elsewhere agrees."""

import importlib
import re
from pathlib import Path

import pytest

from failure_signature.trials import Verdict
from gpu_casebook.errors import CasebookError, ExitStatus

ROOT = Path(__file__).parents[1]
STATUS = re.compile(r"(?:[;:]|After) (\d+)\b")


def test_no_two_things_have_the_same_status() -> None:
    assert len(ExitStatus) == len(ExitStatus.__members__)  # of equal values one would be an alias
    assert {verdict.name for verdict in Verdict} <= set(ExitStatus.__members__)


@pytest.mark.parametrize("kind", CasebookError.__subclasses__(), ids=lambda kind: kind.__name__)
def test_every_error_has_one_of_them(kind: type[CasebookError]) -> None:
    assert kind.exit_status in set(ExitStatus)


MODULES = ("gpu_casebook.cli.base", "casebook_workbench.corpus.cli", "casebook_workbench.releases.cli")


@pytest.mark.parametrize("module", MODULES)
def test_help(module: str) -> None:
    text = Path(importlib.import_module(module).__file__ or "").read_text()
    (written,) = re.findall(r'f?"+(Exit status: .*?\.)(?= After|"|\n)', text, re.DOTALL)[:1]
    named = {int(found) for found in STATUS.findall(written)}
    assert named <= set(ExitStatus)
    assert named


def test_docs() -> None:
    text = "\n".join(path.read_text() for path in sorted(ROOT.glob("docs/*.md")))
    listed = re.findall(r"[Ee]xit status(?:es)?: (.*?)\.(?= |$)", " ".join(text.split()))
    named = {int(found) for found in re.findall(r"(?:^|; )(\d+)\b", "\n".join(listed), re.MULTILINE)}
    assert len(listed) > 1
    assert named <= set(ExitStatus)
    shown = {int(found) for found in re.findall(r"^\|.*\| (\d+) \|$", text, re.MULTILINE)} | named
    assert set(ExitStatus) - {ExitStatus.OTHER_ERROR} - shown <= {ExitStatus.INTERRUPTED}
    assert f"{ExitStatus.INTERRUPTED} interrupted" in text


def test_noxfile() -> None:
    assert f"\nSKIPPED = {ExitStatus.SKIPPED:d}\n" in (ROOT / "noxfile.py").read_text()
