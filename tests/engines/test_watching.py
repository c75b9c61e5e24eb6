"""Hung, slow or neither: decided from samples that tests write themselves."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest

from gpu_casebook.engines.watching import (
    SITE,
    ProcessSample,
    Sample,
    Watched,
    look,
    moved,
    parse,
    stacks_of,
    watch_trial,
)
from gpu_casebook.guest import sampler
from gpu_casebook.guest.watched import __name__ as watched_package
from gpu_casebook.trial import Watch

AFTER_S, TIMEOUT_S = 20.0, 60.0
WATCH = Watch(after_s=AFTER_S, still_s=3.0, interval_s=1.0)
ENDED = None
HUNG = Watched(hung=True, hung_after_s=AFTER_S)
SLOW = Watched(timed_out=True, slow=True)
UNKNOWN = Watched(timed_out=True)


def seen(pid: int = 7, *, stack: str = "line 1 in f", cpu_s: float = 1.0, starved_s: float = 0.0) -> ProcessSample:
    return ProcessSample(pid, 1, ["python", "x.py"], None, "futex", cpu_s, starved_s, {"faulthandler": stack})


def at_work(**more: float) -> ProcessSample:
    return seen(**more)._replace(stacks={}, works=True)  # type: ignore[arg-type]


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
        (sample(at_work(), at=2), False, False),
        (sample(at_work(cpu_s=1.3), at=2), True, True),
    ],
    ids=[
        *("still", "stack", "came", "another", "printed", "idle", "works", "busy", "busy machine", "starved"),
        *("disk", "another process", "ran just then", "ran all the time"),
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

    def look(self, spying: bool) -> str:  # noqa: FBT001
        if spying:
            return json.dumps({"at": self.now, "processes": [seen()._asdict()]})
        self.looked_at.append(self.now - self.begun)
        self.now += 0.5
        found = next(self.samples)
        processes = [one._asdict() for one in found.processes] if found else []
        return json.dumps({"at": self.now, "processes": processes})

    def ended(self, within_s: float) -> bool:
        self.now = min(self.now + within_s, max(self.begun + self.ends_at, self.now))
        return self.now >= self.begun + self.ends_at

    def follow(self, timeout_s: float = TIMEOUT_S) -> Watched | None:
        """How it ended, without the stacks."""
        end = watch_trial(WATCH, timeout_s, look=self.look, printed=tuple, ended=self.ended, clock=lambda: self.now)
        return end._replace(stacks=()) if end else None


def forever(*samples: Sample | None) -> Iterator[Sample | None]:
    while True:
        yield from samples


def steps(count: int) -> Iterator[Sample]:
    return (sample(seen(stack=f"line {number}")) for number in range(count))


def test_nobody_looks_before_the_time() -> None:
    trial = Trial(forever(sample()), ends_at=19.9)
    assert trial.follow() == ENDED
    assert trial.looked_at == []


def test_hung_as_soon_as_it_is_clear() -> None:
    trial = Trial(forever(sample()))
    assert trial.follow() == HUNG
    assert trial.looked_at == [20.0, 21.5, 23.0]


def test_progress_and_then_a_hang_is_a_hang() -> None:
    def samples() -> Iterator[Sample | None]:
        yield from steps(6)
        yield from forever(sample())

    trial = Trial(samples())
    assert trial.follow() == HUNG
    assert len(trial.looked_at) == 6 + 3


def test_progress_to_the_last_is_slow() -> None:
    trial = Trial(steps(1000))
    assert trial.follow() == SLOW
    assert trial.now - trial.begun == pytest.approx(TIMEOUT_S, abs=0.5)


def test_one_movement_in_a_while_is_enough() -> None:
    still = [sample(), sample()]
    assert Trial(forever(*still, sample(seen(stack="line 2")), sample(seen(stack="line 2")))).follow() == SLOW


def test_what_worked_at_first_is_compared_from_when_it_is_asked_on() -> None:
    assert Trial(chain([sample(at_work())], steps(1000))).follow() == SLOW
    assert Trial(chain([sample(at_work())], forever(sample()))).follow() == HUNG


def test_an_end_between_two_looks_is_an_end() -> None:
    assert Trial(steps(1000), ends_at=40.0).follow() == ENDED
    assert Trial(forever(sample()), ends_at=21.0).follow() == ENDED


@pytest.mark.parametrize(
    "samples",
    [forever(None), forever(sample(), None)],
    ids=["never", "every other time"],
)
def test_what_could_not_be_looked_at_is_not_known(samples: Iterator[Sample | None]) -> None:
    assert Trial(samples).follow() == UNKNOWN


def test_a_time_limit_before_anything_is_clear() -> None:
    assert Trial(forever(sample())).follow(timeout_s=22.0) == UNKNOWN
    assert Trial(forever(sample())).follow(timeout_s=10.0) == UNKNOWN


def test_a_trial_that_must_be_ended_has_stacks() -> None:
    line = json.dumps({"at": 1, "processes": [seen()._asdict()]})
    looks = iter(["", line])
    watch = Watch(after_s=0)
    found = watch_trial(watch, 0, look=lambda _: next(looks), printed=tuple, ended=lambda _: False)
    assert found == UNKNOWN._replace(stacks=stacks_of(sample()))


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
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = parse(look(os.getpid(), spying=False), (1, 2))
    assert found
    assert found.printed == (1, 2)
    assert [one.parent for one in found.processes if one.pid == child.pid] == [os.getpid()]


@pytest.mark.parametrize(("doing", "works"), [("while True: pass", True), ("input()", False)])
def test_who_executes_byte_code_is_not_asked(
    doing: str,
    works: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be crashed by it: faulthandler reads frames as they are at that moment."""
    code = f"import os; os.write(1, b'!')\n{doing}"
    variables = {"PYTHONPATH": str(SITE.parent), "TMPDIR": str(tmp_path)}
    order = [sys.executable, "-c", code]
    with subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables) as child:
        try:
            assert child.stdout
            child.stdout.read(1)
            while sampler.works(child.pid) is not works:
                time.sleep(0.01)
            (one,) = (seen for seen in sampler.sample(os.getpid(), None)["processes"] if seen["pid"] == child.pid)
            assert (one["works"], "faulthandler" in one["stacks"]) == (works, not works)
            monkeypatch.setattr(sampler, "_open", lambda _pid, _name: "/dev/nvidia0")
            assert not sampler.works(child.pid)  # a host thread that waits for a GPU runs
        finally:
            child.kill()


@pytest.mark.parametrize(("rank", "expected"), [("3", 3), ("three", None), (None, None)])
def test_the_rank_of_a_process(rank: str | None, expected: int | None) -> None:
    variables = {"RANK": rank} if rank else {}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"\n"  # it runs: right after exec its variables may not be there yet
        assert sampler.rank(child.pid) == expected
        child.stdin.close()


def test_both_sides_know_the_signal_and_the_file() -> None:
    site = SITE.read_text(encoding="utf-8")
    assert f"\nSIGNAL = {sampler.SIGNAL}\n" in site
    assert f'\nMARK = "{sampler.MARK}"\n' in site
    assert SITE.parent.name == watched_package.rpartition(".")[2]
