import pytest

from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import Attestation
from gpu_casebook.run.record import attestation, drift

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
        told = attestation(f"== banner ==\n{{not this\n{TOLD}\n\nbye\n")
        assert told.packages["NumPy"] == "1.26.4"

    @pytest.mark.parametrize(
        ("stdout", "expected"),
        [("", "it printed no attestation"), ("hello\n", "no attestation"), ('{"python": 3}\n', "is broken: ")],
    )
    def test_broken(self, stdout: str, expected: str) -> None:
        with pytest.raises(EngineError, match=expected):
            attestation(stdout)


class TestDrift:
    def drift(self, python: str = "3.11.2", **packages: str) -> list[str]:
        return drift(LOCK, "3.11", Attestation(python=python, platform="Linux", packages=packages))

    def test_exact(self) -> None:
        assert drift(LOCK, "3.11", attestation(TOLD)) == []

    def test_what_is_not_locked_does_not_matter(self) -> None:
        assert self.drift(numpy="1.26.4", some_thing="1.0", pip="24.0") == []

    def test_missing_and_other(self) -> None:
        assert self.drift(numpy="1.26.3") == [
            "numpy: 1.26.4 locked, 1.26.3 found",
            "some-thing: 1.0 locked, none found",
        ]

    def test_a_local_build_is_listed_as_such(self) -> None:
        assert self.drift(numpy="1.26.4+cu130", some_thing="1.0") == [
            "numpy: 1.26.4 locked, 1.26.4+cu130 found, another build of it"
        ]

    def test_a_version_that_is_none(self) -> None:
        assert self.drift(numpy="1.26.4", some_thing="from git") == ["some-thing: 1.0 locked, from git found"]

    @pytest.mark.parametrize("python", ["3.12.1", "3.1.1", "3.110.0"])
    def test_another_python(self, python: str) -> None:
        assert self.drift(python, numpy="1.26.4", some_thing="1.0") == [f"Python: 3.11 declared, {python} found"]


# Locking, against a package index of our own
