"""What starts next. Runs are played through here, with ends in any order, and no clock."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_casebook.corpus.model import Job
from gpu_casebook.corpus.order import choose, impossible, left_s, ranked
from gpu_casebook.corpus.workers import Gpu, Machine, Start
from tests.corpus.pool_jobs import job


def box(gpus: int = 0, cores: int = 8, name: str = "box", capability: str = "9.0") -> Machine:
    return Machine(name=name, cores=cores, gpus=[Gpu(index=n, compute_capability=capability) for n in range(gpus)])


def names(starts: Iterable[Start]) -> list[str]:
    return [start.job.case for start in starts]


def decide(jobs: Iterable[Job], *machines: Machine, running: Sequence[Start] = ()) -> list[Start]:
    return choose(ranked(jobs), running, machines)


def on(machine: Machine, started: Job, *gpus: int) -> Start:
    return Start(job=started, machine=machine.name, gpus=gpus)


# --- which first


def test_the_longest_first_and_those_that_nobody_has_timed_before_them() -> None:
    jobs = [job("short", expected_s=1), job("new"), job("long", expected_s=100), job("middle", expected_s=10)]
    assert [each.case for each in ranked(jobs)] == ["new", "long", "middle", "short"]


def test_what_needs_more_of_the_machine_goes_before_what_is_longer() -> None:
    jobs = [
        job("long", expected_s=1000),
        job("gpu", gpus=1, expected_s=1),
        job("cores", cores=4, expected_s=1),
        job("shares", gpus=1, shared=True, expected_s=50),
        job("gpus", gpus=4, expected_s=1),
    ]
    assert [each.case for each in ranked(jobs)] == ["gpus", "gpu", "shares", "cores", "long"]


def test_equal_jobs_have_an_order_too() -> None:
    jobs = [job(name) for name in "cab"]
    assert [each.case for each in ranked(jobs)] == ["a", "b", "c"]


# --- cores


def test_cpu_cases_run_side_by_side_up_to_the_cores() -> None:
    machine = box(cores=3)
    assert len(decide([job(str(n)) for n in range(9)], machine)) == 3
    assert decide([job("x")], machine, running=[on(machine, job(str(n))) for n in range(3)]) == []


def test_a_job_on_a_gpu_takes_a_core_too() -> None:
    starts = decide([job("gpu", gpus=1), job("a"), job("b")], box(gpus=4, cores=2))
    assert names(starts) == ["gpu", "a"]


def test_who_wants_more_cores_than_there_are_gets_the_machine_alone() -> None:
    assert names(decide([job("many", cores=64), job("a")], box(cores=2))) == ["many"]


def test_a_job_of_several_cores_does_not_starve_behind_small_ones() -> None:
    machine = box(cores=2)
    running = [on(machine, job("a"))]
    assert decide([job("wide", cores=2), job("b")], machine, running=running) == []


# --- GPUs


def test_one_job_for_each_gpu() -> None:
    starts = decide([job(str(n), gpus=1) for n in range(5)], box(gpus=2))
    assert [start.gpus for start in starts] == [(0,), (1,)]


def test_only_jobs_that_all_declare_it_share_a_gpu() -> None:
    machine, sharing = box(gpus=1), [job(str(n), gpus=1, shared=True) for n in range(3)]
    assert [start.gpus for start in decide(sharing, machine)] == [(0,)] * 3
    assert decide(sharing, machine, running=[on(machine, job("alone", gpus=1), 0)]) == []
    assert decide([job("alone", gpus=1)], machine, running=[on(machine, sharing[0], 0)]) == []


def test_those_that_share_spread_over_the_gpus() -> None:
    starts = decide([job(str(n), gpus=1, shared=True) for n in range(4)], box(gpus=2))
    assert Counter(start.gpus for start in starts) == {(0,): 2, (1,): 2}


def test_who_wants_a_gpu_alone_is_not_kept_from_it_by_ever_new_ones_that_share_it() -> None:
    machine = box(gpus=1)
    running = [on(machine, job("s", gpus=1, shared=True), 0)]
    jobs = [job("alone", gpus=1), job("t", gpus=1, shared=True)]
    assert decide(jobs, machine, running=running) == []


def test_only_gpus_that_can_do_it() -> None:
    machine = Machine(name="m", cores=4, gpus=[Gpu(index=0, compute_capability="8.0"), *box(gpus=2).gpus[1:]])
    assert [start.gpus for start in decide([job("a", gpus=1, compute_capability=">=9.0")], machine)] == [(1,)]
    assert decide([job("a", gpus=2, compute_capability=">=9.0")], machine) == []


def test_a_gpu_that_is_set_aside_is_not_used() -> None:
    machine = Machine(name="m", cores=4, gpus=[Gpu(index=0, aside="it fell off the bus"), Gpu(index=1)])
    assert [start.gpus for start in decide([job("a", gpus=1), job("b", gpus=1)], machine)] == [(1,)]


def test_a_gpu_of_unknown_capability_is_tried() -> None:
    assert decide([job("a", gpus=1, compute_capability=">=9.0")], box(gpus=1, capability=""))


def test_a_wide_job_has_gpus_kept_for_it_and_nothing_small_gets_them() -> None:
    machine = box(gpus=4)
    running = [on(machine, job("old", gpus=1), 0)]
    assert names(decide([job("wide", gpus=4), job("small", gpus=1), job("cpu")], machine, running=running)) == ["cpu"]


def test_what_a_wide_job_does_not_wait_for_is_used_meanwhile() -> None:
    machine = box(gpus=4)
    running = [on(machine, job("first", gpus=3), 0, 1, 2)]
    starts = decide([job("second", gpus=3), job("small", gpus=1)], machine, running=running)
    assert [(start.job.case, start.gpus) for start in starts] == [("small", (3,))]


# --- several machines


def test_a_machine_with_more_free_cores_gets_the_next() -> None:
    small, large = box(cores=1, name="small"), box(cores=4, name="large")
    starts = decide([job(str(n)) for n in range(5)], small, large)
    assert Counter(start.machine for start in starts) == {"small": 1, "large": 4}
    assert starts[0].machine == "large"


def test_gpus_of_one_job_are_of_one_machine() -> None:
    assert decide([job("wide", gpus=2)], box(gpus=1, name="a"), box(gpus=1, name="b")) == []


def test_a_machine_that_has_the_environment_is_preferred() -> None:
    machines = [box(name="large", cores=8), box(name="ready", cores=2)]
    (start,) = choose([job("a", environment_key="k")], [], machines, {("ready", "k")})
    assert start.machine == "ready"


# --- environments


def keyed(name: str, key: str, expected_s: float) -> Job:
    return job(name, environment_key=key, expected_s=expected_s)


def test_two_jobs_do_not_wait_for_the_same_build_while_there_is_another() -> None:
    jobs = [keyed("a", "big", 30), keyed("b", "big", 20), keyed("c", "other", 1)]
    assert names(decide(jobs, box(cores=2))) == ["a", "c"]
    assert names(choose(ranked(jobs), [], [box(cores=2)], {("box", "big")})) == ["a", "b"]


def test_where_there_is_no_other_it_may_wait_as_well() -> None:
    assert names(decide([keyed("a", "big", 30), keyed("b", "big", 20)], box(cores=2))) == ["a", "b"]


def test_a_wide_job_does_not_lose_its_cores_for_that() -> None:
    machine = box(cores=3)
    running = [on(machine, job("builds", environment_key="big"))]
    jobs = [job("wide", cores=2, environment_key="big"), job("small")]
    assert names(decide(jobs, machine, running=running)) == ["wide"]


def on_gpus(name: str, key: str, gpus: int = 1, cores: int = 1, expected_s: float | None = None) -> Job:
    return job(name, environment_key=key, gpus=gpus, cores=cores, expected_s=expected_s)


def told(starts: Iterable[Start]) -> list[tuple[str, str | Sequence[int]]]:
    return [(start.job.case, "builds" if start.builds else start.gpus) for start in starts]


def test_what_a_job_runs_in_is_there_before_it_gets_a_gpu() -> None:
    wanted = [on_gpus("a", "k")]
    assert told(decide(wanted, box(gpus=1))) == [("a", "builds")]
    assert told(choose(wanted, [], [box(gpus=1)], {("box", "k")})) == [("a", (0,))]
    assert told(decide([job("a", gpus=1)], box(gpus=1))) == [("a", (0,))], "nobody knows what it runs in"


def test_a_gpu_is_used_while_the_environments_of_others_are_built() -> None:
    jobs = ranked([on_gpus("long", "new", expected_s=100), on_gpus("short", "there", expected_s=1), job("cpu")])
    assert told(choose(jobs, [], [box(gpus=1, cores=2)], {("box", "there")})) == [("short", (0,)), ("long", "builds")]
    assert told(choose(jobs, [], [box(gpus=1, cores=1)], {("box", "there")})) == [("short", (0,))]


def test_a_gpu_that_is_taken_does_not_keep_an_environment_from_being_built() -> None:
    machine = box(gpus=1)
    running = [on(machine, job("now", gpus=1), 0)]
    assert told(decide([on_gpus("next", "k"), on_gpus("wide", "l", 2)], machine, running=running)) == [
        ("next", "builds")
    ], "and what can never run is not built"


def test_what_several_jobs_run_in_is_built_once() -> None:
    machine = box(gpus=4)
    (first,) = decide([on_gpus(name, "k") for name in "abc"], machine)
    assert decide([on_gpus(name, "k") for name in "bc"], machine, running=[first]) == []
    assert told(decide([on_gpus("b", "k")], machine, running=[on(machine, job("cpu", environment_key="k"))])) == [
        ("b", "builds")
    ], "a job on cores holds its environment back until its own end"


def test_a_build_takes_one_core() -> None:
    machine = box(gpus=2, cores=4)
    builds = decide([on_gpus("a", "k", cores=4), on_gpus("b", "l", cores=4)], machine)
    assert told(builds) == [("a", "builds"), ("b", "builds")]
    assert names(decide([job(str(n)) for n in range(9)], machine, running=builds)) == ["0", "1"]


def test_it_is_built_on_a_second_machine_where_that_has_a_free_gpu() -> None:
    here, there = box(gpus=1, name="here"), box(gpus=1, name="there")
    busy = [on(here, job("now", gpus=1), 0)]
    wanted = [on_gpus("a", "k")]
    (start,) = choose(wanted, busy, [here, there], {("here", "k")})
    assert (start.machine, start.builds) == ("there", True)
    assert choose(wanted, [*busy, on(there, job("too", gpus=1), 0)], [here, there], {("here", "k")}) == []
    (start,) = choose(wanted, [], [here, there], {("there", "k")})
    assert (start.machine, start.gpus) == ("there", (0,))


def test_gpus_are_kept_for_a_wide_job_once_its_environment_is_there() -> None:
    machine = box(gpus=2)
    running = [on(machine, job("now", gpus=1), 0)]
    waiting = ranked([on_gpus("wide", "k", 2), job("small", gpus=1)])
    assert told(choose(waiting, running, [machine])) == [("small", (1,)), ("wide", "builds")]
    assert choose(waiting, running, [machine], {("box", "k")}) == []


def test_a_build_that_goes_on_elsewhere_is_none_here() -> None:
    here, there = box(name="here"), box(name="there", cores=1)
    running = [on(there, keyed("a", "big", 30))]
    assert names(decide([keyed("b", "big", 20), keyed("c", "other", 1)], here, running=running)) == ["b", "c"]


# --- what can't be


@pytest.mark.parametrize(
    ("wanted", "machines", "reason"),
    [
        (job("a"), [box()], None),
        (job("a", cores=99), [box()], None),
        (job("a", gpus=2), [box(gpus=2)], None),
        (job("a"), [], "there is no machine left"),
        (job("a", gpus=1), [box()], "1 GPU is needed on one machine, and there are none"),
        (job("a", gpus=2), [box(gpus=1), box(gpus=1)], "2 GPUs are needed on one machine, and there is 1"),
        (
            job("a", gpus=1, compute_capability=">=10"),
            [box(gpus=4)],
            "1 GPU is needed with compute capability >=10 on one machine, and there are none",
        ),
        (job("a", gpus=1), [Machine(name="m", cores=1, gpus=[Gpu(index=0, aside="GPU 0 broke")])], "GPU 0 broke"),
    ],
)
def test_it_is_told_why_a_job_can_not_run_at_all(wanted: Job, machines: list[Machine], reason: str | None) -> None:
    assert impossible(wanted, machines) == reason
    assert bool(decide([wanted], *machines)) == (reason is None)


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
    cores=st.sampled_from([1, 1, 1, 2, 3, 16]),
    compute_capability=st.sampled_from([None, None, ">=9.0", "<9.0"]),
    expected_s=st.none() | st.floats(0, 1000),
    environment_key=st.sampled_from(["", "a", "b"]),
)
BOXES = st.builds(
    lambda cores, capabilities: Machine(
        name="box",
        cores=cores,
        gpus=[Gpu(index=n, compute_capability=each) for n, each in enumerate(capabilities)],
    ),
    st.integers(1, 5),
    st.lists(st.sampled_from(["8.0", "9.0", "10.0"]), max_size=5),
)


def play(
    jobs: Sequence[Job], machines: Sequence[Machine], pick: Callable[[int], int], look: Callable[..., None]
) -> list[Start]:
    """A whole run; `pick` says which of the jobs that run ends next, and `look` sees each state. All that ran."""
    waiting, running, started, prepared = ranked(jobs), list[Start](), list[Start](), set[tuple[str, str]]()
    while waiting or any(start.builds for start in running):
        fresh = choose(waiting, running, machines, prepared)
        running += fresh
        started += [start for start in fresh if not start.builds]
        chosen = names(fresh)
        waiting = [each for each in waiting if each.case not in chosen]
        look(waiting, running, prepared)
        if not running:
            break
        ended = running.pop(pick(len(running)))
        prepared.add((ended.machine, ended.job.environment_key))
        waiting = ranked([*waiting, ended.job]) if ended.builds else waiting
    return started


def check(machine: Machine, running: Sequence[Start]) -> None:
    """Nothing is given out twice."""
    mine = [start for start in running if start.machine == machine.name]
    assert sum(1 if start.builds else min(start.job.cores, machine.cores) for start in mine) <= machine.cores
    for start in mine:
        assert len(set(start.gpus)) == (0 if start.builds else start.job.gpus)
    builds = [start.job.environment_key for start in mine if start.builds]
    assert len(builds) == len(set(builds))
    for gpu in machine.gpus:
        users = [start.job for start in mine if gpu.index in start.gpus]
        assert len(users) <= 1 or all(user.shared for user in users)


@settings(deadline=None)
@given(st.data(), st.lists(JOBS, max_size=25), st.lists(BOXES, min_size=1, max_size=3))
def test_every_job_that_can_run_does_once_and_nothing_is_given_out_twice(
    data: st.DataObject, jobs: list[Job], boxes: list[Machine]
) -> None:
    machines = [Machine(name=f"m{n}", cores=each.cores, gpus=each.gpus) for n, each in enumerate(boxes)]

    def look(_waiting: Sequence[Job], running: Sequence[Start], _prepared: object) -> None:
        for machine in machines:
            check(machine, running)

    started = play(jobs, machines, lambda count: data.draw(st.integers(0, count - 1)), look)
    assert sorted(names(started)) == sorted(each.case for each in jobs if impossible(each, machines) is None)


@settings(deadline=None)
@given(st.data(), st.lists(JOBS, max_size=30), BOXES)
def test_a_wide_job_waits_for_nothing_that_was_started_after_it_came_first(
    data: st.DataObject, jobs: list[Job], machine: Machine
) -> None:
    waits_for: dict[str, set[str]] = {}

    def look(waiting: Sequence[Job], running: Sequence[Start], prepared: set[tuple[str, str]]) -> None:
        first = next((each for each in waiting if impossible(each, [machine]) is None), None)
        ready = first and (not first.gpus or not first.environment_key or ("box", first.environment_key) in prepared)
        if first and ready and (first.gpus > 1 or first.cores > 1):
            waits_for.setdefault(first.case, set(names(running)))
            assert waits_for[first.case] & set(names(running)), "all have ended that it had to wait for"

    play(jobs, [machine], lambda count: data.draw(st.integers(0, count - 1)), look)


def test_the_cores_of_a_job_that_waits_for_its_gpu_are_kept_too() -> None:
    machine = box(gpus=1, cores=2)
    running = [on(machine, job("now", gpus=1), 0)]
    waiting = ranked([job("next", gpus=1, cores=2), job("small")])
    assert names(choose(waiting, running, [machine])) == []
    assert names(choose(waiting, [], [machine])) == ["next"]
    assert names(choose(waiting, running, [box(gpus=1, cores=3)])) == ["small"]


def test_four_gpus_are_given_to_who_needs_four_after_as_many_ends_as_jobs_ran() -> None:
    machine = box(gpus=4, cores=8)
    running = [on(machine, job(f"old{n}", gpus=1), n) for n in range(4)]
    waiting = ranked([job("wide", gpus=4), *(job(f"new{n}", gpus=1) for n in range(100))])
    for _ in range(4):
        assert choose(waiting, running, [machine]) == []
        running.pop()
    assert names(choose(waiting, running, [machine])) == ["wide"]


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
    assert len(choose(waiting, [on(machine, job("x"))], [machine])) == 1
    assert looked <= 3
