"""pageable_copies.py, fixed: batches in pinned memory, which the GPU reads by itself while the host goes on.

    python examples/pageable_copies_fixed.py [--steps N]

With a DataLoader it is pin_memory=True. To copy the next batch while this one is computed takes a second stream as well.
"""

from __future__ import annotations

import torch
from pageable_copies import as_it_is, train

if __name__ == "__main__":
    train(torch.Tensor.pin_memory if torch.cuda.is_available() else as_it_is, non_blocking=True)
