"""Which way to a GPU a Docker engine has."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpu_casebook.devices.driver import HostFacts
from gpu_casebook.engines.docker.access import choose_gpu_access
from tests.devices.test_driver import (
    CDI_27,
    CDI_28,
    CDI_28_WITHOUT,
    DRIVER,
    DRIVER_AND_CDI,
    NO_DEVICES,
    NO_LIBRARIES,
    NOTHING,
    OLD,
    TOOLKIT,
)


@pytest.mark.parametrize(
    ("info", "host", "mode"),
    [
        (TOOLKIT, NOTHING, "toolkit"),
        (TOOLKIT, DRIVER, "toolkit"),
        (TOOLKIT | CDI_28 | {"Runtimes": TOOLKIT["Runtimes"]}, DRIVER_AND_CDI, "toolkit"),
        (CDI_28, NOTHING, "cdi"),
        (CDI_28_WITHOUT, DRIVER, "passthrough"),
        (CDI_28_WITHOUT, NOTHING, None),
        (CDI_27, DRIVER_AND_CDI, "cdi"),
        (CDI_27, DRIVER, "passthrough"),
        (OLD, DRIVER_AND_CDI, "passthrough"),
        (OLD, DRIVER, "passthrough"),
        (OLD, NO_DEVICES, None),
        (OLD, NO_LIBRARIES, None),
        (OLD, NOTHING, None),
        ({}, NOTHING, None),
    ],
)
def test_the_best_way_on_this_machine(info: Mapping[str, Any], host: HostFacts, mode: str | None) -> None:
    access = choose_gpu_access(info, local=True, host=host)
    assert (access and access.mode) == mode


@pytest.mark.parametrize(("info", "mode"), [(TOOLKIT, "toolkit"), (CDI_28, "cdi"), (CDI_27, None), (OLD, None)])
def test_elsewhere_this_machine_does_not_count(info: Mapping[str, Any], mode: str | None) -> None:
    access = choose_gpu_access(info, local=False, host=DRIVER_AND_CDI)
    assert (access and access.mode) == mode


def test_passthrough_says_where_the_driver_is_from() -> None:
    access = choose_gpu_access(OLD, local=True, host=DRIVER)
    assert access
    assert "/usr/local/nvidia/lib64" in access.detail
