import pytest

from failure_signature.reading.printed import POINTS_KEPT, read
from gpu_casebook.engines.output import cut_middle

A = "sha256:" + "ab" * 32


@pytest.mark.parametrize("line", [f"out={A}", f"out={A}\r", f"noise\nout={A}\nout={A}"])
def test_digests(line: str) -> None:
    assert read(line).digests == {"out": A}
    assert not read(line).contradicted


@pytest.mark.parametrize(
    "line", ["out=sha256:", "out=sha256:xyz", f" out={A}", f"out={A} ", "out=abcdef0123456789", "out=a:1"]
)
def test_what_is_no_digest(line: str) -> None:
    assert read(line).digests == {}


def test_series_come_in_the_order_of_their_steps() -> None:
    printed = read("device_bytes[2]=30\ndevice_bytes[0]=10\nloss=0.5\ndevice_bytes[1]=2e1\nhost_bytes[0]=1\n")
    assert printed.series == {"device_bytes": [(0, 10.0), (1, 20.0), (2, 30.0)], "host_bytes": [(0, 1.0)]}
    assert printed.figures == {"loss": 0.5}


@pytest.mark.parametrize("line", ["a[]=1", "a[-1]=1", "a[1.5]=1", "a[1] = 1", "a[1]=1 MB", "a[1][2]=1", "a[x]=1"])
def test_what_is_no_point_of_a_series(line: str) -> None:
    assert read(line).series == {}


@pytest.mark.parametrize(
    "text",
    [
        f"x={A}\nx={A[:-1]}c",
        f"x={A}\nx=1",
        f"x=1\nx={A}",
        "x[1]=1\nx[2]=2\nx[1]=3",
        "x[1]=1\nx[1]=nan",
    ],
)
def test_what_was_said_twice_in_two_ways_counts_for_nothing(text: str) -> None:
    printed = read(f"{text}\ny=1\n")
    assert printed.contradicted == ["x"]
    assert (printed.figures, printed.digests, printed.series) == ({"y": 1.0}, {}, {})


def test_a_step_may_be_printed_again() -> None:
    assert read("x[1]=1\nx[1]=1.0\n").series == {"x": [(1, 1.0)]}


def test_half_a_digest_or_point_at_a_cut_is_none() -> None:
    assert read(cut_middle(f"out={A}\n".encode() * 2, 1000, 100)).digests == {}
    assert read(cut_middle(b"x[1]=123456\n" * 2, 1000, 20)).series == {}


def test_a_long_series_is_thinned_out_evenly() -> None:
    points = read("".join(f"x[{step}]={step}\n" for step in range(10_000))).series["x"]
    assert len(points) <= POINTS_KEPT
    assert points[:2] == [(0, 0.0), (20, 20.0)]
