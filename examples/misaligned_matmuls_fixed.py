"""misaligned_matmuls.py, fixed: 1024 features and 50304 words, the next multiples of 64. The added words never occur.

    python examples/misaligned_matmuls_fixed.py [--steps N]

It computes a little more, and takes less time for it.
"""

from __future__ import annotations

from misaligned_matmuls import sizes, train
from training import Training


def padded(size: int, to: int = 64) -> int:
    return -(-size // to) * to


if __name__ == "__main__":
    run = Training(steps=30)
    features, words = sizes(run.on_gpu)
    train(run, padded(features), padded(words))
