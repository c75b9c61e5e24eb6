"""The labels that were given."""


def reference(labels):
    return {"labels": labels}
