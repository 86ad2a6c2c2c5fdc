"""What do collectives carry where the profiler says nothing of it beside their kernels?

It says nothing beside the kernel of a group of sends and receives, `nccl:coalesced` (`batch_isend_irecv`, as Megatron
calls it): that is launched when the group ends, behind the ops that describe each message.

Before torch 2.2 it does not at all. With `record_shapes=True` the range that PyTorch opens around each call of the
library has the sizes and type of what it is given: `nccl:all_reduce`, Input Dims [[366336]], Input type ["float"].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import msgspec
import numpy as np

from perfdoctor.model.device_work import launch_rows
from perfdoctor.model.host_rows import by_thread
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Text
from perfdoctor.readers.collective_kinds import range_at_launch
from perfdoctor.vocabulary.names.nccl import RECEIVED_FROM, SENT_TO

#: Kinds whose result is no larger than what they are given.
_NO_LARGER = ("all_reduce", "reduce_scatter", "all_to_all", "broadcast", "reduce")
#: The names of types in C++ that differ from those in Python.
_TYPES = {"long int": "Long", "unsigned char": "Byte", "signed char": "Char", "short int": "Short"}


def completed(rows: Frame, calls: Frame, ranges: Frame, element_bytes: Mapping[str, int]) -> Frame:
    """The collectives with type, `sent_bytes` and `bytes` where these were unknown.

    `ranges`: those around calls of the library, with `input_shapes` and `input_types`. Of an all-gather whose group is
    of unknown size the bytes stay unknown: its result is larger than what it is given.
    """
    at = range_at_launch(rows, calls, ranges)
    wanted = np.flatnonzero((rows["sent_bytes"] == UNKNOWN) & (at != UNKNOWN))
    if not wanted.size:
        return rows
    shapes, types = ranges.text("input_shapes").take(at[wanted]), ranges.text("input_types").take(at[wanted])
    given = [_given(shape, kind) for shape, kind in zip(shapes, types, strict=True)]
    known = list(rows.text("data_type"))
    sent, carried = rows["sent_bytes"].copy(), rows["bytes"].copy()
    kinds = rows.text("kind")
    for row, (kind, elements) in zip(wanted.tolist(), given, strict=True):
        size = element_bytes.get(kind.lower(), 0)
        if size and elements:
            known[row] = known[row] or kind
            sent[row] = elements * size
            if kinds[row] in _NO_LARGER:
                carried[row] = max(carried[row], sent[row])
    return rows.with_columns(data_type=Text.of(known), sent_bytes=sent, bytes=carried)


def with_messages(rows: Frame, calls: Frame, sent: Frame, messages: Text, element_bytes: Mapping[str, int]) -> Frame:
    """The collectives with peers, group, type and bytes where these were unknown and ops describe their messages.

    `sent`: these ops, a row each of `messages`: peer, elements, type, size and name of the group. An op describes what
    its thread launches next.
    """
    behind = _launched_next(rows, calls, sent)
    of_row: dict[int, list[_Message]] = {}
    for row, text in zip(behind.tolist(), messages, strict=True):
        if row != UNKNOWN:
            of_row.setdefault(row, []).append(_Message.of(text, element_bytes))
    kinds, texts = rows.text("kind"), {name: list(rows.text(name)) for name in ("peers", "group_name", "data_type")}
    numbers = {name: rows[name].copy() for name in ("group_size", "bytes", "sent_bytes")}
    for row, own in of_row.items():
        if kinds[row] == "send_recv" and not texts["peers"][row]:
            texts["peers"][row] = " ".join(dict.fromkeys(message.peer for message in own))
            texts["group_name"][row], texts["data_type"][row] = own[0].group, own[0].data_type
            numbers["group_size"][row] = own[0].group_size
            sent_bytes, received = (_sum(own, sign) for sign in (SENT_TO, RECEIVED_FROM))
            if UNKNOWN not in (sent_bytes, received):
                numbers["sent_bytes"][row], numbers["bytes"][row] = sent_bytes, max(sent_bytes, received)
    return rows.with_columns(**numbers, **{name: Text.of(values) for name, values in texts.items()})


class _Message(NamedTuple):
    peer: str
    bytes: int
    data_type: str
    group_size: int
    group: str

    @classmethod
    def of(cls, text: str, element_bytes: Mapping[str, int]) -> _Message:
        peer, elements, kind, group_size, group = text.split("\t")
        size = element_bytes.get(kind.lower(), 0)
        carried = int(elements) * size if size and int(elements) != UNKNOWN else UNKNOWN
        return cls(peer, carried, kind, int(group_size), group)


def _sum(messages: Sequence[_Message], sign: str) -> int:
    """The bytes of those with this sign in front of their peer; UNKNOWN where one is of unknown size."""
    sizes = [message.bytes for message in messages if message.peer[0] == sign]
    return UNKNOWN if UNKNOWN in sizes else sum(sizes)


def _launched_next(rows: Frame, calls: Frame, ops: Frame) -> Ints:
    """Which of `rows` each op's thread launched next, UNKNOWN for none."""
    call = launch_rows(rows, calls)
    launched = np.flatnonzero(call != UNKNOWN)
    of_call = calls.take(call[launched])
    found = np.full(len(ops), UNKNOWN, np.int64)
    for (process, thread), own in by_thread(of_call):
        in_order = own[np.argsort(of_call.start_ns[own], kind="stable")]
        there = np.flatnonzero((ops["process"] == process) & (ops["thread"] == thread))
        next_ = np.searchsorted(of_call.start_ns[in_order], ops.start_ns[there])
        found[there] = np.append(launched[in_order], UNKNOWN)[next_]
    return found


@lru_cache(maxsize=4096)
def _given(shapes: str, types: str) -> tuple[str, int]:
    """The type of the tensors, as torch names it, and their elements; ("", 0) where they are not known."""
    try:
        sizes = msgspec.json.decode(shapes, type=list[list[int]])
        kinds = msgspec.json.decode(types, type=list[str])
    except msgspec.MsgspecError:
        return "", 0
    if len(sizes) != len(kinds) or len(set(kinds)) != 1:
        return "", 0
    kind = _TYPES.get(kinds[0], kinds[0].removeprefix("c10::").capitalize() if kinds[0].islower() else "")
    return kind or kinds[0].removeprefix("c10::"), sum(prod(each) for each in sizes)
