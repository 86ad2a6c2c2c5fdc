"""memory_growth.py, cured: only the number is kept. Its graph, and the memory in it, go with the step.

    python examples/memory_growth_cured.py [--steps N]

Where no gradient is wanted at all, `with torch.no_grad():` does not even build the graph.
"""

from __future__ import annotations

import torch
from memory_growth import train

if __name__ == "__main__":
    train(torch.Tensor.detach)
