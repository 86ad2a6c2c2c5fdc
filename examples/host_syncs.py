"""A training that keeps asking the GPU how it is: many `.item()` in every step, each waiting until the queue is empty.

    python examples/host_syncs.py [--steps N]

The GPU works through a queue that the host fills. `.item()`, `.cpu()`, `nonzero()` and `if tensor:` make the host wait
for the result; by then the queue is empty, and the GPU waits for the host in turn. A CPU cannot show it: there, the
result is at hand when the op returns, and slow and fixed take the same time. Fixed: host_syncs_fixed.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from training import Training

LAYERS = 16


class Watched(torch.nn.Sequential):
    """Looks at the output of every layer: is it still finite?"""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for layer in self:
            values = layer(values)
            if not torch.isfinite(values).all().item():
                raise FloatingPointError("a layer's output is not finite")
        return values


def gradient_norms(model: torch.nn.Module) -> list[float]:
    return [weight.grad.norm().item() for weight in model.parameters()]


def train(
    network: type[torch.nn.Sequential], norms_of: Callable[[torch.nn.Module], list[float] | list[torch.Tensor]]
) -> None:
    run = Training(steps=30)
    width, batch = (2_048, 4_096) if run.on_gpu else (256, 128)
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = network(*layers).to(run.device, run.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, wanted = torch.randn(2, batch, width).to(run.device, run.dtype)
    for number in run.steps():
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norms = norms_of(model)
        optimizer.step()
        run.show(number, loss)
        if number % 10 == 0:
            print(f"          largest gradient {max(float(norm) for norm in norms):.4f}", flush=True)


if __name__ == "__main__":
    train(Watched, gradient_norms)
