"""fp32_matmuls.py, fixed: matrix multiplications in bfloat16 on tensor cores; weights and optimizer stay 32-bit.

python examples/fp32_matmuls_fixed.py [--steps N]
"""

from __future__ import annotations

import torch
from fp32_matmuls import train

if __name__ == "__main__":
    train(lambda device: torch.autocast(device.type, dtype=torch.bfloat16))
