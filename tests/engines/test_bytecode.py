"""Bytecode of modules that environments share."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gpu_casebook.engines.venv import bytecode
from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.packages import uv
from tests.engines.subjects import eventually, this_python

SOURCE = "def fails():\n    raise ValueError(__file__)\n"


class Shared:
    """Environments in which one package's files are links to the same ones."""

    def __init__(self, place: Path) -> None:
        self.place, self.shelf = place, place / "bytecode"
        self.original = place / "original.py"
        self.original.write_text(SOURCE)

    def make(self, name: str) -> Path:
        directory = self.place / name
        (directory / "bin").mkdir(parents=True)
        (directory / "bin" / "python").symlink_to(sys.executable)
        package = directory / "lib" / "package"
        package.mkdir(parents=True)
        (package / "module.py").hardlink_to(self.original)
        return directory

    def compiled(self, directory: Path) -> Seal:
        return bytecode.compile_all(directory, Seal.of(directory), self.shelf, this_python())


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def bytecode_of(directory: Path) -> Path:
    (path,) = directory.rglob("module.*.pyc")
    return path


def test_a_module_is_compiled_once(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = shared.make("first"), shared.make("second")
    shared.compiled(first)
    monkeypatch.setattr(uv, "compile_bytecode", lambda _directory: None)
    sealed = shared.compiled(second)
    assert bytecode_of(second).samefile(bytecode_of(first))
    assert sealed.changed() == []
    name = str(bytecode_of(second).relative_to(second))
    assert sealed.files[name] == Seal.of(second).files[name], "the stamp is that of the file with all its links"


def test_what_is_linked_is_what_python_would_use(shared: Shared) -> None:
    first, second = shared.make("first"), shared.make("second")
    shared.compiled(first)
    shared.compiled(second)
    code = "import package.module as m; print(m.__cached__); m.fails()"
    ended = subprocess.run(
        [sys.executable, "-v", "-c", code], cwd=second / "lib", capture_output=True, text=True, check=False
    )
    assert f"matches {second}" in ended.stderr, "not compiled again"
    assert f'File "{second}/lib/package/module.py", line 2, in fails' in ended.stderr, "not the first one's"


def test_another_source_is_compiled(shared: Shared) -> None:
    first, second = shared.make("first"), shared.make("second")
    shared.compiled(first)
    module = second / "lib" / "package" / "module.py"
    module.unlink()
    module.write_text("OTHER = 1\n")
    shared.compiled(second)
    assert not bytecode_of(second).samefile(bytecode_of(first))
    assert b"OTHER" in bytecode_of(second).read_bytes()


def test_what_a_trial_wrote_to_is_not_handed_on(shared: Shared) -> None:
    first, second, third = (shared.make(name) for name in ("first", "second", "third"))
    shared.compiled(first)
    bytecode_of(first).write_bytes(bytecode_of(first).read_bytes().replace(b"fails", b"spoil"))
    for other in (second, third):
        shared.compiled(other)
        assert b"fails" in bytecode_of(other).read_bytes()
    assert bytecode_of(third).samefile(bytecode_of(second)), "the shelf has good bytecode again"


def test_without_links_every_environment_compiles(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = shared.make("first"), shared.make("second")

    def refuse(*_: object) -> None:
        raise OSError("too many links")

    monkeypatch.setattr(os, "link", refuse)
    for directory in (first, second):
        shared.compiled(directory)
        assert bytecode_of(directory).stat().st_nlink == 1


def test_an_interrupt_leaves_no_compiler_behind(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "lib").mkdir()
    text = "".join(f"def f{number}(a): return [a + {number}, {{'a': a}}]\n" for number in range(3000))
    for number in range(300):
        (tmp_path / "lib" / f"module{number}.py").write_text(text)

    def compilers() -> int:
        shown = (each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"]))
        return sum("compileall" in words and words[-1] == str(tmp_path / "lib") for words in shown)

    script = "import pathlib, sys; from gpu_casebook.packages import uv; uv.compile_bytecode(pathlib.Path(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.DEVNULL) as runner:
        eventually(lambda: compilers() > 1)
        runner.send_signal(signal.SIGINT)
        assert runner.wait(60) != 0
    eventually(lambda: compilers() == 0)
