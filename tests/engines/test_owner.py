"""Whose things are: only what certainly belongs to nobody any more may be removed."""

import os
import subprocess

import psutil
import pytest

from gpu_casebook.engines.owner import Owner, host_name


def test_owners_survive_as_text() -> None:
    me = Owner.current()
    again = Owner.parse(str(me))
    assert again is not None
    assert (again.host, again.pid) == (host_name(), os.getpid())
    assert again.started == pytest.approx(me.started, abs=0.01)
    assert not again.gone


@pytest.mark.parametrize("text", ["", "x", "host:pid:1.0", "host:1", "host:1:later"])
def test_what_is_no_owner(text: str) -> None:
    assert Owner.parse(text) is None


def test_a_process_that_ended_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert Owner(host_name(), process.pid, 0.0).gone


def test_a_pid_that_is_used_again_is_another_process() -> None:
    now = psutil.Process().create_time()
    assert Owner(host_name(), os.getpid(), now - 3600).gone
    assert not Owner(host_name(), os.getpid(), now - 1).gone


def test_nothing_is_known_of_another_host() -> None:
    assert not Owner("elsewhere-00000000", 1, 0.0).gone


def test_a_host_name_fits_a_label() -> None:
    assert ":" not in host_name()
