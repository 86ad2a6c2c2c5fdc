"""How many items is a batch collected from, and where is that not known?"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from builders import BASE_NS, only_place, timeline

from perfdoctor.metrics.host.item_fetch import item_fetch

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
STEP_NS, OP_NS = 100_000, 1_000


def fetched(*names: str, steps: int = 4):
    """Each step fetches a batch, in which ops of these names run, and then computes."""
    ops, ranges = [], []
    for step in range(steps):
        begin = BASE_NS + step * STEP_NS
        ranges += [
            {"start_ns": begin, "end_ns": begin + STEP_NS, "name": f"ProfilerStep#{step}"},
            {"start_ns": begin, "end_ns": begin + (len(names) + 1) * OP_NS, "name": FETCH},
        ]
        starts = range(begin + 100, begin + 100 + len(names) * OP_NS, OP_NS)
        ops += [
            {"start_ns": at, "end_ns": at + OP_NS // 2, "name": each} for at, each in zip(starts, names, strict=True)
        ]
        ops.append({"start_ns": begin + STEP_NS // 2, "end_ns": begin + STEP_NS, "name": "aten::mm"})
    return item_fetch(only_place(timeline(ops=ops, ranges=ranges)))


def views(select: int, narrow: int = 0, *, tensors: int = 1) -> Sequence[str]:
    return ["aten::select"] * select + ["aten::narrow"] * narrow + ["aten::stack"] * tensors


@pytest.mark.parametrize(
    ("names", "items", "ops_per_item"), [(views(6), 6, 1), (views(8, tensors=2), 4, 2), (views(6, 6), 6, 2)]
)
def test_each_item_has_equally_many_views(names, items, ops_per_item):
    found = fetched(*names)
    assert (found.name, found.items, found.ops_per_item) == ("aten::select", items, ops_per_item)


@pytest.mark.parametrize(
    "names",
    [views(7, 3), views(0), views(6, tensors=0), views(1)],
    ids=["no whole number", "no view", "no batch", "one"],
)
def test_where_no_number_of_items_fits_nothing_is_said(names):
    assert fetched(*names) is None
