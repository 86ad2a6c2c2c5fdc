"""Does the training process collect its batches item by item from tensors in memory, and what would one gather cost?

```
item by item   __next__ │ select select │ select select │ … n times … │ stack (cat) │ stack (cat) │
at once        __next__ │ index │ index │
```
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.host.batch_items import targets_per_step
from perfdoctor.metrics.units import us
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import outermost, when_open
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Frame, Ints
from perfdoctor.records.findings import Value
from perfdoctor.vocabulary.names import loaders as loader_names
from perfdoctor.vocabulary.names import torch as torch_names

#: A tensor is indexed with a list of integers, each of which becomes an element of a tensor of indices: 57 µs for 512
#: (PyTorch 2.13 with Python 3.11 on an AMD EPYC, median of 300).
LIST_ELEMENT_NS = 110
#: From one op of an item to the next, and from one item to the next, Python takes 1-3 µs. What is more is other work.
USUAL_GAP_NS = 4_000


class ItemFetch(Struct, frozen=True):
    """A batch that is collected from `items`, with `ops_per_item` ops each, of which `name` is the most frequent.

    Ns of the usual batch, the median of each: `fetch_ns` in all, of which `collate_ns` stacks the items; `at_once_ns`:
    where it is indexed at once. A thread that is preempted in one of a thousand ops makes a mean longer, and most of
    all that of the few ops that stay.
    """

    name: str
    items: int
    ops_per_item: float
    fetch_ns: float
    collate_ns: float
    at_once_ns: float

    @property
    def op_ns(self) -> float:
        """The time of each op of an item, with the Python around it."""
        return (self.fetch_ns - self.collate_ns) / (self.items * self.ops_per_item)

    @property
    def won_share(self) -> float:
        """The share of the fetch that is won by indexing the batch at once (0-1)."""
        return max(1 - self.at_once_ns / self.fetch_ns, 0.0)

    def item_values(self) -> dict[str, Value]:
        """The numbers in sentences about it."""
        return {
            "op": self.name,
            "items": self.items,
            "ops_per_item": round(self.ops_per_item),
            "at_once_us": us(self.at_once_ns),
        }


@once_per_place
def item_fetch(place: Place) -> ItemFetch | None:
    """How the process collects its batches; None where it makes none, or no items that are views were recorded."""
    fetches = when_open(place.timeline, place.rank, loader_names.SINGLE_PROCESS, "ranges", "ops")
    whole = place.window.overlap_ns(fetches.starts, fetches.ends) == fetches.durations_ns
    fetches = Intervals.of(fetches.starts[whole], fetches.ends[whole])
    rows = place.timeline.ops.of(rank=place.rank)
    inside = fetches.overlap_ns(rows.start_ns, rows.end_ns) == rows.duration_ns
    # Some recordings have the fetch itself as an op.
    rows = rows.take(inside & (rows.duration_ns > 0) & ~rows.name.matches(loader_names.SINGLE_PROCESS))
    outer = outermost(rows)
    collates = outer.name.matches(torch_names.COLLATES)
    of_items, collating = outer.take(~collates), outer.take(collates)
    tensors = round(len(collating) / max(len(fetches), 1))
    views = _views(of_items, fetches)
    items = _items(place, list(views.values()), tensors)
    if not items:
        return None
    ops_per_item = len(of_items) / (items * len(fetches))
    computing = ops_per_item * float(np.mean(~of_items.name.matches(torch_names.VIEWS_ITEM)))
    # The rows are read and written once, as stacking them does, and again by each op that computes.
    copied_ns = _usual_ns(rows.named(torch_names.CONCATENATES), fetches) * (1 + computing / tensors)
    return ItemFetch(
        max(views, key=lambda name: views[name]),
        items,
        ops_per_item,
        float(np.median(fetches.durations_ns)),
        _usual_ns(collating, fetches),
        copied_ns + tensors * items * LIST_ELEMENT_NS + _python_ns(outer, fetches),
    )


def _usual_ns(rows: Frame, fetches: Intervals) -> float:
    """The ns of the usual fetch that these rows take."""
    return _median_of_fetches(_fetch_of(rows.start_ns, fetches), rows.duration_ns, fetches)


def _median_of_fetches(fetch: Ints, each_ns: Ints, fetches: Intervals) -> float:
    """The median over all fetches of the sum of `each_ns`; `fetch` is the number of the fetch of each."""
    return float(np.median(np.bincount(fetch, weights=each_ns, minlength=len(fetches))))


def _fetch_of(moments: Ints, fetches: Intervals) -> Ints:
    """The number of the fetch in which each moment lies."""
    return np.searchsorted(fetches.starts, moments, side="right") - 1


def _python_ns(ops: Frame, fetches: Intervals) -> float:
    """The ns of Python in the usual fetch beyond calling the next op: the dataset's own, which stays."""
    fetch = _fetch_of(ops.start_ns, fetches)
    of_item = ~ops.name.matches(torch_names.COLLATES)
    between = (fetch[1:] == fetch[:-1]) & of_item[1:] & of_item[:-1]
    gaps = (ops.start_ns[1:] - ops.end_ns[:-1])[between]
    return _median_of_fetches(fetch[1:][between], np.maximum(gaps - USUAL_GAP_NS, 0), fetches)


def _views(ops: Frame, fetches: Intervals) -> dict[str, int]:
    """How many views of each name, which items are, the usual fetch has; names of which it has none are left out."""
    views = ops.named(torch_names.VIEWS_ITEM)
    fetch, usual = _fetch_of(views.start_ns, fetches), {}
    for code in np.unique(views.name.codes).tolist():
        each = np.bincount(fetch[views.name.codes == code], minlength=len(fetches))
        if count := int(np.median(each)):
            usual[views.name.values[code]] = count
    return usual


def _items(place: Place, views: list[int], tensors: int) -> int:
    """How many items a batch has: the targets of the loss, where every item has equally many views; else one view a
    tensor. 0 where neither fits.

    Items of more views have equally many of each name: then it is the largest number that divides all.
    """
    if not tensors or not views:
        return 0
    most = math.gcd(*views)
    targets = targets_per_step(place)
    for items in (targets, sum(views) / tensors, most):
        if items and items > 1 and most % items == 0:
            return round(items)
    return 0
