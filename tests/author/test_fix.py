"""Fixes that are none: what `check` says of them. Those that are run besides, and those of which it can't say anything,
are in `tests/mutants/reader.py`.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from casebook_workbench.author.check import check_all
from casebook_workbench.author.fix import of_fix, of_script
from failure_signature.expectation import Expectation
from gpu_casebook.errors import Problem
from gpu_casebook.manifest.case import discover, find, known_images
from gpu_casebook.manifest.model import Provenance

ROOT = Path(__file__).parents[2]
FIGURES = Expectation.model_validate({"figures": {"rel_err": "< 1e-5"}})
SCRIPT = '''\
"""Look for rel_err."""
import time
import torch
import triton

N = 704
DEVICE = "cuda"

@triton.jit
def scale_kernel(x, y, n):
    y[n] = x[n] * 0.5

def scaled(x):
    y = torch.empty_like(x)
    scale_kernel[(1,)](x, y, len(x))
    return y

def relative_error(got, exact):
    return ((got.double() - exact).norm() / exact.norm()).item()

def main():
    torch.manual_seed(0)
    x = torch.randn(N, device=DEVICE)
    got = scaled(x)
    exact = x.double() * 2
    error = relative_error(got, exact)
    assert error < 1
    print(f"rel_err={error:.3e}")

main()
'''
FIXED = SCRIPT.replace("x[n] * 0.5", "x[n] * 2.0").replace("Look for", "Fixed:")
TRIED = "    try:\n        assert error < 1\n    except AssertionError:\n        pass\n"


def told(found: Iterable[Problem]) -> list[str]:
    return [f"{each.severity}: {each.what}" for each in found]


def changed(*changes: tuple[str, str], text: str = FIXED) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def of(fixed: str, repro: str = SCRIPT) -> list[str]:
    return told(of_fix(repro, fixed, "cases/tiny"))


def test_a_fix_alone_is_right() -> None:
    assert of(FIXED) == []
    assert told(of_script(FIXED, FIGURES, "fixed.py")) == told(of_script(SCRIPT, FIGURES, "repro.py")) == []


@pytest.mark.parametrize(
    ("fixed", "error"),
    [
        (changed(("import triton\n", ""), ("@triton.jit\n", "")), "does nothing with triton, which repro.py uses"),
        (changed(("@triton.jit\n", "")), "does nothing with triton, which repro.py uses"),
        (changed(("    scale_kernel[(1,)](x, y, len(x))\n", "    y.add_(x)\n")), "no longer uses scale_kernel, as rep"),
        (changed(("got = scaled(x)", "got = x * 2")), "no longer uses scaled, as repro.py does"),
        (changed(("{error:.3e}", "1e-7")), "prints a constant as rel_err, which repro.py computes"),
        (changed(("{error:.3e}", "{1e-7}")), "prints a constant as rel_err, which repro.py computes"),
        (changed(("error = relative_error(got, exact)", "error = 1e-7")), "prints a constant as rel_err, which re"),
        (changed(("relative_error(got, exact)", "relative_error(exact, exact)")), "compares exact with itself"),
        (changed(("got.double() - exact", "exact - exact")), "compares exact with itself"),
        (changed(("main()\n", "print('rel_err=0')\nraise SystemExit\nmain()\n")), "ends early, as if all were well"),
        (changed(("    got = ", "    import os\n    os._exit(0)\n    got = ")), "ends early, as if all were well"),
        (changed(("    assert error < 1\n", "    if False:\n        raise ValueError\n")), "has code that never runs"),
        (
            changed(("    assert error < 1\n", TRIED)),
            "a new try/except, which neither raises again nor repeats the call, hides the failure",
        ),
        (
            changed(("    assert error < 1\n", "    with suppress(AssertionError):\n        assert error < 1\n")),
            "suppress is new, and hides the failure",
        ),
        (changed(("torch.randn", "torch.ones")), "no longer calls torch.randn, as repro.py does"),
    ],
)
def test_what_can_be_no_fix_is_an_error(fixed: str, error: str) -> None:
    errors = [each for each in of(fixed) if each.startswith("error: ")]
    assert any(each.startswith(f"error: {error}") for each in errors), errors


@pytest.mark.parametrize(
    ("fixed", "warning"),
    [
        (changed(("N = 704", "N = 640")), "draws other random numbers than repro.py: N = 640"),
        (changed(('"cuda"', '"cpu"')), "draws other random numbers than repro.py: DEVICE = 'cpu'"),
        (
            changed(("manual_seed(0)", "manual_seed(1)")),
            "draws other random numbers than repro.py, whose torch.manual_seed(0) it lacks",
        ),
        (changed(("error < 1\n", "error < 9\n")), "does not assert what repro.py does: error < 1"),
        (changed(("{error:.3e}", "{error * 1e-9:.3e}")), "computes rel_err in another way than repro.py"),
        (changed((".norm() / exact.norm())", ")")), "computes rel_err in another way than repro.py"),
        (changed((" / exact.norm())", " / got.norm() / 9)")), "computes rel_err in another way than repro.py"),
        (changed(("exact = x.double() * 2", "exact = got.double()")), "computes rel_err in another way than repro.py"),
    ],
)
def test_what_may_be_no_fix_is_a_warning(fixed: str, warning: str) -> None:
    assert of(fixed) == [f"warning: {warning}"]


@pytest.mark.parametrize(
    "fixed",
    [
        changed(("got = scaled(x)", "got = scaled(x.contiguous())")),
        changed(("y = torch.empty_like(x)", "y = torch.zeros_like(x)")),
        changed(("import torch\n", "import torch\n\nBLOCK = 64\n")),
    ],
)
def test_a_change_that_is_what_many_a_fix_is_is_not_remarked(fixed: str) -> None:
    assert of(fixed) == []


@pytest.mark.parametrize(
    ("repro", "warning"),
    [
        (changed(("    got = ", "    time.sleep(99)\n    got = ")), "waits by itself, and fixed.py does not"),
        (changed(("    got = ", "    raise ValueError('sizes differ')\n    got = ")), "raises by itself, and fixed.py"),
        (changed(("    got = ", "    os.abort()\n    got = ")), "ends by itself, and fixed.py does not"),
    ],
)
def test_what_repro_does_to_itself_is_a_warning(repro: str, warning: str) -> None:
    found = [each for each in of_fix(repro, FIXED, "cases/tiny") if each.path == "cases/tiny/repro.py"]
    assert [each.startswith(f"warning: {warning}") for each in told(found)] == [True]


@pytest.mark.parametrize("noise", ["torch.rand_like(x)", "random.gauss(x)"])
def test_noise_that_repro_adds_is_an_error(noise: str) -> None:
    repro = changed(("scaled(x)\n", f"scaled(x) + {noise}\n"), ("import time", "import random\nimport time"))
    assert of(FIXED, repro) == [f"error: no longer calls {noise.partition('(')[0]}, as repro.py does"]


def test_a_call_that_is_left_out_is_an_error_and_one_that_is_made_otherwise_is_none() -> None:
    repro = changed(("got = scaled(x)", "got = torch.sort(scaled(x))"))
    assert of(changed(("got = scaled(x)", "got = scaled(x)[order(x)]")), repro) == []
    assert of(changed(("got = scaled(x)", "got = exact_of[0], scaled")), repro)[0] == (
        "error: no longer calls torch.sort, as repro.py does"
    )


def test_a_try_that_makes_the_call_again_is_a_fix() -> None:
    once = "        got = scaled(x)\n"
    again = f"    try:\n{once}    except RuntimeError:\n        torch.cuda.empty_cache()\n{once}"
    assert of(changed(("    got = scaled(x)\n", again))) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "error: is empty or only prints, so nothing is checked"),
        ('"""Nothing."""\nprint("rel_err=1e-7")\n', "error: is empty or only prints, so nothing is checked"),
        (
            "import torch\nmodel = torch.nn.Linear(3, 3)\nprint('rel_err=1e-7')\n",
            "error: computes no figure that the manifest bounds: rel_err stand there as constants",
        ),
        (
            "import torch\nmodel = torch.nn.Linear(3, 3)\nerror = 2e-7 / 2\nprint('rel_err=%.3e' % error)\n",
            "error: computes no figure that the manifest bounds: rel_err stand there as constants",
        ),
    ],
)
def test_a_script_by_itself(text: str, what: str) -> None:
    assert what in told(of_script(text, FIGURES, "fixed.py"))


def test_a_hang_in_a_function_of_the_scripts_own_that_waits() -> None:
    text = "import time\ndef exchange():\n    time.sleep(600)\nexchange()\n"
    hang = Expectation.model_validate({"hang": {"after": "20s", "stack": "exchange"}})
    assert told(of_script(text, hang, "repro.py")) == [
        "warning: exchange, where the manifest says that it hangs, waits by itself"
    ]


@pytest.mark.parametrize("name", discover(ROOT))
def test_nothing_is_said_of_the_corpus_and_its_work_arounds_alone_say_why(name: str) -> None:
    case = find(ROOT, name, known_images(ROOT))
    assert bool(case.manifest.because) == (case.manifest.provenance is Provenance.RELEASE_WORKAROUND)
    assert check_all(ROOT, [name]) == []
