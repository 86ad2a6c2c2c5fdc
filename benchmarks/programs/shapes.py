"""Short trainings that use the processor's cores in five ways: `shapes.py SHAPE STEPS [--fix]`.

main: one thread computes. threads: each op is computed by as many threads as there are cores. workers: two processes
make batches. sleeping: each item waits 2 ms, as for a disk. item: each item is computed in Python. `--fix`: as many
workers make the batches as are advised on two cores.
"""

from __future__ import annotations

import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

SHAPE, STEPS, IS_FIXED = sys.argv[1], int(sys.argv[2]), "--fix" in sys.argv
BATCH = 8
WORKERS = {"workers": 2}
ADVISED = {"sleeping": 4, "item": 2}  # who sleeps needs no core


class Items(Dataset):
    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if SHAPE == "sleeping":
            time.sleep(0.002)
        if SHAPE in ("workers", "item"):
            sum(number * number for number in range(20_000))
        return torch.full((256,), float(index % 7))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)) if SHAPE == "threads" else 1)
    width, copies = (1024, 32) if SHAPE == "threads" else (512, 16 if SHAPE == "main" else 1)
    model = torch.nn.Sequential(torch.nn.Linear(256, width), torch.nn.ReLU(), torch.nn.Linear(width, width))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ends = []
    for batch in DataLoader(Items(), batch_size=BATCH, num_workers=(ADVISED if IS_FIXED else WORKERS).get(SHAPE, 0)):
        loss = model(batch.repeat(copies, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
    print(f"a step takes {(ends[-1] - ends[len(ends) // 2]) / (len(ends) - 1 - len(ends) // 2) * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
