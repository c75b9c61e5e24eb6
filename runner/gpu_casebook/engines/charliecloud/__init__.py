"""Trials by Charliecloud, as the user, without a daemon."""
