"""Many cases at once: what to run, where, in what order, and what came of it."""
