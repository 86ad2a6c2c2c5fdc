"""What would workers make of a step: held against trainings that were measured with and without them."""

from __future__ import annotations

import pytest

from perfdoctor.hardware.worker_batch import TYPICAL, BatchCost, WorkerBatch
from perfdoctor.metrics.host.loader_workers import Batch, Cores, Feeding, with_workers

MS = 1e6
#: Two cores, and torch computes with both, or with one.
BUSY, ONE_FREE = Cores(2, 0.1, 1.9, 2), Cores(2, 1.0, 1.0, 1)
FREE = WorkerBatch(BatchCost(0, 0, 0), BatchCost(0, 0, 0), 0, is_measured=True)

#: Trainings on two cores without a GPU, their step, the part of it in which a batch is made, its bytes, the share of that
#: in which no core was used, and the step that was measured with one or two workers (four and five, where samples sleep); ms.
MEASURED = [
    ("tensors in memory, one by one", 2.4, 0.3, 50_432, 0.0, BUSY, 4.1),
    ("the same, 1,024 a batch", 21.9, 3.5, 3_219_456, 0.0, BUSY, 27.3),
    ("images with NumPy transforms", 12.8, 7.3, 1_573_120, 0.0, BUSY, 16.0),
    ("samples made in Python", 6.0, 2.2, 38_528, 0.0, BUSY, 7.6),
    ("the same, and torch has one thread", 8.1, 2.3, 38_528, 0.0, ONE_FREE, 7.15),
    ("samples made in Python, and hardly a training", 13.8, 13.2, 256_256, 0.0, BUSY, 13.8),
    ("samples that wait for something else", 41.3, 33.8, 38_528, 0.97, Cores(2, 1.6, 0.37, 2), 8.8),
]


@pytest.mark.parametrize(("name", "step", "wait", "size", "io", "cores", "measured"), MEASURED)
def test_a_step_with_workers_is_predicted_as_it_was_measured(name, step, wait, size, io, cores, measured):
    feeding = Feeding(step * MS, wait * MS, 0, io, pins=False)
    found = with_workers(feeding, Batch(2, size), TYPICAL, cores)
    assert found.likely_ns / MS == pytest.approx(measured, rel=0.2)
    # Would they win anything? That decides whether they are advised.
    assert (found.likely_ns < 0.97 * step * MS) == (measured < 0.97 * step), name


def test_workers_with_cores_of_their_own_leave_what_receiving_costs():
    found = with_workers(Feeding(100 * MS, 60 * MS, pins=False), Batch(4, 1_000_000), TYPICAL, Cores(16, 15, 1, 1))
    receive = 0.7 + 4 * 0.17 + 0.6  # a batch, its tensors, its bytes
    assert found.receive_ns / MS == pytest.approx(receive)
    assert found.likely_ns / MS == pytest.approx(40 + receive)
    assert found.workers == 2  # 60 ms and the sending, in steps of 42
    assert not found.crowded


def test_a_thread_that_pins_batches_leaves_the_training_a_wake_up():
    found = with_workers(Feeding(100 * MS, 60 * MS), Batch(4, 50_000_000), TYPICAL, Cores(16, 15, 1, 1))
    assert found.receive_ns == 0.1 * MS


@pytest.mark.parametrize(("count", "workers", "step"), [(16, 9, 10), (6, 5, 18), (3, 2, 45)])
def test_no_more_workers_than_cores_that_are_free_and_they_set_the_pace(count, workers, step):
    found = with_workers(Feeding(100 * MS, 90 * MS), Batch(), FREE, Cores(count, count - 1, 1, 1))
    assert (found.workers, found.likely_ns) == (workers, step * MS)


def test_cores_that_other_programs_use_are_not_free():
    alone = with_workers(Feeding(100 * MS, 90 * MS), Batch(), FREE, Cores(8, 7, 1, 1))
    shared = with_workers(Feeding(100 * MS, 90 * MS), Batch(), FREE, Cores(8, 3, 1, 1))
    assert (alone.workers, shared.workers) == (7, 3)


def test_where_cores_are_not_known_a_batch_alone_says_how_many_workers():
    assert with_workers(Feeding(100 * MS, 90 * MS), Batch(), FREE, Cores()).workers == 9


def test_more_workers_help_only_where_a_core_is_idle():
    more = with_workers(Feeding(50 * MS, 30 * MS, workers=2), Batch(), FREE, Cores(8, 4, 1, 1))
    none = with_workers(Feeding(50 * MS, 30 * MS, workers=2), Batch(), FREE, Cores(2, 0, 0.5, 2))
    # Two workers make a batch in 50 ms, so one takes 100 ms of theirs: five keep up with steps of 20 ms.
    assert (more.workers, more.likely_ns, more.crowded) == (5, 20 * MS, False)
    assert (none.likely_ns, none.crowded) == (50 * MS, True)


@pytest.mark.parametrize(
    "cores", [Cores(), BUSY, ONE_FREE, Cores(1, 0, 1, 1), Cores(64, 60, 2, 1), Cores(0.5, 0, 0.5, 1)]
)
@pytest.mark.parametrize("workers", [0, 1, 8])
@pytest.mark.parametrize(("step", "wait"), [(0, 0), (1, 1), (10 * MS, 0), (10 * MS, 10 * MS), (10 * MS, 9 * MS)])
def test_no_step_is_shorter_than_what_is_left_of_it(cores, workers, step, wait):
    found = with_workers(Feeding(step, wait, workers, 1.0), Batch(0, 0), TYPICAL, cores)
    assert found.workers >= 1
    assert found.likely_ns >= step - wait
