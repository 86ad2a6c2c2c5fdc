"""What the agent notes of the loaders that feed the recorded steps, and that it leaves torch as it was."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent.loaders import LoaderWatch

sys.path.remove(str(Path(torch_profiler.AGENT)))


class Tensor:
    """As torch's, in what is read of it."""

    def __init__(self, count: int, of_bytes: int = 4) -> None:
        self.numel, self.element_size = lambda: count, lambda: of_bytes


class Iterator:
    """As torch's: it has `__next__`, its workers, and a length if its sampler has one."""

    def __init__(self, batches, workers=0, length=None):
        self.batches, self._num_workers, self.length = iter(batches), workers, length

    def __next__(self):
        return next(self.batches)

    def __len__(self):
        if self.length is None:
            raise TypeError("no length")
        return self.length


NEXT = Iterator.__next__
Own = type("Own", (), {})


class Sample(NamedTuple):
    image: object
    target: object


@pytest.fixture
def watch():
    data = SimpleNamespace(dataloader=SimpleNamespace(_BaseDataLoaderIter=Iterator))
    found = LoaderWatch(SimpleNamespace(Tensor=Tensor, utils=SimpleNamespace(data=data)))
    found.install()
    yield found
    found.remove()
    assert Iterator.__next__ is NEXT


def test_it_counts_batches_tensors_and_bytes(watch):
    batches = Iterator([(Tensor(100), Tensor(10, 8)), (Tensor(1), Tensor(1))], workers=3, length=20)
    assert len([next(batches), next(batches)]) == 2
    assert watch.facts == [{"batches": 2, "workers": 3, "epoch": 20, "tensors": 2, "bytes": 480}]


@pytest.mark.parametrize(
    "batch",
    [
        {"image": Tensor(5), "target": [Tensor(5), "name"]},
        Sample(Tensor(5), {"more": (Tensor(5),)}),
        [1, None, [Tensor(10)], "text"],
    ],
)
def test_it_looks_into_structures(watch, batch):
    next(Iterator([batch], length=1))
    assert watch.facts[0]["bytes"] == 40


def test_it_looks_into_a_batch_of_a_class_of_its_own(watch):
    batch = Own()
    batch.x, batch.itself = Tensor(5), batch
    next(Iterator([batch], length=1))
    assert watch.facts[0]["tensors"] == 1


def test_the_programs_own_end_and_errors_reach_it(watch):
    with pytest.raises(StopIteration):
        next(Iterator([]))
    assert watch.facts == []


def test_what_cannot_be_looked_through_disturbs_nothing(watch):
    class Broken(Tensor):
        def __init__(self):
            self.numel = lambda: 1 / 0

    broken = Broken()
    assert next(Iterator([broken], length=2)) is broken
    assert next(Iterator([Tensor(1)])) is not None  # without a length
    assert [set(each) for each in watch.facts] == [
        {"batches", "workers", "epoch"},
        {"batches", "workers", "epoch", "tensors", "bytes"},
    ]


def test_iterators_and_batches_are_not_kept_alive(watch):
    """Workers end with their iterator."""
    batch = [Tensor(1)]
    iterator = Iterator([batch], length=1)
    next(iterator)
    gone = weakref.ref(iterator), weakref.ref(batch[0])
    del iterator, batch
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_whoever_replaced_it_since_keeps_its_place(watch):
    ours = Iterator.__next__
    Iterator.__next__ = lambda self: ours(self)  # noqa: PLW0108 another wrapper
    watch.remove()
    assert Iterator.__next__ is not NEXT
    assert next(Iterator([1])) == 1
    assert watch.facts == []
    Iterator.__next__ = NEXT
