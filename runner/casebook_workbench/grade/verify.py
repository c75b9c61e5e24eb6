"""Grades a candidate inside a container of a task, and writes its reward. What `casebook grade` does, without it.

It stands in a directory with rules.py, rounds.py, rules.json and the case's three scripts, and is run as root; the
candidate runs as another user, which may not read that directory.

    verify.py CANDIDATE REWARD
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
rules: Any = importlib.import_module("rules")  # it lies beside this file in a task
USER = 65534


def run(
    known: dict[str, Any], files: dict[str, str], seeds: list[str], module: str, function: str
) -> tuple[dict[str, Any], str]:
    """Return what rounds.py says of one process in a directory of its own, and what that process printed."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)  # noqa: PTH101, S103 for the other user
        for name, text in files.items():
            Path(place, name).write_text(text, encoding="utf-8")
        shutil.copy(HERE / "rounds.py", place)
        variables = {**os.environ, **known["variables"], "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}  # noqa: S108
        command = [sys.executable, "rounds.py", "--user", str(USER), module, function, *seeds]
        begun = time.monotonic()
        done = subprocess.run(command, cwd=place, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"rounds": [], "ended": "rounds.py was ended"}, done.stderr
        return {**json.loads(done.stdout), "whole": time.monotonic() - begun}, done.stderr


def against(known: dict[str, Any], candidate: str) -> list[str]:
    """Return what stands against a candidate. Raises RuntimeError where the known fix fails."""
    texts = {name: (HERE / name).read_text(encoding="utf-8") for name in ("subject.py", "fixed.py", "check.py")}
    found: list[str] = rules.breaches(texts["subject.py"], candidate, known)
    if found:
        return found
    first = secrets.randbelow(2**31)
    seeds = [str(first + number) for number in range(known["rounds"])]
    ours, printed = run(known, {"subject.py": candidate}, seeds, "subject", "solve")
    theirs, _ = run(known, {"subject.py": texts["fixed.py"]}, seeds, "subject", "solve")
    apart = {name: texts[name] for name in ("subject.py", "check.py")}
    checked, why = run(known, apart, seeds, "check", "reference")
    reference = [each["values"] for each in checked["rounds"]]
    if len(reference) < len(seeds):
        raise RuntimeError(f"the reference can't be computed: {why}")
    unfit = rules.wrong(theirs, reference, known) + rules.grows(theirs, known)
    if unfit:
        raise RuntimeError(f"the known fix fails here: {unfit[0]}")
    found = rules.wrong(ours, reference, known) or rules.grows(ours, known)
    if found:
        return [*found, *printed.strip().splitlines()[-1:]]
    slow = rules.slow([ours], [theirs], known)
    if slow:
        again = [
            run(known, {"subject.py": text}, seeds, "subject", "solve")[0] for text in (candidate, texts["fixed.py"])
        ]
        slow = rules.slow([ours, again[0]], [theirs, again[1]], known) if again[0]["rounds"] else slow
    return [slow] if slow else []


def main() -> None:
    candidate, reward = map(Path, sys.argv[1:])
    HERE.chmod(0o700)
    known = json.loads((HERE / "rules.json").read_text(encoding="utf-8"))
    is_file = candidate.is_file() and not candidate.is_symlink()
    found = against(known, candidate.read_text(encoding="utf-8")) if is_file else [f"there is no file {candidate}"]
    print("\n".join(["refused: " + found[0], *found[1:]]) if found else "accepted")
    reward.write_text(json.dumps({"reward": int(not found)}), encoding="utf-8")


if __name__ == "__main__":
    main()
