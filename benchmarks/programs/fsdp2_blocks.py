"""torchrun, two ranks, FSDP2 (`fully_shard`) over gloo: many gathers of small layers."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.distributed.fsdp import fully_shard
from two_ranks import run

GIVEN = arguments(100, "keep-gathered", "fused-optimizer")


def train() -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        *[torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0) for _ in range(4)]
    )
    for layer in model:
        fully_shard(layer, reshard_after_forward=GIVEN.fix != "keep-gathered")
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=GIVEN.fix == "fused-optimizer")
    tokens = torch.randn(8, 64, 128)
    for _ in range(GIVEN.steps):
        optimizer.zero_grad()
        model(tokens).square().mean().backward()  # slow
        optimizer.step()  # slow
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)
