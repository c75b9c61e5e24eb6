"""The script runs here as it does inside an environment: a process of its own, with variables of the test's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_casebook.guest import locate

none_of_the_hosts_own = pytest.mark.skipif(
    any(Path("/usr/local/cuda").glob("*/compute-sanitizer")), reason="this host has one in the usual place"
)
VERSION = (
    "NVIDIA (R) Compute Sanitizer\nCopyright (c) 2020-2025 NVIDIA Corporation\nVersion 2025.3.1.0 (build 36400806)"
)


def located(**variables: str) -> Any:
    program = Path(locate.__file__)
    done = subprocess.run(
        [sys.executable, "-I", str(program)], env=variables, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def install(directory: Path, said: str = VERSION, status: int = 0) -> str:
    directory.mkdir(parents=True)
    program = directory / "compute-sanitizer"
    program.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{said}\nEND\nexit {status}\n")
    program.chmod(0o755)
    return str(program)


def test_on_the_path_by_its_name(tmp_path: Path) -> None:
    install(tmp_path / "bin")
    assert located(PATH=str(tmp_path / "bin")) == {"path": "compute-sanitizer", "version": "2025.3.1.0"}


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
@pytest.mark.parametrize("inside", ["bin", "compute-sanitizer"])
def test_in_the_toolkit_that_is_named(tmp_path: Path, variable: str, inside: str) -> None:
    program = install(tmp_path / "cuda" / inside)
    found = located(PATH="/nowhere", **{variable: str(tmp_path / "cuda")})
    assert found == {"path": program, "version": "2025.3.1.0"}


def test_one_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path / "bin", status=127)
    program = install(tmp_path / "cuda" / "bin")
    assert located(PATH=str(tmp_path / "bin"), CUDA_HOME=str(tmp_path / "cuda"))["path"] == program


@none_of_the_hosts_own
def test_another_program_of_that_name_is_none(tmp_path: Path) -> None:
    install(tmp_path / "bin", said="hello")
    assert located(PATH=str(tmp_path / "bin")) is None
