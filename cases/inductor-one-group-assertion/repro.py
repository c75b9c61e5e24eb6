# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""Sum the nodes of two graphs, and of one, compiled for the CPU.

What to look for: two graphs are summed right. A batch of one graph does not compile: InductorError, AssertionError, and
nothing behind it. Eager mode sums it.
"""

import torch

NODES = 16  # of a graph; enough for a vector
torch.set_num_threads(2)  # with one thread Inductor adds without atomics, and compiles


def pooled(features: torch.Tensor, graph: torch.Tensor, graphs: int) -> torch.Tensor:
    """The sum over the nodes of each graph, as graph networks take it."""
    return torch.zeros(graphs).index_add(0, graph, features)


features = torch.randn(NODES, generator=torch.Generator().manual_seed(0))
for graphs in (2, 1):
    graph = torch.arange(NODES) % graphs
    right = torch.stack([features[graph == number].double().sum() for number in range(graphs)])
    got = torch.compile(pooled)(features, graph, graphs).double()
    print(f"rel_err_{graphs}={(got - right).norm() / right.norm():.3g}", flush=True)
