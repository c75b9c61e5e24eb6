"""exp is its own gradient; in float64."""


def reference(x):
    return {"some": x[:: 2**14].double().exp(), "gradients": x[:64].double().exp()}
