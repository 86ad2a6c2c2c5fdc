"""How many FLOP does a fused attention do, forward and backward?

```
forward  = 2 · batch · heads · queries · keys · (d + v)        scores, and their product with the values
backward = 2 · batch · heads · queries · keys · (3 d + 2 v)    one d of it: the scores once more
```
d and v are the sizes of a head for queries and keys, and for values. The convention (`torch.utils.flop_counter`, and
PaLM, arXiv 2204.02311, appendix B) counts all pairs of queries and keys, masked or not; a kernel that skips what a
causal mask hides needs about half. Attention that is computed in steps is counted by its products. Windows, sequences
of several lengths, and what a compiler writes do not show in shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

Shape = tuple[int, ...]
#: FLOP by convention, of these what the model asks for, what is needed (None: unknown), and numbers read and written.
Counted = tuple[int, int, "int | None", int]


class _Signature(Struct, frozen=True):
    """The places of an op's inputs.

    `query`: the first of query, key and value. `causal`: whether there is a causal mask. `sequences`: an input that is
    a tensor only where sequences of several lengths are packed. `windows`: two that are -1 unless there is a window.
    `heads_first`: is a tensor (batch, heads, sequence, size), or (batch, sequence, heads, size)? `from_end`: does the
    mask tie the last query to the last key, and not the first to the first?
    """

    causal: int
    query: int = 0
    heads_first: bool = True
    sequences: int | None = None
    windows: int | None = None
    from_end: bool = False


_SDPA = "aten::_scaled_dot_product_"
_OPS = {
    f"{_SDPA}flash_attention": _Signature(4),
    f"{_SDPA}flash_attention_for_cpu": _Signature(4),
    f"{_SDPA}efficient_attention": _Signature(6),
    f"{_SDPA}cudnn_attention": _Signature(6),
    f"{_SDPA}flash_attention_backward": _Signature(11, query=1, sequences=6),
    f"{_SDPA}flash_attention_for_cpu_backward": _Signature(7, query=1),
    f"{_SDPA}efficient_attention_backward": _Signature(11, query=1),
    f"{_SDPA}cudnn_attention_backward": _Signature(14, query=1, sequences=9),
    "aten::_flash_attention_forward": _Signature(8, heads_first=False, sequences=3),
    "aten::_flash_attention_backward": _Signature(11, query=1, heads_first=False, sequences=6),
    "flash_attn::_flash_attn_forward": _Signature(5, heads_first=False, windows=6, from_end=True),
    "flash_attn::_flash_attn_backward": _Signature(11, query=1, heads_first=False, windows=12, from_end=True),
}


def is_attention(op: str) -> bool:
    return op in _OPS


def count(op: str, shapes: Sequence[Shape], values: Sequence[str]) -> Counted | None:
    """The counts of one fused attention; None where its shapes do not show them."""
    at = _OPS[op]
    is_packed = at.sequences is not None and at.sequences < len(shapes) and shapes[at.sequences] != ()
    # A window may be there unless it is recorded that there is none.
    has_window = at.windows is not None and tuple(values[at.windows : at.windows + 2]) != ("-1", "-1")
    if len(shapes) < at.query + 3 or is_packed or has_window:
        return None
    query, key, value = (
        shape if at.heads_first or len(shape) != 4 else (shape[0], shape[2], shape[1], shape[3])
        for shape in shapes[at.query : at.query + 3]
    )
    if not (len(query) == len(key) == len(value) == 4) or not _belong_together(query, key, value):
        return None
    batch, heads, queries, size = query
    keys, value_size = key[2], value[3]
    backward = at.query == 1
    for_pair = 2 * batch * heads * (3 * size + 2 * value_size if backward else size + value_size)
    model_for_pair = for_pair - (2 * batch * heads * size if backward else 0)
    pairs = queries * keys
    causal = values[at.causal] if at.causal < len(values) else ""
    needed = {"True": _unmasked(queries, keys, at.from_end), "False": pairs}.get(causal)
    result = batch * heads * queries * value_size
    numbers = (prod(query) + prod(key) + prod(value) + result) * (2 if backward else 1)
    return for_pair * pairs, model_for_pair * pairs, None if needed is None else for_pair * needed, numbers


def _belong_together(query: Shape, key: Shape, value: Shape) -> bool:
    """Do the shapes agree? Several heads of queries may share one of keys and values."""
    return (
        query[0] == key[0] == value[0]
        and key[1] == value[1] > 0
        and query[1] % key[1] == 0
        and key[2] == value[2]
        and query[3] == key[3]
    )


def _unmasked(queries: int, keys: int, from_end: bool) -> int:
    """Pairs that a causal mask leaves: the n-th query sees n keys, or, tied at the end, the last one sees all."""
    square = min(queries, keys)
    triangle = square * (square + 1) // 2
    if from_end:
        return triangle + max(keys - queries, 0) * queries
    return triangle + max(queries - keys, 0) * keys
