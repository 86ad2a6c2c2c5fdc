"""In which modules of the model was the host: their forwards, and the nodes of the backward pass that they made?

perfdoctor's agent marks forwards as `nn.Module: Attention GPT.layers.7.attn`; torch.profiler's stacks have functions
`nn.Module: Attention_7`, numbered by class. What has no path gets that of the module around it, and its own name.

A node of the backward pass belongs to the module in which it was made. Autograd numbers the nodes of a thread: an op
carries the next number as its `Sequence number`, its node the same one, and as `Fwd thread id` a number of the op's
thread, from 1 on (torch/csrc/autograd/profiler_kineto.cpp). Of several ops with one number the last one made the node.
The engine's row around a node has the time of its hooks, too; where a hook ran first it has no number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfdoctor.model.columns import UNKNOWN, Ints, Mask, Text, constant
from perfdoctor.model.host_rows import Nested, nested
from perfdoctor.model.timeline import Frame
from perfdoctor.vocabulary.names import torch as torch_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perfdoctor.readers.kineto.columns import EventTable

_OUTSIDE = -1


def of_marks(ops: EventTable, is_mark: Mask, rank: int) -> Frame | None:
    """Rows of `modules` from the agent's marks among the ops; None without any."""
    return _with_backward(_rows(ops, is_mark, rank), ops) if is_mark.any() else None


def of_functions(functions: EventTable, process: Ints, thread: Ints, ops: EventTable | None, rank: int) -> Frame | None:
    """Rows of `modules` from torch.profiler's own rows of them among its functions; None without any."""
    chosen = functions.texts["name"].matches(torch_names.MODULE)
    if not chosen.any():
        return None
    forwards = _rows(functions, chosen, rank).with_columns(process=process[chosen], thread=thread[chosen])
    return _with_backward(forwards, ops)


def _rows(table: EventTable, chosen: Mask, rank: int) -> Frame:
    """The chosen rows of the table as rows of `modules`, by start."""
    rows = np.flatnonzero(chosen)
    names = table.texts["name"].take(rows)
    columns = {name: table[name][rows] for name in ("process", "thread", "start_ns", "end_ns")}
    return Frame({
        **columns, "rank": constant(rank, rows.size), "name": names, "module_class": names.mapped(_class_of),
        "is_backward": np.zeros(rows.size, dtype=bool),
    })  # fmt: skip


def _class_of(name: str) -> str:
    """`Linear` of `nn.Module: Linear GPT.head` and of `nn.Module: Linear_0`."""
    shown, _, path = name.removeprefix(torch_names.MODULE_PREFIX).partition(" ")
    stem, _, number = shown.rpartition("_")
    return stem if not path and stem and number.isdecimal() else shown


def _path_of(name: str) -> str:
    return name.removeprefix(torch_names.MODULE_PREFIX).partition(" ")[2]


def _with_backward(forwards: Frame, ops: EventTable | None) -> Frame:
    """The forwards with their paths, and the nodes of the backward pass that were made in them."""
    modules = nested(forwards)
    paths = _paths(modules)
    forwards = forwards.with_columns(name=paths)
    nodes, maker = _makers(ops) if ops is not None else (np.empty(0, np.int64), np.empty(0, np.int64))
    if ops is None or not nodes.size:
        return forwards
    nodes, first = np.unique(_with_hooks(ops, nodes), return_index=True)
    maker = maker[first]
    module = modules.innermost(ops["start_ns"][maker], ops["process"][maker], ops["thread"][maker])
    nodes, module = nodes[module != UNKNOWN], module[module != UNKNOWN]
    backward = Frame({
        **{name: ops[name][nodes] for name in ("process", "thread", "start_ns", "end_ns")},
        "rank": forwards["rank"][module], "name": paths.take(module),
        "module_class": forwards.text("module_class").take(module), "is_backward": np.ones(nodes.size, dtype=bool),
    })  # fmt: skip
    return Frame.join([forwards, backward.sorted()]) if nodes.size else forwards


def _paths(modules: Nested) -> Text:
    """The path of each row; of one without any the path of the row around it, and its own name."""
    names = modules.rows.name
    known = names.mapped(_path_of)
    own = names.mapped(_own_name)
    texts: dict[str, int] = {}
    codes = _numbered(texts, known.values)[known.codes]
    has_none = known.equals("")
    for level in modules.levels:
        rows = level[has_none[level]]
        around = modules.parent[rows]
        outer = np.where(around == UNKNOWN, _OUTSIDE, codes[around])
        pairs, place = np.unique(np.stack((outer, own.codes[rows])), axis=1, return_inverse=True)
        listed = list(texts)
        found = [
            own.values[name] if outer == _OUTSIDE else f"{listed[outer]}.{own.values[name]}"
            for outer, name in pairs.T.tolist()
        ]
        codes[rows] = _numbered(texts, found)[place.ravel()] if found else codes[rows]
    return Text(codes.astype(np.int32), list(texts))


def _own_name(name: str) -> str:
    return name.removeprefix(torch_names.MODULE_PREFIX).partition(" ")[0]


def _numbered(known: dict[str, int], texts: Iterable[str]) -> Ints:
    return np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)


def _makers(ops: EventTable) -> tuple[Ints, Ints]:
    """Rows of the nodes of the backward pass whose maker is known, and of the ops that made them."""
    sequence, forward_thread = ops["sequence"], ops["forward_thread"]
    is_node = (sequence >= 0) & (forward_thread > 0)
    makers = np.flatnonzero((sequence >= 0) & (forward_thread <= 0))
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    numbers, counts = np.unique(forward_thread[is_node], return_counts=True)
    for number in numbers[np.argsort(-counts, kind="stable")].tolist():
        nodes, maker = _of_thread(ops, np.flatnonzero(is_node & (forward_thread == number)), makers)
        found.append((nodes, maker))
        if maker.size:
            makers = makers[ops["thread"][makers] != ops["thread"][maker[0]]]
    nodes, maker = (np.concatenate(each) for each in zip(*found, strict=True))
    return nodes, maker


def _with_hooks(ops: EventTable, nodes: Ints) -> Ints:
    """For each node the row of the engine around it, else its own."""
    is_engine = ops.texts["name"].matches(torch_names.EVALUATED_NODE)
    chosen = is_engine.copy()
    chosen[nodes] = True
    rows = np.flatnonzero(chosen)
    columns = {name: ops[name][rows] for name in ("process", "thread", "start_ns", "end_ns")}
    parent = nested(Frame({**columns, "name": ops.texts["name"].take(rows)})).parent
    around = parent[np.searchsorted(rows, nodes)]
    outer = rows[np.maximum(around, 0)]
    found: Ints = np.where((around != UNKNOWN) & is_engine[outer] & ~is_engine[nodes], outer, nodes)
    return found


def _of_thread(ops: EventTable, nodes: Ints, makers: Ints) -> tuple[Ints, Ints]:
    """The nodes that one thread made, and their makers: of the thread that made most, for all number alike."""
    best = nodes[:0], nodes[:0]
    for thread in np.unique(ops["thread"][makers]).tolist():
        own = makers[ops["thread"][makers] == thread]
        order = own[np.lexsort((ops["start_ns"][own], ops["sequence"][own]))]
        numbers, wanted = ops["sequence"][order], ops["sequence"][nodes]
        last = np.searchsorted(numbers, wanted, side="right") - 1
        maker = order[np.maximum(last, 0)]
        made = (last >= 0) & (ops["sequence"][maker] == wanted) & (ops["start_ns"][maker] <= ops["start_ns"][nodes])
        if made.sum() > best[0].size:
            best = nodes[made], maker[made]
    return best
