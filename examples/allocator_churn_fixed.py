"""allocator_churn.py, fixed: the cache keeps what the next step needs again.

    python examples/allocator_churn_fixed.py [--steps N]

Where memory is short because sizes differ from step to step, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True helps.
"""

from __future__ import annotations

from allocator_churn import train


def nothing() -> None:
    pass


if __name__ == "__main__":
    train(nothing)
