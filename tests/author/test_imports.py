import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from casebook_workbench.author.imports import Requirements, active_python, ask, imports, loaded, relative, variables
from gpu_casebook.errors import UsageError

TOLD: dict[str, Any] = {
    "python": "3.11.2",
    "standard": ["os", "sys"],
    "versions": {"torch": "2.13.0+cpu", "triton": "3.6.0", "numpy": "2.2.6"},
    "modules": {
        "torch": [{"name": "torch", "version": "2.13.0+cpu", "elsewhere": None}],
        "numpy": [{"name": "numpy", "version": "2.2.6", "elsewhere": None}],
        "yaml": [{"name": "PyYAML", "version": "6.0.3", "elsewhere": None}],
        "mine": [{"name": "mine", "version": "0.1", "elsewhere": "an editable checkout"}],
        "cv2": [
            {"name": "opencv-python", "version": "4.10", "elsewhere": None},
            {"name": "opencv-contrib-python", "version": "4.10", "elsewhere": None},
        ],
    },
}


def told_of(source: str) -> dict[str, bool]:
    return imports(ast.parse(source))


def needs(source: str, *header: str, beside: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    found = Requirements(answer=TOLD, beside=beside).collect(header, told_of(source))
    return [*found.pins.values()], found.blanks


class TestImports:
    def test_every_import_wherever_it_stands(self) -> None:
        source = "import a.b, c\nfrom d.e import f\nfrom g import h\ndef x():\n    import i\n"
        assert told_of(source) == dict.fromkeys(["a.b", "c", "d.e", "g.h", "i"], True)

    @pytest.mark.parametrize(
        "caught", ["ImportError", "ModuleNotFoundError", "(ImportError, OSError)", "Exception", ""]
    )
    def test_what_may_be_missing_is_optional(self, caught: str) -> None:
        found = told_of(f"try:\n    import a\nexcept {caught}:\n    import b\n".replace(" :", ":"))
        assert [*found.items()] == [("b", True), ("a", False)]

    def test_what_must_be_there_somewhere_is_not_optional(self) -> None:
        found = told_of("import a\ntry:\n    import a\nexcept ImportError:\n    pass\n")
        assert found == {"a": True}

    @pytest.mark.parametrize("test", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
    def test_what_only_type_checkers_see_is_none(self, test: str) -> None:
        assert told_of(f"import typing\nif {test}:\n    import a\nelse:\n    import b\n") == {"typing": True, "b": True}

    def test_relative_ones(self) -> None:
        assert relative(ast.parse("from . import x"))
        assert not relative(ast.parse("from x import y"))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("os.environ['A']; os.environ.get('B', 1); os.getenv('C'); environ.setdefault('D', '1')", {"A", "B", "C", "D"}),
        ("if 'A' in os.environ and 'B' not in os.environ: pass", {"A", "B"}),
        ("os.environ['A'] = '1'\nprint(os.environ['B'] == '1')", {"B"}),
    ],
)
def test_variables_that_are_read(source: str, names: set[str]) -> None:
    assert variables(source) == names


def test_what_was_imported_after_the_start_is_told_by_python_itself() -> None:
    code = "import sys, json.decoder, packaging.version; print('own', file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    stderr, modules = loaded(ended.stderr)
    assert stderr == "own\n"
    assert {"json", "packaging"} <= modules.keys()
    assert not {"site", "encodings", "packaging.version"} & modules.keys()


class TestRequired:
    def test_pinned_to_what_is_installed(self) -> None:
        assert needs("import numpy\nimport os, yaml") == (["numpy==2.2.6", "pyyaml==6.0.3"], [])

    def test_a_build_of_its_own_is_pinned_as_the_index_has_it(self) -> None:
        found = Requirements(answer=TOLD).collect((), told_of("import torch"))
        assert found.pins == {"torch": "torch==2.13.0"}
        assert found.notes == ["torch 2.13.0+cpu is a build of its own here; the case pins 2.13.0, as the index has it"]

    def test_where_no_gpu_is_needed_a_cpu_build_stays_one(self) -> None:
        found = Requirements(answer=TOLD, cpu=True).collect((), told_of("import torch"))
        assert found.pins == {"torch": "torch==2.13.0+cpu"}
        assert len(found.notes) == 1
        assert "the case takes it from its index" in found.notes[0]

    def test_the_standard_library_is_left_out(self) -> None:
        assert needs("import os, sys, json, __future__") == ([], [])

    def test_an_unknown_one_is_a_blank(self) -> None:
        assert needs("import nowhere") == ([], [blank_of("nowhere")])

    def test_an_unknown_one_that_may_be_missing_is_none(self) -> None:
        assert needs("try:\n    import nowhere\nexcept ImportError:\n    nowhere = None") == ([], [])

    def test_a_file_beside_the_script_is_refused_as_one(self) -> None:
        with pytest.raises(
            UsageError, match="helper is a file beside the script; a case's script stands alone: put it into"
        ):
            needs("import helper", beside=("helper",))

    def test_what_the_index_may_not_have_is_a_blank(self) -> None:
        assert needs("import mine")[1] == [
            "mine 0.1 is an editable checkout here; which release is it? Write mine==VERSION"
        ]

    def test_several_packages_for_one_module_are_a_blank(self) -> None:
        pins, blanks = needs("import cv2")
        assert pins == ["opencv-python==4.10"]
        assert blanks == ["several packages give cv2: opencv-python, opencv-contrib-python; keep the right one, pinned"]

    def test_the_scripts_own_header_comes_first(self) -> None:
        pins, blanks = needs("import numpy", "triton>=3", "numpy==1.26.4", "what is this", "gone")
        assert pins == ["triton==3.6.0", "numpy==1.26.4"]
        assert len(blanks) == 2
        assert blanks[1] == "gone is not installed here; write gone==VERSION"

    def test_what_matters_and_is_no_import_is_told_of(self) -> None:
        peft = {
            "name": "peft",
            "version": "0.19.1",
            "elsewhere": None,
            "requires": ["Torch", "numpy", "triton", "tqdm"],
        }
        told = TOLD | {"modules": {"peft": [peft]}}
        for header, given in ((["numpy==2.2.6"], set[str]()), ((), {"peft", "numpy"})):
            found = Requirements(answer=told, given=given).collect(header, told_of("import peft"))
            assert [note.partition(":")[0] for note in found.notes] == [
                f"{name} is installed here for peft, and not pinned" for name in ("torch 2.13.0", "triton 3.6.0")
            ]
            assert found.notes[0].endswith(": if its version matters, add torch==2.13.0 to the requirements")

    def test_what_is_given_is_left_out(self) -> None:
        source, header = "import numpy, yaml, gone", ["numpy>=2"]
        found = Requirements(answer=TOLD, given={"numpy", "pyyaml", "gone"}).collect(header, told_of(source))
        assert (found.pins, found.blanks) == ({}, [])


def blank_of(module: str) -> str:
    return f"which package has the module {module}? It is not installed here; write NAME==VERSION"


class TestAsk:
    def test_this_python_tells(self) -> None:
        told = ask(Path(sys.executable), ["yaml", "packaging.version", "nowhere"])
        assert [each["name"] for each in told["modules"]["yaml"]] == ["PyYAML"]
        assert [each["name"] for each in told["modules"]["packaging.version"]] == ["packaging"]
        assert told["modules"]["nowhere"] == []
        assert "asyncio" in told["standard"]

    def test_an_environment_of_ones_own_is_asked_and_not_the_runners(self, tmp_path: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
        site = next((tmp_path / "env" / "lib").glob("python*")) / "site-packages"
        needed = [
            "numpy (>=1.17)",
            "torch>=2; python_version == '3'",
            "a.b",
            "c[x]",
            "triton==3.6.0",
            'd; extra == "e"',
        ]
        for name, module, version in (
            ("Alpha-One", "alpha", "1.0"),
            ("ns-a", "space/a", "2"),
            ("ns-b", "space/b", "3"),
        ):
            info = site / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in needed)]
            (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
            (info / "RECORD").write_text(f"{module}/__init__.py,,\n")
            (site / module).mkdir(parents=True)
            (site / module / "__init__.py").touch()  # since Python 3.12 a file that is not there is not listed
        bare = site / "Some_Thing-4.dist-info"
        bare.mkdir()
        (bare / "METADATA").write_text("Metadata-Version: 2.1\nName: Some-Thing\nVersion: 4\n")
        told = ask(tmp_path / "env" / "bin" / "python", ["alpha", "space.b", "yaml", "Some_Thing"])
        found = {module: [each["name"] for each in givers] for module, givers in told["modules"].items()}
        assert found == {"alpha": ["Alpha-One"], "space.b": ["ns-b"], "yaml": [], "Some_Thing": ["Some-Thing"]}
        assert told["modules"]["alpha"][0]["requires"] == ["numpy", "torch", "a.b", "c"]
        assert told["modules"]["Some_Thing"][0]["requires"] == []

    def test_what_is_no_python_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="does not tell what it has installed; name another with --python"):
            ask(tmp_path / "none", ["yaml"])


class TestActive:
    def test_the_active_environment_comes_before_the_path(self, tmp_path: Path) -> None:
        for name in ("venv", "conda"):
            (tmp_path / name / "bin").mkdir(parents=True)
            (tmp_path / name / "bin" / "python").touch()
        venv, conda = (str(tmp_path / name) for name in ("venv", "conda"))
        assert active_python({"VIRTUAL_ENV": venv, "CONDA_PREFIX": conda}) == tmp_path / "venv" / "bin" / "python"
        assert active_python({"CONDA_PREFIX": conda}) == tmp_path / "conda" / "bin" / "python"
        assert active_python({"VIRTUAL_ENV": str(tmp_path / "gone"), "PATH": str(tmp_path)}) is None

    def test_else_the_first_python_on_the_path(self, tmp_path: Path) -> None:
        python = tmp_path / "python3"
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
        assert active_python({"PATH": str(tmp_path)}) == python
