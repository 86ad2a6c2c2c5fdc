"""What is said of a training on a GPU, whose host runs ahead of it, or waits for it on a core."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from simulated_gpu import SimulatedGpu
from watched_steps import MS, judged, lines, noise, rank_steps

from perfdoctor.watching.document import WatchDocument, rank_now
from perfdoctor.watching.document import behind as behind_of_nodes
from perfdoctor.watching.ranks import behind
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


@pytest.mark.parametrize(("slower", "cause"), [
    ("loader", "input"), ("host sleeps", "not-input"), ("host computes", "not-input"), ("gpu", "not-input"),
])  # fmt: skip
def test_where_the_thread_spins_only_input_is_named_as_the_cause(tmp_path: Path, slower: str, cause: str) -> None:
    gpu = SimulatedGpu()

    def step(number: int) -> None:
        more = 6 * MS if number > 1500 else 0
        gpu.batch_ns = more if slower == "loader" else 0
        next(gpu.batches)
        gpu.sleep(more if slower == "host sleeps" else 0)
        gpu.compute(more if slower == "host computes" else 0)
        gpu.launch(200, 26 if more and slower == "gpu" else 20)
        gpu.item()

    said = judged({0: gpu.rank(tmp_path, step, 3000)})
    assert [(each.kind, each.cause) for each in said if each.kind == "level"] == [("level", cause)]


def test_a_gpu_that_has_work_all_the_time_is_the_cause_of_longer_steps(tmp_path: Path) -> None:
    gpu = SimulatedGpu()

    def step(number: int) -> None:
        gpu.launch(200, 20 if number <= 1500 else 24)

    (found,) = judged({0: gpu.rank(tmp_path, step, 3000)})
    assert (found.kind, found.cause) == ("level", "device")
    assert found.values["ratio"] == pytest.approx(1.2, abs=0.02)


@pytest.mark.parametrize("others", [1, 3])
def test_on_gpus_the_rank_that_waits_for_batches_keeps_others_waiting_that_spin(tmp_path: Path, others: int) -> None:
    ranks = {}
    for number in range(others + 1):
        is_slow = number == others
        wait, host = (30 * MS, 30 * MS) if is_slow else (0, 98 * MS)
        made = lines(noise(600, 100, number), wait=wait, host=host, rank=number, world_size=others + 1, device=99 * MS)
        ranks[number] = rank_steps(tmp_path, made, f"rank{number}")
    found = behind(ranks)
    assert found is not None
    assert (found.rank, found.cause) == (others, "input")
    documents = [
        WatchDocument(1, "running", 0, 0, ranks=(replace(rank_now(*each), gpu_bytes=1),)) for each in ranks.items()
    ]
    of_nodes = behind_of_nodes(documents)
    assert of_nodes is not None
    assert (of_nodes.rank, of_nodes.cause) == (others, "input")


def test_on_gpus_no_rank_is_blamed_for_its_threads_time_on_a_core(tmp_path: Path) -> None:
    ranks = {
        number: rank_steps(tmp_path, lines(noise(600, 100, number), host=host, rank=number, device=99 * MS), f"rank{number}")
        for number, host in enumerate((98 * MS, 60 * MS))
    }  # fmt: skip
    assert behind(ranks) is None


@pytest.mark.parametrize(("kernels", "step_ms", "every"), [(200, 20, 10), (20, 20, 50), (1000, 40, 10), (5, 1, 10)])
def test_a_host_that_runs_ahead_and_waits_now_and_then_makes_no_slow_steps(
    tmp_path: Path, kernels: int, step_ms: float, every: int
) -> None:
    gpu = SimulatedGpu()

    def step(number: int) -> None:
        gpu.launch(kernels, step_ms)
        if number % every == 0:
            gpu.item()  # logs the loss

    rank = gpu.rank(tmp_path, step, 2500)
    assert judged({0: rank}) == []
    assert rank.stretches[-2].q[1] == pytest.approx(step_ms * MS, rel=0.05)


@pytest.mark.parametrize(("kernels", "step_ms"), [(20, 20), (200, 20), (3, 2)])
def test_longer_and_slow_steps_are_found_where_the_host_runs_ahead(
    tmp_path: Path, kernels: int, step_ms: float
) -> None:
    gpu = SimulatedGpu()

    def step(number: int) -> None:
        gpu.launch(kernels, (1 if number < 1500 else 1.2) * step_ms)
        if number % 50 == 0:
            gpu.launch(kernels, 4 * step_ms)
        if number % 10 == 0:
            gpu.item()

    said = judged({0: gpu.rank(tmp_path, step, 4000)})
    found = {each.kind: each for each in said}
    assert set(found) == {"level", "slow-steps"}
    assert found["slow-steps"].values["every"] == 50
    assert found["level"].values["ratio"] == pytest.approx(1.2, abs=0.02)
    assert abs(found["level"].step - 1500) <= 50


def test_a_stretch_whose_steps_the_gpu_has_not_passed_yet_is_no_change_of_the_level(tmp_path: Path) -> None:
    made = [json.loads(line) for line in lines(noise(6000, 20), device=20 * MS)]
    for number, each in enumerate(each for each in made if "q" in each):
        each["by_gpu"] = number % 12 < 9
        each["q"] = each["q"] if each["by_gpu"] else [2 * ns for ns in each["q"]]
    assert judged({0: rank_steps(tmp_path, [json.dumps(each) for each in made])}) == []
