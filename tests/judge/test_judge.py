import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from casebook_workbench.judge.run import exit_status
from failure_signature.judging.signature import Sign
from tests.conftest import MANIFEST, PLAIN, Checkout

PYTHON = sys.executable
FAILS = "raise ValueError('sizes differ by two')"
HANGS = PLAIN.replace("{exception: ValueError, message: sizes differ}", "{hang: {after: 1s, stack: wait_for_ever}}")


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with cases that fail by an exception, by a figure, and by a hang, as the working directory."""
    checkout.write(PLAIN, name="plain")
    checkout.write(HANGS.replace("id: plain", "id: hangs").replace("failure: exception", "failure: hang"), name="hangs")
    checkout.write()
    monkeypatch.chdir(checkout.root)
    return checkout.root


def judge(*words: str) -> tuple[int, str, str]:
    done = subprocess.run([PYTHON, "-m", "gpu_casebook", "judge", *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def script(text: str) -> list[str]:
    Path("it.py").write_text(text)
    return ["--", PYTHON, "it.py"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("text", "status", "line"),
    [
        (FAILS, 0, "shows the failure of plain, as in environment one, two: ValueError: sizes differ by two"),
        ("print('fine')", 10, "ran to its end without the failure of plain"),
        ("import nothing", 11, "failed in another way than plain: ModuleNotFoundError"),
        ("raise SystemExit('No space left on device')", 13, "does not tell: "),
    ],
)
def test_the_exit_status_is_what_the_run_says(text: str, status: int, line: str) -> None:
    got, _, said = judge("plain", *script(text))
    assert (got, f"casebook: {line}" in said) == (status, True), said


@pytest.mark.parametrize(
    ("sign", "introduced", "fixed"),
    [(Sign.SHOWS, 1, 0), (Sign.ABSENT, 0, 1), (Sign.OTHER, 125, 125), (Sign.UNKNOWN, 125, 125)],
)
def test_git_is_told_what_it_asks(sign: Sign, introduced: int, fixed: int) -> None:
    assert (exit_status(sign, "introduced"), exit_status(sign, "fixed")) == (introduced, fixed)


@pytest.mark.usefixtures("here")
def test_a_figure_is_compared_and_one_that_is_not_printed_tells_nothing() -> None:
    for text, status in (("print('rel_err=0.5')", 0), ("print('rel_err=0')", 10), ("print('nothing')", 13)):
        assert judge("tiny", *script(text))[0] == status
    assert judge("tiny", "--bisect", "introduced", *script("print('nothing')"))[0] == 125


def test_of_a_failure_that_ends_the_run_no_figure_is_asked_for(here: Path) -> None:
    manifest = here / "cases" / "plain" / "case.yaml"
    manifest.write_text(PLAIN.replace("message: sizes differ}", 'message: sizes differ, figures: {size: "== 2"}}'))
    assert judge("plain", *script(FAILS))[0] == 0
    assert judge("plain", *script(f"print('size=2')\n{FAILS}"))[0] == 0
    assert judge("plain", *script(f"print('size=3')\n{FAILS}"))[0] == 11
    assert judge("plain", *script("print('fine')"))[0] == 10


@pytest.mark.usefixtures("here")
def test_a_hang_is_seen_by_where_it_stands() -> None:
    waits = "import time\ndef {name}():\n    import threading; threading.Event().wait()\n{name}()\n"
    assert judge("hangs", *script(waits.format(name="wait_for_ever")))[0] == 0
    assert judge("hangs", *script(waits.format(name="elsewhere")))[0] == 11
    assert judge("hangs", *script("print('fine')"))[0] == 10


@pytest.mark.usefixtures("here")
def test_output_is_passed_on_and_the_verdict_goes_to_stderr() -> None:
    command = script("import sys; print('out'); print('err', file=sys.stderr)")
    status, out, err = judge("plain", *command)
    assert (status, out, err.splitlines()[0]) == (10, "out\n", "err")
    assert judge("plain", "--quiet", *command)[1:] == ("", err.partition("\n")[2])


@pytest.mark.usefixtures("here")
def test_a_rare_failure_is_run_again_until_it_shows() -> None:
    text = "from pathlib import Path\nn = Path('n')\nn.write_text(n.read_text() + '.' if n.exists() else '.')\n"
    command = script(f"{text}if len(n.read_text()) == 3: {FAILS}\n")
    assert judge("plain", "--runs", "2", *command)[0] == 10
    assert judge("plain", "--runs", "5", *command)[0] == 0
    assert len(Path("n").read_text()) == 3


@pytest.mark.usefixtures("here")
def test_a_time_limit_ends_it() -> None:
    status, _, said = judge("plain", "--timeout", "1s", *script("import time; time.sleep(60)"))
    assert (status, "ended at the time limit" in said) == (11, True)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["plane", "--", "true"], "casebook: no case 'plane'; did you mean plain?"),
        (
            ["plain", "--environment", "tow", "--", "true"],
            "casebook: case plain has no environment 'tow'; did you",
        ),
        (["plain", "--", "./nothing"], "casebook: no command './nothing' here"),
    ],
)
def test_what_can_not_be_judged_ends_a_bisection(words: list[str], line: str) -> None:
    status, out, said = judge(*words)
    assert (status, out, said.startswith(line), said.count("\n")) == (2, "", True, 1)
    assert judge("--bisect", "fixed", *words) == (255, "", said)


def test_a_difference_between_runs_is_none_of_one_run(here: Path) -> None:
    manifest = MANIFEST.replace('figures: {rel_err: "> 1e-2"}', "differs: [out]").replace(
        'figures: {rel_err: "< 1e-5"}', "same: [out]"
    )
    (here / "cases" / "tiny" / "case.yaml").write_text(f"{manifest}trials: 40\n")
    assert judge("tiny", "--", "true")[2].startswith("casebook: tiny: its failure is a difference between runs")


@pytest.mark.parametrize("looks_for", ["introduced", "fixed"])
def test_git_bisect_finds_the_commit(here: Path, tmp_path_factory: pytest.TempPathFactory, looks_for: str) -> None:
    """Nine revisions, of which one cannot even be imported; the sixth brings the failure, or takes it away."""
    project = tmp_path_factory.mktemp("project")

    def git(*words: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *who, *words], cwd=project, capture_output=True, text=True, check=True).stdout

    git("init", "--quiet")
    for number in range(1, 10):
        fails = (number >= 6) == (looks_for == "introduced")
        text = "import nothing" if number == 3 else FAILS if fails else "print('fine')"
        (project / "it.py").write_text(f"# {number}\n{text}\n")
        git("add", ".")
        git("commit", "--quiet", "-m", f"revision {number}")
    terms = ["--term-new=fixed", "--term-old=broken"] if looks_for == "fixed" else []
    git("bisect", "start", *terms, "HEAD", "HEAD~8")
    judging = [PYTHON, "-m", "gpu_casebook", "judge", "plain", "--corpus", str(here), "--bisect", looks_for]
    said = git("bisect", "run", "sh", "-c", shlex.join([*judging, "--", PYTHON, "it.py"]))
    assert f"is the first {'bad' if looks_for == 'introduced' else 'fixed'} commit" in said
    assert (
        git("log", "-1", "--format=%s", "bisect/bad" if looks_for == "introduced" else "bisect/fixed").strip()
        == "revision 6"
    )
