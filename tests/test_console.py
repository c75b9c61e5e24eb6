import io
import re
import time

import pytest

from gpu_casebook import console
from gpu_casebook.console import NOTE_S, Console


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain() -> tuple[Console, io.StringIO, Clock]:
    file, clock = io.StringIO(), Clock()
    return Console(file, clock), file, clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_step_says_that_it_begins_and_how_long_it_took() -> None:
    out, file, clock = plain()
    with out.step("building cuda13"):
        clock.now = 12.34
    assert file.getvalue() == "building cuda13 ...\nbuilding cuda13: 12.3 s\n"


def test_plain_step_is_quiet_about_what_was_quick() -> None:
    out, file, _ = plain()
    with out.step("looking"):
        pass
    assert file.getvalue() == "looking ...\n"


def test_plain_notes_are_rare_enough_for_a_log() -> None:
    out, file, clock = plain()
    with out.step("building") as note:
        for second in range(25):
            clock.now = second
            note(f"step {second}\nof many")
    told = re.findall(r"building: step (\d+) of many", file.getvalue())
    assert told == ["10", "20"]


def test_plain_task_counts() -> None:
    out, file, _ = plain()
    with out.task("rwkv6-backward", 2) as advance:
        advance("repro trial 1: as-expected (0.5 s)")
        advance("fixed trial 1: as-expected (0.4 s)")
    assert file.getvalue().splitlines() == [
        "rwkv6-backward 1/2: repro trial 1: as-expected (0.5 s)",
        "rwkv6-backward 2/2: fixed trial 1: as-expected (0.4 s)",
    ]


def test_live_display_keeps_what_each_trial_gave_and_takes_no_markup_from_it() -> None:
    file = Terminal()
    out = Console(file)
    with out.step("preparing [bold]x") as note:
        note("step 1/3 [red]")
    with out.task("case", 1) as advance:
        advance("repro trial 1: otherwise: saw [/nonsense] on stdout")
    out.say("done [/b]")
    assert "saw [/nonsense] on stdout" in file.getvalue()
    assert "done [/b]" in file.getvalue()
    assert "case 1/1" not in file.getvalue()


def test_who_is_told_gets_every_line_and_some_of_the_notes() -> None:
    file, clock, told = io.StringIO(), Clock(), list[str]()
    out = Console(file, clock, tell=told.append)
    with out.step("building") as note:
        for number in range(8):
            clock.now += NOTE_S / 2
            note(str(number))
        out.say("a line")
        note("8")
    assert told == [
        "building ...",
        "building: 1",
        "building: 3",
        "building: 5",
        "building: 7",
        "a line",
        "building: 1.0 s",
    ]
    assert file.getvalue().splitlines() == ["building ...", "a line", "building: 1.0 s"]


def waited_for(file: io.StringIO, text: str, within_s: float = 30.0) -> bool:
    deadline = time.monotonic() + within_s
    while text not in file.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    return text in file.getvalue()


def test_a_log_says_what_goes_on_while_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "SILENCE_S", 0.05)
    file = io.StringIO()
    out = Console(file)
    with out.step("building cuda13"):
        assert waited_for(file, "building cuda13: working (")
    with out.task("rwkv6-backward", 2, lambda: "2 running"):
        assert waited_for(file, "rwkv6-backward: 2 running (")
    ended = file.getvalue()
    time.sleep(0.2)
    assert file.getvalue() == ended


def test_a_log_says_nothing_more_while_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "SILENCE_S", 10.0)
    file = io.StringIO()
    out = Console(file)
    with out.signs("corpus"):
        out.say("one")
        time.sleep(0.05)
    assert file.getvalue() == "one\n"
