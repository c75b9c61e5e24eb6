"""The state that was given."""


def reference(state, step):
    return {"step": step + 1, "sum": state.double().sum(), "some": state[:: 2**12]}
