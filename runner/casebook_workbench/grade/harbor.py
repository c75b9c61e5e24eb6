"""Cases as tasks in Harbor's format (schema 1.4): an image, what to do, a known fix, and what grades another one.

Harbor runs the agent in one container and, as the verifier is separate, grades in another one, which gets the one file
that the agent has changed. Neither has a network.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from casebook_workbench.grade import rules
from casebook_workbench.grade.graded import SCRIPTS, Graded
from casebook_workbench.grade.task import statement
from gpu_casebook.errors import UsageError
from gpu_casebook.files import write_whole
from gpu_casebook.guest import script

_TASK = """\
schema_version = "1.4"
artifacts = ["/task/subject.py"]

[task]
name = {name}
description = {description}
keywords = {keywords}

[metadata]
case = {case}
upstream = {upstream}
requirements = {requirements}

[environment]
workdir = "/task"
build_timeout_sec = 600.0
memory_mb = {memory_mb}

[agent]
timeout_sec = 3600.0

[verifier]
environment_mode = "separate"
timeout_sec = {timeout_s}
"""
_DOCKERFILE = """\
FROM {image}
USER root
WORKDIR /task
COPY subject.py /task/subject.py
"""
_COMPOSE = """\
# Not `network_mode = "no-network"` in task.toml: Harbor's Docker environment then wants netfilter for a sidecar.
services:
  main:
    network_mode: none
"""
_SOLVE = """\
#!/bin/sh
cp "$(dirname "$0")/fixed.py" /task/subject.py
"""
_TEST = """\
#!/bin/sh
python=$(command -v {python} || command -v python3)
exec "$python" "$(dirname "$0")/verify.py" /task/subject.py /logs/verifier/reward.json
"""
_MIB = 2**20


def write_task(graded: Graded, into: Path, *, image: str, python: str) -> Path:
    """Write the task of a case below `into`; return its directory. `image` has the packages, at its path `python`.

    Raises UsageError where there is something else of that name, and OSError.
    """
    place = into / graded.case.id
    if place.exists() and not (place / "task.toml").is_file():
        raise UsageError(f"{place}: is there, and no task; name another directory")
    for name, text in _files(graded, image, python).items():
        path = write_whole(place / name, text)
        if path.suffix == ".sh":
            path.chmod(0o755)
    return place


def _files(graded: Graded, image: str, python: str) -> Mapping[str, str]:
    case, manifest = graded.case, graded.case.manifest
    spec = case.environment(graded.grading.environment)
    upstream = manifest.upstream
    known = {**graded.rules, "rounds": graded.grading.rounds, "variables": dict(spec.variables)}
    fields = {
        "name": f"casebook/{case.id}",
        "description": manifest.title,
        "keywords": [manifest.failure.value, upstream.project],
        "case": case.id,
        "upstream": upstream.issue or upstream.project,
        "requirements": graded.requirements,
    }
    quoted = {name: json.dumps(value, ensure_ascii=False) for name, value in fields.items()}  # as TOML has it, too
    task = _TASK.format(**quoted, memory_mb=manifest.memory // _MIB, timeout_s=10 * manifest.timeout + 600)
    return {
        "task.toml": task,
        "instruction.md": f"{statement(graded)}\n\nThe file is `/task/subject.py`; `{python}` has the packages.\n",
        "environment/Dockerfile": _DOCKERFILE.format(image=image),
        "environment/docker-compose.yaml": _COMPOSE,
        "environment/subject.py": graded.texts["subject.py"],
        "solution/solve.sh": _SOLVE,
        "solution/fixed.py": graded.texts["fixed.py"],
        "tests/test.sh": _TEST.format(python=python),
        "tests/rules.json": json.dumps(known, indent=1) + "\n",
        **{f"tests/{name}": graded.texts[name] for name in SCRIPTS},
        **{
            f"tests/{path.name}": path.read_text(encoding="utf-8")
            for path in (Path(rules.__file__), Path(__file__).with_name("verify.py"), script("rounds"))
        },
    }
