"""The command line. The noxfile calls this."""

from gpu_casebook.cli.base import app, main

__all__ = ["app", "main"]
