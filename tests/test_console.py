import io
import re

from gpu_casebook.console import PlainConsole, console
from gpu_casebook.live import LiveConsole


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain() -> tuple[PlainConsole, io.StringIO, Clock]:
    file, clock = io.StringIO(), Clock()
    return PlainConsole(file, clock), file, clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_plain_lines_and_a_terminal_a_live_display() -> None:
    assert isinstance(console(io.StringIO()), PlainConsole)
    assert isinstance(console(Terminal()), LiveConsole)


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
    with out.task("rwkv6-backward", 2) as task:
        task.advance("repro trial 1: as-expected (0.5 s)")
        task.advance("fixed trial 1: as-expected (0.4 s)")
    assert file.getvalue().splitlines() == [
        "rwkv6-backward 1/2: repro trial 1: as-expected (0.5 s)",
        "rwkv6-backward 2/2: fixed trial 1: as-expected (0.4 s)",
    ]


def test_live_display_keeps_what_each_trial_gave_and_takes_no_markup_from_it() -> None:
    file = Terminal()
    out = LiveConsole(file)
    with out.step("preparing [bold]x") as note:
        note("step 1/3 [red]")
    with out.task("case", 1) as task:
        task.advance("repro trial 1: otherwise: saw [/nonsense] on stdout")
    out.say("done [/b]")
    assert "saw [/nonsense] on stdout" in file.getvalue()
    assert "done [/b]" in file.getvalue()
