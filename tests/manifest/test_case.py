import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from failure_signature.bounds import Bound
from failure_signature.expectation import Expectation
from failure_signature.kinds import Grade, Variant
from gpu_casebook.errors import ManifestError, UsageError
from gpu_casebook.manifest import case
from gpu_casebook.manifest.case import Case, discover, find, known_images, load
from gpu_casebook.manifest.document import read
from gpu_casebook.manifest.schema import SCHEMA, schema_text, write_schema
from gpu_casebook.pins import pin
from tests.conftest import IMAGES, MANIFEST, Checkout

ROOT = Path(__file__).parents[2]
Change = Callable[[str, str], str]


def loaded(checkout: Checkout, manifest: str = MANIFEST) -> Case:
    return load(checkout.write(manifest), IMAGES, checkout.root)


def problems(checkout: Checkout, manifest: str | bytes) -> list[str]:
    """Each problem without the path it begins with."""
    path = checkout.write()
    path.write_bytes(manifest if isinstance(manifest, bytes) else manifest.encode())
    with pytest.raises(ManifestError) as caught:
        load(path, IMAGES, checkout.root)
    assert all(problem.path == "cases/tiny/case.yaml" for problem in caught.value.problems)
    return [str(problem).removeprefix("cases/tiny/case.yaml:") for problem in caught.value.problems]


class TestGood:
    def test_values(self, checkout: Checkout) -> None:
        manifest = loaded(checkout).manifest
        assert manifest.id == "tiny"
        assert manifest.timeout == 120.0
        assert manifest.memory == 16 * 2**30
        assert list(manifest.environments) == ["current", "interpreter"]
        assert manifest.environments["current"].grade is Grade.HARDWARE

    def test_by_a_relative_path(self, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        checkout.write()
        monkeypatch.chdir(checkout.root / "cases" / "tiny")
        assert load(Path("case.yaml"), IMAGES).script(Variant.REPRO) == checkout.root / "cases/tiny/repro.py"

    @pytest.mark.parametrize(
        ("written", "seconds"),
        [
            ("120s", 120.0),
            ("2m", 120.0),
            ("1h30m", 5400.0),
            ("90", 90.0),
            ("0.5", 0.5),
            ("1.5m", 90.0),
            ("250ms", 0.25),
        ],
    )
    def test_timeout(self, checkout: Checkout, change: Change, written: str, seconds: float) -> None:
        assert loaded(checkout, change("timeout: 2m", f"timeout: {written}")).manifest.timeout == seconds

    @pytest.mark.parametrize(
        ("written", "size"),
        [("16GiB", 2**34), ("512 MiB", 2**29), ("1.5GiB", 3 * 2**29), ("2GB", 2 * 10**9), ("1048576", 2**20)],
    )
    def test_memory(self, checkout: Checkout, change: Change, written: str, size: int) -> None:
        assert loaded(checkout, change("timeout: 2m", f"memory: {written}")).manifest.memory == size

    def test_a_host_arithmetic_bug_on_hardware_needs_no_gpu(self, checkout: Checkout, change: Change) -> None:
        manifest = change('    gpus: 1\n    compute_capability: ">=7.0,<10.0"\n', "    grade: hardware\n")
        assert loaded(checkout, manifest).environment("current").gpus == 0


class TestMethods:
    def test_expectation_is_merged_key_by_key(self, checkout: Checkout) -> None:
        tiny = loaded(checkout)
        assert tiny.expectation("current", Variant.FIXED) == tiny.manifest.fixed.expect
        there = tiny.expectation("interpreter", Variant.FIXED)
        assert there.message == "all good"
        assert list(there.figures) == ["rel_err"]
        assert tiny.expectation("interpreter", Variant.REPRO) == tiny.manifest.repro.expect

    @pytest.mark.parametrize("nothing", ["null", "{}"])
    def test_override_can_drop_a_key(self, checkout: Checkout, change: Change, nothing: str) -> None:
        dropped = f"{{message: all good, figures: {nothing}}}\n      repro: {{exception: ValueError}}"
        tiny = loaded(checkout, change("{message: all good}", dropped))
        assert tiny.expectation("interpreter", Variant.FIXED).figures == {}

    def test_variables(self, checkout: Checkout, change: Change) -> None:
        tiny = loaded(checkout, change("    grade: simulated", "    variables: {TRITON_INTERPRET: '1'}"))
        assert tiny.environment("interpreter").variables == {"TRITON_INTERPRET": "1"}
        assert tiny.environment("current").variables == {}

    def test_one_lock_for_both_variants(self, checkout: Checkout) -> None:
        tiny = loaded(checkout)
        assert {tiny.lock_path("current", variant) for variant in Variant} == {tiny.directory / "locks/current.txt"}
        assert tiny.requirements("current", Variant.REPRO) == ["numpy==2.2.6"]

    def test_a_lock_for_each_variant_of_a_release_case(self, checkout: Checkout) -> None:
        tiny = loaded(checkout, release())
        assert tiny.lock_path("current", Variant.FIXED) == tiny.directory / "locks/current.fixed.txt"
        assert tiny.lock_path("current", Variant.REPRO) == tiny.directory / "locks/current.repro.txt"
        assert tiny.requirements("current", Variant.FIXED) == ["numpy==2.2.6", "trl==0.14.0"]

    def test_an_unknown_environment(self, checkout: Checkout) -> None:
        tiny = loaded(checkout)
        with pytest.raises(UsageError, match=r"^case tiny has no environment 'curent'; did you mean current\?$"):
            tiny.environment("curent")
        with pytest.raises(UsageError, match=r"^case tiny has no environment 'x' \(there are: current, interpreter\)$"):
            tiny.lock_path("x", Variant.REPRO)


def release(repro: str = "[trl==0.13.0]", fixed: str = "[trl==0.14.0]") -> str:
    manifest = MANIFEST.replace("provenance: distilled", "provenance: release")
    manifest = manifest.replace("repro:\n", f"repro:\n  requirements: {repro}\n")
    return manifest.replace("fixed:\n  expect", f"fixed:\n  requirements: {fixed}\n  expect")


class TestFinding:
    def test_discover(self, checkout: Checkout) -> None:
        for name in ("zeta", "alpha"):
            checkout.write(MANIFEST.replace("id: tiny", f"id: {name}"), name=name)
        (checkout.root / "cases" / "no-manifest").mkdir()
        assert discover(checkout.root) == ["alpha", "zeta"]

    def test_find(self, checkout: Checkout) -> None:
        checkout.write()
        assert find(checkout.root, "tiny", IMAGES).id == "tiny"

    def test_unknown_id_names_the_nearest(self, checkout: Checkout) -> None:
        checkout.write()
        with pytest.raises(UsageError, match=r"^no case 'tinny'; did you mean tiny\?$"):
            find(checkout.root, "tinny", IMAGES)

    @pytest.mark.parametrize("name", ["../tiny", "", ".", "..", "tiny/locks", "/", "../cases/tiny"])
    def test_only_names_are_ids(self, checkout: Checkout, name: str) -> None:
        checkout.write()
        with pytest.raises(UsageError, match="no case"):
            find(checkout.root, name, IMAGES)

    def test_one_case_is_found_without_looking_at_all(
        self, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkout.write()
        monkeypatch.delattr(case, "discover")
        assert find(checkout.root, "tiny", IMAGES).id == "tiny"

    def test_known_images(self, checkout: Checkout) -> None:
        (checkout.root / "images" / "without-dockerfile").mkdir()
        assert known_images(checkout.root) == list(IMAGES)


WRONG = [
    # keys
    ("timeout: 2m", "timeot: 2m", "28: timeot: unknown key; did you mean timeout?"),
    (
        "    grade: simulated",
        "    grad: simulated",
        "19: environments.interpreter.grad: unknown key; did you mean grade?",
    ),
    ('figures: {rel_err: "> 1e-2"}', "mesage: x", "24: repro.expect.mesage: unknown key; did you mean message"),
    ("title: A sum in bfloat16 loses its small terms\n", "", "2: title: key is missing"),
    ("    image: cuda13\n", "", "11: environments.current.image: key is missing"),
    ("timeout: 2m", "id: tiny", "28: id: key is there twice; keep one"),
    # types
    ("gpus: 1", "gpus: one", "14: environments.current.gpus: value should be a valid integer, not one"),
    ("gpus: 1", "gpus: true", "14: environments.current.gpus: value should be a valid integer, not true"),
    ("gpus: 1", "gpus: -1", "14: environments.current.gpus: value should be greater than or equal to 0, not -1"),
    ("title: A sum in bfloat16 loses its small terms", "title:", "3: title: is empty; it must be text"),
    ("title: A sum in bfloat16 loses its small terms", "title: [a]", "3: title: must be text"),
    ("title: A sum in bfloat16 loses its small terms", 'title: "a\\nb"', "3: title: 'a\\nb' must be one line of text"),
    ("[numpy==2.2.6]", "numpy==2.2.6", "13: environments.current.requirements: must be a list"),
    (
        "issue: https://example.org/owner/name/issues/1",
        "issue: ftp://x.org/1",
        "8: upstream.issue: 'ftp://x.org/1' is no",
    ),
    ("timeout: 2m", "timeout: 2 minutes", "28: timeout: '2 minutes' is not a duration; write '120s', '2m', '1h30m' or"),
    ("timeout: 2m", "timeout: 0", "28: timeout: value should be greater than 0, not 0"),
    ("timeout: 2m", "timeout: 25h", "28: timeout: value should be less than or equal to 86400"),
    ("timeout: 2m", "memory: lots", "28: memory: 'lots' is not an amount of memory; write '16GiB', '512MiB' or"),
    ("timeout: 2m", "memory: 16", "28: memory: value should be greater than or equal to 1048576, not 16"),
    ("timeout: 2m", "trials: 1.5", "28: trials: value should be a valid integer, not 1.5"),
    ("timeout: 2m", "trials: 0", "28: trials: value should be greater than or equal to 1, not 0"),
    # names
    ("id: tiny", "id: other", "2: id: other is not the name of its directory, tiny"),
    ("  current:", "  Current:", "11: environments.Current: 'Current' must consist of a-z, 0-9 and hyphens"),
    (
        "failure: wrong-numbers",
        "failure: wrong",
        "4: failure: 'wrong' is none of: compile-error, illegal-access, wrong-",
    ),
    ("status: fixed", "status: closed", "7: upstream.status: 'closed' is none of: fixed, open"),
    ("cuda13", "cuda14", "12: environments.current.image: no image named cuda14 (there are: cpu, cuda12, cuda13)"),
    (
        "grade: simulated",
        "variables: {A-B: x}",
        "19: environments.interpreter.variables.A-B: 'A-B' is not a name of an environment",
    ),
    # versions and requirements
    (
        '">=7.0,<10.0"',
        '"7.0+"',
        "15: environments.current.compute_capability: '7.0+' is not a range of versions; write one",
    ),
    (
        '">=7.0,<10.0"',
        '""',
        "15: environments.current.compute_capability: an empty range says nothing; leave the key out",
    ),
    (
        'compute_capability: ">=7.0,<10.0"',
        "capability_from: a README",
        "15: environments.current.capability_from: says where bounds come from, and there are none",
    ),
    ('compute_capability: ">=7.0,<10.0"', "driver: new", "15: environments.current.driver: 'new' is not a range of"),
    ("==2.2.6", "", "13: environments.current.requirements[0]: 'numpy' is not pinned; write numpy==VERSION"),
    ("==2.2.6", ">=2", "13: environments.current.requirements[0]: 'numpy>=2' is not pinned"),
    ("==2.2.6", "==2.*", "13: environments.current.requirements[0]: 'numpy==2.*' is not pinned"),
    (
        "==2.2.6",
        " @ https://x.org/a.whl",
        "13: environments.current.requirements[0]: 'numpy @ https://x.org/a.whl' is not",
    ),
    (
        "numpy==2.2.6",
        "num py",
        "13: environments.current.requirements[0]: 'num py' is not a requirement; write one such",
    ),
    (
        "gpus: 1",
        "gpus: 1\n    build: [a==1]",
        "15: environments.current.build[0]: 'a==1' is not a package's name; its version",
    ),
    (
        "gpus: 1",
        "gpus: 1\n    without_dependencies: [NumPy, vllm]",
        "15: environments.current.without_dependencies[1]: vllm is not among the requirements",
    ),
    (
        "gpus: 1",
        "gpus: 1\n    only_files: [numpy/version.py]",
        "15: environments.current.only_files: are of the packages in without_dependencies; name them there",
    ),
    (
        "gpus: 1",
        "gpus: 1\n    without_dependencies: [numpy]\n    only_files: [../numpy/version.py]",
        "16: environments.current.only_files[0]: '../numpy/version.py' is not a package's file",
    ),
    (
        "numpy==2.2.6]",
        "torch==2.13.0+cpu]",
        "11: environments.current.index: torch==2.13.0+cpu is on PyTorch's own index alone; write index: pytorch-cpu",
    ),
    (
        "numpy==2.2.6]",
        "torch==2.13.0+cu130]",
        "11: environments.current.index: torch==2.13.0+cu130 is on no index that a case may use; pin torch==2.13.0",
    ),
    (
        "numpy==1.26.4]",
        "torch==2.13.0]\n    index: pytorch-cpu",
        "19: environments.interpreter.index: nothing is required from it; pin a build such as torch==2.13.0+cpu",
    ),
    (
        "numpy==2.2.6]",
        "torch==2.13.0+cpu]\n    index: pytorch-cpu",
        "14: environments.current.index: has builds that use no GPU; leave out the index or gpus",
    ),
    ("image: cpu", "image: cpu\n    index: pypi", "18: environments.interpreter.index: 'pypi' is none of: pytorch-cpu"),
    ("numpy==2.2.6", "a==1, A==2", "13: environments.current.requirements[1]: a is required twice; keep one"),
    ("[numpy==2.2.6]", "['a==1; python_version>\"3\"']", "13: environments.current.requirements[0]: 'a==1; python_v"),
    ("gpus: 1", "gpus: 0", "15: environments.current.compute_capability: asks for a GPU, but gpus is 0; set gpus: 1"),
    (
        "image: cpu",
        "image: cpu\n    gpu_memory: 4GiB",
        "18: environments.interpreter.gpu_memory: asks for a GPU, but gpus is 0; set gpus: 1 or leave it out",
    ),
    # YAML's surprises
    (
        "grade: simulated",
        "python: 3.10",
        "19: environments.interpreter.python: must be text, but YAML reads 3.10 as the number 3.1; put",
    ),
    (
        "grade: simulated",
        "python: '3.7'",
        "19: environments.interpreter.python: '3.7' is not a minor version of Python; write one such",
    ),
    (
        "grade: simulated",
        "variables: {A: 1}",
        "19: environments.interpreter.variables.A: must be text, but YAML reads 1 as the number",
    ),
    (
        "grade: simulated",
        "variables: {A: true}",
        "19: environments.interpreter.variables.A: must be text, but YAML reads true as a truth",
    ),
    (
        "grade: simulated",
        "variables: {A: no}",
        "19: environments.interpreter.variables.A: YAML reads no as a truth value; put it in",
    ),
    ("timeout: 2m", "timeout: 1:30", "28: timeout: YAML reads 1:30 as a number; put it in quotes if it is text"),
    ("timeout: 2m", "timeout: 010", "28: timeout: YAML reads 010 as a number; put it in quotes if it is text"),
    (
        "status: fixed",
        "status: fixed\n  introduced: 2024-01-01",
        "8: upstream.introduced: YAML reads 2024-01-01 as a date",
    ),
    ("status: fixed", "status: fixed\n  on: x", "8: upstream.on: YAML reads on as a truth value"),
    (
        "timeout: 2m",
        "timeout: !!python/object:os.system x",
        "28: timeout: tag !!python/object:os.system is not allowed",
    ),
    ("timeout: 2m", "timeout: !!int 5", "28: timeout: tag !!int is not allowed; leave it out"),
    (
        "[numpy==2.2.6]",
        "!!python/tuple [numpy==2.2.6]",
        "13: environments.current.requirements: tag !!python/tuple is not allowed; leave it out",
    ),
    ("timeout: 2m", "<<: {trials: 1}", "28: <<: YAML reads << as a merge key"),
    # expectations
    (
        '"> 1e-2"',
        "big",
        "24: repro.expect.figures.rel_err: 'big' is not a bound; write comparisons such as '< 1e-5' or",
    ),
    (
        '"> 1e-2"',
        "0.5",
        "24: repro.expect.figures.rel_err: 0.5 is not a bound; write comparisons such as '< 1e-5', in quotes",
    ),
    (
        '{rel_err: "> 1e-2"}',
        "{rel err: '> 1'}",
        "24: repro.expect.figures.rel err: 'rel err' is not a name of a figure",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "message: '(a'",
        "24: repro.expect.message: is not a regular expression: missing ),",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "message: '[[a]'",
        "24: repro.expect.message: is not a regular expression: Possible",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "signal: SIGBAD",
        "24: repro.expect.signal: no signal is called 'SIGBAD'; write a",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "exit_status: 134",
        "24: repro.expect.exit_status: exit status 134 is how a shell",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "exit_status: 300",
        "24: repro.expect.exit_status: value should be less than or equal to 255, not 300",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "cuda_error: '700'",
        "24: repro.expect.cuda_error: '700' is not a CUDA error; write its",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "cuda_error: cudaErrorIllegalAdress",
        "24: repro.expect.cuda_error: cudaErrorIllegalAdress is not an error of CUDA; did you mean cudaErrorIllegalA",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "cuda_error: CUBLAS_STATUS_SUCCESS",
        "24: repro.expect.cuda_error: CUBLAS_STATUS_SUCCESS is not an error of CUDA",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "exception: 'A: b'",
        "24: repro.expect.exception: 'A: b' is not an exception type",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "{signal: SIGABRT, exit_status: 3}",
        "24: repro.expect.signal: a process ends by a",
    ),
    # a repro that names no failure
    ('figures: {rel_err: "> 1e-2"}', "{}", "23: repro.expect: names no failure: say which"),
    ('figures: {rel_err: "> 1e-2"}', "exit_status: 0", "23: repro.expect: names no failure"),
    ('figures: {rel_err: "> 1e-2"}', "exit_status: 1", "23: repro.expect: names no failure"),
    ('figures: {rel_err: "> 1e-2"}', "message: 'x*'", "24: repro.expect.message: fits much else; take more of"),
    # a repro that fits much else: a short message, a bound that always holds, a type or a signal alone
    ('figures: {rel_err: "> 1e-2"}', "message: e", "24: repro.expect.message: fits much else, such as 'error'; take"),
    ('figures: {rel_err: "> 1e-2"}', "message: size", "24: repro.expect.message: fits much else, such as 'size'; take"),
    ('figures: {rel_err: "> 1e-2"}', "message: 'q.j'", "24: repro.expect.message: fits much else; take more of the"),
    (
        'figures: {rel_err: "> 1e-2"}',
        "message: 'off by two|Error'",
        "24: repro.expect.message: fits much else, such as",
    ),
    ('figures: {rel_err: "> 1e-2"}', 'figures: {rel_err: ">= 0"}', "23: repro.expect: names no failure"),
    ('figures: {rel_err: "> 1e-2"}', "exception: ValueError", "23: repro.expect: any ValueError would do: add a mess"),
    ('figures: {rel_err: "> 1e-2"}', "signal: SIGSEGV", "23: repro.expect: any SIGSEGV would do: add a message or"),
    ('figures: {rel_err: "> 1e-2"}', "exit_status: 3", "23: repro.expect: any exit status 3 would do: add a mess"),
    (
        'figures: {rel_err: "> 1e-2"}',
        "{exception: ValueError, figures: {done: '>= 0'}}",
        "23: repro.expect: any ValueError would do",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "{cuda_error: cudaErrorIllegalAddress, exit_status: 0}",
        "24: repro.expect.cuda_error: is a failure, and exit_status 0 is none; leave one out",
    ),
    # a hang that any process that waits is in
    (
        'figures: {rel_err: "> 1e-2"}',
        "hang: {after: 20s, stack: 'poll|wait'}",
        "24: repro.expect.hang.stack: matches wha",
    ),
    ('figures: {rel_err: "> 1e-2"}', "hang: {after: 20s, stack: '[a-z]+'}", "24: repro.expect.hang.stack: matches wha"),
    (
        "{message: all good}",
        "{message: all good}\n      repro: {figures: {}}",
        "22: environments.interpreter.expect.repro: names no failure",
    ),
    # a fixed that proves nothing, or that fails
    ('figures: {rel_err: "< 1e-5"}', "{}", "26: fixed.expect: proves nothing: name a figure with"),
    ('figures: {rel_err: "< 1e-5"}', "message: '(ok)?'", "27: fixed.expect.message: fits much else; take more"),
    ('figures: {rel_err: "< 1e-5"}', 'figures: {rel_err: ">= 0"}', "26: fixed.expect: proves nothing"),
    ('figures: {rel_err: "< 1e-5"}', 'figures: {rel_err: "!= 7"}', "26: fixed.expect: proves nothing"),
    (
        'figures: {rel_err: "< 1e-5"}',
        "growth: {series: bytes, per_step: '> -1'}",
        "26: fixed.expect: proves nothing",
    ),
    ("{message: all good}", "{figures: {}}", "21: environments.interpreter.expect.fixed: proves nothing: name a"),
    (
        'figures: {rel_err: "< 1e-5"}',
        "figures: {a: '< 1'}\n    exit_status: 3",
        "28: fixed.expect.exit_status: the fixed",
    ),
    (
        'figures: {rel_err: "< 1e-5"}',
        "figures: {a: '< 1'}\n    signal: SIGABRT",
        "28: fixed.expect.signal: is a failure",
    ),
    (
        'figures: {rel_err: "< 1e-5"}',
        "figures: {a: '< 1'}\n    exception: A",
        "28: fixed.expect.exception: is a failure",
    ),
    (
        "{message: all good}",
        "{cuda_error: cudaErrorAssert}",
        "21: environments.interpreter.expect.fixed.cuda_error: is a f",
    ),
    # rates, growth and digests
    (
        'figures: {rel_err: "> 1e-2"}',
        "{signal: SIGABRT, rate: 0.3}",
        "24: repro.expect.rate: 0.3 is not a least rate; write",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "{signal: SIGABRT, rate: '>= 1.5'}",
        "24: repro.expect.rate: '>= 1.5' is not a least",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "{signal: SIGABRT, rate: '>= 0'}",
        "24: repro.expect.rate: '>= 0' is not a least rate",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "{signal: SIGABRT, rate: '< 0.5'}",
        "24: repro.expect.rate: '< 0.5' is not a least",
    ),
    ("timeout: 2m", "trials: 2", "28: trials: 2 trials are too few for a verdict; write trials: 3 or more"),
    (
        'figures: {rel_err: "> 1e-2"}',
        "{signal: SIGABRT, rate: '>= 0.3'}",
        "24: repro.expect.rate: >= 0.3 can't be judged in 3 trials: at least 17; write trials: 40 or so",
    ),
    ('figures: {rel_err: "< 1e-5"}', "{message: all good, rate: '>= 0.9'}", "27: fixed.expect.rate: belongs to repro"),
    (
        "    expect:\n      fixed: {message: all good}",
        "    expect:\n      repro: {rate: '>= 0.1'}",
        "21: environments.interpreter.expect.repro.rate: >= 0.1 can't be judged in 3 trials: at least 50;",
    ),
    ("timeout: 2m", "alpha: 0.001", "28: alpha: value should be greater than or equal to 0.01, not 0.001"),
    ("timeout: 2m", "alpha: 2", "28: alpha: value should be less than or equal to 0.2, not 2"),
    ("timeout: 2m", "clean_trials: 0", "28: clean_trials: value should be greater than or equal to 1, not 0"),
    ('figures: {rel_err: "> 1e-2"}', "growth: {series: a}", "24: repro.expect.growth.per_step: key is missing"),
    (
        'figures: {rel_err: "> 1e-2"}',
        "growth: {series: 'a[3]', per_step: '> 1'}",
        "24: repro.expect.growth.series: 'a[3]' is not a name of a figure, digest or series; it begins with a letter",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "growth: {series: a, per_step: '> 1', warm_up: -1}",
        "24: repro.expect.growth.warm_up: value should be greater than or equal to 0, not -1",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "growth: {series: a, per_step: '> 1', steps: 2}",
        "24: repro.expect.growth.steps: value should be greater than or equal to 3, not 2",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "growth: {series: a, per_step: 1MB}",
        "24: repro.expect.growth.per_step: '1MB' is not a bound; write",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "growth: {series: a, per_step: '> 1', warmup: 1}",
        "24: repro.expect.growth.warmup: unknown key; did you mean warm_up?",
    ),
    ('figures: {rel_err: "> 1e-2"}', "differs: out", "24: repro.expect.differs: must be a list"),
    ('figures: {rel_err: "> 1e-2"}', "differs: [a b]", "24: repro.expect.differs[0]: 'a b' is not a name of a figure"),
    (
        'figures: {rel_err: "> 1e-2"}',
        "differs: [out]\ntrials: 40",
        "24: repro.expect.differs: fixed must say that out is the same in every run; write same: [out] in its",
    ),
    ('figures: {rel_err: "> 1e-2"}', "{signal: SIGABRT, same: [out]}", "24: repro.expect.same: belongs to fixed"),
    ('figures: {rel_err: "< 1e-5"}', "{message: all good, differs: [a]}", "27: fixed.expect.differs: belongs to repro"),
    (
        'figures: {rel_err: "< 1e-5"}',
        "{figures: {a: '< 1'}, same: [a]}",
        "27: fixed.expect.figures.a: is named as a figure and as a digest",
    ),
    # what compute-sanitizer finds
    (
        'figures: {rel_err: "> 1e-2"}',
        "sanitizer: {tool: valgrind, access: read}",
        "24: repro.expect.sanitizer.tool: 'valgrind' is none of: memcheck, racecheck",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "sanitizer: {kind: oob, access: read}",
        "24: repro.expect.sanitizer.kind: 'oob' is none of: out-of-bounds, misaligned",
    ),
    (
        'figures: {rel_err: "> 1e-2"}',
        "sanitizer: {access: read, kernel: backward}",
        "16: environments.interpreter: asks compute-sanitizer, which needs a GPU, but gpus is 0; write sanitizer: null",
    ),
    (
        'figures: {rel_err: "< 1e-5"}',
        "figures: {a: '< 1'}\n    sanitizer: {access: read}",
        "28: fixed.expect.sanitizer: is a failure; in fixed the tool that repro names must find nothing",
    ),
    ("timeout: 2m", "probes: [valgrind]", "28: probes[0]: 'valgrind' is none of: memcheck, racecheck"),
    # the two alike
    (
        'figures: {rel_err: "< 1e-5"}',
        'figures: {rel_err: "> 1e-2"}',
        "26: fixed.expect: one output could be as both repro and fixed expect: give both a figure, in bounds",
    ),
    (
        "{message: all good}",
        '{figures: {rel_err: "> 1e-2"}}',
        "21: environments.interpreter.expect.fixed: one output could be as both repro and fixed expect",
    ),
    ('figures: {rel_err: "< 1e-5"}', 'figures: {rel_err: "< 0.5"}', "26: fixed.expect: one output could be as both"),
    ('figures: {rel_err: "< 1e-5"}', 'figures: {other: "< 1e-5"}', "26: fixed.expect: one output could be as both"),
    ('figures: {rel_err: "> 1e-2"}', "message: the loss rose", "26: fixed.expect: one output could be as both"),
]


@pytest.mark.parametrize(("old", "new", "expected"), WRONG, ids=[f"{new}"[:40] for _, new, _ in WRONG])
def test_one_mistake_is_one_problem_at_its_line(
    checkout: Checkout, change: Change, old: str, new: str, expected: str
) -> None:
    found = problems(checkout, change(old, new))
    assert len(found) == 1, found
    assert found[0].startswith(expected)


def test_a_finding_has_to_be_named(checkout: Checkout, change: Change) -> None:
    """Its size alone is that of half of all accesses."""
    text = change('figures: {rel_err: "> 1e-2"}', "sanitizer: {tool: memcheck, size: 4}")
    found = problems(checkout, text.replace("    grade: simulated\n", "    gpus: 1\n"))
    assert found == ["24: repro.expect.sanitizer: names no finding: say which kind, access or kernel"]


@pytest.mark.parametrize("named", ["kernel: k", "kind: out-of-bounds, kernel: k"])
def test_a_finding_of_memcheck_has_to_say_what_the_access_was(checkout: Checkout, change: Change, named: str) -> None:
    text = change('figures: {rel_err: "> 1e-2"}', f"sanitizer: {{tool: memcheck, {named}}}")
    found = problems(checkout, text.replace("    grade: simulated\n", "    gpus: 1\n"))
    assert found == ["24: repro.expect.sanitizer: does not say whether it is a read, a write or an atomic; add access:"]


def test_a_finding_that_nobody_looks_for(checkout: Checkout, change: Change) -> None:
    text = change('figures: {rel_err: "> 1e-2"}', "sanitizer: {kind: leak}")
    found = problems(checkout, text.replace("    grade: simulated\n", "    gpus: 1\n"))
    assert found == ["24: repro.expect.sanitizer.kind: leak is nothing that compute-sanitizer is asked for here"]


def test_a_finding_is_a_failure_that_tells_the_variants_apart(checkout: Checkout, change: Change) -> None:
    text = change(
        'figures: {rel_err: "> 1e-2"}', "sanitizer: {access: write, kernel: k}\n    figures: {rel_err: '< 1e-5'}"
    )
    case = loaded(checkout, text.replace("    grade: simulated\n", "    gpus: 1\n"))
    declared = case.expectation("current", Variant.REPRO).sanitizer
    assert declared
    assert (declared.tool, declared.access, declared.size, declared.kernel) == ("memcheck", "write", None, "k")


def test_all_problems_in_one_go(checkout: Checkout, change: Change) -> None:
    manifest = change("cuda13", "cuda14").replace("id: tiny", "id: other").replace("timeout: 2m", "timeout: soon")
    manifest = manifest.replace('rel_err: "> 1e-2"', "a: '< 1', a: '< 2'").replace('{rel_err: "< 1e-5"}', "{}")
    manifest = manifest.replace("status: fixed", "status: no")
    assert [each.split(": ")[:2] for each in problems(checkout, manifest)] == [
        ["2", "id"],
        ["7", "upstream.status"],
        ["12", "environments.current.image"],
        ["24", "repro.expect.figures.a"],
        ["26", "fixed.expect"],
        ["28", "timeout"],
    ]


@pytest.mark.parametrize(
    ("repro", "fixed", "expected"),
    [
        ("[]", "[trl==0.14.0]", "22: repro: a release case pins the version of each variant: add requirements"),
        (
            "[trl==0.13.0]",
            "[trl==0.13.0]",
            "27: fixed.requirements: are those of repro: a release case needs two versions",
        ),
        ("[NumPy==1.0]", "[trl==0.14.0]", "23: repro.requirements[0]: numpy is required twice; keep one"),
    ],
)
def test_release_cases(checkout: Checkout, repro: str, fixed: str, expected: str) -> None:
    assert problems(checkout, release(repro, fixed)) == [expected]


@pytest.mark.parametrize("status", ["open", "fixed"])
def test_a_release_that_is_gone_round_has_one_version_and_says_why(checkout: Checkout, status: str) -> None:
    manifest = MANIFEST.replace("status: fixed", f"status: {status}")
    assert len(problems(checkout, manifest.replace("provenance: distilled", "provenance: release"))) == 2
    manifest = manifest.replace("provenance: distilled", "provenance: release-workaround")
    assert problems(checkout, manifest) == [
        "9: provenance: a work-around is not upstream's fix: say why it is one, in a line because:"
    ]
    assert loaded(checkout, f"{manifest}because: no release has a fix\n").id == "tiny"


@pytest.mark.parametrize("word", ["distilled", "pattern"])
def test_what_no_package_is_has_no_versions(checkout: Checkout, word: str) -> None:
    assert loaded(checkout, MANIFEST.replace("provenance: distilled", f"provenance: {word}")).id == "tiny"


UNREADABLE = [
    (b"", "1: is empty"),
    (b"# nothing but a comment\n", "1: is empty"),
    (b"- a\n- b\n", "1: must be a mapping of keys to values"),
    (b"just words\n", "1: must be a mapping of keys to values"),
    (b"null\n", "1: is empty; it must hold keys"),
    (b"id: tiny\ntitle: \xff\xfe\n", "2: is not UTF-8 (byte 0xff); save it as UTF-8"),
    (b"id: tiny\ntitle: a\x07b\n", "2: is not YAML: control characters are not allowed"),
    (b"id: tiny\n\ntitle: a: b\n", "3: is not YAML: mapping values are not allowed in this context"),
    (b"id: tiny\ntitle: 'open\nfailure: x\n", "2: is not YAML: while scanning a quoted scalar"),
    (b"id: [a, b\ntitle: x\n", "2: is not YAML: while parsing a flow"),
    (b"id: tiny\n\ttitle: x\n", "2: is not YAML: "),
    (b"? [a]\n: b\n", "1: a key must be plain text"),
    (b"a: " + b"[" * 100_000, "1: is nested more than 16 levels deep"),
    (b"a: b\n" + b"# " + b"x" * 2**18, "1: is longer than 256 KiB, and no manifest needs that"),
]


@pytest.mark.parametrize(("content", "expected"), UNREADABLE, ids=[expected for _, expected in UNREADABLE])
def test_what_is_no_manifest_at_all(checkout: Checkout, content: bytes, expected: str) -> None:
    found = problems(checkout, content)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_the_limit_of_the_parser_itself_is_told_alike(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyYAML 6.0.4 raises it, before the events of this line."""

    def limited(*_: object, **__: object) -> Iterator[yaml.Event]:
        yield from itertools.islice(parse("id: tiny\na: [[[[b]]]]\n"), 6)
        mark = yaml.Mark("", 1004, 1, 1003, None, 0)
        raise yaml.scanner.ScannerError("while increasing flow level", mark, "exceeded maximum nesting depth", mark)

    parse = yaml.parse
    monkeypatch.setattr(yaml, "parse", limited)
    assert problems(checkout, "id: tiny\na: [[[[b]]]]\n") == ["2: is nested more than 16 levels deep"]


def test_a_second_document(checkout: Checkout) -> None:
    found = problems(checkout, MANIFEST + "---\nid: more\n")
    assert found == ["29: a second document begins here; a manifest is one"]


def test_an_alias_is_refused_and_never_followed(checkout: Checkout) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    found = problems(checkout, MANIFEST + bomb)
    assert "30: a1[0]: alias *a0: aliases are not read here; write the value out" in found


def test_an_alias_hides_no_other_problem(checkout: Checkout) -> None:
    manifest = MANIFEST.replace("[numpy==2.2.6]", "&pins [numpy]").replace("[numpy==1.26.4]", "*pins")
    assert [each.split(": ")[1] for each in problems(checkout, manifest)] == [
        "environments.current.requirements[0]",
        "environments.interpreter.requirements",
    ]


def test_an_anchor_alone_does_no_harm(checkout: Checkout) -> None:
    assert loaded(checkout, MANIFEST.replace("id: tiny", "id: &here tiny")).id == "tiny"


def test_windows_line_ends_and_a_byte_order_mark(checkout: Checkout) -> None:
    path = checkout.write()
    path.write_bytes(b"\xef\xbb\xbf" + MANIFEST.replace("\n", "\r\n").encode())
    assert load(path, IMAGES, checkout.root).id == "tiny"


def test_a_problem_quotes_only_so_much(checkout: Checkout, change: Change) -> None:
    found = problems(checkout, change("timeout: 2m", f"timeout: {'ever ' * 10_000}"))
    assert len(found[0]) < 500


def test_a_regex_that_no_machine_can_read(checkout: Checkout, change: Change) -> None:
    found = problems(checkout, change('figures: {rel_err: "> 1e-2"}', f"message: '{'(' * 9000}{')' * 9000}'"))
    assert [each.split(": ")[:3] for each in found] == [["24", "repro.expect.message", "is not a regular expression"]]


def test_an_expectation_can_be_made_of_bounds_already_read() -> None:
    assert Expectation(figures={"a": Bound.parse("< 1")}) == Expectation.model_validate({"figures": {"a": "< 1"}})


@pytest.mark.parametrize("content", [MANIFEST[:cut] for cut in range(0, MANIFEST.index("timeout"), 7)])
def test_a_manifest_cut_short_gives_problems_and_nothing_else(tmp_path: Path, content: str) -> None:
    path = Checkout(tmp_path).write(content)
    with pytest.raises(ManifestError):
        load(path, IMAGES, tmp_path)


MANIFEST_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=4), children, max_size=3),
    max_leaves=6,
)
PLACES = sorted(read(BytesIO(MANIFEST.encode())).spots, key=str)


@settings(max_examples=150)
@given(place=st.sampled_from(PLACES), value=MANIFEST_VALUES)
def test_whatever_stands_at_whatever_place_there_is_a_case_or_problems(
    place: tuple[str | int, ...], value: Any
) -> None:
    data: Any = {"": yaml.safe_load(MANIFEST)}
    inner, key = data, ""
    for part in place:
        inner, key = inner[key], part  # type: ignore[assignment]
    inner[key] = value
    with TemporaryDirectory() as directory:
        path = Checkout(Path(directory)).write(yaml.safe_dump(data[""], allow_unicode=True))
        try:
            assert load(path, IMAGES, Path(directory)).id == "tiny"
        except ManifestError as error:
            assert error.problems  # noqa: PT017


def wrong_files(checkout: Checkout) -> list[str]:
    """What both `load` and, where nothing is wrong with the manifest and the locks, `payload` refuse."""
    path = checkout.root / "cases/tiny/case.yaml"
    with pytest.raises(ManifestError) as caught:
        load(path, IMAGES, checkout.root)
    with pytest.raises(ManifestError) as again:
        Case(path.parent, None).payload()  # type: ignore[arg-type]
    assert again.value.problems == caught.value.problems
    return [str(each).removeprefix("cases/tiny/") for each in caught.value.problems]


class TestContained:
    """What a manifest may not do to who reads it, or to the machine."""

    @pytest.mark.parametrize("title", [r"\e]0;x\a", r"a\u202eb", r"a\u200bb", r"\U000E0041", r"a\tb", r"a\rb"])
    def test_titles_that_are_no_plain_text(self, checkout: Checkout, change: Change, title: str) -> None:
        manifest = change("A sum in bfloat16 loses its small terms", f'"{title}"')
        (problem,) = problems(checkout, manifest)
        assert problem.startswith(("3: title: holds control characters", "3: title: must be one line"))
        assert problem.isprintable()

    @pytest.mark.parametrize(
        "name", ["HOME", "TMPDIR", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES"]
    )
    def test_variables_that_keep_a_trial_in_its_place(self, checkout: Checkout, change: Change, name: str) -> None:
        (problem,) = problems(checkout, change("gpus: 1", f"gpus: 1\n    variables: {{{name}: all}}"))
        assert f"{name} is set by the runner" in problem

    def test_a_variable_with_a_nul(self, checkout: Checkout, change: Change) -> None:
        (problem,) = problems(checkout, change("gpus: 1", 'gpus: 1\n    variables: {OWN: "a\\0b"}'))
        assert "variables.OWN: holds a NUL" in problem

    def test_memory_that_no_machine_has(self, checkout: Checkout, change: Change) -> None:
        (problem,) = problems(checkout, change("timeout: 2m", "memory: 99999999999999TiB"))
        assert "memory: " in problem

    def test_a_page_beside_the_index(self, checkout: Checkout) -> None:
        path = checkout.write(MANIFEST.replace("id: tiny", "id: readme"), name="readme")
        with pytest.raises(ManifestError, match="readme is the name of the index"):
            load(path, IMAGES, checkout.root)


class TestFiles:
    @pytest.mark.parametrize(
        "place", ["data", "locks/current.txt", "README.md", "inner/data", "fixed.py", "__pycache__"]
    )
    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            (lambda path: path.symlink_to("/etc/shadow"), "is a symlink; put the file itself there"),
            (lambda path: path.symlink_to("/proc/kmsg"), "is a symlink; put the file itself there"),
            (lambda path: path.symlink_to(".."), "is a symlink; put the file itself there"),
            (lambda path: path.symlink_to(path.name), "is a symlink; put the file itself there"),
            (os.mkfifo, "is not a file"),
        ],
    )
    def test_what_is_no_file(
        self, checkout: Checkout, place: str, make: Callable[[Path], object], expected: str
    ) -> None:
        path = checkout.write().parent / place
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        make(path)
        assert wrong_files(checkout) == [f"{place}:1: {expected}"]

    @pytest.mark.parametrize("name", [b"caf\xe9.txt", b"a\nb", b"\x1b]0;x\x07", "a\u202eb".encode()])
    def test_names_that_are_no_text(self, checkout: Checkout, name: bytes) -> None:
        (checkout.write().parent / os.fsdecode(name)).touch()
        assert wrong_files(checkout) == [
            f"{ascii(os.fsdecode(name))[1:-1]}:1: has a name that is no plain text; rename it"
        ]

    @pytest.mark.parametrize(
        ("place", "bytes_", "expected"),
        [
            ("data", 2**20, "cases/tiny:1: holds"),
            (
                "locks/current.txt",
                2**22 + 1,
                "locks/current.txt:1: is 4194305 bytes long; 4194304 are the most for a lock",
            ),
            ("fixed.py", 65537, "fixed.py:1: is 65537 bytes long; 65536 are the most for a minimal script"),
            ("README.md", 2**40, "cases/tiny:1: holds"),
        ],
    )
    def test_files_that_are_too_large(self, checkout: Checkout, place: str, bytes_: int, expected: str) -> None:
        path = checkout.write().parent / place
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.truncate(path, bytes_)
        assert [each.split(" 10")[0] for each in wrong_files(checkout)] == [expected]

    def test_a_script_in_another_encoding(self, checkout: Checkout) -> None:
        (checkout.write().parent / "repro.py").write_bytes(b"# -*- coding: latin-1 -*-\nprint('\xe9')\n")
        assert wrong_files(checkout) == ["repro.py:1: is not UTF-8; save it as UTF-8"]

    @pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
    @pytest.mark.parametrize("name", ["repro.py", "inner"])
    def test_what_may_not_be_read(self, checkout: Checkout, name: str) -> None:
        directory = checkout.write().parent
        (directory / "inner").mkdir()
        (directory / name).chmod(0)
        assert [each.split(":1: ")[1] for each in wrong_files(checkout)] == ["can't be read: Permission denied"]

    def test_deep_directories(self, checkout: Checkout) -> None:
        here, top = os.getcwd(), checkout.write().parent  # noqa: PTH109 such a depth has no path
        os.chdir(top)
        try:
            for _ in range(25):
                os.mkdir("d" * 200)  # noqa: PTH102
                os.chdir("d" * 200)
        finally:
            os.chdir(here)
        try:
            assert [each.split(":1: ")[1] for each in wrong_files(checkout)] == ["can't be read: File name too long"]
        finally:
            shutil.rmtree(top)

    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            (os.mkfifo, "is not a file"),
            (Path.mkdir, "is not a file"),
            (lambda path: path.write_bytes(b"\xff"), "is not UTF-8; save it as UTF-8"),
        ],
    )
    def test_a_lock_that_is_none(self, checkout: Checkout, make: Callable[[Path], object], expected: str) -> None:
        found = loaded(checkout)
        (found.directory / "locks").mkdir()
        make(found.directory / "locks" / "current.txt")
        with pytest.raises(ManifestError) as caught:
            found.lock("current", Variant.REPRO)
        again = "write it again: nox -s lock -- tiny"
        assert str(caught.value) == f"cases/tiny/locks/current.txt:1: {expected}; {again}"


class TestScripts:
    def wrong(self, checkout: Checkout) -> list[str]:
        with pytest.raises(ManifestError) as caught:
            load(checkout.root / "cases/tiny/case.yaml", IMAGES, checkout.root)
        return [problem.what for problem in caught.value.problems]

    def test_missing(self, checkout: Checkout) -> None:
        directory = checkout.write().parent
        (directory / "repro.py").unlink()
        (directory / "fixed.py").unlink()
        assert self.wrong(checkout) == ["repro.py is missing", "fixed.py is missing"]

    def test_is_a_directory(self, checkout: Checkout) -> None:
        directory = checkout.write().parent
        (directory / "repro.py").unlink()
        (directory / "repro.py").mkdir()
        assert self.wrong(checkout) == ["repro.py is not a file"]

    @pytest.mark.parametrize("target", ["../../outside.py", "gone.py", "repro.py", "fixed.py", "/etc/hostname"])
    def test_symlink(self, checkout: Checkout, target: str) -> None:
        directory = checkout.write().parent
        (checkout.root / "outside.py").touch()
        (directory / "fixed.py").unlink()
        (directory / "fixed.py").symlink_to(target)
        assert wrong_files(checkout) == ["fixed.py:1: is a symlink; put the file itself there"]

    def test_the_manifest_itself(self, checkout: Checkout) -> None:
        path = checkout.write()
        path.rename(checkout.root / "elsewhere.yaml")
        path.symlink_to("../../elsewhere.yaml")
        assert wrong_files(checkout) == ["case.yaml:1: is a symlink; put the file itself there"]

    def test_a_manifest_that_would_block(self, checkout: Checkout) -> None:
        path = checkout.write()
        path.unlink()
        os.mkfifo(path)
        assert self.wrong(checkout) == ["is not a file"]


class TestSchema:
    SCHEMA: ClassVar[dict[str, Any]] = json.loads(schema_text())

    def valid(self, manifest: str) -> bool:
        return bool(jsonschema.Draft202012Validator(self.SCHEMA).is_valid(yaml.safe_load(manifest)))

    def test_is_a_schema(self) -> None:
        jsonschema.Draft202012Validator.check_schema(self.SCHEMA)

    def test_is_written(self, checkout: Checkout) -> None:
        (checkout.root / "cases").mkdir()
        assert json.loads(write_schema(checkout.root).read_text()) == self.SCHEMA

    @pytest.mark.parametrize("manifest", [MANIFEST, MANIFEST.replace("2m", "90"), release()])
    def test_takes_good_manifests(self, manifest: str) -> None:
        assert self.valid(manifest)

    def test_takes_a_dropped_key(self, change: Change) -> None:
        assert self.valid(change("{message: all good}", "{message: all good, figures: null, exception: null}"))

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("timeout: 2m", "timeot: 2m"),
            ("timeout: 2m", "timeout: 2 minutes"),
            ("timeout: 2m", "memory: 1"),
            ("failure: wrong-numbers", "failure: wrong"),
            ("id: tiny", "id: Tiny"),
            ("id: tiny\n", ""),
            ("  current:", "  Current:"),
            ("==2.2.6", ""),
            ("gpus: 1", "python: 3.10"),
            ('"> 1e-2"', "big"),
            ('figures: {rel_err: "> 1e-2"}', "figures: {rel err: '> 1'}"),
            ("grade: simulated", "grade: guessed"),
        ],
    )
    def test_refuses_bad_manifests(self, change: Change, old: str, new: str) -> None:
        assert not self.valid(change(old, new))

    @pytest.mark.parametrize("name", discover(ROOT))
    def test_takes_the_cases_of_this_repository(self, name: str) -> None:
        assert self.valid((ROOT / "cases" / name / "case.yaml").read_text())

    def test_is_up_to_date_in_this_repository(self) -> None:
        assert (ROOT / SCHEMA).read_text() == schema_text()

    def test_describes_every_key(self) -> None:
        models = [self.SCHEMA, *self.SCHEMA["$defs"].values()]
        keys = [(name, key) for model in models for name, key in model.get("properties", {}).items()]
        resolved = [(name, self.SCHEMA["$defs"][key["$ref"][8:]] | key if "$ref" in key else key) for name, key in keys]
        assert len(keys) > 30
        assert not [name for name, key in resolved if not key.get("description")]


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("Torch == 2.11.0", "torch==2.11.0"),
        ("a_b==1.0+cu130", "a-b==1.0+cu130"),
        ("jax[CUDA, a_b]==0.5", "jax[a-b,cuda]==0.5"),
    ],
)
def test_pin(written: str, canonical: str) -> None:
    assert pin(written) == canonical


def test_a_list_where_text_belongs_is_not_told_to_be_quoted(checkout: Checkout, change: Change) -> None:
    assert problems(checkout, change("project: owner/name", "project: [a]")) == ["6: upstream.project: must be text"]


def test_what_only_the_index_has_leaves_evidence_as_fresh_as_it_was(checkout: Checkout) -> None:
    def digest(before_failure: str) -> str:
        manifest = checkout.write(MANIFEST.replace("failure:", f"{before_failure}failure:", 1))
        return load(manifest, IMAGES, checkout.root).digest()

    assert digest("symptom: It hangs\narea: data\n") == digest("")
    assert digest("# another\n") != digest("")


def test_who_says_where_bounds_come_from_leaves_evidence_as_fresh_as_it_was(checkout: Checkout, change: Change) -> None:
    bounds = '    compute_capability: ">=7.0,<10.0"\n'
    guessed = load(checkout.write(MANIFEST), IMAGES, checkout.root)
    digest = guessed.digest()
    text = change(bounds, f"{bounds}    capability_from: 'its README: 7.0 at least'\n")
    known = load(checkout.write(text), IMAGES, checkout.root)
    assert known.environment("current").capability_from == "its README: 7.0 at least"
    assert known.digest() == digest
    other = load(checkout.write(change(bounds, '    compute_capability: ">=8.0,<10.0"\n')), IMAGES, checkout.root)
    assert other.digest() != digest
