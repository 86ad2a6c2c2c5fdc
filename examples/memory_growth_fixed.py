"""memory_growth.py, fixed: only the number is kept. Its graph, and the memory in it, go with the step.

    python examples/memory_growth_fixed.py [--steps N]

Where no gradient is wanted at all, `with torch.no_grad():` does not even build the graph.
"""

from __future__ import annotations

from memory_growth import train

if __name__ == "__main__":
    # A loss keeps storage as large as what it was computed from: its clone is one number.
    train(lambda loss: loss.detach().clone())
