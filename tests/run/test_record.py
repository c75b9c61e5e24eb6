import pytest

from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import Attestation
from gpu_casebook.run.attesting import Loaded, apart, by_relevance, differences, parse, strangers
from gpu_casebook.trial import Recipe

HASH = "--hash=sha256:" + "a" * 64
LOCK = f"""\
# Written by `nox -s lock`, not by hand.
# requirements: numpy==1.26.4 triton==3.6.0
# python: 3.11
# platform: x86_64-manylinux_2_36
# download-bytes: 206466645
numpy==1.26.4 \\
    {HASH} \\
    --hash=sha256:{"b" * 64}
Some_Thing[extra]==1.0 \\
    {HASH}
"""


TOLD = '{"python": "3.11.2", "platform": "Linux", "packages": {"NumPy": "1.26.4", "some.thing": "1"}}'


class TestAttestation:
    def test_among_other_output(self) -> None:
        found = parse(f"== banner ==\n{{not this\n{TOLD}\n\nbye\n")
        assert found.packages["NumPy"] == "1.26.4"

    @pytest.mark.parametrize(
        ("stdout", "expected"),
        [("", "it printed no attestation"), ("hello\n", "no attestation"), ('{"python": 3}\n', "is broken: ")],
    )
    def test_broken(self, stdout: str, expected: str) -> None:
        with pytest.raises(EngineError, match=expected):
            parse(stdout)


class TestDrift:
    """What the failure can depend on, and the rest."""

    def drift(self, python: str = "3.11.2", lock: str = LOCK, **packages: str) -> tuple[list[str], list[str]]:
        found = Attestation(python=python, platform="Linux", packages=packages)
        return by_relevance(differences(Recipe(image="cpu", lock=lock), found), own={"numpy"})

    def test_exact(self) -> None:
        assert list(differences(Recipe(image="cpu", lock=LOCK), parse(TOLD))) == []

    def test_what_is_not_locked(self) -> None:
        assert self.drift(numpy="1.26.4", some_thing="1.0", pip="24.0", triton="3.6.0") == (
            ["triton: not locked, 3.6.0 found"],
            ["not locked, and installed: pip 24.0"],
        )

    def test_missing_and_other(self) -> None:
        assert self.drift(numpy="1.26.3") == (
            ["numpy: 1.26.4 locked, 1.26.3 found"],
            ["some-thing: 1.0 locked, none found"],
        )

    def test_a_local_build_is_listed_as_such(self) -> None:
        line = "numpy: 1.26.4 locked, 1.26.4+cu130 found, another build of it"
        assert self.drift(numpy="1.26.4+cu130", some_thing="1.0") == ([line], [])

    def test_a_version_that_is_none(self) -> None:
        line = "some-thing: 1.0 locked, from git found"
        assert self.drift(numpy="1.26.4", some_thing="from git") == ([], [line])

    @pytest.mark.parametrize("python", ["3.12.1", "3.1.1", "3.110.0"])
    def test_another_python(self, python: str) -> None:
        lines = [f"Python: 3.11 {word}, {python} found" for word in ("declared", "locked")]
        assert self.drift(python, numpy="1.26.4", some_thing="1.0") == (lines, [])

    def test_another_patch_of_python_than_the_lock_names(self) -> None:
        lock = LOCK.replace("# python: 3.11", "# python: 3.11.7")
        assert self.drift(lock=lock, numpy="1.26.4", some_thing="1.0") == (
            [],
            ["Python: 3.11.7 locked, 3.11.2 found"],
        )

    def test_variants_that_differ(self) -> None:
        one = Attestation(python="3.11.2", glibc="2.36", platform="Linux")
        found = apart(one, one.model_copy(update={"python": "3.11.7", "glibc": "2.31"}))
        lines = ["Python: 3.11.2 for repro, 3.11.7 for fixed", "glibc: 2.36 for repro, 2.31 for fixed"]
        assert by_relevance(found, own=()) == ([], lines)

    def test_libraries_of_the_driver_and_of_an_image_belong_there(self) -> None:
        own = {"/env/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "/usr/lib/libcuda.so.580.65.06"}
        other = "/usr/local/cuda/lib64/libcudart.so.12"
        assert list(strangers(Loaded(own), in_image=False)) == []
        assert list(strangers(Loaded({other}), in_image=True)) == []
        assert [each.text for each in strangers(Loaded({other}), in_image=False)] == [
            f"{other} was loaded, which is not of the environment"
        ]


# Locking, against a package index of our own
