"""Which DataLoaders feed the recorded steps, what does a batch hold, and what makes it?

While steps are recorded the iterators' `__next__` counts batches, and the tensors in the first one. Behind the steps
only numbers are kept.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from typing import Any

from perfdoctor_agent import private

#: A structure with more is not looked through to its end.
_MOST_PARTS = 10_000
#: A program makes a few loaders, but an iterator of each for every epoch.
_MOST_ITERATORS = 64


class Source:
    """What makes the batches of an iterator: its dataset, the function that collates, and the sampler of indices."""

    def __init__(self, iterator: Any, *, is_on_device: bool) -> None:
        self.dataset, self.collate, self.sampler = iterator._dataset, iterator._collate_fn, iterator._index_sampler
        self.is_collated, self.is_on_device = bool(iterator._auto_collation), is_on_device

    def batch(self, index: Any) -> Any:
        """Make a batch, as torch does (torch/utils/data/_utils/fetch.py)."""
        if not self.is_collated:
            return self.collate(self.dataset[index])
        at_once = getattr(self.dataset, "__getitems__", None)
        return self.collate(at_once(index) if at_once else [self.dataset[each] for each in index])


class LoaderWatch:
    """Keeps in `facts` a row for each iterator that gave a batch; `epoch` is how many it gives, 0 if unknown.

    `waited_ns`: how long all were in `__next__`. `sources`: until they are taken, what makes the batches of each row of
    `facts`; None for a dataset without items.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.facts: list[dict[str, int]] = []
        self.waited_ns = 0
        self.sources: list[Source | None] = []
        # Iterators are not kept alive: their workers end with them.
        self._known: Any = weakref.WeakKeyDictionary()
        self._undo: Any = None

    def install(self) -> None:
        base = private.find(self.torch, private.LOADER_ITERATOR)
        if base is None:
            return
        original, seen = base.__next__, self._seen

        def __next__(iterator: Any) -> Any:  # noqa: N807 in the place of torch's
            begun = time.perf_counter_ns()
            batch = original(iterator)
            self.waited_ns += time.perf_counter_ns() - begun
            seen(iterator, batch)
            return batch

        self._undo = private.replace(base, "__next__", __next__)

    def remove(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None

    def _seen(self, iterator: Any, batch: Any) -> None:
        try:
            facts = self._known.get(iterator)
            if facts is not None:
                facts["batches"] += 1
            elif self._undo is not None and len(self.facts) < _MOST_ITERATORS:
                self._known[iterator] = facts = {"batches": 1, "workers": int(iterator._num_workers), "epoch": 0}
                self.facts.append(facts)
                self.sources.append(None)
                held = list(tensors_in(self.torch.Tensor, batch))
                facts["tensors"], facts["bytes"] = len(held), sum(each.numel() * each.element_size() for each in held)
                self.sources[-1] = self._source(iterator, held)
                facts["epoch"] = len(iterator)  # a dataset without a length raises
        except Exception:
            pass

    def _source(self, iterator: Any, held: list[Any]) -> Source | None:
        try:
            if isinstance(iterator._dataset, self.torch.utils.data.IterableDataset):
                return None
            return Source(iterator, is_on_device=any(each.is_cuda for each in held))
        except Exception:  # a loader of another kind
            return None

    def take_source(self) -> Source | None:
        """What made most of the batches; from now on nothing of it is kept."""
        pairs, self.sources = list(zip(self.facts, self.sources)), []
        return max(pairs, key=lambda each: each[0]["batches"])[1] if pairs else None


def tensors_in(tensor: Any, batch: Any) -> Iterator[Any]:
    """Yield the tensors in a structure; `tensor` is torch's class."""
    parts, known = [batch], set()
    while parts and len(known) < _MOST_PARTS:
        part = parts.pop()
        if id(part) in known:  # a structure may hold itself
            continue
        known.add(id(part))
        if isinstance(part, tensor):
            yield part
        elif isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, (list, tuple)):
            parts += part
        elif hasattr(part, "__dict__"):  # a batch of a class of its own
            parts += vars(part).values()
