"""unfused_attention.py, fixed: scaled_dot_product_attention, one kernel that keeps the scores on the chip.

python examples/unfused_attention_fixed.py [--steps N]
"""

from __future__ import annotations

from torch.nn.functional import scaled_dot_product_attention
from unfused_attention import train

if __name__ == "__main__":
    train(scaled_dot_product_attention)
