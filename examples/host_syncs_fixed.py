"""host_syncs.py, fixed: the same checks and norms are computed, but stay on the GPU until they are read now and then.

    python examples/host_syncs_fixed.py [--steps N]

Find such calls in a program of your own with torch.cuda.set_sync_debug_mode("warn").
"""

from __future__ import annotations

import torch
from host_syncs import train

READ_EVERY = 10


class Watched(torch.nn.Sequential):
    """Notes on the device whether every layer's output was finite, and reads the note at every tenth pass."""

    passes, all_finite = 0, None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        notes = []
        for layer in self:
            values = layer(values)
            notes.append(torch.isfinite(values).all())
        finite = torch.stack(notes).all()
        self.all_finite = finite if self.all_finite is None else self.all_finite & finite
        if self.passes % READ_EVERY == 0 and not self.all_finite.item():
            raise FloatingPointError("a layer's output was not finite")
        self.passes += 1
        return values


def gradient_norms(model: torch.nn.Module) -> list[torch.Tensor]:
    return [weight.grad.norm() for weight in model.parameters()]


if __name__ == "__main__":
    train(Watched, gradient_norms)
