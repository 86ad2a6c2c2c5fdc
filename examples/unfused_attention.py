"""A training whose attention is three ops: the scores of every position with every other go to memory, and come back.

    python examples/unfused_attention.py [--steps N]

A product makes the scores, element-wise kernels scale them, a softmax weighs them, and a second product uses them: each
reads and writes a matrix of length × length. Shows on a GPU that has tensor cores for bfloat16. A CPU cannot show it:
fused and unfused attention are told apart by their kernels. Fixed: unfused_attention_fixed.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from training import Training

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int, attention: Attention) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm = torch.nn.LayerNorm(width)
        self.into, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        batch, length, width = values.shape
        split = self.into(self.norm(values)).view(batch, length, 3, self.heads, width // self.heads)
        mixed = self.attention(*split.permute(2, 0, 3, 1, 4))  # each: (batch, heads, length, width of a head)
        return values + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def step_by_step(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    return torch.softmax(scores, dim=-1) @ values


def train(attention: Attention) -> None:
    run = Training(steps=30)
    batch, length, heads, width = (8, 1_024, 16, 1_024) if run.on_gpu else (4, 128, 4, 64)
    model = torch.nn.Sequential(*(Block(width, heads, attention) for _ in range(2))).to(run.device, run.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, wanted = torch.randn(2, batch, length, width).to(run.device, run.dtype)
    for number in run.steps():
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        run.learn(number, loss, optimizer)


if __name__ == "__main__":
    train(step_by_step)
