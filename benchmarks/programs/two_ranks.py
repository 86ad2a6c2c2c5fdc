"""A training of several ranks over gloo, each with one thread, as `torchrun` starts it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist


def run(train: Callable[[], None]) -> None:
    """Ends the process group when the model is gone: see examples/exposed_communication.py."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    train()
    dist.destroy_process_group()
