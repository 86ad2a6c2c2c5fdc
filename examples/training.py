"""What all examples share: the command line, the device, the clock, and the end of a step.

    run = Training(steps=30)
    for number in run.steps():
        loss = ...
        run.learn(number, loss, optimizer)

Every example trains on a GPU where torch finds one, else on one core of the CPU, and ends with `median step 12.34 ms`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator

import torch

#: Steps before the clock starts: memory is allocated, libraries pick their kernels, worker processes start.
WARM_UP = 5
#: Steps that --trace leaves out, and steps that it records.
SKIPPED, RECORDED = 6, 6


class Training:
    """One run of an example: where it trains, for how long, and how long a step took."""

    def __init__(self, *, steps: int) -> None:
        self.count, self.trace = _arguments(steps)
        self.rank, self.ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.device = _device()
        #: What a GPU computes with where the example is not about precision.
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        torch.set_num_threads(1)
        torch.manual_seed(0)

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def steps(self, rhythm: int = 1) -> Iterator[int]:
        """The numbers of the steps. `rhythm`: so many steps are timed as one, where not each does the same."""
        warm_up = min(WARM_UP, max(self.count - rhythm, 0))
        begun = []
        with _recording(self.trace if self.rank == 0 else None, self.on_gpu) as profile:
            for number in range(self.count):
                if number == warm_up:
                    self._drain()
                begun.append(time.perf_counter())
                yield number
                if profile is not None:
                    profile.step()
            self._drain()
            begun.append(time.perf_counter())
        if self.rank == 0:
            print(f"median step {1e3 * self._step_seconds(begun[warm_up:], rhythm):.2f} ms", flush=True)

    def learn(self, number: int, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        """The end of a step: gradients, the update of the parameters, and the loss now and then."""
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        self.show(number, loss)

    def show(self, number: int, loss: torch.Tensor) -> None:
        """Print a line at every tenth step: reading the loss makes the host wait for the GPU."""
        if number % 10 == 0 and self.rank == 0:
            print(f"step {number:3d}  loss {loss.item():.4f}", flush=True)

    def _drain(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def _step_seconds(self, begun: list[float], rhythm: int) -> float:
        if self.on_gpu:  # the host runs ahead, and to stop it at every step would make another training of it
            return (begun[-1] - begun[0]) / (len(begun) - 1)
        unit = min(rhythm, len(begun) - 1)
        return statistics.median(after - before for before, after in itertools.pairwise(begun[::unit])) / unit


def _arguments(steps: int) -> tuple[int, str | None]:
    parser = argparse.ArgumentParser(
        description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", metavar="N", type=int, default=steps, help=f"how long to train (default: {steps})")
    parser.add_argument(
        "--trace", metavar="FILE", help="record steady steps with torch.profiler into FILE (.json or .json.gz)"
    )
    given = parser.parse_args()
    if given.steps < 1:
        parser.error("--steps: at least 1")
    return given.steps, given.trace


def _device() -> torch.device:
    """A GPU for each process of this machine, or the CPU for all."""
    if torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1")):
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


@contextlib.contextmanager
def _recording(trace: str | None, on_gpu: bool) -> Iterator[torch.profiler.profile | None]:
    """torch.profiler over some steady steps, written to `trace`; nothing without it."""
    if trace is None:
        yield None
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(
        activities=activities,
        schedule=torch.profiler.schedule(wait=SKIPPED - 1, warmup=1, active=RECORDED, repeat=1),
        record_shapes=True,
        on_trace_ready=lambda profile: profile.export_chrome_trace(trace),
    ) as profile:
        yield profile
