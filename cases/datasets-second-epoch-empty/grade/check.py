"""The rows times the factor, as often as there are epochs."""


def reference(rows, epochs, factor):
    return {"epochs": [[factor * row for row in rows] for _ in range(epochs)]}
