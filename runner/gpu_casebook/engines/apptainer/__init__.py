"""Trials by Apptainer, as the user, without a daemon."""
