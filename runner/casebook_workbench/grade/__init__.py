"""Somebody else's fix, held against the case's reference on inputs that nobody knew before."""
