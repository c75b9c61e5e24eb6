"""A tenth in the warm-up, then the powers of gamma."""


def reference(warm_up, gamma, epoch, epochs):
    rates = [0.1 if each < warm_up else gamma ** (each - warm_up) for each in range(epoch, epochs)]
    return {"rates": rates, "name": "SequentialLR"}
