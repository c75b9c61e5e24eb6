"""Trials in images that were unpacked to directories: what runtimes without a daemon have in common."""
