"""Bundles: one archive with a case, its environment and the runner, for a GPU host without a network."""
