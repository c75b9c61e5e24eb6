"""Hung, slow or neither: decided from samples that tests write themselves."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from gpu_casebook.engines.output import Kept, Novelty
from gpu_casebook.engines.watching import (
    SITE,
    Followed,
    ProcessSample,
    Sample,
    TrialEnd,
    follow,
    marks,
    moved,
    parse,
    stacks_of,
)
from gpu_casebook.guest import sampler
from gpu_casebook.guest.watched import __name__ as watched_package
from gpu_casebook.trial import Watch

AFTER_S, TIMEOUT_S = 20.0, 60.0
WATCH = Watch(after_s=AFTER_S, still_s=3.0, interval_s=1.0)


def seen(pid: int = 7, *, stack: str = "line 1 in f", cpu_s: float = 1.0, starved_s: float = 0.0) -> ProcessSample:
    return ProcessSample(pid, 1, ["python", "x.py"], None, "futex", cpu_s, starved_s, {"faulthandler": stack})


def sample(*processes: ProcessSample, at: float = 0.0, printed: tuple[int, ...] = (3, 0)) -> Sample:
    return Sample(at, processes or (seen(),), printed)


@pytest.mark.parametrize(
    ("after", "moves", "moves_spinning"),
    [
        (sample(at=2), False, False),
        (sample(seen(stack="line 2 in f"), at=2), True, True),
        (sample(seen(), seen(8), at=2), True, True),
        (sample(seen(8), at=2), True, True),
        (sample(at=2, printed=(4, 0)), True, True),
        (sample(seen(cpu_s=1.1), at=2), False, False),
        (sample(seen(cpu_s=1.3), at=2), True, False),
        (sample(seen(cpu_s=3.0), at=2), True, False),
        (sample(seen(cpu_s=1.1, starved_s=0.5), at=2), False, False),
        (sample(seen(cpu_s=1.1, starved_s=1.8), at=2), True, False),
        (sample(seen()._replace(waits_in="folio_wait_bit_common"), at=2), True, True),
        (sample(seen()._replace(waits_in="futex_wait_queue"), at=2), False, False),
    ],
    ids=[
        *("still", "stack", "came", "another", "printed", "idle", "works", "busy", "busy machine", "starved"),
        *("disk", "another process"),
    ],
)
def test_what_counts_as_progress(after: Sample, moves: bool, moves_spinning: bool) -> None:  # noqa: FBT001
    assert moved(sample(), after, spins=False) is moves
    assert moved(sample(), after, spins=True) is moves_spinning


def test_many_that_do_little_do_nothing() -> None:
    """What sampling costs them adds up to more than one of them would have to do."""
    before = sample(*(seen(pid) for pid in range(20)))
    after = sample(*(seen(pid, cpu_s=1.05) for pid in range(20)), at=1)
    assert not moved(before, after, spins=False)


@dataclass
class Trial:
    """A trial in a time of its own; looking takes half a second."""

    samples: Iterator[Sample | None]
    ends_at: float = float("inf")
    now: float = 100.0
    begun: float = 100.0
    looked_at: list[float] = field(default_factory=list)

    def take(self) -> Sample | None:
        self.looked_at.append(self.now - self.begun)
        self.now += 0.5
        found = next(self.samples)
        return found._replace(at=self.now) if found else None

    def ended(self, within_s: float) -> bool:
        self.now = min(self.now + within_s, max(self.begun + self.ends_at, self.now))
        return self.now >= self.begun + self.ends_at

    def follow(self, timeout_s: float = TIMEOUT_S) -> TrialEnd:
        return follow(WATCH, timeout_s, take=self.take, ended=self.ended, clock=lambda: self.now)


def forever(*samples: Sample | None) -> Iterator[Sample | None]:
    while True:
        yield from samples


def steps(count: int) -> Iterator[Sample]:
    return (sample(seen(stack=f"line {number}")) for number in range(count))


def test_nobody_looks_before_the_time() -> None:
    trial = Trial(forever(sample()), ends_at=19.9)
    assert trial.follow() is TrialEnd.ENDED
    assert trial.looked_at == []


def test_hung_as_soon_as_it_is_clear() -> None:
    trial = Trial(forever(sample()))
    assert trial.follow() is TrialEnd.HUNG
    assert trial.looked_at == [20.0, 21.5, 23.0]


def test_progress_and_then_a_hang_is_a_hang() -> None:
    def samples() -> Iterator[Sample | None]:
        yield from steps(6)
        yield from forever(sample())

    trial = Trial(samples())
    assert trial.follow() is TrialEnd.HUNG
    assert len(trial.looked_at) == 6 + 3


def test_progress_to_the_last_is_slow() -> None:
    trial = Trial(steps(1000))
    assert trial.follow() is TrialEnd.SLOW
    assert trial.now - trial.begun == pytest.approx(TIMEOUT_S, abs=0.5)


def test_one_movement_in_a_while_is_enough() -> None:
    still = [sample(), sample()]
    assert Trial(forever(*still, sample(seen(stack="line 2")), sample(seen(stack="line 2")))).follow() is TrialEnd.SLOW


def test_an_end_between_two_looks_is_an_end() -> None:
    assert Trial(steps(1000), ends_at=40.0).follow() is TrialEnd.ENDED
    assert Trial(forever(sample()), ends_at=21.0).follow() is TrialEnd.ENDED


@pytest.mark.parametrize(
    "samples",
    [forever(None), forever(sample(), None)],
    ids=["never", "every other time"],
)
def test_what_could_not_be_looked_at_is_not_known(samples: Iterator[Sample | None]) -> None:
    assert Trial(samples).follow() is TrialEnd.UNKNOWN


def test_a_time_limit_before_anything_is_clear() -> None:
    assert Trial(forever(sample())).follow(timeout_s=22.0) is TrialEnd.UNKNOWN
    assert Trial(forever(sample())).follow(timeout_s=10.0) is TrialEnd.UNKNOWN


STACKS = stacks_of(sample())


@pytest.mark.parametrize(
    ("end", "ended_by_us", "timed_out", "expected"),
    [
        (TrialEnd.HUNG, True, False, (True, AFTER_S, False, False)),
        (TrialEnd.HUNG, False, False, (False, None, False, False)),
        (TrialEnd.SLOW, True, False, (False, None, True, True)),
        (TrialEnd.SLOW, False, False, (False, None, False, False)),
        (TrialEnd.UNKNOWN, True, False, (False, None, True, False)),
        (TrialEnd.ENDED, False, True, (False, None, True, False)),
        (TrialEnd.ENDED, False, False, (False, None, False, False)),
    ],
)
def test_who_was_quicker_than_the_order_to_end_it_has_ended(
    end: TrialEnd,
    ended_by_us: bool,  # noqa: FBT001
    timed_out: bool,  # noqa: FBT001
    expected: tuple[bool, float | None, bool, bool],
) -> None:
    found = marks(WATCH, Followed(end, STACKS), ended_by_us=ended_by_us, timed_out=timed_out)
    assert (found["hung"], found["hung_after_s"], found["timed_out"], found["slow"]) == expected
    assert bool(found["stacks"]) is (found["hung"] or found["timed_out"])


def test_a_gpu_gives_more_time() -> None:
    assert not Watch.from_second(20, gpus=False).spins
    one, other = Watch.from_second(8, gpus=True), Watch.from_second(40, gpus=True)
    assert (one.spins, one.still_s, other.still_s) == (True, 10.0, 20.0)
    assert other.settled_s == 40 + 20 + 2


def test_processes_are_numbered_and_told_by_every_source() -> None:
    told = {"faulthandler": "line 1", "py-spy native": "Process 9: x\nThread 9 (idle)\n"}
    child = seen(4711)._replace(parent=4242, rank=3, stacks=told)
    other = seen(4712)._replace(parent=4242, command=["/bin/sleep", "9"], stacks={}, waits_in="hrtimer_nanosleep")
    stacks = stacks_of(sample(seen(4242)._replace(parent=17), child, other))
    assert [(one.number, one.parent, one.rank, one.source) for one in stacks] == [
        (1, None, None, "faulthandler"),
        (2, 1, 3, "faulthandler"),
        (2, 1, 3, "py-spy native"),
        (3, 1, None, "kernel"),
    ]
    assert "hrtimer_nanosleep" in stacks[-1].text
    assert "4711" not in str(stacks)
    assert stacks_of(None) == []


@pytest.mark.parametrize(
    "said", ["", "no JSON", "{}", "[]", '{"at": 1, "processes": []}', '{"at": 1, "processes": [{}]}']
)
def test_what_is_no_sample_is_none(said: str) -> None:
    assert parse(said) is None


def test_the_sampler_s_words_are_understood() -> None:
    process = {"pid": 7, "parent": 1, "command": ["x"], "waits_in": "", "cpu_s": 1, "starved_s": 0, "stacks": {}}
    line = json.dumps({"at": 1.5, "processes": [process | {"rank": "3"}, process | {"rank": "three"}]})
    found = parse(line, (1, 2))
    assert found
    assert (found.at, found.printed, [one.rank for one in found.processes]) == (1.5, (1, 2), [3, None])


def test_both_sides_know_the_signal_and_the_file() -> None:
    site = SITE.read_text(encoding="utf-8")
    assert f"\nSIGNAL = {sampler.SIGNAL}\n" in site
    assert f'\nMARK = "{sampler.MARK}"\n' in site
    assert SITE.parent.name == watched_package.rpartition(".")[2]


def said(pieces: Iterable[bytes]) -> list[tuple[int, ...]]:
    kept = Kept(100, Novelty())
    states = []
    for piece in pieces:
        kept.add(piece)
        states.append(kept.said)
    return states


def test_a_line_is_new_once() -> None:
    first, second, third, fourth = said([b"waiting\n", b"wait", b"ing\nwaiting\n", b"step 2\n"])
    assert first == third
    assert second != first
    assert fourth != third


def test_a_progress_bar_is_new_each_time() -> None:
    states = said([b"\r10 %", b"\r20 %", b"\r30 %"])
    assert len(set(states)) == 3


def test_dots_are_new_each_time() -> None:
    assert len(set(said([b".", b".", b"."]))) == 3


def test_what_nobody_asked_about_is_not_looked_at() -> None:
    kept = Kept(100)
    kept.add(b"line\n")
    assert kept.said == ()


def test_endless_lines_take_little_memory() -> None:
    novelty = Novelty()
    for _ in range(1000):
        novelty.add(b"x" * 65536)
    assert novelty.state[1] <= 2 * 65536
