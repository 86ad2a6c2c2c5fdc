"""A training in 32-bit numbers: its matrix multiplications leave the GPU's tensor cores unused.

    python examples/fp32_matmuls.py [--steps N]

Shows on a GPU that has tensor cores. A CPU cannot show it: most have no faster path for short numbers, and the fixed
twin may even be slower there. Fixed: fp32_matmuls_fixed.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from training import Training


def train(precision: Callable[[torch.device], contextlib.AbstractContextManager[object]]) -> None:
    run = Training(steps=30)
    width, batch = (4_096, 2_048) if run.on_gpu else (256, 128)
    torch.set_float32_matmul_precision("highest")  # PyTorch's default: no TF32
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, wanted = torch.randn(2, batch, width).to(run.device)
    for number in run.steps():
        with precision(run.device):
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        run.learn(number, loss, optimizer)


if __name__ == "__main__":
    train(lambda _: contextlib.nullcontext())
