"""Which verbs there are. A verb's module is imported when the verb is used; `--help` needs these tables alone."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from typer.core import TyperGroup
from typer.main import get_command_from_info, get_command_name

from gpu_casebook import plugins

GROUP = "gpu_casebook.verbs"
"""Entry points of packages that add verbs: each names a table such as `VERBS`."""


class Verb(NamedTuple):
    """The module that registers the verb with `cli.base.app` when it is imported, and its line in `casebook --help`."""

    module: str
    line: str


VERBS = {
    "case": Verb("gpu_casebook.cli.case", "Run one case: does the bug reproduce, and the fix hold?"),
    "lock": Verb("gpu_casebook.cli.upkeep", "Write the locks: every environment's packages with hashes."),
    "schema": Verb("gpu_casebook.cli.upkeep", "Write the JSON Schema from which editors complete case.yaml."),
    "clean": Verb("gpu_casebook.cli.upkeep", "Remove what runs that were killed left behind."),
}


@cache
def all_verbs() -> Mapping[str, Verb]:
    """Return every verb by name: those of one case first, then those that other packages add."""
    verbs = dict(VERBS)
    for name in plugins.find(GROUP):
        verbs |= plugins.load(GROUP, name)
    return verbs


class VerbGroup(TyperGroup):
    """Typer's group, whose commands are imported once they are used."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = dict.fromkeys(all_verbs())  # type: ignore[assignment]  # the names, for "did you mean"

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 as Typer calls it
        from gpu_casebook.cli.base import app

        if verb := all_verbs().get(cmd_name):
            import_module(verb.module)
        for info in app.registered_commands:
            if cmd_name == (info.name or get_command_name(info.callback.__name__ if info.callback else "")):
                return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
        return None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 as Typer calls it
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.line) for name, verb in all_verbs().items()])
