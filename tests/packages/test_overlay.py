"""What goes over a lock: wheels of one's own, and versions from the index with what they need."""

import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.errors import BuildError
from gpu_casebook.packages import overlay
from gpu_casebook.packages.lock import installable, read_lock
from gpu_casebook.packages.resolve import lock_text
from gpu_casebook.trial import Recipe
from tests.packages.conftest import Index, wheel


def silent(_line: str) -> None:
    pass


@pytest.fixture
def lock(index: Index) -> str:
    """A lock of two packages; the first one needs the other, and both have had releases since."""
    index.add("app", "1.0", "dep==1.5")
    index.add("dep", "1.5")
    text = lock_text(["app==1.0", "dep==1.5"], "3.11")
    index.add("app", "1.1", "dep>=1.5")
    index.add("app", "2.0", "dep>=2", "new")
    index.add("app", "3.0rc1", "dep>=1.5")
    for name, version in (("dep", "1.6"), ("dep", "2.0"), ("new", "0.1")):
        index.add(name, version)
    shutil.rmtree(index.root.parent / "uv-cache")  # which has the lists of before
    return text


def over(lock: str, *words: str, pre: bool = False) -> set[str]:
    """Return what is put over the lock, and see that it can be installed in its place."""
    with overlay.wheels(Recipe(image="cpu", lock=lock, over=words, pre=pre), silent) as paths:
        combined = overlay.combined(lock, paths)
        installable(combined, "3.11")
        names = {"-".join(path.name.split("-")[:2]) for path in paths}
    assert names <= {f"{each.name}-{each.version}" for each in read_lock(combined).pins}
    assert len({each.name for each in read_lock(combined).pins}) == len(read_lock(combined).pins)
    return names


def test_a_version_comes_with_what_it_needs_and_what_suits_it_stays_as_locked(lock: str) -> None:
    assert over(lock, "app==1.1") == {"app-1.1"}
    assert over(lock, "app==2.0") == {"app-2.0", "dep-2.0", "new-0.1"}
    assert over(lock, "dep==1.6") == {"dep-1.6"}  # although the locked app wants 1.5: to try that is the purpose
    assert over(lock, "app==1.0") == set()


def test_a_release_before_the_final_one_is_taken_with_pre_alone(lock: str) -> None:
    assert over(lock, "app>1.1") == {"app-2.0", "dep-2.0", "new-0.1"}
    assert over(lock, "app>1.1", pre=True) == {"app-3.0rc1"}


def test_what_the_index_does_not_have_is_one_line(lock: str) -> None:
    with pytest.raises(BuildError, match=r"^the requirements can't be locked: .*app==99") as caught:
        over(lock, "app==99")
    assert "\n" not in str(caught.value)


LOOK = """
import importlib.metadata as m, mine
print(mine.WHAT, sorted((each.name, each.version) for each in m.distributions()))
"""


def test_the_venv_engine_has_both_over_the_lock(lock: str, tmp_path: Path) -> None:
    def said(content: str) -> str:
        own = wheel(tmp_path, "mine", "1.0", "what-nobody-has", content=f"WHAT = {content!r}\n")
        recipe = Recipe(image="cpu", lock=lock, over=(str(own), "dep==1.6"))
        made = engine.prepare(recipe, silent)
        assert engine.prepare(recipe, silent) == made
        return subprocess.check_output([made.python, "-c", LOOK], text=True)

    with VenvEngine(tmp_path / "cache", tmp_path / "place") as engine:
        found = [("app", "1.0"), ("dep", "1.6"), ("mine", "1.0")]
        assert said("one") == f"one {found}\n"
        assert said("other") == f"other {found}\n", "a wheel of the same name"
        assert len(engine.absent([Recipe(image="cpu", lock=lock)])) == 1, "the case's own environment is another one"
