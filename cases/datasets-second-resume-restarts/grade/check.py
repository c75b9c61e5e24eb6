"""The rows, cut into runs."""


def reference(rows, shards, per_run, runs):
    return {"runs": [rows[number * per_run : (number + 1) * per_run] for number in range(runs)]}
