"""What did NCCL itself say of each message? Bytes, communicator and its size, from the payloads of its NVTX ranges.

NCCL opens a range around each call of its library (`ncclAllReduce`) with the size of the message and a number of the
communicator (NCCL, src/include/nvtx_payload_schemas.h). nsys exports such a payload as JSON, or, asked for it with
`--include-blobs`, as bytes: a header of four 64-bit numbers (domain, schema, size, place of the payload), then the
structure that NVTX_PAYLOAD_SCHEMA_ENTRIES describes. Without either nothing is known, and nothing is said.

A kernel belongs to the call in whose range it was launched. Calls between ncclGroupStart and ncclGroupEnd are launched
by the latter: sends and receives as one kernel, which carries the larger of the two sums.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from perfdoctor.model.device_work import launch_rows
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask, Text
from perfdoctor.readers.collective_kinds import open_at
from perfdoctor.readers.nsys.tables import UNREADABLE, Database

_CALLS = ("AllReduce", "AllGather", "ReduceScatter", "Reduce", "Broadcast", "Bcast", "AlltoAll", "AllToAll", "Gather",
          "Scatter", "Send", "Recv")  # fmt: skip
_GROUP_START, _GROUP_END = "ncclGroupStart", "ncclGroupEnd"
_OF_A_MESSAGE = (*(f"nccl{call}" for call in _CALLS), _GROUP_START, _GROUP_END)
#: The size is that of one rank's part (NCCL, src/collectives.cc): a Timeline's is that of the whole.
_IN_PARTS = re.compile(r"^nccl(AllGather|ReduceScatter|All[tT]oAll|Gather|Scatter)$")
_SEND, _RECEIVE = "ncclSend", "ncclRecv"

_BYTES, _COMMUNICATOR, _RANKS = "Message size [bytes]", "NCCL communicator ID", "No. of ranks"
_FIELDS = (_BYTES, _COMMUNICATOR, _RANKS)
_HEADER_BYTES = 32
#: The entries that we read are all `uint64_t`, `size_t` or `int` (NVTX, nvToolsExtPayload.h: 18, 22 and 5).
_WIDTHS = {18: 8, 22: 8, 5: 4}

Schemas = Mapping[tuple[int, int], tuple[tuple[str, int, int], ...]]


@dataclass(frozen=True)
class Payloads:
    """The calls of NCCL on the host, a row each: `sizes` of the whole message in bytes, communicators "" if untold."""

    ranges: Frame
    sizes: Ints
    communicators: Text
    ranks_of: Mapping[str, int]


# --- reading ---


def payloads(database: Database, of_process: Mapping[int, int]) -> Payloads | None:
    """What the export holds of them; None where it holds none."""
    try:
        ids = _name_ids(database)
        schemas, found = _schemas(database), list(_rows(database, ids))
    except UNREADABLE:
        return None  # the reader of ranges has said so
    told = [(row, _payload(row[4:], schemas)) for row in found]
    if not any(_BYTES in payload for _, payload in told):
        return None
    ranks_of = {_shown(p[_COMMUNICATOR]): p[_RANKS] for _, p in told if _COMMUNICATOR in p and p.get(_RANKS, 0) > 0}
    calls = [(row, payload) for row, payload in told if row[3] in _OF_A_MESSAGE and _process(row[2]) in of_process]
    calls.sort(key=lambda call: call[0][0])
    names = [row[3] for row, _ in calls]
    communicators = [_shown(payload[_COMMUNICATOR]) if _COMMUNICATOR in payload else "" for _, payload in calls]
    sizes = [
        _whole(name, payload.get(_BYTES, UNKNOWN), ranks_of.get(communicator, 0))
        for name, (_, payload), communicator in zip(names, calls, communicators, strict=True)
    ]
    frame = Frame({
        "process": _integers(_process(row[2]) for row, _ in calls),
        "thread": _integers(row[2] & 0xFFFFFF for row, _ in calls),
        "start_ns": _integers(row[0] for row, _ in calls), "end_ns": _integers(row[1] for row, _ in calls),
        "name": Text.of(names),
    })  # fmt: skip
    return Payloads(frame, _integers(sizes), Text.of(communicators), ranks_of)


def _integers(values: Iterator[int] | list[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _process(thread: int) -> int:
    return (thread >> 24) & 0xFFFFFF


def _shown(communicator: int) -> str:
    return f"{communicator:#x}"


def _whole(name: str, size: int, ranks: int) -> int:
    """UNKNOWN where a part is told and not into how many a message is cut."""
    if not _IN_PARTS.match(name) or size == UNKNOWN:
        return size
    return size * ranks if ranks else UNKNOWN


def _name_ids(database: Database) -> dict[int, str]:
    """Those of NCCL's calls; other strings may hold the recorded program's environment."""
    wanted = f"value IN ({', '.join(repr(name) for name in _OF_A_MESSAGE)}) OR value LIKE 'ncclComm%'"
    return {int(str(number)): str(name) for number, name in database.rows("StringIds", "id, value", wanted)}


def _rows(database: Database, ids: Mapping[int, str]) -> Iterator[tuple[int, int, int, str, int, object, object]]:
    """Start, end, thread, name, domain, JSON and bytes of NCCL's ranges that ended."""
    columns = database.columns_of("NVTX_EVENTS")
    if not {"start", "end", "globalTid"} <= columns or not {"jsonText", "jsonTextId", "binaryData"} & columns:
        return
    fields = ", ".join(
        f'"{name}"' if name in columns else "NULL"
        for name in ("start", "end", "globalTid", "text", "textId", "domainId", "jsonText", "jsonTextId", "binaryData")
    )
    named = f'"textId" IN ({", ".join(map(str, ids))})' if ids and "textId" in columns else "0"
    own = " OR \"text\" LIKE 'nccl%'" if "text" in columns else ""
    found = database.rows("NVTX_EVENTS", fields, f'"end" IS NOT NULL AND ({named}{own})')
    texts = database.names(sorted({int(row[7]) for row in found if isinstance(row[7], int) and not row[6]}))
    for start, end, thread, text, name, domain, as_text, text_id, blob in found:
        if isinstance(start, int) and isinstance(end, int) and isinstance(thread, int) and end >= start:
            said = as_text or (texts.get(text_id) if isinstance(text_id, int) else None)
            shown = str(text) if text else ids.get(name, "") if isinstance(name, int) else ""
            yield start, end, thread, shown, domain if isinstance(domain, int) else 0, said, blob


def _schemas(database: Database) -> Schemas:
    """By domain and number: name, place and width of the entries that we read."""
    found: dict[tuple[int, int], dict[str, tuple[str, int, int]]] = {}
    wanted = 'domainId, schemaId, name, "type", coalesce("offset", 0)'
    for domain, schema, name, kind, place in database.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", wanted):
        if isinstance(domain, int) and isinstance(schema, int) and isinstance(kind, int) and isinstance(place, int):
            width = _WIDTHS.get(kind, 0)
            if name in _FIELDS and width and place >= 0:
                found.setdefault((domain, schema), {})[str(name)] = (str(name), place, width)
    return {key: tuple(entries.values()) for key, entries in found.items()}


def _payload(row: tuple[int, object, object], schemas: Schemas) -> dict[str, int]:
    """The numbers of one payload, by name."""
    domain, text, blob = row
    found = _from_json(str(text)) if text else {}
    if not found and isinstance(blob, (bytes, str)):
        found = _from_bytes(_raw(blob), domain, schemas)
    # What is no size of a message in memory, or no number of ranks, was read wrongly.
    return found if 0 <= found.get(_BYTES, 0) < 1 << 42 and 0 <= found.get(_RANKS, 0) < 1 << 20 else {}


def _raw(blob: bytes | str) -> bytes:
    try:
        return blob if isinstance(blob, bytes) else bytes.fromhex(blob)
    except ValueError:
        return b""


def _from_json(text: str) -> dict[str, int]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    flat = said if isinstance(said, dict) else {}
    return {name: number for name in _FIELDS if (number := _number(flat.get(name))) is not None}


def _number(value: object) -> int | None:
    """Also of text: a 64-bit number does not fit every reader of JSON."""
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _from_bytes(raw: bytes, domain: int, schemas: Schemas) -> dict[str, int]:
    of, schema, size, place = (int.from_bytes(raw[at : at + 8], "little") for at in range(0, _HEADER_BYTES, 8))
    if place == _HEADER_BYTES + size == len(raw):  # some versions tell where it ends, and not where it begins
        place = _HEADER_BYTES
    if of != domain or place < _HEADER_BYTES or place + size > len(raw):
        return {}
    return {
        name: int.from_bytes(raw[place + at : place + at + width], "little")
        for name, at, width in schemas.get((domain, schema), ())
        if at + width <= size
    }


# --- to which kernel they belong ---


def with_payloads(frames: Mapping[str, Frame], told: Payloads | None) -> Frame:
    """`collectives` with bytes, group and its size, where NCCL's ranges tell them."""
    rows, calls = frames["collectives"], frames["calls"]
    if told is None or not len(told.ranges) or not len(rows) or not len(calls):
        return rows
    unit = _units(told.ranges)
    call = launch_rows(rows, calls)
    opened = open_at(told.ranges, calls, np.maximum(call, 0))
    known = (call != UNKNOWN) & (opened != UNKNOWN)
    of_unit = np.where(known, unit[np.maximum(opened, 0)], UNKNOWN)
    kernels = np.bincount(of_unit[known], minlength=int(unit.max()) + 1)
    sizes, groups = _sizes(told, unit, kernels), _groups(told, unit)
    size = np.where(known, sizes[of_unit], UNKNOWN)
    # Collectives are matched among ranks by their order in a group: a group that only some rows tell splits one in two.
    group = groups.take(np.maximum(of_unit, 0))
    ours = rows.name.matches(re.compile("nccl", re.IGNORECASE))
    if not (known & group.where(bool))[ours].all():
        return rows.with_columns(bytes=np.where(size != UNKNOWN, size, rows["bytes"]))
    both = Text.join([rows.text("group"), group])
    codes = np.where(known, both.codes[len(rows) :], both.codes[: len(rows)]).astype(np.int32)
    ranks = _integers([told.ranks_of.get(value, UNKNOWN) for value in both.values])[codes]
    return rows.with_columns(
        bytes=np.where(size != UNKNOWN, size, rows["bytes"]),
        group=Text(codes, both.values),
        group_size=np.where(ranks != UNKNOWN, ranks, rows["group_size"]),
    )


def _units(ranges: Frame) -> Ints:
    """A number for each range: the same for all from the outermost ncclGroupStart of a thread to its ncclGroupEnd."""
    unit, used = np.empty(len(ranges), np.int64), 0
    places = ranges["process"] << 24 | ranges["thread"]
    opening, closing = ranges.name.equals(_GROUP_START), ranges.name.equals(_GROUP_END)
    for place in np.unique(places).tolist():
        own = np.flatnonzero(places == place)
        after = np.cumsum(opening[own].astype(np.int64) - closing[own])
        after -= np.minimum(np.minimum.accumulate(after), 0)  # groups that were open when the recording began
        before = np.concatenate(([0], after[:-1]))
        unit[own] = used + np.cumsum(before == 0) - 1
        used = int(unit[own].max()) + 1
    return unit


def _sizes(told: Payloads, unit: Ints, kernels: Ints) -> Ints:
    """Bytes of each kernel of a unit: all of it where that is one kernel; of several, where all calls are equal."""
    names, count = told.ranges.name, kernels.size
    is_group = names.equals(_GROUP_START) | names.equals(_GROUP_END)
    sent, received = names.equals(_SEND), names.equals(_RECEIVE)
    collective = ~(is_group | sent | received)

    def sums(rows: Mask) -> Ints:
        return np.bincount(unit[rows], weights=told.sizes[rows], minlength=count).astype(np.int64)

    untold = np.bincount(unit[~is_group & (told.sizes == UNKNOWN)], minlength=count) > 0
    collectives = np.bincount(unit[collective], minlength=count)
    messages = np.bincount(unit[~is_group], minlength=count)
    size = np.where(collectives > 0, sums(collective), np.maximum(sums(sent), sums(received)))
    largest, smallest = np.zeros(count, np.int64), np.full(count, np.iinfo(np.int64).max)
    np.maximum.at(largest, unit[collective], told.sizes[collective])
    np.minimum.at(smallest, unit[collective], told.sizes[collective])
    each_its_own = (kernels == collectives) & (largest == smallest)
    size = np.where(each_its_own & (kernels > 1), largest, size)
    mixed = (collectives > 0) & (messages > collectives)
    clear = ~untold & ~mixed & (messages > 0) & ((kernels <= 1) | each_its_own)
    return np.where(clear, size, UNKNOWN)


def _groups(told: Payloads, unit: Ints) -> Text:
    """The communicator of each unit; "" where it is not told or there are several."""
    is_told = told.communicators.where(bool)
    count = int(unit.max()) + 1
    lowest, highest = np.full(count, len(told.communicators.values)), np.full(count, UNKNOWN)
    codes = Text.of(told.communicators).codes  # equal texts, equal codes
    np.minimum.at(lowest, unit[is_told], codes[is_told])
    np.maximum.at(highest, unit[is_told], codes[is_told])
    values = [*Text.of(told.communicators).values, ""]
    return Text(np.where(lowest == highest, highest, len(values) - 1).astype(np.int32), values)
