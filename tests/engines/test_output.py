"""Output kept within bounds, new lines counted, private names replaced, exit statuses read."""

from collections.abc import Iterable

import pytest

from failure_signature.result import status_and_signal
from gpu_casebook.engines.output import Kept, Neutral, Novelty, cut_middle


def kept(bound: int, *pieces: bytes) -> str:
    stream = Kept(bound)
    for piece in pieces:
        stream.add(piece)
    return stream.text()


def test_short_streams_are_whole() -> None:
    assert kept(10, b"abc", b"", b"defghij") == "abcdefghij"
    assert kept(10) == ""


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_long_streams_keep_both_ends(size: int) -> None:
    data = bytes(range(65, 91)) * 40
    pieces = [data[begin : begin + size] for begin in range(0, len(data), size)]
    assert kept(10, *pieces) == "ABCDE\n[... 1030 bytes cut here ...]\nVWXYZ"


def test_one_byte_too_many() -> None:
    assert kept(10, b"0123456789", b"x") == "01234\n[... 1 bytes cut here ...]\n6789x"


def test_an_odd_bound_keeps_one_byte_less() -> None:
    assert kept(5, b"abcdefgh") == "ab\n[... 4 bytes cut here ...]\ngh"


def test_memory_is_bounded() -> None:
    stream = Kept(1000)
    for _ in range(1000):
        stream.add(b"x" * 1000)
        assert len(stream._data) <= 4000
    assert stream.total == 1_000_000


def test_a_bound_of_nothing_keeps_nothing() -> None:
    assert cut_middle(b"abc", 3, 1) == "\n[... 3 bytes cut here ...]\n"


def states(pieces: Iterable[bytes]) -> list[tuple[int, ...]]:
    """What changes with new output, after each piece."""
    stream = Kept(100, watched=True)
    found = []
    for piece in pieces:
        stream.add(piece)
        found.append(stream.printed)
    return found


def test_a_line_is_new_once() -> None:
    first, second, third, fourth = states([b"waiting\n", b"wait", b"ing\nwaiting\n", b"step 2\n"])
    assert first == third
    assert second != first
    assert fourth != third


@pytest.mark.parametrize("pieces", [[b"\r10 %", b"\r20 %", b"\r30 %"], [b".", b".", b"."]], ids=["bar", "dots"])
def test_progress_is_new_each_time(pieces: list[bytes]) -> None:
    assert len(set(states(pieces))) == 3


def test_lines_are_not_counted_unless_watched() -> None:
    stream = Kept(100)
    stream.add(b"line\n")
    assert stream.printed == ()


def test_endless_lines_take_little_memory() -> None:
    novelty = Novelty()
    for _ in range(1000):
        novelty.add(b"x" * 65536)
    assert novelty.state[1] <= 2 * 65536


def neutral(text: bytes, names: dict[str, str], size: int) -> bytes:
    pieces = [text[begin : begin + size] for begin in range(0, len(text), size)]
    return b"".join(Neutral(names).pieces(iter(pieces)))


NAMES = {"/home/me/scratch": "/scratch", "/home/me/scratch/case": "/case"}


@pytest.mark.parametrize("size", range(1, 60))
def test_names_are_replaced_wherever_the_stream_is_cut(size: int) -> None:
    text = b"in /home/me/scratch/case/a.py, /home/me/scratch, /home/me/scra and /home/me/scratch"
    assert neutral(text, NAMES, size) == b"in /case/a.py, /scratch, /home/me/scra and /scratch"


def test_no_names_change_nothing() -> None:
    assert neutral(b"as it was", {}, 2) == b"as it was"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, (0, None)),
        (77, (77, None)),
        (128, (128, None)),
        (139, (None, "SIGSEGV")),
        (-9, (None, "SIGKILL")),
        (134, (None, "SIGABRT")),
        (255, (255, None)),
        (None, (None, None)),
    ],
)
def test_ending(status: int | None, expected: tuple[int | None, str | None]) -> None:
    assert status_and_signal(status) == expected
