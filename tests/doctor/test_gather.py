import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from casebook_workbench.doctor import gather as gathering
from casebook_workbench.doctor.gather import directory, gather, proxies
from gpu_casebook import cli
from gpu_casebook.devices import hardware
from gpu_casebook.manifest.case import find
from tests.conftest import IMAGES, Checkout
from tests.fakes import LOCK

OLD = hardware.HostGpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-1",
    minor=0,
    compute_capability="9.0",
    memory_bytes=150_000_000_000,
    free_bytes=150_000_000_000,
    driver="570.86.15",
)
CUDA = (
    LOCK
    + f"torch==2.11.0 \\\n    --hash=sha256:{'0' * 64}\nnvidia-cuda-runtime==13.0.96 \\\n    --hash=sha256:{'0' * 64}\n"
)


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one case, on a machine without Docker and without a GPU."""
    directory = checkout.write().parent
    (directory / "locks").mkdir()
    (directory / "locks" / "current.txt").write_text(CUDA)
    (directory / "locks" / "interpreter.txt").write_text(LOCK)
    monkeypatch.chdir(checkout.root)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(checkout.root / "cache"))
    monkeypatch.setattr(hardware, "gpus", list)
    return checkout.root


def casebook(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(words), catch_exceptions=False)
    return result.exit_code, result.output


def test_proxies_are_shown_without_their_passwords() -> None:
    told = proxies({"https_proxy": "http://me:hunter2@proxy:3128", "NO_PROXY": "localhost", "HTTP_PROXY": ""})
    assert told == {"https_proxy": "http://proxy:3128", "NO_PROXY": "localhost"}
    assert proxies({"HTTPS_PROXY": "me:hunter2@proxy:3128"}) == {"HTTPS_PROXY": "proxy:3128"}


def test_a_directory_that_is_not_there_yet_is_where_it_will_be(tmp_path: Path) -> None:
    found = directory("reports", tmp_path / "a" / "b")
    assert (found.path, found.writable) == (str(tmp_path / "a" / "b"), True)
    assert found.free_bytes
    assert directory("images", Path("/proc/self/net"), ours=False).writable


def test_certificates_are_looked_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "ca.crt").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(here / "ca.crt"))
    monkeypatch.setenv("PIP_CERT", str(here / "none.crt"))
    monkeypatch.setenv("CURL_CA_BUNDLE", "")
    bundles = gather(here, [])[0].bundles
    assert (bundles["SSL_CERT_FILE"], bundles["PIP_CERT"]) == (True, False)
    assert "CURL_CA_BUNDLE" not in bundles


def test_this_machine_has_facts(here: Path) -> None:
    facts, needs = gather(here, [find(here, "tiny", IMAGES)])
    assert facts.uv
    assert facts.system == os.uname().sysname
    assert not facts.docker.there
    assert facts.docker.host == "unix:///nowhere.sock"
    assert [each.name for each in facts.directories] == ["reports", "environments", "downloads"]
    assert facts.index_error is None
    assert [each.name for each in needs] == ["tiny/current", "tiny/interpreter"]


@pytest.mark.usefixtures("here")
def test_warnings_and_notes_are_no_failure() -> None:
    status, said = casebook("doctor")
    assert status == 0, said
    assert "warning: no Docker engine answers at DOCKER_HOST=unix:///nowhere.sock" in said
    assert "    fix: unset DOCKER_HOST; or start the engine there\n" in said
    assert said.splitlines()[0].startswith("Python 3.")
    assert said.splitlines()[-1].startswith("2 environments looked at: ")


@pytest.mark.usefixtures("here")
def test_an_error_ends_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", lambda: [OLD])
    status, said = casebook("doctor", "tiny")
    assert status == 6
    assert "error:   tiny/current: the lock has CUDA 13.0, which needs NVIDIA driver 580 or newer, and here is" in said
    assert "NVIDIA H200 (9.0), driver 570.86.15" in said


@pytest.mark.usefixtures("here")
def test_json_has_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", lambda: [OLD])
    status, said = casebook("doctor", "--json")
    table = json.loads(said)
    assert status == 6
    assert table["facts"]["gpus"][0]["driver"] == "570.86.15"
    assert [each["environment"] for each in table["environments"]] == ["current", "interpreter"]
    assert {"rule", "severity", "what", "fix", "about"} == set(table["findings"][0])
    assert table["findings"][0]["severity"] == "error"


@pytest.mark.usefixtures("here")
def test_the_index_is_asked_only_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_index_error", lambda: "nobody answers")
    assert "nobody answers" not in casebook("doctor")[1]
    status, said = casebook("doctor", "--online")
    assert (status, "the package index can't be reached: nobody answers" in said) == (6, True)


def test_an_index_that_is_not_there_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_FIND_LINKS", "")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    error = gathering._index_error()
    assert error
    assert "127.0.0.1:9" in error


@pytest.mark.usefixtures("here")
def test_a_case_that_is_not_there_is_one_line() -> None:
    assert casebook("doctor", "tinny") == (2, "casebook: no case 'tinny'; did you mean tiny?\n")
