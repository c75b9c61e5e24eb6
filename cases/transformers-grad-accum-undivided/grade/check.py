"""The mean over all predicted tokens, in float64."""

import torch
from subject import model_of


def reference(seed, sequences):
    model = model_of(seed).double()
    log_p = model(sequences).logits[:, :-1].log_softmax(-1)
    (-log_p.gather(2, sequences[:, 1:, None]).mean()).backward()
    gradient = torch.cat([each.grad.flatten() for each in model.parameters()])
    return {"norm": gradient.norm(), "some": gradient[::257]}
