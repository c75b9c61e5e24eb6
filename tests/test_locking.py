"""One at a time, across processes, and the one who waits is told why."""

import subprocess
import sys
import threading
from pathlib import Path

from gpu_casebook.locking import sole

HOLD = """\
import sys
from pathlib import Path
from gpu_casebook.locking import sole
with sole(Path(sys.argv[1]), print, "waiting"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_one_that_is_free_is_held_without_a_word(tmp_path: Path) -> None:
    told: list[str] = []
    with sole(tmp_path / "new" / "directory" / "a.lock", told.append, "waiting"):
        assert not told


def test_it_is_free_again_afterwards(tmp_path: Path) -> None:
    told: list[str] = []
    for _ in range(2):
        with sole(tmp_path / "a.lock", told.append, "waiting"):
            pass
    assert not told


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "a.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        told, waits = [], threading.Event()

        def note(text: str) -> None:
            told.append(text)
            waits.set()

        order: list[str] = []

        def take() -> None:
            with sole(tmp_path / "a.lock", note, "another builds the same"):
                order.append("taken")

        taker = threading.Thread(target=take)
        taker.start()
        assert waits.wait(30)
        order.append("let go")
        holder.stdin.write("\n")
        holder.stdin.close()
        taker.join(30)
    assert order == ["let go", "taken"]
    assert told == ["another builds the same"]
