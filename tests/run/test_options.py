"""Each option of a run stands once, and is found wherever it counts."""

import json
from dataclasses import replace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from casebook_workbench.corpus.model import Settings
from gpu_casebook import cli
from gpu_casebook.cli.base import run_options
from gpu_casebook.run.options import CORPUS, DEFAULTS, FLAGS, Options

OTHER: dict[str, Any] = {
    "environment": "current",
    "image": "torch:mine",
    "over": ("triton==3.7.0", "x-1.0-py3-none-any.whl"),
    "pre": True,
    "trials": 7,
    "timeout_s": 90.5,
    "gpus": (1, 2),
    "at_once": 3,
    "keep": True,
    "probes": False,
}
WORDS = {
    "environment": ["--environment", "current"],
    "image": ["--image", "torch:mine"],
    "over": ["--with", "triton==3.7.0", "--with", "x-1.0-py3-none-any.whl"],
    "pre": ["--pre"],
    "trials": ["--trials", "7"],
    "timeout_s": ["--timeout", "90.5"],
    "probes": ["--no-probes"],
}
"""As in the command that does the same again; the GPU and what is kept are this machine's."""


def test_every_option_is_tested() -> None:
    assert [*OTHER] == [*FLAGS]
    assert all(OTHER[name] != DEFAULTS[name] for name in FLAGS)


def parameters(command: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(cli.app)
    every = group.get_command(None, command).params
    return {"/".join([*each.opts, *each.secondary_opts]): each for each in every}


@pytest.mark.parametrize(("command", "names"), [("case", [*FLAGS]), ("corpus", CORPUS)])
def test_the_command_has_the_option_with_its_help(command: str, names: list[str]) -> None:
    printed = CliRunner().invoke(cli.app, [command, "--help"]).output
    found = parameters(command)
    for name in names:
        flag = FLAGS[name]
        assert flag.name.split("/")[0] in printed
        assert found[flag.name].help == flag.help


def test_what_is_written_becomes_options() -> None:
    assert run_options(timeout="2m", gpu="0,1", keep=True) == Options(timeout_s=120.0, gpus=[0, 1], keep=True)
    assert run_options() == Options()


@pytest.mark.parametrize("name", FLAGS)
def test_the_command_has_it_where_it_differs_from_its_default(name: str) -> None:
    options = replace(Options(), **{name: OTHER[name]})
    words = options.words("venv")
    assert [word for word in words if word not in {"--engine", "venv"}] == WORDS.get(name, [])
    assert Options().words("venv") == ["--engine", "venv"]


@pytest.mark.parametrize("name", CORPUS)
def test_the_settings_of_a_run_give_it_back(name: str) -> None:
    options = replace(Options(), **{name: OTHER[name]})
    settings = Settings(root="/checkout", reports="/checkout/reports", engine="venv", options=options)
    written = settings.model_dump_json()
    assert json.loads(written)[name] == OTHER[name]
    assert Settings.model_validate_json(written) == settings


def test_settings_of_runs_that_exist_are_read_and_written_alike() -> None:
    gone = {"zygote": True}
    old = {
        "root": "/checkout",
        "reports": "/checkout/reports",
        "engine": None,
        "image": None,
        "trials": 3,
        "timeout_s": 60.0,
        "at_once": None,
        "probes": False,
    }
    settings = Settings.model_validate_json(json.dumps(old | gone))
    assert settings.options == Options(trials=3, timeout_s=60.0, probes=False)
    assert json.dumps(settings.model_dump(mode="json")) == json.dumps(old)


@pytest.mark.parametrize("name", ["keep", "environment", "colour"])
def test_settings_have_no_other_options(name: str) -> None:
    settings = Settings.model_validate({"root": "/checkout", "reports": "/checkout/reports", name: 1})
    assert settings.options == Options()
    assert name not in settings.model_dump()
