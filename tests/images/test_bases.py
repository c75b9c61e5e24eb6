"""What images stand on, without an engine."""

import re
import stat
from pathlib import Path
from typing import Any

import pytest

from gpu_casebook.daemon.client import DockerClient
from gpu_casebook.errors import BuildError, EngineError, MachineError, UsageError
from gpu_casebook.images import bases
from gpu_casebook.images.bases import BOOTSTRAPPED, Base, BasePin, available, bootstrapped, obtain, read_pin, refresh
from tests.fake_docker import FakeDocker, image

IMAGES = Path(__file__).parents[2] / "images"
PIN = BasePin(image="debian:bookworm-slim", digest=f"sha256:{'a' * 64}", suite="bookworm")


def silent(_line: str) -> None:
    pass


def write(directory: Path, text: str) -> Path:
    (directory / "bases.toml").write_text(text)
    return directory


def test_the_projects_own_pin_is_a_digest() -> None:
    assert re.fullmatch(r"debian:bookworm-slim@sha256:[0-9a-f]{64}", read_pin(IMAGES).reference)


@pytest.mark.parametrize(
    "text", ["", "[debian]\nimage = 'a'\nsuite = 'b'\n", "[debian]\nimage = 'a'\nsuite = 'b'\ndigest = 'latest'\n", "["]
)
def test_a_pin_that_cant_be_used_is_one_line_that_names_the_file(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"bases\.toml") as caught:
        read_pin(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_the_pinned_base_goes_before_a_bootstrapped_one() -> None:
    made = image("casebook/base:bookworm-1", part="base", id_="sha256:" + "1" * 64)
    client = FakeDocker([made]).client
    assert available(client, PIN) == Base("casebook/base:bookworm-1", f"{BOOTSTRAPPED}, {'1' * 12}")
    client = FakeDocker([made, image(PIN.reference)]).client
    assert available(client, PIN) == Base(PIN.reference, PIN.reference)


def test_of_bootstrapped_bases_the_youngest_goes_first() -> None:
    old = image("casebook/base:old", part="base", created=1)
    new = image("casebook/base:new", part="base", created=2)
    assert [base.reference for base in bootstrapped(FakeDocker([old, new]).client)] == [
        "casebook/base:new",
        "casebook/base:old",
    ]


def test_nothing_is_pulled_or_bootstrapped_where_a_base_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "pull", None)
    monkeypatch.setattr(bases, "_bootstrap", None)
    assert obtain(FakeDocker([image(PIN.reference)]).client, PIN, silent).identity == PIN.reference


def test_without_a_registry_debian_is_bootstrapped_and_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_reference: str) -> str:
        raise EngineError("no such host")

    made = Base("casebook/base:x", f"{BOOTSTRAPPED}, x")
    monkeypatch.setattr(bases, "ask", unreachable)
    monkeypatch.setattr(bases, "_bootstrap", lambda *_: made)
    told: list[str] = []
    assert obtain(FakeDocker([]).client, PIN, told.append) == made
    assert told == ["no such host; bootstrapping Debian instead"]


def test_a_full_disk_is_not_answered_by_a_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise MachineError("no space left on device")

    monkeypatch.setattr(bases, "ask", lambda *_: PIN.digest)
    monkeypatch.setattr(bases, "pull", full)
    with pytest.raises(MachineError):
        obtain(FakeDocker([]).client, PIN, silent)


def bootstrap_with(program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client: DockerClient) -> Base:
    path = tmp_path / "mmdebstrap"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return bases._bootstrap(client, PIN, silent)


def test_a_bootstrap_is_imported_under_its_own_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeDocker([])
    made = bootstrap_with("echo archive; echo fine >&2", monkeypatch, tmp_path, fake.client)
    assert fake.imported == [b"archive\n"]
    assert made.reference == f"casebook/base:bookworm-{fake.images[0]['Id'][7:19]}"
    assert bootstrapped(fake.client) == [made]


def test_a_bootstrap_that_breaks_off_is_never_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeDocker([])
    with pytest.raises(BuildError, match="E: could not download") as caught:
        bootstrap_with("echo half; echo 'E: could not download' >&2; exit 3", monkeypatch, tmp_path, fake.client)
    assert "bookworm" in str(caught.value)
    assert fake.imported == []


def test_without_mmdebstrap_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="apt-get install mmdebstrap"):
        bases._bootstrap(FakeDocker([]).client, PIN, silent)


def test_refreshing_writes_the_registrys_digest_and_keeps_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new = f"sha256:{'b' * 64}"
    monkeypatch.setattr(bases, "ask", lambda *_: new)
    before = (IMAGES / "bases.toml").read_text()
    old = read_pin(IMAGES).digest
    told: list[str] = []
    assert refresh(write(tmp_path, before), told.append).digest == new
    assert (tmp_path / "bases.toml").read_text() == before.replace(old, new)
    assert told == [f"debian:bookworm-slim: {old} -> {new}"]
