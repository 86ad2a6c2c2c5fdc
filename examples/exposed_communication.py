"""A training on several GPUs that talks after it has computed: gradients are averaged one by one when all are there.

    torchrun --nproc-per-node 2 examples/exposed_communication.py [--steps N]

While gradients travel nothing is computed, and every tensor pays the way there and back alone. NCCL where each process
has a GPU, else gloo on the CPU, which shows it as well. Started with plain `python` there is one process, and nothing
to communicate. Fixed: exposed_communication_fixed.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed
from training import Training


def average_gradients(model: torch.nn.Module, ranks: int) -> None:
    for weight in model.parameters():
        torch.distributed.all_reduce(weight.grad)
        weight.grad /= ranks


def as_it_is(model: torch.nn.Module, _: torch.device) -> torch.nn.Module:
    return model


def nothing_left_to_do(_: torch.nn.Module, __: int) -> None:
    pass


def train(
    wrap: Callable[[torch.nn.Module, torch.device], torch.nn.Module],
    after_backward: Callable[[torch.nn.Module, int], None],
) -> None:
    run = Training(steps=30)
    if run.ranks == 1:
        print("One process: nothing to communicate. Start it with torchrun --nproc-per-node 2", flush=True)
        wrap, after_backward = as_it_is, nothing_left_to_do
    else:
        torch.distributed.init_process_group("nccl" if run.on_gpu else "gloo")
    _learn(run, wrap, after_backward)
    if run.ranks > 1:
        # The model is gone by now: torch can wait forever for gloo's threads where it frees the last of a group with it.
        torch.distributed.destroy_process_group()


def _learn(
    run: Training,
    wrap: Callable[[torch.nn.Module, torch.device], torch.nn.Module],
    after_backward: Callable[[torch.nn.Module, int], None],
) -> None:
    width, batch, depth = (4_096, 2_048, 8) if run.on_gpu else (256, 128, 32)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = wrap(torch.nn.Sequential(*layers).to(run.device, run.dtype), run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(run.rank)  # the same weights, but each rank has its own part of the batch
    inputs, wanted = torch.randn(2, batch, width).to(run.device, run.dtype)
    for number in run.steps():
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        after_backward(model, run.ranks)
        optimizer.step()
        run.show(number, loss)


if __name__ == "__main__":
    train(as_it_is, average_gradients)
