"""A runner with one trial, in a process of its own to be interrupted or killed: runner_process.py ENGINE TOKEN ...

The trial has grandchildren in sessions of their own that ignore SIGTERM, and goes on for ten minutes.
"""

import sys
from pathlib import Path

from runner.engines.base import Engine, Limits, Recipe, TrialRequest
from runner.engines.docker import DockerEngine
from runner.engines.docker_client import connect
from runner.engines.venv import VenvEngine
from runner.errors import INTERRUPTED
from tests.engines.subjects import TOKEN, no_builder, this_python

FAMILY = """
import os, signal, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork():
            os._exit(0)
        time.sleep(600)
print("started", flush=True)
time.sleep(600)
"""
PROCESSES = 3
"""The script and two grandchildren."""


def engine(kind: str, arguments: list[str]) -> tuple[Engine, Recipe]:
    if kind == "docker":
        return DockerEngine(connect(), no_builder), Recipe(image="cpu", lock="", use_image=arguments[0])
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
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
