"""examples/tiny_kernels.py with its cell compiled, by hand: what derives from nn.LSTM is compiled where that is allowed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch._dynamo import config

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from tiny_kernels import HandWritten, train


class Compiled(HandWritten):
    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.compile()


config.allow_rnn = True
train(Compiled)
