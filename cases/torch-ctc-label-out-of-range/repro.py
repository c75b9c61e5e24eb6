# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""CTC loss of a batch in which a row of labels is filled up with a value that is no label, and counted with it.

What to look for: the process is killed by SIGSEGV in ctc_loss, without a message. A filler nearer to the labels reads
other numbers instead: -100 gives a loss, and a wrong one.
"""

import torch
from torch.nn.functional import ctc_loss

STEPS, LABELS = 50, 20
FILLER = 2**31 - 1  # the largest int32, a filler that cannot be mistaken for a label
TARGETS = torch.tensor([[3, 7, 1, 12], [5, 9, FILLER, FILLER]])
LENGTHS = torch.tensor([4, 4])  # of the filled-up rows

log_probs = torch.randn(STEPS, 2, LABELS, generator=torch.Generator().manual_seed(0)).log_softmax(2)
right = torch.zeros((), dtype=torch.double)
for i, row in enumerate(TARGETS):  # each by itself, without its filler
    labels = row[row != FILLER]
    right += ctc_loss(log_probs[:, i].double(), labels, (STEPS,), (len(labels),)) / len(TARGETS)
print(f"right_loss={right:.4f}", flush=True)

loss = ctc_loss(log_probs, TARGETS, torch.tensor([STEPS, STEPS]), LENGTHS).double()
print(f"loss_rel_err={abs(loss / right - 1):.3g}")
