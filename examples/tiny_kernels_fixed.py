"""tiny_kernels.py, fixed: all ticks in one call of torch.nn.LSTM. The weights and the mathematics are the same.

    python examples/tiny_kernels_fixed.py [--steps N]

A cell that no library has is fixed by torch.compile, or by a CUDA graph around the loop.
"""

from __future__ import annotations

import torch
from tiny_kernels import train

if __name__ == "__main__":
    train(torch.nn.LSTM)
