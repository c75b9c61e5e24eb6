"""Bundles: one archive with cases, their environments and the runner, for a GPU host without a network."""
