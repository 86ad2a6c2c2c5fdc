"""How many bytes, and which communicator, does each collective have? From the payloads of NCCL's NVTX ranges.

NCCL opens a range around each call of its library (`ncclAllReduce`) with the size of the message and a number of the
communicator (NCCL, src/include/nvtx_payload_schemas.h). nsys exports such a payload as JSON or, with `--include-blobs`,
as bytes: a header of four 64-bit numbers (domain, schema, size, offset of the payload), then the structure that
NVTX_PAYLOAD_SCHEMA_ENTRIES describes. Without either nothing is known, and no note is written.

A kernel belongs to the call in whose range it was launched. Calls between ncclGroupStart and ncclGroupEnd are launched
by the latter: sends and receives as one kernel, whose bytes are the larger of the two sums. Programs make all-to-alls
of these: what goes to and comes from all ranks is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import numpy as np
from msgspec import Struct

from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask, Text
from perfdoctor.readers.collective_kinds import range_at_launch
from perfdoctor.readers.nsys.tables import UNREADABLE, Database
from perfdoctor.vocabulary.names import nccl as nccl_names

_CALLS = ("AllReduce", "AllGather", "ReduceScatter", "Reduce", "Broadcast", "Bcast", "AlltoAll", "AllToAll", "Gather",
          "Scatter", "Send", "Recv")  # fmt: skip
_GROUP_START, _GROUP_END = "ncclGroupStart", "ncclGroupEnd"
_OF_A_MESSAGE = (*(f"nccl{call}" for call in _CALLS), _GROUP_START, _GROUP_END)
_SEND, _RECEIVE = "ncclSend", "ncclRecv"

_HOLDS_ONE = ("jsonText", "jsonTextId", "binaryData")
_BYTES, _COMMUNICATOR, _RANKS = "Message size [bytes]", "NCCL communicator ID", "No. of ranks"
_PEER = "Peer rank"
_FIELDS = (_BYTES, _COMMUNICATOR, _RANKS, _PEER)
_HEADER_BYTES = 32
#: The entries that we read are all `uint64_t`, `size_t` or `int` (NVTX, nvToolsExtPayload.h: 18, 22 and 5).
_WIDTHS = {18: 8, 22: 8, 5: 4}
#: A stage of a pipeline exchanges with two neighbours, in a pipeline of three with all others.
_FEWEST_OF_ALL = 3

Schemas = Mapping[tuple[int, int], tuple[tuple[str, int, int], ...]]


class Payloads(Struct, frozen=True):
    """NCCL's calls on the host. `sizes`: bytes of whole messages; `communicators`: "" if unknown.

    `peers`: the other rank of a send or receive.
    """

    ranges: Frame
    sizes: Ints
    communicators: Text
    peers: Ints
    ranks_of: Mapping[str, int]


# --- reading ---


def payloads(database: Database, of_process: Mapping[int, int]) -> Payloads | None:
    """The payloads of NCCL's calls in an export, of the processes in `of_process`; None where it has none."""
    try:
        # Has any range a payload? To look for those of NCCL's takes twice as long.
        held = [f'"{name}" IS NOT NULL' for name in _HOLDS_ONE if name in database.columns_of("NVTX_EVENTS")]
        if not held or not database.rows("NVTX_EVENTS", "1", f"{' OR '.join(held)} LIMIT 1"):
            return None
        ids = _name_ids(database)
        schemas, found = schemas_of(database), list(_rows(database, ids))
    except UNREADABLE:
        return None  # the reader of ranges writes the note
    read = [(row, _payload(row[4:], schemas)) for row in found]
    if not any(_BYTES in payload for _, payload in read):
        return None
    ranks_of = {_shown(p[_COMMUNICATOR]): p[_RANKS] for _, p in read if _COMMUNICATOR in p and p.get(_RANKS, 0) > 0}
    calls = [(row, payload) for row, payload in read if row[3] in _OF_A_MESSAGE and _process(row[2]) in of_process]
    calls.sort(key=lambda call: call[0][0])
    communicators = [_shown(payload[_COMMUNICATOR]) if _COMMUNICATOR in payload else "" for _, payload in calls]
    sizes = [
        _whole(row[3], payload.get(_BYTES, UNKNOWN), ranks_of.get(communicator, 0))
        for (row, payload), communicator in zip(calls, communicators, strict=True)
    ]
    frame = Frame({
        "process": _integers(_process(row[2]) for row, _ in calls),
        "thread": _integers(row[2] & 0xFFFFFF for row, _ in calls),
        "start_ns": _integers(row[0] for row, _ in calls), "end_ns": _integers(row[1] for row, _ in calls),
        "name": Text.of(row[3] for row, _ in calls),
    })  # fmt: skip
    peers = _integers(payload.get(_PEER, UNKNOWN) for _, payload in calls)
    return Payloads(frame, _integers(sizes), Text.of(communicators), peers, ranks_of)


def _integers(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _process(thread: int) -> int:
    return (thread >> 24) & 0xFFFFFF


def _shown(communicator: int) -> str:
    return f"{communicator:#x}"


def _whole(name: str, size: int, ranks: int) -> int:
    """Bytes of the whole message; UNKNOWN where only a part's size is known and not the number of parts."""
    if not nccl_names.IN_PARTS.match(name) or size == UNKNOWN:
        return size
    return size * ranks if ranks else UNKNOWN


def _name_ids(database: Database) -> dict[int, str]:
    """Ids and names of NCCL's calls. Other strings are not read: they may hold the recorded program's environment."""
    wanted = f"value IN ({', '.join(repr(name) for name in _OF_A_MESSAGE)}) OR value LIKE 'ncclComm%'"
    return {int(str(number)): str(name) for number, name in database.rows("StringIds", "id, value", wanted)}


def _rows(database: Database, ids: Mapping[int, str]) -> Iterator[tuple[int, int, int, str, int, object, object]]:
    """Start, end, thread, name, domain, JSON and bytes of NCCL's ranges that ended. `ids`: names by their ids."""
    columns = database.columns_of("NVTX_EVENTS")
    if not {"start", "end", "globalTid"} <= columns:
        return
    fields = ", ".join(
        f'"{name}"' if name in columns else "NULL"
        for name in ("start", "end", "globalTid", "text", "textId", "domainId", *_HOLDS_ONE)
    )
    named = f'"textId" IN ({", ".join(map(str, ids))})' if ids and "textId" in columns else "0"
    own = " OR \"text\" LIKE 'nccl%'" if "text" in columns else ""
    found = database.rows("NVTX_EVENTS", fields, f'"end" IS NOT NULL AND ({named}{own})')
    texts = database.names(sorted({int(row[7]) for row in found if isinstance(row[7], int) and not row[6]}))
    for start, end, thread, text, name, domain, as_text, text_id, blob in found:
        if isinstance(start, int) and isinstance(end, int) and isinstance(thread, int) and end >= start:
            json_text = as_text or (texts.get(text_id) if isinstance(text_id, int) else None)
            shown = str(text) if text else ids.get(name, "") if isinstance(name, int) else ""
            yield start, end, thread, shown, domain if isinstance(domain, int) else 0, json_text, blob


def schemas_of(database: Database) -> Schemas:
    """By domain and schema: name, offset and width in bytes of the entries that are read."""
    found: dict[tuple[int, int], dict[str, tuple[str, int, int]]] = {}
    wanted = 'domainId, schemaId, name, "type", coalesce("offset", 0)'
    for domain, schema, name, kind, place in database.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", wanted):
        if isinstance(domain, int) and isinstance(schema, int) and isinstance(kind, int) and isinstance(place, int):
            width = _WIDTHS.get(kind, 0)
            if name in _FIELDS and width and place >= 0:
                found.setdefault((domain, schema), {})[str(name)] = (str(name), place, width)
    return {key: tuple(entries.values()) for key, entries in found.items()}


def _payload(row: tuple[int, object, object], schemas: Schemas) -> dict[str, int]:
    """The numbers of one payload, by name. `row`: its domain, JSON and bytes."""
    domain, text, blob = row
    found = _from_json(str(text)) if text else {}
    if not found and isinstance(blob, (bytes, str)):
        with suppress(ValueError):
            found = _from_bytes(blob if isinstance(blob, bytes) else bytes.fromhex(blob), domain, schemas)
    # Impossible message sizes or numbers of ranks mean that the payload was decoded wrongly.
    most = {_BYTES: 1 << 42, _RANKS: 1 << 20, _PEER: 1 << 20}
    return found if all(0 <= found.get(name, 0) < limit for name, limit in most.items()) else {}


def _from_json(text: str) -> dict[str, int]:
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    flat = decoded if isinstance(decoded, dict) else {}
    return {name: number for name in _FIELDS if (number := _number(flat.get(name))) is not None}


def _number(value: object) -> int | None:
    """The number, which may be written as text: not every reader of JSON holds 64 bits."""
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _from_bytes(raw: bytes, domain: int, schemas: Schemas) -> dict[str, int]:
    if int.from_bytes(raw[:8], "little") != domain:
        return {}
    return {name: int.from_bytes(raw[at : at + width], "little") for name, at, width in _places(raw, schemas)}


def without_numbers(raw: bytes, schemas: Schemas) -> bytes:
    """The bytes of a payload with zeros in place of the numbers that are read: a random one may look like text."""
    rest = bytearray(raw)
    for _, at, width in _places(raw, schemas):
        rest[at : at + width] = bytes(width)
    return bytes(rest)


def _places(raw: bytes, schemas: Schemas) -> Iterator[tuple[str, int, int]]:
    """Name, place and width of the numbers that are read, behind the header; none where it does not fit the bytes."""
    domain, schema, size, place = (int.from_bytes(raw[at : at + 8], "little") for at in range(0, _HEADER_BYTES, 8))
    if place == _HEADER_BYTES + size == len(raw):  # some versions write the offset of its end
        place = _HEADER_BYTES
    if place >= _HEADER_BYTES and place + size <= len(raw):
        for name, at, width in schemas.get((domain, schema), ()):
            if at + width <= size:
                yield name, place + at, width


# --- payloads to kernels ---


def with_payloads(frames: Mapping[str, Frame], found: Payloads | None) -> Frame:
    """The frame `collectives` with bytes, group and group size, where payloads were `found` that contain them."""
    rows, calls = frames["collectives"], frames["calls"]
    if found is None or not len(found.ranges) or not len(rows) or not len(calls):
        return rows
    unit = _units(found.ranges)
    opened = range_at_launch(rows, calls, found.ranges)
    known = opened != UNKNOWN
    of_unit = np.where(known, unit[np.maximum(opened, 0)], UNKNOWN)
    kernels = np.bincount(of_unit[known], minlength=int(unit.max()) + 1)
    sizes, groups = _sizes(found, unit, kernels), _groups(found, unit)
    size = np.where(known, sizes[of_unit], UNKNOWN)
    # Ranks' collectives are matched by their order within a group, so groups are used only if all rows have one.
    group = groups.take(np.maximum(of_unit, 0))
    ours = rows.name.matches(nccl_names.NAMED_NCCL)
    if not (known & group.where(bool))[ours].all():
        return rows.with_columns(bytes=np.where(size != UNKNOWN, size, rows["bytes"]))
    both = Text.join([rows.text("group_name"), group])
    codes = np.where(known, both.codes[len(rows) :], both.codes[: len(rows)]).astype(np.int32)
    ranks = _integers([found.ranks_of.get(value, UNKNOWN) for value in both.values])[codes]
    exchanged = known & (ranks > 1) & (_peers(found, unit)[of_unit] >= np.maximum(ranks - 1, _FEWEST_OF_ALL))
    kinds = Text.join([rows.text("kind"), Text.constant("all_to_all", 1)])
    return rows.with_columns(
        kind=Text(np.where(exchanged, kinds.codes[-1], kinds.codes[:-1]).astype(np.int32), kinds.values),
        bytes=np.where(size != UNKNOWN, size, rows["bytes"]),
        group_name=Text(codes, both.values),
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


def _sizes(found: Payloads, unit: Ints, kernels: Ints) -> Ints:
    """Bytes of each kernel of a unit: the unit's if it launched one kernel, a call's if all its calls are equal."""
    names, count = found.ranges.name, kernels.size
    is_group = names.equals(_GROUP_START) | names.equals(_GROUP_END)
    sent, received = names.equals(_SEND), names.equals(_RECEIVE)
    collective = ~(is_group | sent | received)

    def sums(rows: Mask) -> Ints:
        return np.bincount(unit[rows], weights=found.sizes[rows], minlength=count).astype(np.int64)

    lacks_sizes = np.bincount(unit[~is_group & (found.sizes == UNKNOWN)], minlength=count) > 0
    collectives = np.bincount(unit[collective], minlength=count)
    messages = np.bincount(unit[~is_group], minlength=count)
    size = np.where(collectives > 0, sums(collective), np.maximum(sums(sent), sums(received)))
    largest, smallest = np.zeros(count, np.int64), np.full(count, np.iinfo(np.int64).max)
    np.maximum.at(largest, unit[collective], found.sizes[collective])
    np.minimum.at(smallest, unit[collective], found.sizes[collective])
    each_its_own = (kernels == collectives) & (largest == smallest)
    size = np.where(each_its_own & (kernels > 1), largest, size)
    mixed = (collectives > 0) & (messages > collectives)
    clear = ~lacks_sizes & ~mixed & (messages > 0) & ((kernels <= 1) | each_its_own)
    return np.where(clear, size, UNKNOWN)


def _peers(found: Payloads, unit: Ints) -> Ints:
    """To how many ranks each unit sends, or from how many it receives if these are fewer; 0 if it has a collective."""
    names, count = found.ranges.name, int(unit.max()) + 1
    sends, receives = names.equals(_SEND), names.equals(_RECEIVE)

    def ranks(rows: Mask) -> Ints:
        chosen = rows & (found.peers != UNKNOWN)
        pairs = np.unique(np.stack([unit[chosen], found.peers[chosen]]), axis=1)
        return np.bincount(pairs[0], minlength=count)

    is_group = names.equals(_GROUP_START) | names.equals(_GROUP_END)
    collectives = np.bincount(unit[~(is_group | sends | receives)], minlength=count)
    return np.where(collectives > 0, 0, np.minimum(ranks(sends), ranks(receives)))


def _groups(found: Payloads, unit: Ints) -> Text:
    """The communicator of each unit; "" where it is unknown or there are several."""
    is_known = found.communicators.where(bool)
    count = int(unit.max()) + 1
    lowest, highest = np.full(count, len(found.communicators.values)), np.full(count, UNKNOWN)
    codes = Text.of(found.communicators).codes  # equal texts, equal codes
    np.minimum.at(lowest, unit[is_known], codes[is_known])
    np.maximum.at(highest, unit[is_known], codes[is_known])
    values = [*Text.of(found.communicators).values, ""]
    return Text(np.where(lowest == highest, highest, len(values) - 1).astype(np.int32), values)
