"""exposed_communication.py, fixed: DistributedDataParallel sends a bucket of gradients as soon as it is full.

    torchrun --nproc-per-node 2 examples/exposed_communication_fixed.py [--steps N]

The rest of the backward pass runs meanwhile, and a few large messages replace many small ones.
"""

from __future__ import annotations

import torch
from exposed_communication import nothing_left_to_do, train
from torch.nn.parallel import DistributedDataParallel


def distributed(model: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    device_ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=device_ids, gradient_as_bucket_view=True)


if __name__ == "__main__":
    train(distributed, nothing_left_to_do)
