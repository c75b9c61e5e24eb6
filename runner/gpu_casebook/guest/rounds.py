"""Calls a function once for each seed, and prints what it handed out, how long it took and what it keeps, as JSON.

    rounds.py [--user UID] MODULE FUNCTION SEED...

The function gets what `inputs(seed)` of subject.py returns. It runs in a process of its own, which says over a pipe
when it has its inputs and when it has handed something out: this process, which runs none of its code, takes the time
and looks at its memory. What it prints goes to stderr. Values travel in files, as JSON: nothing is unpickled.

A script for the inside of an environment: it stands alone, with Python 3.8's standard library and nothing else.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

MOST_BYTES = 16 * 2**20
"""Of one round's values, as JSON."""


def plain(value: Any) -> Any:
    """Return a value as JSON has it: a tensor or an array as its type, shape and numbers. Raises TypeError."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "detach"):
        kind = str(value.dtype).replace("torch.", "")
        flat = value.detach().cpu().reshape(-1)
        return {"dtype": kind, "shape": list(value.shape), "values": flat.tolist()}
    if hasattr(value, "dtype") and hasattr(value, "reshape"):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": value.reshape(-1).tolist()}
    raise TypeError(f"{type(value).__name__} can't be handed out; tensors, arrays, numbers, text, lists and dicts can")


def serve(module: str, function: str, place: str, orders: TextIO, answers: TextIO) -> None:
    """Do what the other process orders: draw inputs from a seed, then call the function and write what it returns."""
    inputs = importlib.import_module("subject").inputs
    call = getattr(importlib.import_module(module), function)
    for number, seed in enumerate(iter(orders.readline, "")):
        given = inputs(int(seed))
        print("drawn", file=answers, flush=True)
        orders.readline()
        handed = call(**given)
        Path(place, f"{number}.json").write_text(json.dumps(plain(handed)), encoding="utf-8")
        print("handed out", file=answers, flush=True)
        del given, handed


def conduct(arguments: list[str], seeds: list[str], user: int | None) -> dict[str, Any]:
    """Return the rounds that came to their end, and what ended the others."""
    orders_in, orders_out = os.pipe()
    answers_in, answers_out = os.pipe()
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        if user is not None:
            os.chown(place, user, user)
        ends = (orders_in, answers_out)
        command = [sys.executable, __file__, "--serve", *arguments, place, *map(str, ends)]
        demoted: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=ends, **demoted)
        for end in ends:
            os.close(end)
        with os.fdopen(orders_out, "w") as orders, os.fdopen(answers_in) as answers:
            try:
                for number, seed in enumerate(seeds):
                    print(seed, file=orders, flush=True)
                    if answers.readline() != "drawn\n":
                        break
                    begun = time.perf_counter()
                    print("go", file=orders, flush=True)
                    if answers.readline() != "handed out\n":
                        break
                    seconds = time.perf_counter() - begun
                    written = read(Path(place, f"{number}.json"))
                    rounds.append({"seconds": seconds, "bytes": resident(process.pid), "values": written})
            except BrokenPipeError:
                pass  # it has ended: how, its exit status says
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return {"rounds": rounds, "ended": ended(process.returncode)}


def read(path: Path) -> Any:
    """Return the JSON in a file that the other process wrote; None for what is too large or no file."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_BYTES:
        return None
    return json.loads(path.read_text(encoding="utf-8"))


def resident(process: int) -> int:
    """Return the memory of a process, in bytes; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def ended(status: int) -> str | None:
    """Return how a process ended that should have ended by itself."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}" if status else None


def main() -> None:
    first, *rest = sys.argv[1:]
    if first == "--serve":
        module, function, place, *ends = rest
        with os.fdopen(int(ends[0])) as orders, os.fdopen(int(ends[1]), "w") as answers:
            serve(module, function, place, orders, answers)
        return
    user = int(rest.pop(0)) if first == "--user" else None
    module, function, *seeds = rest if first == "--user" else [first, *rest]
    print(json.dumps(conduct([module, function], seeds, user)))


if __name__ == "__main__":
    main()
