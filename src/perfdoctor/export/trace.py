"""How is Perfetto's own format written? Tracks, slices, counters and arrows as a stream of TracePackets.

Chosen over Chrome's JSON, which has microseconds in a double, no tree of tracks, and repeats every name: this has exact
nanoseconds, and each name once. Written without the package `perfetto` (see `packets.py`), which makes a Python object
of each message, takes five times as long, and depends on protobuf.

Field numbers: https://github.com/google/perfetto/tree/main/protos/perfetto/trace (trace_packet.proto,
interned_data/interned_data.proto, track_event/*.proto). They are part of a stable format and never reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.export import packets
from perfdoctor.export.slices import SliceEdges, Slices, edges, lanes
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Text
from perfdoctor.patterns import regex

PACKET = 1
# TracePacket
TIMESTAMP, _SEQUENCE, TRACK_EVENT, INTERNED, _FLAGS, _CLOCKS, DESCRIPTOR, _FIRST = 8, 10, 11, 12, 13, 6, 60, 87
_CLEARED, _NEEDS_INTERNED = 1, 2
_BOOTTIME, _REALTIME = 6, 1
# TrackDescriptor, ProcessDescriptor, ThreadDescriptor, CounterDescriptor
TRACK_UUID, TRACK_NAME, _PROCESS, _THREAD, TRACK_PARENT, _COUNTER, _ORDERING, _PLACE = 1, 2, 3, 4, 5, 8, 11, 12
_EXPLICIT = 3
_PID, _SORT_INDEX, _PROCESS_NAME, _TID, _THREAD_NAME = 1, 3, 6, 2, 5
_UNIT, _UNIT_NAME, _BYTES_UNIT = 3, 6, 3
# TrackEvent
EVENT_CATEGORY, _ANNOTATION, EVENT_TYPE, _EVENT_NAME, EVENT_TRACK = 3, 4, 9, 10, 11
_COUNTER_INT, _COUNTER_DOUBLE, _FLOW = 30, 44, 47
_BEGIN, _END, _COUNT = 1, 2, 4
# DebugAnnotation
_LABEL, _BOOL, _INT, _DOUBLE, _STRING = 1, 2, 4, 5, 17
# InternedData
CATEGORIES, _NAMES, _LABELS, _STRINGS = 1, 2, 3, 29

#: All packets belong to one sequence, and use its interned names.
_SAME = packets.number(_SEQUENCE, 1) + packets.number(_FLAGS, _NEEDS_INTERNED)
#: Packets in memory at once.
_CHUNK = 1 << 15
#: Interned names in one packet.
_INTERNED_AT_ONCE = 1 << 12

_CONTROL = regex("[\x00-\x1f\x7f]")
_UNREADABLE = regex("[\x80-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

Value = int | float | str | bool


def shown(text: str) -> str:
    """A name safe to show: control characters as their symbols (␛), characters that hide or reorder text as �."""
    text = _CONTROL.sub(lambda found: "␡" if found[0] == "\x7f" else chr(0x2400 + ord(found[0])), text)
    return _UNREADABLE.sub("\ufffd", text)


def groups(columns: Sequence[Ints]) -> list[tuple[tuple[int, ...], Ints]]:
    """Each combination of values that these columns have, ascending, with its rows."""
    code, first = together(columns)
    order = np.argsort(code, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(code[order])) + 1) if code.size else []
    keys = [tuple(int(column[row]) for column in columns) for row in first]
    return sorted(zip(keys, parts, strict=True), key=lambda group: group[0])


def together(columns: Sequence[npt.NDArray[np.generic]]) -> tuple[Ints, list[int]]:
    """A number for each row, equal where all columns are equal; and for each number one row that has it."""
    code = np.zeros(columns[0].size, np.int64)
    first: npt.NDArray[np.generic] = np.zeros(min(code.size, 1), np.int64)
    for column in columns:
        if column.size and (column == column[0]).all():
            continue
        values, mine = np.unique(column, return_inverse=True)
        _, first, code = np.unique(code * values.size + mine, return_index=True, return_inverse=True)
    return code, first.tolist()


class Trace:
    """A trace: first its contents are added, then it is `written`."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        self._strings: dict[str, int] = {}
        self._args: dict[bytes, int] = {}
        self._descriptors: list[bytes] = []
        self._slices: list[tuple[int, Slices]] = []
        self._counters: list[tuple[int, Ints, npt.NDArray[np.generic]]] = []

    @property
    def is_empty(self) -> bool:
        return not self._slices and not any(at_ns.size for _, at_ns, _ in self._counters)

    # --- tracks ---

    def track(self, name: str, parent: int = 0, *, place: int | None = None, more: bytes = b"") -> int:
        """A new track's number. `place`: its rank among its siblings, by which they are ordered."""
        number = len(self._descriptors) + 1
        body = packets.number(TRACK_UUID, number) + packets.text(TRACK_NAME, shown(name))
        if parent:
            body += packets.number(TRACK_PARENT, parent)
        if place is not None:
            body += packets.number(_PLACE, place)
        self._descriptors.append(body + packets.number(_ORDERING, _EXPLICIT) + more)
        return number

    def process(self, name: str, pid: int, sort_index: int) -> int:
        about = packets.number(_PID, pid) + packets.text(_PROCESS_NAME, shown(name))
        about += packets.number(_SORT_INDEX, sort_index & 0x7FFFFFFF)
        return self.track(name, more=packets.message(_PROCESS, about))

    def thread(self, name: str, parent: int, pid: int, tid: int) -> int:
        about = packets.number(_PID, pid) + packets.number(_TID, tid) + packets.text(_THREAD_NAME, shown(name))
        return self.track(name, parent, more=packets.message(_THREAD, about))

    def add(self, track: int, name: str, parent: int, slices: Slices, *, place: int | None = None) -> None:
        """Add rows to a track. Those that do not nest go to further tracks of the same name, which are shown as one."""
        if not len(slices):
            return
        first, *others = lanes(slices)
        self._slices.append((track, first))
        self._slices += [(self.track(name, parent, place=place), lane) for lane in others]

    def count(
        self, name: str, parent: int, at_ns: Ints, values: npt.NDArray[np.generic], unit: str, *, place: int
    ) -> None:
        """Add a counter. `values`: int64 or float64; `unit`: bytes, or the name of a unit."""
        about = packets.number(_UNIT, _BYTES_UNIT) if unit == "bytes" else packets.text(_UNIT_NAME, unit)
        track = self.track(name, parent, place=place, more=packets.message(_COUNTER, about))
        self._counters.append((track, at_ns, values))

    # --- interned names and arguments ---

    def category(self, name: str) -> int:
        return self._categories.setdefault(name, len(self._categories) + 1)

    def name(self, text: str) -> int:
        return self._names.setdefault(shown(text) or "(no name)", len(self._names) + 1)

    def names(self, texts: Text) -> Ints:
        """The number of each row's name."""
        numbers = np.zeros(len(texts.values), np.int64)
        for code in np.unique(texts.codes).tolist():
            numbers[code] = self.name(texts.values[code])
        return numbers[texts.codes] if numbers.size else np.empty(0, np.int64)

    def arguments(self, of_row: Mapping[str, Value]) -> int:
        """The number of one row's arguments, UNKNOWN if it has none."""
        encoded = b"".join(packets.message(_ANNOTATION, self._annotation(*each)) for each in of_row.items())
        return self._args.setdefault(encoded, len(self._args)) if encoded else UNKNOWN

    def _annotation(self, label: str, value: Value) -> bytes:
        name = packets.number(_LABEL, self._labels.setdefault(label, len(self._labels) + 1))
        if isinstance(value, bool):
            return name + packets.number(_BOOL, value)
        if isinstance(value, int):
            return name + packets.number(_INT, value)
        if isinstance(value, float):
            return name + packets.double(_DOUBLE, value)
        return name + packets.number(_STRING, self._strings.setdefault(shown(value), len(self._strings) + 1))

    def arguments_of(self, frame: Frame, columns: Mapping[str, str]) -> Ints:
        """The number of each row's arguments. `columns`: label → column; unknown values are omitted."""
        if not columns or not len(frame):
            return np.full(len(frame), UNKNOWN, np.int64)
        raw = {label: frame.columns[column] for label, column in columns.items()}
        code, first = together([each.codes if isinstance(each, Text) else each for each in raw.values()])
        numbers = [self.arguments(_known({label: each[row] for label, each in raw.items()})) for row in first]
        return np.array(numbers, np.int64)[code]

    # --- the file ---

    def written(self, epoch_ns: int | None = None) -> Iterator[bytes]:
        """The contents of the file, in chunks. `epoch_ns`: time 0 of the recording, in ns since 1970.

        Times are those of the recording. Only if some are negative, which the format does not support, all are shifted
        so that the first is 0.
        """
        firsts = [int(slices.start_ns.min()) for _, slices in self._slices]
        firsts += [int(at_ns.min()) for _, at_ns, _ in self._counters if at_ns.size]
        first_ns = min(firsts, default=0)
        shift_ns = max(-first_ns, 0)
        yield _packet(self._head(first_ns + shift_ns, None if epoch_ns is None else epoch_ns - shift_ns))
        for body in self._descriptors:
            yield _packet(packets.message(DESCRIPTOR, body) + _SAME)
        for body in self._interned():
            yield _packet(packets.message(INTERNED, body) + _SAME)
        args = packets.table([*self._args, b""])  # UNKNOWN is −1: the last row
        for track, slices in self._slices:
            found = edges(slices)
            for begin in range(0, found.row.size, _CHUNK):
                yield _slice_packets(track, slices, found.part(begin, begin + _CHUNK), args, shift_ns)
        for track, at_ns, values in self._counters:
            for begin in range(0, at_ns.size, _CHUNK):
                until = begin + _CHUNK
                yield _counter_packets(track, at_ns[begin:until] + shift_ns, values[begin:until])

    @staticmethod
    def _head(at_ns: int, epoch_ns: int | None) -> bytes:
        """The first packet, which resets interned names; with the wall-clock time of `at_ns` if `epoch_ns` is known."""
        head = packets.number(_SEQUENCE, 1) + packets.number(_FLAGS, _CLEARED) + packets.number(_FIRST, 1)
        if epoch_ns is None or at_ns + epoch_ns < 0:
            return head
        clocks = ((_BOOTTIME, at_ns), (_REALTIME, at_ns + epoch_ns))
        encoded = (packets.message(1, packets.number(1, clock) + packets.number(2, ns)) for clock, ns in clocks)
        return head + packets.message(_CLOCKS, b"".join(encoded))

    def _interned(self) -> Iterator[bytes]:
        kinds = {CATEGORIES: self._categories, _NAMES: self._names, _LABELS: self._labels, _STRINGS: self._strings}
        every = [(field, number, text) for field, known in kinds.items() for text, number in known.items()]
        for begin in range(0, len(every), _INTERNED_AT_ONCE):
            yield b"".join(
                packets.message(field, packets.number(1, number) + packets.text(2, text))
                for field, number, text in every[begin : begin + _INTERNED_AT_ONCE]
            )


def _known(row: Mapping[str, object]) -> dict[str, Value]:
    """The known values of a row: texts that are not empty, numbers that are not UNKNOWN, flags that are set."""
    plain = {label: value if isinstance(value, str) else value.item() for label, value in row.items()}  # type: ignore[attr-defined]
    return {label: value for label, value in plain.items() if value is not False and value not in (UNKNOWN, "")}


def _packet(body: bytes) -> bytes:
    return packets.message(PACKET, body)


def _slice_packets(track: int, slices: Slices, part: SliceEdges, args: packets.EncodedField, shift_ns: int) -> bytes:
    rows, begins = part.row, part.is_begin
    flow = slices.flow[rows]
    return _event_packets(
        part.at_ns + shift_ns,
        [
            packets.numbers(EVENT_TYPE, np.where(begins, _BEGIN, _END)),
            packets.constant(packets.number(EVENT_TRACK, track), rows.size),
            packets.numbers(EVENT_CATEGORY, slices.category[rows], begins),
            packets.numbers(_EVENT_NAME, slices.name[rows], begins),
            packets.chosen(args, np.where(begins, slices.args[rows], UNKNOWN)),
            packets.fixed(_FLOW, flow, begins & (flow > 0)),
        ],
    )


def _counter_packets(track: int, at_ns: Ints, values: npt.NDArray[np.generic]) -> bytes:
    is_whole = values.dtype.kind == "i"
    about = packets.constant(packets.number(EVENT_TYPE, _COUNT) + packets.number(EVENT_TRACK, track), at_ns.size)
    numbers = packets.numbers(_COUNTER_INT, values) if is_whole else packets.fixed(_COUNTER_DOUBLE, values)  # type: ignore[arg-type]
    return _event_packets(at_ns, [about, numbers])


def _event_packets(at_ns: Ints, event: Iterable[packets.EncodedField]) -> bytes:
    body = [
        packets.numbers(TIMESTAMP, at_ns),
        packets.constant(_SAME, at_ns.size),
        *packets.messages(TRACK_EVENT, list(event)),
    ]
    return packets.written(packets.messages(PACKET, body))
