"""A training in thousands of tiny pieces: a recurrent cell written by hand, called in Python for every tick of time.

    python examples/tiny_kernels.py [--steps N]

Every tick takes a dozen ops on small tensors. Each is done faster than Python can ask for the next one, so the GPU (or
the CPU's arithmetic) waits for Python. Shows on a CPU and on a GPU. Fixed: tiny_kernels_fixed.py.
"""

from __future__ import annotations

import torch
from training import Training

TICKS, BATCH, WIDTH = 96, 16, 64


class HandWritten(torch.nn.LSTM):
    """torch.nn.LSTM with its own weights and mathematics, tick by tick."""

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        output = cell = inputs.new_zeros(inputs.shape[1], self.hidden_size)
        outputs = []
        for tick in inputs:
            gates = tick @ self.weight_ih_l0.T + self.bias_ih_l0 + output @ self.weight_hh_l0.T + self.bias_hh_l0
            keep_new, keep_old, new, show = gates.chunk(4, dim=1)
            cell = torch.sigmoid(keep_old) * cell + torch.sigmoid(keep_new) * torch.tanh(new)
            output = torch.sigmoid(show) * torch.tanh(cell)
            outputs.append(output)
        return torch.stack(outputs), (output, cell)


def train(recurrent: type[torch.nn.LSTM]) -> None:
    run = Training(steps=30)
    model = recurrent(WIDTH, WIDTH).to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    inputs = torch.randn(TICKS, BATCH, WIDTH).to(run.device)
    for number in run.steps():
        outputs, _ = model(inputs)
        loss = (outputs[:-1] - inputs[1:]).square().mean()  # foretell the next tick
        run.learn(number, loss, optimizer)


if __name__ == "__main__":
    train(HandWritten)
