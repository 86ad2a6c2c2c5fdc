"""examples/slow_input.py as a person mends it who changes only its loader."""

from __future__ import annotations

import sys
from pathlib import Path

from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from slow_input import Sounds, train

if __name__ == "__main__":
    train(DataLoader(Sounds(), batch_size=64, num_workers=2, persistent_workers=True))
