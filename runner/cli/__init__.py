"""Every command and every option, once. The noxfile calls this."""

from runner.cli import author, bisect, bundle, case, corpus, issue, runs, upkeep
from runner.cli.base import EPILOG, app, main

__all__ = ["EPILOG", "app", "author", "bisect", "bundle", "case", "corpus", "issue", "main", "runs", "upkeep"]
