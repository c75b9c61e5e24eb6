"""The rows, cut in two."""


def reference(rows, held_out):
    return {"validation": rows[:held_out], "training": rows[held_out:]}
