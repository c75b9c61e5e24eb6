import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from casebook_workbench.author import check
from casebook_workbench.author.check import blanks, check_all
from casebook_workbench.author.draft import blank
from failure_signature.kinds import Variant
from gpu_casebook.errors import Severity, UsageError
from gpu_casebook.manifest import case as manifest_case
from gpu_casebook.manifest.case import load
from gpu_casebook.manifest.rules import BLANK
from gpu_casebook.manifest.schema import write_schema
from gpu_casebook.packages.lock import basis
from gpu_casebook.pins import pin
from tests.conftest import IMAGES, MANIFEST, SCRIPT, Checkout

Change = Callable[[str, str], str]
HASH = "--hash=sha256:" + "a" * 64


def write_locks(checkout: Checkout, path: Path) -> None:
    """Locks as they would be for packages that need no others."""
    case = load(path, IMAGES, checkout.root)
    for name, spec in case.manifest.environments.items():
        for variant in Variant:
            requirements = case.requirements(name, variant)
            header = "".join(
                f"# {key}: {value}\n" for key, value in basis(requirements, spec.python, spec.special).items()
            )
            body = "".join(f"{pin(each)} \\\n    {HASH}\n" for each in requirements)
            lock = case.lock_path(name, variant)
            lock.parent.mkdir(exist_ok=True)
            lock.write_text(header + body)


@pytest.fixture
def good(checkout: Checkout) -> Path:
    """The directory of a case in which nothing is wrong."""
    path = checkout.write()
    write_locks(checkout, path)
    write_schema(checkout.root)
    return path.parent


def found(checkout: Checkout, severity: Severity) -> list[str]:
    problems = check_all(checkout.root)
    assert {each.severity for each in problems} <= {severity}
    return [str(each).replace("cases/tiny/", "") for each in problems]


def problems(checkout: Checkout) -> list[str]:
    return found(checkout, Severity.ERROR)


def warnings(checkout: Checkout) -> list[str]:
    return found(checkout, Severity.WARNING)


@pytest.mark.usefixtures("good")
class TestCorpus:
    def test_good(self, checkout: Checkout) -> None:
        assert check_all(checkout.root) == []

    def test_every_case_is_looked_at(self, checkout: Checkout) -> None:
        for name in ("one", "two"):
            path = checkout.write(MANIFEST.replace("id: tiny", f"id: {name}"), name=name)
            write_locks(checkout, path)
            (path.parent / "README.md").unlink()
        paths = ["cases/one/README.md", "cases/two/README.md"]
        assert [each.path for each in check_all(checkout.root)] == paths
        assert [each.path for each in check_all(checkout.root, ["two", "tiny"])] == paths[1:]

    def test_many_cases_are_shared_out_in_order(self, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        names = [f"case-{number}" for number in range(5)]
        for name in names:
            checkout.write(MANIFEST.replace("id: tiny", f"id: {name}"), name=name)
        alone = check_all(checkout.root)
        monkeypatch.setattr(check, "_MANY", 4)
        assert check_all(checkout.root) == alone
        assert [*dict.fromkeys(each.path.split("/")[1] for each in alone)] == names

    def test_only_what_it_needs_is_imported(self) -> None:
        names = [
            "jinja2",
            "rich",
            "docker",
            "casebook_workbench.redact",
            "gpu_casebook.evidence",
            "gpu_casebook.engines",
        ]
        code = f"import sys, casebook_workbench.author.check\nprint([each for each in {names} if each in sys.modules])"
        environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "runner")}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"

    def test_unknown_case(self, checkout: Checkout) -> None:
        with pytest.raises(UsageError, match="no case 'tinny'; did you mean tiny"):
            check_all(checkout.root, ["tinny"])

    @pytest.mark.parametrize("content", [None, "{}\n"])
    def test_stale_schema(self, checkout: Checkout, content: str | None) -> None:
        schema = checkout.root / "cases/case.schema.json"
        schema.unlink() if content is None else schema.write_text(content)
        assert problems(checkout) == ["cases/case.schema.json:1: is missing or out of date; write it: nox -s schema"]
        assert check_all(checkout.root, ["tiny"]) == []

    def test_directory_without_manifest(self, checkout: Checkout) -> None:
        (checkout.root / "cases" / "half").mkdir()
        (checkout.root / "cases" / "__pycache__").mkdir()
        assert problems(checkout) == ["cases/half:1: has no case.yaml"]

    def test_a_bad_manifest_does_not_hide_what_else_is_wrong(
        self, checkout: Checkout, good: Path, change: Change
    ) -> None:
        (good / "case.yaml").write_text(change("cuda13", "cuda14"))
        (good / "repro.py").write_text("def f(:\n")
        (good / "README.md").unlink()
        assert [each.split(":")[0] for each in problems(checkout)] == ["case.yaml", "README.md", "repro.py"]


class TestFiles:
    @pytest.mark.parametrize("content", [None, "", " \n"])
    def test_readme(self, checkout: Checkout, good: Path, content: str | None) -> None:
        (good / "README.md").unlink() if content is None else (good / "README.md").write_text(content)
        assert problems(checkout) == ["README.md:1: is missing or empty: say what failed, why, and how it was fixed"]

    def test_editor_line(self, checkout: Checkout, good: Path) -> None:
        (good / "case.yaml").write_text(MANIFEST.split("\n", 1)[1])
        line = "# yaml-language-server: $schema=../case.schema.json"
        assert warnings(checkout) == [f"case.yaml:1: warning: editors complete a manifest that begins with: {line}"]

    def test_a_link_out_of_the_case(self, checkout: Checkout, good: Path) -> None:
        (good / "data").mkdir()
        (good / "data" / "x").symlink_to("/etc/hostname")
        (good / "data" / "y").symlink_to("../repro.py")
        link = "is a symlink; put the file itself there"
        assert problems(checkout) == [f"data/x:1: {link}", f"data/y:1: {link}"]

    def test_a_data_set_is_no_minimal_repro(
        self, checkout: Checkout, good: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manifest_case, "MAX_CASE_BYTES", 10_000)
        (good / "__pycache__").mkdir()
        (good / "__pycache__" / "x").write_bytes(b"x" * 10_000)
        lock = good / "locks" / "current.txt"
        lock.write_text(lock.read_text() + "# " + "x" * 10_000 + "\n")
        assert problems(checkout) == []
        (good / "data.bin").write_bytes(b"x" * 10_000)
        assert [each.split(" holds")[0] for each in problems(checkout)] == ["cases/tiny:1:"]


class TestScripts:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (SCRIPT + "def f(:\n", "fixed.py:7: is not Python: "),
            (SCRIPT + "x = '''open\n", "fixed.py:7: is not Python: unterminated"),
            (SCRIPT + "\0", "fixed.py:"),
            (SCRIPT + "(" * 5000, "fixed.py:7: is not Python: too many nested parentheses"),
            (SCRIPT + "x = \N{SNOWMAN}\n", "fixed.py:7: is not Python: invalid character"),
        ],
    )
    def test_syntax(self, checkout: Checkout, good: Path, content: str, expected: str) -> None:
        (good / "fixed.py").write_text(content)
        found = problems(checkout)
        assert len(found) == 1
        assert found[0].startswith(expected)

    def test_what_parses_with_a_warning_is_no_problem(self, checkout: Checkout, good: Path) -> None:
        (good / "fixed.py").write_text(SCRIPT + "x = '\\d' is 1\n")
        assert problems(checkout) == []

    def test_not_utf8(self, checkout: Checkout, good: Path) -> None:
        (good / "fixed.py").write_bytes(b"# \xff\n")
        assert problems(checkout) == ["fixed.py:1: is not UTF-8; save it as UTF-8"]

    def test_size(self, checkout: Checkout, good: Path) -> None:
        (good / "repro.py").write_text(SCRIPT + "# x\n" * 2**14)
        assert problems(checkout)[0].startswith("repro.py:1: is 6")

    def test_missing_is_said_once(self, checkout: Checkout, good: Path) -> None:
        (good / "repro.py").unlink()
        assert problems(checkout) == ["case.yaml:1: repro.py is missing"]

    @pytest.mark.parametrize(
        ("line", "module"),
        [
            ("import gpu_casebook", "gpu_casebook"),
            ("import os, gpu_casebook.manifest.case as c", "gpu_casebook.manifest.case"),
            ("from gpu_casebook.manifest.case import load", "gpu_casebook.manifest.case"),
            ("def f():\n    from repro import main", "repro"),
            ("from . import repro", "repro"),
            ("from .repro import main", "repro"),
            ("if True: import repro", "repro"),
            ("__import__('repro')", "repro"),
            ("importlib.import_module('repro')", "repro"),
        ],
    )
    def test_imports(self, checkout: Checkout, good: Path, line: str, module: str) -> None:
        (good / "fixed.py").write_text(f"{SCRIPT}{line}\n")
        number = 7 + line.count("\n")
        what = "a script stands alone, so that it can be pasted into a file and run"
        assert problems(checkout) == [f"fixed.py:{number}: imports {module}; {what}"]

    @pytest.mark.parametrize(
        "line", ["import gpu_casebook_up", '"""from repro.py"""', "import os  # not gpu_casebook", "x = 'import repro'"]
    )
    def test_what_only_looks_like_an_import(self, checkout: Checkout, good: Path, line: str) -> None:
        (good / "fixed.py").write_text(f"{SCRIPT}{line}\n")
        assert problems(checkout) == []


class TestHeader:
    def test_missing(self, checkout: Checkout, good: Path) -> None:
        (good / "repro.py").write_text(SCRIPT.rpartition("# ///\n")[2])
        assert problems(checkout) == [
            "repro.py:1: has no inline script metadata (PEP 723); begin it with the packages of current: numpy==2.2.6"
        ]

    @pytest.mark.parametrize(
        ("dependencies", "expected"),
        [
            ('["numpy==2.2.5"]', "missing: numpy==2.2.6; too many: numpy==2.2.5"),
            ('["numpy"]', "missing: numpy==2.2.6; too many: numpy"),
            ('["numpy==2.2.6", "torch==2.11.0"]', "too many: torch==2.11.0"),
            ("[]", "missing: numpy==2.2.6"),
        ],
    )
    def test_other_packages(self, checkout: Checkout, good: Path, dependencies: str, expected: str) -> None:
        (good / "repro.py").write_text("\n" + SCRIPT.replace('["numpy==2.2.6"]', dependencies))
        assert problems(checkout) == [
            f"repro.py:2: dependencies: differ from the manifest's first environment, current: {expected}"
        ]

    def test_spelling_and_order_do_not_matter(self, checkout: Checkout, good: Path, change: Change) -> None:
        (good / "case.yaml").write_text(change("[numpy==2.2.6]", "[a-b==1, NumPy==2.2.6]"))
        for name in ("repro.py", "fixed.py"):
            text = (good / name).read_text()
            (good / name).write_text(text.replace('["numpy==2.2.6"]', '["numpy == 2.2.6", "A_b==1"]'))
        write_locks(checkout, good / "case.yaml")
        assert problems(checkout) == []

    @pytest.mark.parametrize("requires", ['requires-python = ">=3.12"', 'requires-python = "new"', ""])
    def test_requires_python(self, checkout: Checkout, good: Path, requires: str) -> None:
        (good / "repro.py").write_text(SCRIPT.replace('requires-python = "==3.11.*"', requires))
        assert problems(checkout) == [
            'repro.py:1: requires-python: does not admit Python 3.11, which current has; write "==3.11.*"'
        ]

    def test_packages_without_dependencies(self, checkout: Checkout, good: Path, change: Change) -> None:
        (good / "case.yaml").write_text(change("    gpus: 1\n", "    gpus: 1\n    without_dependencies: [NumPy]\n"))
        write_locks(checkout, good / "case.yaml")
        told = '# [[tool.uv.dependency-metadata]]\n# name = "numpy"\n# requires-dist = []\n# ///\n'
        (good / "fixed.py").write_text((good / "fixed.py").read_text().replace("# ///\n", told))
        assert problems(checkout) == [
            (
                "repro.py:1: tool.uv.dependency-metadata: has not what current installs without dependencies (numpy): "
                "the name of each, and requires-dist = []"
            )
        ]

    def test_broken(self, checkout: Checkout, good: Path) -> None:
        (good / "repro.py").write_text(SCRIPT.replace("dependencies", "dependencies ="))
        assert problems(checkout)[0].startswith("repro.py:1: has a header that is not TOML: ")

    def test_a_variant_has_its_own_packages_too(self, checkout: Checkout, good: Path) -> None:
        manifest = MANIFEST.replace("repro:\n  expect", "repro:\n  requirements: [trl==0.13.0]\n  expect")
        (good / "case.yaml").write_text(
            manifest.replace("fixed:\n  expect", "fixed:\n  requirements: [trl==0.14.0]\n  expect")
        )
        assert [each for each in problems(checkout) if "dependencies" in each] == [
            "repro.py:1: dependencies: differ from the manifest's first environment, current: missing: trl==0.13.0",
            "fixed.py:1: dependencies: differ from the manifest's first environment, current: missing: trl==0.14.0",
        ]


class TestFix:
    def test_the_same_script(self, checkout: Checkout, good: Path) -> None:
        (good / "fixed.py").write_text((good / "repro.py").read_text())
        assert problems(checkout) == ["fixed.py:1: is the same as repro.py, so it fixes nothing"]

    def test_a_release_case_may_have_the_same_script(self, checkout: Checkout, good: Path) -> None:
        manifest = MANIFEST.replace("distilled", "release").replace(
            "  expect:\n    fig", "  requirements: [{}]\n  expect:\n    fig"
        )
        (good / "case.yaml").write_text(manifest.replace("{}", "trl==1", 1).replace("{}", "trl==2", 1))
        (good / "fixed.py").write_text((good / "repro.py").read_text())
        assert not [each for each in problems(checkout) if "same" in each]

    @pytest.mark.parametrize("depth", [300, 600, 900, 3000])
    @pytest.mark.parametrize("piece", ["+1", "(1)"])
    def test_what_is_nested_too_deep_is_told_in_a_line(
        self, checkout: Checkout, good: Path, piece: str, depth: int
    ) -> None:
        (good / "fixed.py").write_text(f"{SCRIPT}x = lost{piece * depth}\n")
        found = problems(checkout)
        assert not found if depth == 300 else all("nested too deep" in each or "recursion" in each for each in found)
        assert len(found) <= 1


class TestLocks:
    def edit(self, good: Path, old: str, new: str) -> None:
        lock = good / "locks/current.txt"
        assert old in lock.read_text()
        lock.write_text(lock.read_text().replace(old, new, 1))

    def test_missing(self, checkout: Checkout, good: Path) -> None:
        (good / "locks/current.txt").unlink()
        assert problems(checkout) == ["locks/current.txt:1: is missing; write it: nox -s lock -- tiny"]

    def test_left_over(self, checkout: Checkout, good: Path) -> None:
        (good / "locks/old.txt").touch()
        assert problems(checkout) == ["locks/old.txt:1: belongs to no environment of the manifest; remove it"]

    def test_made_for_other_requirements(self, checkout: Checkout, good: Path, change: Change) -> None:
        (good / "case.yaml").write_text(change("numpy==1.26.4", "numpy==1.26.3"))
        what = "was made for numpy==1.26.4, the manifest says numpy==1.26.3; write it: nox -s lock -- tiny"
        assert problems(checkout) == [f"locks/interpreter.txt:1: requirements: {what}"]

    def test_made_for_another_python(self, checkout: Checkout, good: Path, change: Change) -> None:
        (good / "case.yaml").write_text(change("    grade: simulated", "    python: '3.12'"))
        assert problems(checkout)[0].startswith(
            "locks/interpreter.txt:1: python: was made for 3.11, the manifest says 3.12"
        )

    def test_no_header(self, checkout: Checkout, good: Path) -> None:
        (good / "locks/current.txt").write_text(f"numpy==2.2.6 \\\n    {HASH}\n")
        assert len(problems(checkout)) == 3
        assert "requirements: was made for nothing, the manifest says numpy==2.2.6" in problems(checkout)[0]

    @pytest.mark.parametrize(("version", "said"), [("numpy==2.2.5", "2.2.5"), ("scipy==2.2.6", "none")])
    def test_a_pin_that_is_not_in_it(self, checkout: Checkout, good: Path, version: str, said: str) -> None:
        self.edit(good, "numpy==2.2.6 \\", f"{version} \\")
        assert problems(checkout) == [
            f"locks/current.txt:1: numpy: {said} in the lock, the manifest says 2.2.6; write it: nox -s lock -- tiny"
        ]

    def test_equal_versions_may_be_written_differently(self, checkout: Checkout, good: Path) -> None:
        self.edit(good, "numpy==2.2.6 \\", "numpy==2.2.6.0 \\")
        assert problems(checkout) == []

    def test_without_hash(self, checkout: Checkout, good: Path) -> None:
        self.edit(good, "numpy==2.2.6 \\\n", "six==1.17.0\nnumpy==2.2.6 \\\n")
        assert problems(checkout) == ["locks/current.txt:4: six: has no hash; write it: nox -s lock -- tiny"]

    @pytest.mark.parametrize(
        "line",
        ["--index-url https://example.org/simple", "a @ https://example.org/a.whl", "-e .", "numpy>=1"],
    )
    def test_what_has_no_place_in_a_lock(self, checkout: Checkout, good: Path, line: str) -> None:
        self.edit(good, "numpy==2.2.6 \\\n", f"{line}\nnumpy==2.2.6 \\\n")
        assert problems(checkout) == [
            f"locks/current.txt:4: {line!r} has no place in a lock: pinned packages with hashes alone do"
        ]


class TestBlanks:
    def test_each_is_told_with_its_line(self) -> None:
        text = f"a\nb: 1  # {blank('open, or fixed')}\ntitle: '{blank('one line')}'\n{BLANK}\n"
        assert list(blanks(text)) == [(2, "open, or fixed"), (3, "one line"), (4, "")]

    def test_a_quote_that_belongs_to_the_text_stays(self) -> None:
        assert [*blanks(f"# {blank('type float')}'")] == [(1, "type float'")]

    def test_none(self) -> None:
        assert list(blanks("TODO: something else\n")) == []
