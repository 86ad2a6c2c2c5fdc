"""What is each NVTX range called? An op, as emit_nvtx writes it, without the numbers of its own; others as they are.

Nearly every op's text is unlike any other, for it holds the op's number: `aten::add, seq = 7, op_id = 12`.
Numbers are taken out of many texts at once, and what is left is looked up: no object is made for each row for long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import count

import numpy as np

from perfdoctor.model.columns import Ints, Text, firsts
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.names import torch as torch_names

_END = b"\x00"
#: Of these each op has its own.
_OP_NUMBERS = regex(rb", (?:op_id|seq) = \d+(?=, |\x00)")
_OP_DETAILS = regex(r", (?:op_id|seq|input_op_ids|sizes) = ")
_OP_SIZES = regex(r", sizes = (\[.*?\])(?=, \w+ = |$)")
_NO_OP = -1


class RangeNames:
    """Gathers the texts of ranges in the order of their rows, some at a time."""

    def __init__(self) -> None:
        #: The number of each different text without its numbers, of users' ranges _NO_OP.
        self._ops: dict[bytes, int] = {}
        self._count = count()
        #: The number of each different text of users' ranges.
        self._others: defaultdict[bytes, int] = defaultdict(count().__next__)
        self._codes = [np.empty(0, np.int64)]

    def add(self, joined: bytes, ends: Ints) -> None:
        """Texts one behind the other, each with a NUL at its end, and where each ends; a text may hold NULs."""
        begins = np.append(0, ends[:-1])
        is_plain = joined.count(_END) == ends.size
        texts = _OP_NUMBERS.sub(b"", joined).split(_END)[:-1] if is_plain else list(_cut(joined, begins, ends))
        for text in dict.fromkeys(texts):
            if text not in self._ops:
                self._ops[text] = next(self._count) if op_parts(decoded(text)) else _NO_OP
        codes = np.fromiter(map(self._ops.__getitem__, texts), np.int64, ends.size)
        rows = np.flatnonzero(codes == _NO_OP)
        others = map(self._others.__getitem__, _cut(joined, begins[rows], ends[rows]))
        codes[rows] = _NO_OP - np.fromiter(others, np.int64, rows.size)
        self._codes.append(codes)

    def text(self) -> Text:
        """One text a row, in the order of their first rows; equal ones share a code."""
        ops = [text for text, number in self._ops.items() if number != _NO_OP]
        codes = np.concatenate(self._codes)
        codes = np.where(codes < 0, len(ops) + _NO_OP - codes, codes)
        texts, order = (*ops, *self._others), np.argsort(firsts(codes))
        values = [decoded(texts[number]) for number in order.tolist()]
        found = Text(np.argsort(order).take(codes).astype(np.int32), values)
        return found if len(set(values)) == len(values) else found.mapped(str)


def _cut(joined: bytes, begins: Ints, ends: Ints) -> Iterator[bytes]:
    """Each text from its place in `begins` to that in `ends`, without the NUL at its end."""
    return (joined[begin : end - 1] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))


def decoded(raw: bytes) -> str:
    return str(raw, "utf-8", "replace")


def op_parts(text: str) -> tuple[str, str] | None:
    """Name and shapes of an op; None for a user's range. `aten::add, seq = 7, sizes = [[2], []]`."""
    details = _OP_DETAILS.search(text)
    name = text[: details.start()] if details else text
    if not _is_op(name):
        return None
    sizes = _OP_SIZES.search(text) if details else None
    return name, sizes[1] if sizes else ""


@lru_cache(maxsize=65536)
def _is_op(name: str) -> bool:
    return torch_names.OP.search(name) is not None
