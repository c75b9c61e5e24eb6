import io
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_casebook
from failure_signature.kinds import Variant
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry
from gpu_casebook.errors import UsageError
from tests.conftest import Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine


@pytest.fixture
def corpus(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus with one case, on a machine without a GPU, whose engine is a fake one."""
    write_locks(checkout.write().parent)
    monkeypatch.setattr(hardware, "gpus", list)
    monkeypatch.setattr(registry, "choose", lambda *_: FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]}))
    return checkout.root


def test_importing_it_is_cheap() -> None:
    script = "import sys; import gpu_casebook; print(*(m for m in sys.modules if m.startswith(('gpu_', 'pydantic'))))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "gpu_casebook\n"


def test_every_name_is_there_and_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
    for name in gpu_casebook.__all__:
        assert getattr(gpu_casebook, name)
        assert name in dir(gpu_casebook)
        assert f"`{name}" in page or name == "__version__"
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        gpu_casebook.lod  # type: ignore[attr-defined]  # noqa: B018


def test_a_case_is_run_and_its_evidence_returned_and_nothing_written(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(corpus.rglob("*"))
    case = gpu_casebook.load("tiny", corpus)
    assert (case.id, case.manifest.title) == ("tiny", "A sum in bfloat16 loses its small terms")
    assert case.script(Variant.REPRO) == corpus / "cases" / "tiny" / "repro.py"
    progress = io.StringIO()
    evidence = case.run(environment="interpreter", trials=4, progress=progress)
    assert evidence.verdict is gpu_casebook.Verdict.CONFIRMED
    assert evidence.rates[Variant.REPRO].n == 4
    assert "repro trial 1: as-expected" in progress.getvalue()
    case.run()
    assert capsys.readouterr().out == ""
    assert sorted(corpus.rglob("*")) == before


def test_what_cannot_run_here_is_an_error_with_reasons(corpus: Path) -> None:
    with pytest.raises(gpu_casebook.SkippedError) as caught:
        gpu_casebook.load("tiny", corpus).run(environment="current")
    assert caught.value.reasons == ("current: 1 GPU is needed, and there is none",)
    assert isinstance(caught.value, gpu_casebook.CasebookError)


def test_what_is_not_there(corpus: Path, tmp_path: Path) -> None:
    assert gpu_casebook.cases(corpus) == ["tiny"]
    with pytest.raises(UsageError, match="no case 'tinny'; did you mean tiny"):
        gpu_casebook.load("tinny", str(corpus))
    with pytest.raises(UsageError, match="did you mean current"):
        gpu_casebook.load("tiny", corpus).run(environment="curent")
    with pytest.raises(UsageError, match="no cases/ in"):
        gpu_casebook.cases(tmp_path / "nowhere")


def test_without_a_corpus_it_is_the_public_one() -> None:
    assert "rwkv6-backward" in gpu_casebook.cases()
    assert gpu_casebook.load("rwkv6-backward").corpus == Path(__file__).parents[1]
