"""Every command and every option, once. The noxfile calls this."""

from runner.cli import case, upkeep
from runner.cli.base import EPILOG, app, main

__all__ = ["EPILOG", "app", "case", "main", "upkeep"]
