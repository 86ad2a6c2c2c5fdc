"""A training whose matrices have odd sizes: 1023 features, 50257 words.

    python examples/misaligned_matmuls.py [--steps N]

Tensor cores work on tiles and load 16 bytes at once. Rows of 1023 numbers of 2 bytes do not start at multiples of 16
bytes, so the libraries fall back to slower kernels. Shows on a GPU. A CPU cannot show it: it has no such tiles, or
hides them well, and slow and fixed take about the same time. Fixed: misaligned_matmuls_fixed.py.
"""

from __future__ import annotations

import torch
from training import Training

WORDS = 50_257


def sizes(on_gpu: bool) -> tuple[int, int]:
    """Features and words."""
    return (1_023, WORDS) if on_gpu else (63, 1_009)


def train(run: Training, features: int, words: int) -> None:
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(features, features), torch.nn.GELU())]
    model = torch.nn.Sequential(torch.nn.Embedding(words, features), *layers, torch.nn.Linear(features, words))
    model.to(run.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    known = sizes(run.on_gpu)[1]
    text = torch.randint(known, (2_049 if run.on_gpu else 129,)).to(run.device)
    for number in run.steps():
        loss = torch.nn.functional.cross_entropy(model(text[:-1]), text[1:])
        run.learn(number, loss, optimizer)


if __name__ == "__main__":
    run = Training(steps=30)
    train(run, *sizes(run.on_gpu))
