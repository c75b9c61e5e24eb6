"""A runner with one trial, in a process of its own to be interrupted or killed: runner_process.py ENGINE TOKEN ...

The trial has grandchildren in sessions of their own that ignore SIGTERM, and goes on for ten minutes.
"""

import signal
import sys
from pathlib import Path

from casebook_rootless.charliecloud import CharliecloudEngine
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.errors import ExitStatus
from gpu_casebook.trial import Limits, Recipe, TrialRequest
from tests.engines.subjects import FAMILY, ROOT, TOKEN, this_python


def engine(kind: str, arguments: list[str]) -> tuple[Engine, Recipe]:
    if kind in {"docker", "podman"}:
        return registry.kind(kind).connect(ROOT), Recipe(image="cpu", lock="", use_image=arguments[0])
    if kind == "charliecloud":
        store, place = map(Path, arguments[1:])
        return CharliecloudEngine(ROOT, store, place), Recipe(image="cpu", lock="", use_image=arguments[0])
    cache, place = map(Path, arguments)
    return VenvEngine(cache=cache, place=place), Recipe(image="cpu", lock="", python=this_python())


def main(kind: str, token: str, *arguments: str) -> None:
    made, recipe = engine(kind, list(arguments))
    with made:
        prepared = made.prepare(recipe, print)
        request = TrialRequest(
            files={"script.py": FAMILY.encode()},
            arguments=["script.py"],
            limits=Limits(timeout_s=600),
            variables={TOKEN: token},
        )
        made.run(prepared, request)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has background jobs ignore it
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(ExitStatus.INTERRUPTED)
