"""The command line. The noxfile calls this.

A module of `VERBS` registers its verbs with `app` when it is imported; what a verb needs is imported when it runs.
To remove a side package, delete its folder and its line here.
"""

from importlib import import_module

from gpu_casebook.cli.base import app, main

VERBS = (
    "gpu_casebook.cli.case",
    "gpu_casebook.cli.upkeep",
    "gpu_casebook.author.cli",
    "gpu_casebook.releases.cli",
    "gpu_casebook.browse.cli",
    "gpu_casebook.bundle.cli",
    "gpu_casebook.corpus.cli",
    "gpu_casebook.corpus.cli_runs",
    "gpu_casebook.doctor.cli",
    "gpu_casebook.grade.cli",
    "gpu_casebook.issue.cli",
    "gpu_casebook.export.cli",
    "gpu_casebook.judge.cli",
    "gpu_casebook.match.cli",
    "gpu_casebook.site.cli",
    "gpu_casebook.upkeep.cli",
)

for module in VERBS:
    import_module(module)

__all__ = ["VERBS", "app", "main"]
