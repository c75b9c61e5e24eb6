"""What starts next. Runs are played through here, with ends in any order, and no clock."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook_workbench.corpus.events import Machine, Start
from casebook_workbench.corpus.model import Job
from casebook_workbench.corpus.schedule import choose, impossible, left_s, ranked, together
from gpu_casebook.devices.hardware import HostGpu
from tests.corpus.pool_jobs import job


def box(gpus: int = 0, cores: int = 8, name: str = "box", capability: str = "9.0") -> Machine:
    return Machine(name=name, cores=cores, gpus=[HostGpu(index=n, compute_capability=capability) for n in range(gpus)])


def names(starts: Iterable[Start]) -> list[str]:
    return [start.job.case for start in starts]


def decide(
    jobs: Iterable[Job], machine: Machine, running: Sequence[Start] = (), ready: Collection[str] = ()
) -> list[Start]:
    return choose(ranked(jobs), running, machine, ready)


def on(started: Job, *gpus: int) -> Start:
    return Start(job=started, gpus=gpus)


# --- which first


def test_the_longest_first_and_those_that_nobody_has_timed_before_them() -> None:
    jobs = [job("short", expected_s=1), job("new"), job("long", expected_s=100), job("middle", expected_s=10)]
    assert [each.case for each in ranked(jobs)] == ["new", "long", "middle", "short"]


def test_what_needs_more_of_the_machine_goes_before_what_is_longer() -> None:
    jobs = [
        job("long", expected_s=1000),
        job("gpu", gpus=1, expected_s=1),
        job("shares", gpus=1, shared=True, expected_s=50),
        job("gpus", gpus=4, expected_s=1),
    ]
    assert [each.case for each in ranked(jobs)] == ["gpus", "gpu", "shares", "long"]


def test_equal_jobs_have_an_order_too() -> None:
    jobs = [job(name) for name in "cab"]
    assert [each.case for each in ranked(jobs)] == ["a", "b", "c"]


# --- cores


def test_cpu_cases_run_side_by_side_up_to_the_cores() -> None:
    machine = box(cores=3)
    assert len(decide([job(str(n)) for n in range(9)], machine)) == 3
    assert decide([job("x")], machine, running=[on(job(str(n))) for n in range(3)]) == []


def test_a_job_on_a_gpu_takes_a_core_too() -> None:
    starts = decide([job("gpu", gpus=1), job("a"), job("b")], box(gpus=4, cores=2))
    assert names(starts) == ["gpu", "a"]


# --- GPUs


def test_one_job_for_each_gpu() -> None:
    starts = decide([job(str(n), gpus=1) for n in range(5)], box(gpus=2))
    assert [start.gpus for start in starts] == [(0,), (1,)]


def test_only_jobs_that_all_declare_it_share_a_gpu() -> None:
    machine, sharing = box(gpus=1), [job(str(n), gpus=1, shared=True) for n in range(3)]
    assert [start.gpus for start in decide(sharing, machine)] == [(0,)] * 3
    assert decide(sharing, machine, running=[on(job("alone", gpus=1), 0)]) == []
    assert decide([job("alone", gpus=1)], machine, running=[on(sharing[0], 0)]) == []


def test_those_that_share_spread_over_the_gpus() -> None:
    starts = decide([job(str(n), gpus=1, shared=True) for n in range(4)], box(gpus=2))
    assert Counter(start.gpus for start in starts) == {(0,): 2, (1,): 2}


def test_who_wants_a_gpu_alone_is_not_kept_from_it_by_ever_new_ones_that_share_it() -> None:
    machine = box(gpus=1)
    running = [on(job("s", gpus=1, shared=True), 0)]
    jobs = [job("alone", gpus=1), job("t", gpus=1, shared=True)]
    assert decide(jobs, machine, running=running) == []


def test_only_gpus_that_can_do_it() -> None:
    machine = Machine(name="m", cores=4, gpus=[HostGpu(index=0, compute_capability="8.0"), *box(gpus=2).gpus[1:]])
    assert [start.gpus for start in decide([job("a", gpus=1, compute_capability=">=9.0")], machine)] == [(1,)]
    assert decide([job("a", gpus=2, compute_capability=">=9.0")], machine) == []


def test_a_gpu_that_is_set_aside_is_not_used() -> None:
    machine = Machine(name="m", cores=4, gpus=[HostGpu(index=0, aside="it fell off the bus"), HostGpu(index=1)])
    assert [start.gpus for start in decide([job("a", gpus=1), job("b", gpus=1)], machine)] == [(1,)]


def test_a_gpu_of_unknown_capability_is_tried() -> None:
    assert decide([job("a", gpus=1, compute_capability=">=9.0")], box(gpus=1, capability=""))


def test_a_wide_job_has_gpus_kept_for_it_and_nothing_small_gets_them() -> None:
    machine = box(gpus=4)
    running = [on(job("old", gpus=1), 0)]
    assert names(decide([job("wide", gpus=4), job("small", gpus=1), job("cpu")], machine, running=running)) == ["cpu"]


def test_what_a_wide_job_does_not_wait_for_is_used_meanwhile() -> None:
    machine = box(gpus=4)
    running = [on(job("first", gpus=3), 0, 1, 2)]
    starts = decide([job("second", gpus=3), job("small", gpus=1)], machine, running=running)
    assert [(start.job.case, start.gpus) for start in starts] == [("small", (3,))]


# --- environments


def on_gpus(name: str, key: str, gpus: int = 1, expected_s: float | None = None) -> Job:
    return job(name, environment_key=key, gpus=gpus, expected_s=expected_s)


def does(starts: Iterable[Start]) -> list[tuple[str, str | Sequence[int]]]:
    return [(start.job.case, "builds" if start.builds else start.gpus) for start in starts]


def test_what_a_job_runs_in_is_there_before_it_gets_a_gpu() -> None:
    wanted = [on_gpus("a", "k")]
    assert does(decide(wanted, box(gpus=1))) == [("a", "builds")]
    assert does(decide(wanted, box(gpus=1), ready={"k"})) == [("a", (0,))]
    assert does(decide([job("a", gpus=1)], box(gpus=1))) == [("a", (0,))], "nobody knows what it runs in"


def test_a_gpu_is_used_while_the_environments_of_others_are_built() -> None:
    jobs = [on_gpus("long", "new", expected_s=100), on_gpus("short", "there", expected_s=1), job("cpu")]
    both = [("short", (0,)), ("long", "builds")]
    assert does(decide(jobs, box(gpus=1, cores=2), ready={"there"})) == both
    assert does(decide(jobs, box(gpus=1, cores=1), ready={"there"})) == both[:1]


def test_a_gpu_that_is_taken_does_not_keep_an_environment_from_being_built() -> None:
    running = [on(job("now", gpus=1), 0)]
    assert does(decide([on_gpus("next", "k"), on_gpus("wide", "l", 2)], box(gpus=1), running)) == [
        ("next", "builds")
    ], "and what can never run is not built"


def test_what_several_jobs_run_in_is_built_once() -> None:
    machine = box(gpus=4)
    (first,) = decide([on_gpus(name, "k") for name in "abc"], machine)
    assert decide([on_gpus(name, "k") for name in "bc"], machine, [first]) == []


def test_a_build_takes_one_core() -> None:
    machine = box(gpus=2, cores=4)
    builds = decide([on_gpus("a", "k", 2), on_gpus("b", "l", 2)], machine)
    assert does(builds) == [("a", "builds"), ("b", "builds")]
    assert names(decide([job(str(n)) for n in range(9)], machine, builds)) == ["0", "1"]


def test_gpus_are_kept_for_a_wide_job_once_its_environment_is_there() -> None:
    machine, running = box(gpus=2), [on(job("now", gpus=1), 0)]
    waiting = [on_gpus("wide", "k", 2), job("small", gpus=1)]
    assert does(decide(waiting, machine, running)) == [("small", (1,)), ("wide", "builds")]
    assert decide(waiting, machine, running, {"k"}) == []


# --- several machines


def test_machines_of_a_fleet_are_filled_together() -> None:
    one = box(gpus=1, cores=2, name="one")
    assert together([one]) is one
    both = together([one, box(gpus=1, cores=1, name="two")])
    assert (both.cores, [gpu.index for gpu in both.gpus]) == (3, [0, 1])
    assert together([]).cores == 0


# --- what can't be


@pytest.mark.parametrize(
    ("wanted", "machines", "reason"),
    [
        (job("a"), [box()], None),
        (job("a", gpus=2), [box(gpus=2)], None),
        (job("a"), [], "there is no machine left"),
        (job("a", gpus=1), [box()], "1 GPU is needed on one machine, and there are none"),
        (job("a", gpus=2), [box(gpus=1), box(gpus=1)], "2 GPUs are needed on one machine, and there is 1"),
        (
            job("a", gpus=1, compute_capability=">=10"),
            [box(gpus=4)],
            "1 GPU is needed with compute capability >=10 on one machine, and there are none",
        ),
        (job("a", gpus=1), [Machine(name="m", cores=1, gpus=[HostGpu(index=0, aside="GPU 0 broke")])], "GPU 0 broke"),
    ],
)
def test_it_is_told_why_a_job_can_not_run_at_all(wanted: Job, machines: list[Machine], reason: str | None) -> None:
    assert impossible(wanted, machines) == reason


# --- the time left


def test_the_time_left_follows_from_what_is_left_and_who_does_it() -> None:
    jobs = [job(str(n), expected_s=10) for n in range(8)]
    assert left_s(jobs, [], [box(cores=2)]) == 40
    assert left_s(jobs[:4], [(jobs[4], 4.0)], [box(cores=2)]) == 23
    assert left_s([], [(jobs[4], 40.0)], [box(cores=2)]) == 0
    assert left_s([], [], [box(cores=2)]) == 0


def test_it_is_no_less_than_the_longest_job_or_what_the_gpus_need() -> None:
    jobs = [job(str(n), expected_s=10) for n in range(8)]
    assert left_s([job("long", expected_s=100), *jobs], [], [box(cores=8)]) == 100
    assert left_s([job(str(n), expected_s=10, gpus=1) for n in range(8)], [], [box(cores=8, gpus=2)]) == 40


def test_a_job_that_nobody_has_timed_counts_as_the_usual_one() -> None:
    assert left_s([job("a", expected_s=10), job("new")], [], [box(cores=1)]) == 20
    assert left_s([job("new")], [], [box(cores=1)], took=[3, 5, 100]) == 5
    assert left_s([job("new")], [], [box(cores=1)]) is None
    assert left_s([], [], [box(cores=1)]) == 0


# --- whole runs

JOBS = st.builds(
    job,
    st.uuids().map(str),
    gpus=st.sampled_from([0, 0, 1, 1, 1, 2, 3, 4]),
    shared=st.booleans(),
    compute_capability=st.sampled_from([None, None, ">=9.0", "<9.0"]),
    expected_s=st.none() | st.floats(0, 1000),
    environment_key=st.sampled_from(["", "a", "b"]),
)
BOXES = st.builds(
    lambda cores, capabilities: Machine(
        name="box",
        cores=cores,
        gpus=[HostGpu(index=n, compute_capability=each) for n, each in enumerate(capabilities)],
    ),
    st.integers(1, 5),
    st.lists(st.sampled_from(["8.0", "9.0", "10.0"]), max_size=5),
)


def play(jobs: Sequence[Job], machine: Machine, pick: Callable[[int], int], look: Callable[..., None]) -> list[Start]:
    """A whole run; `pick` says which of the jobs that run ends next, and `look` sees each state. All that ran."""
    waiting, running, started, ready = ranked(jobs), list[Start](), list[Start](), set[str]()
    while waiting or any(start.builds for start in running):
        fresh = choose(waiting, running, machine, ready)
        running += fresh
        started += [start for start in fresh if not start.builds]
        chosen = names(fresh)
        waiting = [each for each in waiting if each.case not in chosen]
        look(waiting, running, ready)
        if not running:
            break
        ended = running.pop(pick(len(running)))
        ready.add(ended.job.environment_key)
        waiting = ranked([*waiting, ended.job]) if ended.builds else waiting
    return started


def check(machine: Machine, running: Sequence[Start]) -> None:
    """Nothing is given out twice."""
    assert len(running) <= machine.cores
    for start in running:
        assert len(set(start.gpus)) == (0 if start.builds else start.job.gpus)
    builds = [start.job.environment_key for start in running if start.builds]
    assert len(builds) == len(set(builds))
    for gpu in machine.gpus:
        users = [start.job for start in running if gpu.index in start.gpus]
        assert len(users) <= 1 or all(user.shared for user in users)


@settings(deadline=None)
@given(st.data(), st.lists(JOBS, max_size=25), BOXES)
def test_every_job_that_can_run_does_once_and_nothing_is_given_out_twice(
    data: st.DataObject, jobs: list[Job], machine: Machine
) -> None:
    def look(_waiting: Sequence[Job], running: Sequence[Start], _ready: object) -> None:
        check(machine, running)

    started = play(jobs, machine, lambda count: data.draw(st.integers(0, count - 1)), look)
    assert sorted(names(started)) == sorted(each.case for each in jobs if impossible(each, [machine]) is None)


@settings(deadline=None)
@given(st.data(), st.lists(JOBS, max_size=30), BOXES)
def test_a_wide_job_waits_for_nothing_that_was_started_after_it_came_first(
    data: st.DataObject, jobs: list[Job], machine: Machine
) -> None:
    waits_for: dict[str, set[str]] = {}

    def look(waiting: Sequence[Job], running: Sequence[Start], ready: set[str]) -> None:
        able = [each for each in waiting if impossible(each, [machine]) is None]
        first = next((each for each in able if not each.environment_key or each.environment_key in ready), None)
        if first and first.gpus > 1:
            if first.case not in waits_for:
                waits_for.clear()  # before it came another, whose environment has been built since
                waits_for[first.case] = set(names(running))
            assert waits_for[first.case] & set(names(running)), "all have ended that it had to wait for"

    play(jobs, machine, lambda count: data.draw(st.integers(0, count - 1)), look)


def test_four_gpus_are_given_to_who_needs_four_after_as_many_ends_as_jobs_ran() -> None:
    machine = box(gpus=4, cores=8)
    running = [on(job(f"old{n}", gpus=1), n) for n in range(4)]
    waiting = ranked([job("wide", gpus=4), *(job(f"new{n}", gpus=1) for n in range(100))])
    for _ in range(4):
        assert choose(waiting, running, machine, ()) == []
        running.pop()
    assert names(choose(waiting, running, machine, ())) == ["wide"]


def test_a_thousand_jobs_are_put_in_order_quickly_enough_to_do_it_after_each_end() -> None:
    """Not timed: what is looked at is how many jobs are looked at."""
    looked = 0

    class Counting(list[Job]):
        def __iter__(self) -> Iterator[Job]:
            nonlocal looked
            for each in super().__iter__():
                looked += 1
                yield each

    machine = box(cores=2)
    waiting = Counting(ranked(job(str(n)) for n in range(1000)))
    assert len(choose(waiting, [on(job("x"))], machine, ())) == 1
    assert looked <= 3
