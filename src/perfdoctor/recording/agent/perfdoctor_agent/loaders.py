"""Which DataLoaders feed the recorded steps, and what does a batch hold?

While steps are recorded the iterators' `__next__` counts batches, and the tensors in the first one. Only numbers are
kept.
"""

from __future__ import annotations

import weakref
from typing import Any

from perfdoctor_agent import private

#: A structure with more is not looked through to its end.
_MOST_PARTS = 10_000
#: A program makes a few loaders, but an iterator of each for every epoch.
_MOST_ITERATORS = 64


class LoaderWatch:
    """Keeps in `facts` a row for each iterator that gave a batch; `epoch` is how many it gives, 0 if unknown."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.facts: list[dict[str, int]] = []
        # Iterators are not kept alive: their workers end with them.
        self._known: Any = weakref.WeakKeyDictionary()
        self._undo: Any = None

    def install(self) -> None:
        base = private.find(self.torch, private.LOADER_ITERATOR)
        if base is None:
            return
        original, seen = base.__next__, self._seen

        def __next__(iterator: Any) -> Any:  # noqa: N807 in the place of torch's
            batch = original(iterator)
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
                facts["tensors"], facts["bytes"] = _contents(self.torch.Tensor, batch)
                facts["epoch"] = len(iterator)  # a dataset without a length raises
        except Exception:
            pass


def _contents(tensor: Any, batch: Any) -> tuple[int, int]:
    """The number of tensors in a batch, and their bytes; `tensor` is torch's class."""
    tensors, size, parts, known = 0, 0, [batch], set()
    while parts and len(known) < _MOST_PARTS:
        part = parts.pop()
        if id(part) in known:  # a structure may hold itself
            continue
        known.add(id(part))
        if isinstance(part, tensor):
            tensors += 1
            size += part.numel() * part.element_size()
        elif isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, (list, tuple)):
            parts += part
        elif hasattr(part, "__dict__"):  # a batch of a class of its own
            parts += vars(part).values()
    return tensors, size
