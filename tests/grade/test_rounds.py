"""guest/rounds.py: calls in a process of their own, timed and looked at from another one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_casebook.guest import script

SUBJECT = "import os, sys, signal, time\n\ndef inputs(seed):\n    return {'x': seed}\n\ndef solve(x):\n    "


def rounds(place: Path, body: str, *more: str, python: str = sys.executable) -> tuple[dict[str, Any], str]:
    (place / "rounds.py").write_bytes(script("rounds").read_bytes())
    (place / "subject.py").write_text(SUBJECT + body)
    command = [python, "rounds.py", *more, "subject", "solve", "4", "5"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout), done.stderr


def test_each_seed_is_a_round_with_its_values_time_and_memory(tmp_path: Path) -> None:
    said, _ = rounds(tmp_path, "time.sleep(0.05)\n    return {'y': [x, 0.1, None, 'a', (True,)]}")
    assert said["ended"] is None
    assert [each["values"] for each in said["rounds"]] == [{"y": [seed, 0.1, None, "a", [True]]} for seed in (4, 5)]
    assert all(0.05 <= each["seconds"] < 5 and each["bytes"] > 2**20 for each in said["rounds"])


def test_what_is_printed_is_no_answer(tmp_path: Path) -> None:
    forged = '{"rounds": [], "ended": null}'
    said, stderr = rounds(tmp_path, f"print('{forged}', flush=True)\n    os.write(1, b'drawn')\n    return x")
    assert [each["values"] for each in said["rounds"]] == [4, 5]
    assert forged in stderr


@pytest.mark.parametrize(
    ("body", "ended", "says"),
    [
        ("raise ValueError('no')", "exit status 1", "ValueError: no"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV", ""),
        ("return object()", "exit status 1", "object can't be handed out"),
        ("sys.exit(0)", None, ""),
    ],
)
def test_a_call_that_ends_otherwise_is_no_round(tmp_path: Path, body: str, ended: str | None, says: str) -> None:
    said, stderr = rounds(tmp_path, body)
    assert said == {"rounds": [], "ended": ended}
    assert says in stderr


def test_a_link_in_the_place_of_values_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('"secret"')
    body = f"""
    import builtins, pathlib
    def write_text(self, *a, **k):
        os.symlink({str(tmp_path / "secret.json")!r}, self)
    pathlib.Path.write_text = write_text"""
    said, _ = rounds(tmp_path, body.strip())
    assert [each["values"] for each in said["rounds"]] == [None, None]


@pytest.mark.skipif(
    os.getuid() != 0 or not Path("/usr/bin/python3").exists(),
    reason="takes root, and a Python that another user may read",
)
def test_the_call_can_run_as_another_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for above in tmp_path.parents[:3]:  # one more in a worker of a parallel run
        if above.owner() == "root" and "pytest" in str(above):
            above.chmod(0o755)
    said, _ = rounds(tmp_path, "return os.getuid()", "--user", "65534", python="/usr/bin/python3")
    assert [each["values"] for each in said["rounds"]] == [65534, 65534]
