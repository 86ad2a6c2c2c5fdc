"""A training that waits for its data: the batch is prepared in the training process, sample by sample, in Python.

    python examples/slow_input.py                       trains, prints the time of a step
    python examples/slow_input.py --trace trace.json.gz records six steps with torch.profiler

Runs on a CPU. Cured: slow_input_cured.py.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset

STEPS, SKIPPED, RECORDED = 16, 6, 6


class Sounds(Dataset[tuple[torch.Tensor, int]]):
    """Each sample is computed when it is asked for, number by number: what a careless transform does."""

    def __len__(self) -> int:
        return 4_096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        wave = [math.sin(index * 0.01 * tick) * math.exp(-tick / 512) for tick in range(1_024)]
        return torch.tensor(wave), index % 10


def loader() -> DataLoader[tuple[torch.Tensor, int]]:
    return DataLoader(Sounds(), batch_size=64)


def train(batches: DataLoader[tuple[torch.Tensor, int]], trace: str | None) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(1_024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with recording(trace) as profile:
        begun = time.perf_counter()
        for number, (waves, labels) in zip(range(STEPS), batches, strict=False):
            loss = torch.nn.functional.cross_entropy(model(waves), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if profile is not None:
                profile.step()
            now = time.perf_counter()
            print(f"step {number:2d}  loss {loss.item():.3f}  {1e3 * (now - begun):6.1f} ms", flush=True)
            begun = now


@contextlib.contextmanager
def recording(trace: str | None) -> Iterator[torch.profiler.profile | None]:
    """torch.profiler over some steady steps, written to `trace`; nothing without it."""
    if trace is None:
        yield None
        return
    schedule = torch.profiler.schedule(wait=SKIPPED - 1, warmup=1, active=RECORDED, repeat=1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        record_shapes=True,
        on_trace_ready=lambda profile: profile.export_chrome_trace(trace),
    ) as profile:
        yield profile


def trace_argument() -> str | None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--trace", metavar="FILE", help="record steady steps with torch.profiler into FILE (.json or .json.gz)"
    )
    found: str | None = parser.parse_args().trace
    return found


if __name__ == "__main__":
    train(loader(), trace_argument())
