"""What would workers make of a step: held against trainings that were measured with and without them."""

from __future__ import annotations

import math

import pytest

from perfdoctor.hardware.worker_batch import TYPICAL
from perfdoctor.metrics.host.loader_workers import Cores, Feeding, Supply, with_workers

MS = 1e6
#: Two cores, and torch computes with both, or with one.
BUSY, ONE_FREE = Cores(2, 0.1, 1.9, 2), Cores(2, 1.0, 1.0, 1)


def supply(work: float, cpu: float | None = None, receive: float = 0.0, most: float | None = None, **more) -> Supply:
    """In ms; a worker computes all the time, and receiving takes no longer than it is said to."""
    return Supply(
        work * MS,
        (work if cpu is None else cpu) * MS,
        receive * MS,
        (receive if most is None else most) * MS,
        **more,
    )


#: Trainings on two cores without a GPU, their step, the part of it in which a batch is made, its bytes, the share of that
#: in which no core was used, and the step that was measured with one or two workers (four and five, where samples sleep); ms.
MEASURED = [
    ("tensors in memory, one by one", 2.4, 0.3, 50_432, 0.0, BUSY, 4.1),
    ("the same, 1,024 a batch", 21.9, 3.5, 3_219_456, 0.0, BUSY, 27.3),
    ("images with NumPy transforms", 12.8, 7.3, 1_573_120, 0.0, BUSY, 16.0),
    ("samples made in Python", 6.0, 2.2, 38_528, 0.0, BUSY, 7.6),
    ("the same, and torch has one thread", 8.1, 2.3, 38_528, 0.0, ONE_FREE, 7.15),
    ("samples that wait for something else", 41.3, 33.8, 38_528, 0.97, Cores(2, 1.6, 0.37, 2), 8.8),
]


@pytest.mark.parametrize(("name", "step", "wait", "size", "io", "cores", "measured"), MEASURED)
def test_a_step_with_workers_is_predicted_as_it_was_measured(name, step, wait, size, io, cores, measured):
    send, receive, computed = TYPICAL.send.ns(2, size) / MS, TYPICAL.receive.ns(2, size) / MS, (1 - io) * wait
    feeding = Feeding(step * MS, wait * MS, 0, computed * MS)
    found = with_workers(feeding, supply(wait + send, computed + send, receive), cores)
    assert found.likely_ns / MS == pytest.approx(measured, rel=0.2)
    # Would they win anything? That decides whether they are advised.
    assert (found.likely_ns < 0.97 * step * MS) == (measured < 0.97 * step), name


def test_workers_with_cores_of_their_own_leave_what_receiving_costs():
    found = with_workers(Feeding(100 * MS, 60 * MS), supply(61, receive=2, most=6), Cores(16, 15, 1, 1))
    assert (found.likely_ns, found.worst_ns, found.best_ns) == (42 * MS, 46 * MS, 42 * MS)
    assert found.workers == 2  # 61 ms in steps of 42
    assert not found.crowded


MAKES_ITSELF = Feeding(100 * MS, 90 * MS, 0, 90 * MS)


@pytest.mark.parametrize(("count", "workers", "step"), [(16, 9, 10), (6, 6, 100 / 6), (3, 3, 100 / 3)])
def test_a_training_with_one_thread_and_its_workers_share_the_cores(count, workers, step):
    found = with_workers(MAKES_ITSELF, supply(90), Cores(count, count - 1, 1, 1))
    assert (found.workers, found.likely_ns) == (workers, pytest.approx(step * MS))


@pytest.mark.parametrize(("count", "workers", "step"), [(16, 9, 10), (6, 4, 22.5), (3, 1, 90)])
def test_of_cores_on_which_torch_computes_workers_get_those_that_are_left(count, workers, step):
    found = with_workers(MAKES_ITSELF, supply(90), Cores(count, count - 1.1, 1.1, 2))
    assert (found.workers, found.likely_ns) == (workers, pytest.approx(step * MS))


def test_cores_that_other_programs_use_are_not_free():
    alone = with_workers(MAKES_ITSELF, supply(90), Cores(8, 7, 1, 1))
    shared = with_workers(MAKES_ITSELF, supply(90), Cores(8, 3, 1, 1))
    assert alone.likely_ns < shared.likely_ns


def test_where_cores_are_not_known_a_batch_alone_says_how_many_workers():
    assert with_workers(Feeding(100 * MS, 90 * MS), supply(90), Cores()).workers == 9


def test_more_workers_help_only_where_a_core_is_idle():
    fed = Feeding(50 * MS, 30 * MS, workers=2)  # two workers make a batch in 50 ms, so one takes 100 ms of theirs
    more, none = (with_workers(fed, supply(100), cores) for cores in (Cores(8, 5, 1, 1), Cores(2, 0, 0.5, 2)))
    assert (more.workers, more.likely_ns, more.crowded) == (5, 20 * MS, False)
    assert none.likely_ns >= 50 * MS


def test_workers_that_sleep_need_no_cores_of_their_own():
    """A batch takes 48 ms, in which 2 are computed, and torch computes on both cores."""
    found = with_workers(Feeding(50 * MS, 48 * MS, 0, 2 * MS), supply(48, 2, receive=1), Cores(2, 1.6, 0.2, 2))
    assert found.likely_ns < 8 * MS
    assert found.worst_ns < 25 * MS


def test_what_was_tried_counts_more_than_what_one_worker_shows():
    """Of a disk that two readers keep busy four get no more."""
    paces = {1: 20 * MS, 2: 11 * MS, 4: 10.8 * MS}
    found = with_workers(Feeding(25 * MS, 20 * MS), supply(20, 1, paces=paces), Cores(16, 15, 1, 1))
    assert (found.workers, found.likely_ns) == (2, 11 * MS)
    less = with_workers(Feeding(25 * MS, 20 * MS), supply(20, 1, paces={1: 20 * MS}), Cores(16, 15, 1, 1))
    assert (less.workers, less.likely_ns) == (4, 5 * MS)


def test_workers_that_are_slower_than_the_training_itself_win_nothing():
    """Many small tensors: a batch takes 4 ms to make, and 12 to get from a worker, of two or four no less."""
    paces = {1: 12 * MS, 2: 11 * MS, 4: 13 * MS}
    found = with_workers(Feeding(9 * MS, 4 * MS), supply(12, 10, receive=6, paces=paces), Cores(8, 7, 1, 1))
    assert found.likely_ns >= 11 * MS


def test_the_first_batch_of_each_epoch_is_waited_for():
    fed, cores = Feeding(50 * MS, 40 * MS, epoch=10), Cores(16, 15, 1, 1)
    found = with_workers(fed, supply(40), cores)
    assert found.likely_ns == pytest.approx((10 + (40 - 10) / 10) * MS)


def test_slow_batches_need_others_to_be_ready():
    uneven = with_workers(Feeding(50 * MS, 40 * MS), supply(40, slowest_ns=200 * MS), Cores(16, 15, 1, 1))
    even = with_workers(Feeding(50 * MS, 40 * MS), supply(40, slowest_ns=41 * MS), Cores(16, 15, 1, 1))
    assert (uneven.prefetch, even.prefetch) == (6, 3)


@pytest.mark.parametrize(
    "cores", [Cores(), BUSY, ONE_FREE, Cores(1, 0, 1, 1), Cores(64, 60, 2, 1), Cores(0.5, 0, 0.5, 1)]
)
@pytest.mark.parametrize("workers", [0, 1, 8])
@pytest.mark.parametrize(("step", "wait"), [(0, 0), (1, 1), (10 * MS, 0), (10 * MS, 10 * MS), (10 * MS, 9 * MS)])
def test_no_step_is_shorter_than_what_is_left_of_it(cores, workers, step, wait):
    work = (workers * step or wait) / MS
    found = with_workers(Feeding(step, wait, workers), supply(work, receive=0.1, most=0.3), cores)
    assert found.workers >= 1
    assert math.isfinite(found.worst_ns)
    assert step - wait <= found.best_ns <= found.likely_ns <= found.worst_ns
