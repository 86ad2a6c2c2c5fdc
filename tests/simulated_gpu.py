"""A training on a simulated GPU, noted step by step by the agent's own code: a host that runs ahead, and one that waits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from watched_steps import BEGUN_NS, MS

from perfdoctor.recording.inside.in_process import agent_module
from perfdoctor.watching.rows import RankSteps

#: A launch waits while so many kernels are queued, as those of CUDA do.
_QUEUE, _LAUNCH_NS = 1024, 20_000


class SimulatedGpu:
    """Kernels run one behind the other. `now`, `used`: the host's clock, and its thread's time on a core, in ns."""

    def __init__(self) -> None:
        self.now, self.used = time.monotonic_ns(), 0  # it runs faster than the writer's clock: no step is silent
        self.idle_from = self.now
        self._ends: deque[int] = deque()
        gpu = self

        class Event:
            def __init__(self, **_: object) -> None:
                self.at = 0

            def record(self) -> None:
                self.at = max(gpu.idle_from, gpu.now)

            def query(self) -> bool:
                return self.at <= gpu.now

            def elapsed_time(self, other: Event) -> float:
                return (other.at - self.at) / MS

        class Iterator:
            def __next__(self) -> None:
                gpu.compute(gpu.batch_ns)

        self.batch_ns, self.batches = 0, Iterator()
        self.torch: Any = SimpleNamespace(
            cuda=SimpleNamespace(
                is_initialized=lambda: True, is_current_stream_capturing=lambda: False, Event=Event,
                memory_allocated=lambda: 1 << 30, memory_reserved=lambda: 1 << 30,
            ),
            utils=SimpleNamespace(data=SimpleNamespace(dataloader=SimpleNamespace(_BaseDataLoaderIter=Iterator))),
        )  # fmt: skip

    def compute(self, ns: int) -> None:
        """The host computes."""
        self.now += ns
        self.used += ns

    def sleep(self, ns: int) -> None:
        self.now += ns

    def launch(self, kernels: int, step_ms: float) -> None:
        """So many kernels, which take so long together."""
        for _ in range(kernels):
            self.compute(_LAUNCH_NS)
            while self._ends and self._ends[0] <= self.now:
                self._ends.popleft()
            if len(self._ends) >= _QUEUE:
                self.compute(self._ends.popleft() - self.now)
            self.idle_from = max(self.idle_from, self.now) + round(step_ms * MS / kernels)
            self._ends.append(self.idle_from)

    def item(self) -> None:
        """Wait for the GPU, as `loss.item()` does: the thread spins on its core."""
        self.compute(max(self.idle_from - self.now, 0))

    def rank(self, folder: Path, step: Callable[[int], None], steps: int) -> RankSteps:
        """The rank that trains so, as it is read from what the agent writes."""
        light = agent_module("light")
        noted = light.LightSteps(self.torch, lambda: self.now, lambda: self.used)
        noted.begin(0)
        path = folder / "gpu.jsonl"
        writer = light.RowWriter(str(path), noted, {"pid": 1, "begun": BEGUN_NS}, lambda: None)
        for number in range(1, steps + 1):
            step(number)
            noted.end()
            writer._take()
        noted.leave()
        writer._take(is_last=True)
        writer._flush()
        found = RankSteps(path)
        found.read()
        return found
