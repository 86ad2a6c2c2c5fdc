"""unfused_optimizer.py, fixed: `fused=True`, a few kernels for all tensors together.

python examples/unfused_optimizer_fixed.py [--steps N]
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from unfused_optimizer import train


def optimizer(weights: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(weights, lr=1e-4, fused=True)


if __name__ == "__main__":
    train(optimizer)
