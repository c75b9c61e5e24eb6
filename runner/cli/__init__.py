"""Every command and every option, once. The noxfile calls this."""

from runner.cli import author, bisect, bundle, case, corpus, doctor, issue, runs, upkeep, watch
from runner.cli.base import EPILOG, app, main

__all__ = [
    "EPILOG",
    "app",
    "author",
    "bisect",
    "bundle",
    "case",
    "corpus",
    "doctor",
    "issue",
    "main",
    "runs",
    "upkeep",
    "watch",
]
