"""What is said of a training on a GPU, whose host runs ahead of it, or waits for it on a core."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from simulated_gpu import SimulatedGpu
from watched_steps import MS, judged

from perfdoctor.watching.rows import RankSteps, per_step


def _input_share(rank: RankSteps) -> float:
    return float(np.median(per_step(rank.stretches, "wait") / per_step(rank.stretches, "sum")))


@pytest.mark.parametrize("is_hidden", [True, False])
def test_a_batch_that_is_made_while_the_gpu_works_keeps_nobody_waiting(tmp_path: Path, is_hidden: bool) -> None:
    gpu = SimulatedGpu()
    gpu.batch_ns = 10 * MS

    def step(_: int) -> None:
        next(gpu.batches)
        if is_hidden:
            gpu.item()  # as the copy of the batch waits for the step before
        gpu.launch(200, 20)
        if not is_hidden:
            gpu.item()

    rank = gpu.rank(tmp_path, step, 1500)
    assert _input_share(rank) == pytest.approx(0 if is_hidden else 10 / 30, abs=0.01)
    assert [each.kind for each in judged({0: rank})] == ([] if is_hidden else ["input"])
