"""Casebook's runner: from a case's manifest to a verdict and a report."""

__version__ = "0.1.0"
