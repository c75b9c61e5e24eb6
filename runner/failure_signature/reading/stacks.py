"""Stacks of a trial's processes, made fit for evidence, and in a few words: who stands where. Pure.

Two programs print them, each in its own form: faulthandler (Python's documentation, "faulthandler") one thread after
the other with the main thread last, and py-spy (its `dump` command), with the main thread named.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from failure_signature.patterns import search
from failure_signature.result import ProcessStack

Source = Literal["faulthandler", "py-spy", "py-spy native", "kernel"]

PROCESSES_SHOWN = 8
"""In a sentence."""

_FAULTHANDLER_FRAME = re.compile(r'^  File "(.*)", line \d+ in (.+)$', re.MULTILINE)
_PY_SPY_FRAME = re.compile(r"^    (\S.*) \((.*?)(?::\d+)?\)$", re.MULTILINE)
_SLEEP = re.compile(r"(?:__)?(?:clock_)?nanosleep(?:@.*)?|time_sleep|pysleep")
_SLEEP_DEPTH = 4  # below it, in the C library and Python's own C, are no more frames than that


_NOISE = re.compile(r" +(?:0x[0-9a-f]+ |c10::impl::wrap_kernel_functor|pybind11::cpp_function)")
_KERNEL = "(kernel)"  # in place of a file
_OF_C = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".pyx", ".rs", ".so", _KERNEL)


def standing_at(stack: ProcessStack) -> str | None:
    """Return the Python function that the main thread is in, or None if the stack does not show it."""
    python = (name for name, file in frames(stack) if not file.endswith(_OF_C) and ".so." not in file)
    return next((name.rpartition(".")[2] for name in python), None)


def functions(stack: ProcessStack) -> list[str]:
    """Return the functions that the main thread is in, the innermost first."""
    return [name for name, _ in frames(stack)]


def asleep(stack: ProcessStack) -> bool:
    """Return whether the main thread is seen to sleep by the clock, and so will wake up by itself."""
    return any(map(_SLEEP.fullmatch, functions(stack)[:_SLEEP_DEPTH]))


def frames(stack: ProcessStack) -> list[tuple[str, str]]:
    """Return function and file of each frame of the main thread."""
    match stack.source:
        case "faulthandler":
            text = stack.text.rpartition("(most recent call first):")[2]
            return [(function, file) for file, function in _FAULTHANDLER_FRAME.findall(text)]
        case "py-spy" | "py-spy native":
            before, named, after = stack.text.partition('"MainThread"')
            main_thread = (after if named else before).partition("\nThread ")[0]
            return _PY_SPY_FRAME.findall(main_thread)
        case "kernel":
            return [(stack.text, _KERNEL)]


def standing(stacks: Sequence[ProcessStack]) -> str:
    """Return who stands where: "rank 0 in `_engine_run_backward`, rank 1 in `barrier`"; empty if nothing is known.

    Ranks if there are any, each its first process; otherwise those that wait for no child of theirs.
    """
    places: dict[int, str] = {}
    for stack in stacks:
        if place := standing_at(stack):
            places.setdefault(stack.number, place)
    if len(places) == 1:
        return f"in `{next(iter(places.values()))}`"
    chosen = that_matter({stack.number: stack for stack in stacks if stack.number in places}.values())
    shown = [f"{who(stack)} in `{places[stack.number]}`" for stack in chosen[:PROCESSES_SHOWN]]
    more = [f"and {len(chosen) - PROCESSES_SHOWN} more"] if len(chosen) > PROCESSES_SHOWN else []
    return ", ".join([*shown, *more])


def who(stack: ProcessStack) -> str:
    return f"process {stack.number}" if stack.rank is None else f"rank {stack.rank}"


def matching(pattern: str, stacks: Iterable[ProcessStack]) -> list[ProcessStack]:
    """Return the stacks in which the regular expression is found in a function's name. Raises `TooSlowError`.

    Only the main thread counts: a helper that merely has the name of what should hang is no hang.
    """
    return [stack for stack in stacks if any(search(pattern, function) for function in functions(stack))]


def that_matter(processes: Collection[ProcessStack]) -> list[ProcessStack]:
    """Return those of the ranks, or of the processes that wait for no child of theirs; one stack of a process each."""
    return _ranks(processes) or _leaves(processes)


def frames_that_matter(stack: ProcessStack, script: str) -> str:
    """Return the threads that are in the script, down to its outermost frame, without frames that say nothing.

    If no thread is, the whole stack.
    """
    own = re.compile(rf'[(/"]{re.escape(script)}(?::\d+\)|", line )')
    threads = []
    for thread in re.split(r"\n\s*(?=(?:Current thread|Thread) )", stack.text):
        lines = thread.splitlines()
        if inside := [at for at, line in enumerate(lines) if own.search(line)]:
            threads += [line for line in lines[: inside[-1] + 1] if not _NOISE.match(line)]
    return "\n".join(threads) or stack.text


def _ranks(processes: Collection[ProcessStack]) -> list[ProcessStack]:
    """One process each: those that a rank starts have its variables too, and come later."""
    first: dict[int, ProcessStack] = {}
    for stack in processes:
        if stack.rank is not None:
            first.setdefault(stack.rank, stack)
    return [first[rank] for rank in sorted(first)]


def _leaves(processes: Collection[ProcessStack]) -> list[ProcessStack]:
    own = [stack for stack in processes if stack.command != "multiprocessing.resource_tracker"]
    parents = {stack.parent for stack in own}
    return [stack for stack in own if stack.number not in parents]
