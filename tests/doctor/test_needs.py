import os
from collections.abc import Callable
from pathlib import Path

import pytest

from casebook_workbench.doctor.gather import cuda_of, needs
from gpu_casebook.manifest.case import find
from gpu_casebook.packages.lock import installed_bytes
from tests.conftest import IMAGES, Checkout

HASH = f" \\\n    --hash=sha256:{'0' * 64}\n"
LOCK = f"# download-bytes: 1000\ntorch==2.2.2{HASH}nvidia-cuda-runtime-cu12==12.1.105{HASH}"


@pytest.mark.parametrize(
    ("pins", "cuda"),
    [
        ({"torch": "2.2.2", "nvidia-cuda-runtime-cu12": "12.1.105"}, "12.1"),
        ({"torch": "2.11.0", "nvidia-cuda-runtime": "13.0.96"}, "13.0"),
        ({"torch": "2.7.0+cu128"}, "12.8"),
        ({"torch": "2.0.1+cu118"}, "11.8"),
        ({"torch": "2.7.0+cpu"}, None),
        ({"triton": "2.2.0"}, None),
        ({}, None),
    ],
)
def test_cuda_is_what_the_packages_were_built_with(pins: dict[str, str], cuda: str | None) -> None:
    assert cuda_of(pins) == cuda


@pytest.fixture
def locked(checkout: Checkout) -> Path:
    directory = checkout.write().parent
    (directory / "locks").mkdir()
    (directory / "locks" / "current.txt").write_text(LOCK)
    return checkout.root


def test_an_environment_needs_what_its_lock_pins(locked: Path) -> None:
    case = find(locked, "tiny", IMAGES)
    current, interpreter = needs(case)
    assert (current.name, current.torch, current.cuda, current.locked) == ("tiny/current", "2.2.2", "12.1", True)
    assert current.spec.gpus == 1
    assert (interpreter.torch, interpreter.cuda, interpreter.locked) == (None, None, False)
    assert interpreter.image_bytes == 0


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.write_bytes(b"\xff")])
def test_a_lock_that_can_not_be_read_is_none(locked: Path, make: Callable[[Path], object]) -> None:
    case, lock = find(locked, "tiny", IMAGES), locked / "cases/tiny/locks/current.txt"
    lock.unlink()
    make(lock)
    assert not needs(case)[0].locked


def test_it_takes_the_disk_that_building_takes(locked: Path) -> None:
    case = find(locked, "tiny", IMAGES)
    current = needs(case)[0]
    assert current.image_bytes == 4 * 1000
    assert current.environment_bytes == installed_bytes(1000)


def test_what_is_built_takes_none(locked: Path) -> None:
    case = find(locked, "tiny", IMAGES)
    assert needs(case, in_images=[LOCK])[0].image_bytes == 0
    assert needs(case, in_images=[LOCK])[0].environment_bytes > 0
    assert needs(case, in_environments=[LOCK])[0].environment_bytes == 0
