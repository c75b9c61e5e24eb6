"""Runs of the corpus on a Ray cluster: a plug-in of gpu_casebook."""
