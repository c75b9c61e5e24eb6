from pathlib import Path

import pytest

from gpu_casebook.corpus.disk import (
    EVIDENCE_BYTES,
    Need,
    check,
    docker_bytes,
    free_bytes,
    recipes,
    rooms,
    survey,
    venv_bytes,
)
from gpu_casebook.corpus.model import Job
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.errors import MachineError
from gpu_casebook.kinds import Grade
from gpu_casebook.packages.lock import installed_bytes
from gpu_casebook.trial import Recipe
from tests.conftest import MANIFEST, Checkout
from tests.corpus.test_select import add

GB = 10**9


def lock(*pins: str, size: int = GB) -> str:
    return f"# download-bytes: {size}\n" + "".join(f"{pin} \\\n    --hash=sha256:{'0' * 64}\n" for pin in pins)


def need(place: Path, size: int, what: str = "evidence") -> Need:
    return Need(place, size, what)


@pytest.mark.parametrize(
    ("download", "measured"),
    [(2_719_652_484, 4_840_000_000), (205_112_543, 748_728_320), (187_296_930, 531_886_080), (0, 0)],
)
def test_what_is_reckoned_is_enough_for_what_was_measured(download: int, measured: int) -> None:
    assert measured <= installed_bytes(download) <= max(1.7 * measured, 0)


def test_one_disk_is_counted_once_and_what_is_not_there_yet_is_where_it_will_be(tmp_path: Path) -> None:
    asked: list[Path] = []

    def free(place: Path) -> int:
        asked.append(place)
        return 5 * GB

    needs = [need(tmp_path / "not" / "yet", 3 * GB, "2 images"), need(tmp_path, GB), need(tmp_path, 0, "nothing")]
    [room] = rooms([*needs, Need(None, GB, "far away")], free)
    assert (room.needed, list(room.what), room.free) == (4 * GB, ["2 images", "evidence"], 5 * GB)
    assert asked == [tmp_path / "not" / "yet"]
    assert str(room) == f"up to 4 GB for 2 images, evidence at {tmp_path}/not/yet, which has 5 GB free"


def test_a_disk_that_will_do_is_no_hindrance_and_one_that_will_not_is_one_line(tmp_path: Path) -> None:
    check(rooms([need(tmp_path, 5 * GB)], lambda _: 5 * GB))
    with pytest.raises(MachineError) as caught:
        check(rooms([need(tmp_path, 5 * GB)], lambda _: 5 * GB - 1))
    said = str(caught.value)
    assert said.startswith("the disk is too small for this run: up to 5 GB for evidence at ")
    assert said.endswith("which has 5 GB free; free some, or select fewer cases")


def test_free_space_is_that_of_where_it_will_be(tmp_path: Path) -> None:
    assert abs(free_bytes(tmp_path / "a" / "b") - free_bytes(tmp_path)) < GB


def test_virtual_environments_share_wheels() -> None:
    torch = Recipe(image="cuda13", lock=lock("torch==2.11.0", "triton==3.6.0", "numpy==2.2.6"))
    alone = venv_bytes([torch])
    assert alone == installed_bytes(GB)
    more = Recipe(image="cuda13", lock=lock("torch==2.11.0", "triton==3.6.0", "numpy==2.2.6", "einops==0.8.1"))
    other = Recipe(image="cuda13", lock=lock("torch==2.2.2", "triton==2.2.0"))
    assert venv_bytes([torch, more]) == pytest.approx(1.25 * alone)
    assert venv_bytes([torch, other]) == 2 * alone
    assert venv_bytes([torch, more, other]) == pytest.approx(2.25 * alone)
    larger = Recipe(image="cuda13", lock=lock("torch==2.11.0", "triton==3.6.0", "numpy==2.2.6", size=3 * GB))
    assert venv_bytes([torch, larger]) == venv_bytes([larger, torch]) == installed_bytes(3 * GB)
    assert venv_bytes([Recipe(image="cpu", lock="")]) == 0


def test_images_hold_all_of_their_lock_and_one_build_at_a_time_takes_more() -> None:
    one, two = (Recipe(image="cuda13", lock=lock("torch==2.11.0", size=size)) for size in (GB, 2 * GB))
    lasting = installed_bytes(GB) + installed_bytes(2 * GB)
    peak = {one: 6 * GB, two: 12 * GB}
    assert docker_bytes([one, two], 7, peak.__getitem__) == 7 + lasting + 12 * GB - installed_bytes(2 * GB)
    assert docker_bytes([], 0, peak.__getitem__) == 0


def job(case: str, environment: str, key: str) -> Job:
    return Job(
        case=case, environment=environment, failure="x", project="o/n", grade=Grade.SIMULATED, environment_key=key
    )


def test_equal_environments_are_needed_once(checkout: Checkout) -> None:
    for name in ("alpha", "beta"):
        add(checkout, name)
    jobs = [job("alpha", "interpreter", "k1"), job("beta", "interpreter", "k1"), job("beta", "current", "k2")]
    assert sorted(map(sorted, recipes(checkout.root, [*jobs, job("gone", "current", "k3")]).keys.values())) == [
        ["k1"],
        ["k2"],
    ]


def test_only_what_is_not_there_yet_is_needed(checkout: Checkout, tmp_path: Path) -> None:
    add(checkout, "tiny", MANIFEST, lock("numpy==1.26.4", size=1000))
    jobs = [job("tiny", "interpreter", "k1"), job("tiny", "current", "k2")]
    engine = VenvEngine(tmp_path / "cache", tmp_path)
    found = survey(tmp_path / "reports", recipes(checkout.root, jobs), engine)
    assert found.needs == [
        Need(engine.storage, 4000, "2 environments"),  # of the same packages, whose files are there once
        Need(tmp_path / "reports", 2 * EVIDENCE_BYTES, "evidence"),
    ]
    assert found.ready == set()
    for each in recipes(checkout.root, jobs).keys:
        directory = engine._directory(each)
        (directory / "bin").mkdir(parents=True, exist_ok=True)
        (directory / "bin" / "python").touch()
        (directory / "complete.json").touch()
    found = survey(tmp_path / "reports", recipes(checkout.root, jobs), engine)
    assert found.needs[0].bytes == 0
    assert found.ready == {"k1", "k2"}


def test_an_image_that_was_named_is_there(checkout: Checkout, tmp_path: Path) -> None:
    add(checkout, "tiny")
    needed = recipes(checkout.root, [job("tiny", "current", "k1")])
    found = survey(tmp_path, needed, VenvEngine(tmp_path, tmp_path), "mine:latest")
    assert (found.needs[0].bytes, found.ready) == (0, {"k1"})
