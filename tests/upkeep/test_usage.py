from pathlib import Path

from casebook_workbench.upkeep.usage import CaseUse, Disk, Layer, disk, layers, shares
from gpu_casebook.images.bases import BOOTSTRAPPED, Base, read_pin
from gpu_casebook.images.stages import Stage, normalised, plan
from gpu_casebook.manifest.case import discover, find, known_images
from gpu_casebook.run.plan import recipes
from gpu_casebook.trial import Recipe
from tests.fake_docker import FakeDocker, Image, image

ROOT = Path(__file__).parents[2]
BASE = Base("casebook/base:x", f"{BOOTSTRAPPED}, 123456789abc")
TORCH = Recipe(image="cpu", lock="torch==1 --hash=sha256:aa\n")
NUMPY = Recipe(image="cpu", lock="numpy==1 --hash=sha256:bb\n")
CUDA = Recipe(image="cuda13", lock="torch==1 --hash=sha256:aa\n")

SYSTEM, TOOLS = Layer("system", 400), Layer("tools", 100)
ONE, TWO = Layer("one", 5000), Layer("two", 70)
FOUND = {"a": [[ONE, TOOLS, SYSTEM]], "b": [[ONE, TOOLS, SYSTEM], [TWO, SYSTEM]], "c": [[ONE, TOOLS, SYSTEM]], "d": []}


def test_what_goes_with_a_case_is_its_own_and_the_rest_is_shared() -> None:
    assert shares(FOUND, {"b": 1, "d": 2}) == [
        CaseUse(case="a", images=("one",), absent=0, own_bytes=0, shared_bytes=5500),
        CaseUse(case="b", images=("one", "two"), absent=1, own_bytes=70, shared_bytes=5500),
        CaseUse(case="c", images=("one",), absent=0, own_bytes=0, shared_bytes=5500),
        CaseUse(case="d", images=(), absent=2, own_bytes=0, shared_bytes=0),
    ]


def test_a_layer_that_one_case_stands_on_twice_is_its_own_once() -> None:
    (use,) = shares({"b": FOUND["b"]}, {})
    assert (use.own_bytes, use.shared_bytes) == (5570, 0)


def test_disk_grows_with_images_and_not_with_cases() -> None:
    many = {f"case-{number}": FOUND["a"] for number in range(100)}
    assert disk(many) == Disk(cases=100, images=1, bytes=5500, unshared_bytes=550_000)
    assert disk({**many, "b": FOUND["b"]}).bytes == 5570
    assert disk({"d": []}) == Disk(cases=0, images=0, bytes=0, unshared_bytes=0)


def sized(stage: Stage, size: int) -> Image:
    base = stage.base.identity
    return image(stage.reference, part=stage.part, key=stage.key, image=stage.image, base=base) | {"Size": size}


def engine(*wanted: Recipe, base: Base = BASE) -> FakeDocker:
    """Each environment takes 1000 bytes, torch 4000, its tools 100, the system 400, and the base 120."""
    sizes = {"environment": 5620, "torch": 4620, "tools": 620, "system": 520, "installer": 530}
    stages = {stage.reference: stage for recipe in wanted for stage in plan(ROOT, recipe, base).chain()}
    own_base = image(BASE.reference, part="base", id_="sha256:123456789abc") | {"Size": 120}
    return FakeDocker([own_base, *(sized(stage, sizes[stage.part]) for stage in stages.values())])


def test_of_each_stage_what_it_adds_to_the_one_below() -> None:
    found, absent = layers(engine(TORCH).client, ROOT, {"one": [TORCH, NUMPY], "two": [TORCH]})
    (chain,) = found["one"]
    assert [each.bytes for each in chain] == [1000, 4000, 100, 400, 120]
    assert chain[0].name == plan(ROOT, TORCH, BASE).reference
    assert chain[-1].name == BASE.reference
    assert found["two"] == found["one"]
    assert absent == {"one": 1, "two": 0}


def test_images_of_two_kinds_share_what_is_below_their_tools() -> None:
    found, absent = layers(engine(TORCH, CUDA).client, ROOT, {"one": [TORCH], "two": [CUDA]})
    assert [(use.own_bytes, use.shared_bytes) for use in shares(found, absent)] == [(5100, 520), (5100, 520)]


def test_locks_that_differ_in_numpy_alone_share_torch() -> None:
    both = Recipe(image="cpu", lock=TORCH.lock + NUMPY.lock)
    found, absent = layers(engine(TORCH, both).client, ROOT, {"one": [TORCH], "two": [both]})
    assert [(use.own_bytes, use.shared_bytes) for use in shares(found, absent)] == [(1000, 4620), (1000, 4620)]


def test_a_base_without_a_tag_counts_with_what_stands_on_it() -> None:
    pinned = read_pin(ROOT / "images").reference
    fake = engine(TORCH, base=Base(pinned, pinned))
    found, _ = layers(fake.client, ROOT, {"one": [TORCH]})
    assert [each.bytes for each in found["one"][0]] == [1000, 4000, 100, 520]


def test_the_same_lock_twice_is_one_environment() -> None:
    again = Recipe(image="cpu", lock=f"# a comment\n{TORCH.lock}")
    _, absent = layers(engine().client, ROOT, {"one": [TORCH, again]})
    assert absent == {"one": 1}


def test_the_cases_of_this_repository_have_one_image_for_each_distinct_lock() -> None:
    images = known_images(ROOT)
    wanted = [recipe for case in discover(ROOT) for recipe in recipes(find(ROOT, case, images))]
    locks = {(recipe.image, normalised(recipe.lock)) for recipe in wanted}
    assert len({plan(ROOT, recipe, BASE).reference for recipe in wanted}) == len(locks) < len(wanted)
