"""What did torch.profiler record? Reads Kineto's Chrome traces, plain or gzip, old and new, also damaged ones.

Format: libkineto/src/output_json.cpp. `ts` and `dur` are microseconds; where the file holds `baseTimeNanoseconds`, `ts`
counts from there, else from 1970. Each activity of one process is one complete event; `cat` is its kind.
Ranges are written twice, the second time as `gpu_user_annotation` around the device work that they launched: these are
left out. Older writers give ranges the category of operators: they are recognised by their names.
"""

from __future__ import annotations

import re
from collections import Counter
from io import FileIO
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec
import numpy as np
from msgspec import Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.columns import constant
from perfdoctor.model.timeline import UNKNOWN, Device, Frame, Mask, Source, Timeline
from perfdoctor.patterns import regex
from perfdoctor.readers import other_tools
from perfdoctor.readers.kineto import processes
from perfdoctor.readers.kineto.columns import NO_TIME
from perfdoctor.readers.kineto.events import Columns, Tips
from perfdoctor.readers.kineto.frames import Hosts, frames_of, recorded_by
from perfdoctor.readers.kineto.inflate import MAGIC, Inflated, TooLongError
from perfdoctor.readers.kineto.pieces import OfFile, OfStream, piece_bytes
from perfdoctor.readers.kineto.repair import EventArray, array_start, is_whole, member
from perfdoctor.readers.kineto.window import TraceText as TextSource
from perfdoctor.readers.kineto.window import Window
from perfdoctor.readers.rank_names import rank_in
from perfdoctor.system.memory import give_back
from perfdoctor.system.progress import rising, unheard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from perfdoctor.readers.kineto.columns import EventTable, GrowingColumns
    from perfdoctor.system.progress import Done

_RECORD = other_tools.TORCH
#: Marks of other tools stand among the first bytes, or in the first events.
_MARKED_BYTES = 1 << 20
#: Reading fewer leaves less than 100 MB behind, and to look for it takes some ms.
_MANY_EVENTS = 1_000_000
#: Of a member's name, in a message.
_SHOWN_KEY = 40
#: gzip makes traces about twelve to twenty times smaller.
_USUAL_PACKING = 12
#: What only a recording of a device holds.
_OF_DEVICE = ("kernels", "collectives", "copies")
_BLANK = b"\0 \t\r\n"
_BEGIN = regex(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*\{\s*"|\{\s*"schemaVersion"\s*:)')
_LAST_RELATIVE_NS = 10**18  # the year 2001: later times count from 1970, and no recording lasts so long


def looks_like(head: bytes) -> bool:
    """Do these bytes, the first of a file and decompressed, belong to a Chrome trace, also to a bare list of events?

    The groups of a job of thousands of ranks, which torch writes in front of the events, are longer than these bytes:
    then Kineto's own first member is enough.
    """
    return b'"traceEvents"' in head or _BEGIN.match(head) is not None


def read(path: Path, done: Done = unheard) -> Timeline:
    """The Timeline of one trace: one rank. `done` is called now and then with the number of bytes read of the file.

    PerfdoctorError if the file is empty, of another kind, or holds nothing that torch.profiler records.
    """
    trace = _Trace(path, done)
    try:
        with trace.opened() as stream:
            trace.read(stream)
    except TooLongError as error:
        raise PerfdoctorError(f"{path.name}: {error.what}", do=error.do) from error
    timeline, count = trace.timeline(), trace.array.count
    del trace
    if count >= _MANY_EVENTS:
        give_back()
    return timeline


def _text(stream: BinaryIO) -> TextSource:
    """The text of a file, which is at its begin."""
    is_packed = stream.read(len(MAGIC)) == MAGIC
    stream.seek(0)
    return Inflated(stream) if is_packed else cast("TextSource", stream)


def _refusal(file: str, text: bytes) -> PerfdoctorError:
    """Why a text without an array of events is no trace."""
    head = text[:_MARKED_BYTES].strip(_BLANK)
    if not head:
        return PerfdoctorError(f"`{file}` is empty", do="record again: a full disk or a killed process leaves these")
    if re.search(rb'"nodes"\s*:', head) and re.search(rb'"schema"\s*:\s*"', head):
        return PerfdoctorError(f"`{file}` is a PyTorch execution trace, which records no GPU activity", do=_RECORD)
    if other := other_tools.refusal(file, head):
        return other
    try:
        keys = list(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
    except (ValueError, RecursionError):
        what = "breaks off or is damaged before its first event" if head[:1] == b"{" else "is no trace: it is not JSON"
        return PerfdoctorError(f"`{file}` {what}", do=_RECORD)
    if "traceEvents" in keys:
        return PerfdoctorError(f"`{file}` holds no events", do=_RECORD)
    what = f"holds {', '.join(key[:_SHOWN_KEY] for key in keys[:5]) or 'nothing'}, and no traceEvents"
    return PerfdoctorError(f"`{file}` is JSON but no trace: it {what}", do=_RECORD)


class _Header(Struct, frozen=True):
    """The trace's members before and behind its events. One that is unreadable or of a wrong type counts as missing."""

    base_ns: int = 0
    rank: int | None = None
    world_size: int = 0
    devices: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    version: str = ""

    @classmethod
    def of(cls, before: bytes, behind: bytes) -> _Header:
        def value(key: str) -> object:
            return member(before, behind, key)

        info = value("distributedInfo")
        info = info if isinstance(info, dict) else {}
        listed = value("deviceProperties")
        devices = [device for device in (listed if isinstance(listed, list) else []) if isinstance(device, dict)]
        return cls(
            base_ns=_natural(value("baseTimeNanoseconds"), below=2**61) or 0,
            rank=_natural(info.get("rank"), below=2**31),
            world_size=_natural(info.get("world_size"), below=2**31) or 0,
            devices={number: device for device in devices if (number := _natural(device.get("id"))) is not None},
            version=_version(value),
        )


def _natural(value: object, below: int = 2**53) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below else None


def _version(value: Callable[[str], object]) -> str:
    """The versions of the format and of the GPU's runtime, in words. `value`: of a member of the trace."""
    schema = _natural(value("schemaVersion"))
    cuda = _natural(value("cuda_runtime_version"))
    hip = _natural(value("hip_runtime_version"))
    parts = [f"schemaVersion {schema}"] if schema is not None else []
    parts += [f"CUDA {cuda // 1000}.{cuda % 1000 // 10}"] if cuda else []
    parts += [f"HIP {hip // 10_000_000}.{hip // 100_000 % 100}"] if hip else []
    return ", ".join(parts)


class _Heard(FileIO):
    """A file that says how far it has been read."""

    def __init__(self, path: Path, done: Done) -> None:
        super().__init__(path)
        self._done = done

    def read(self, size: int | None = -1, /) -> Any:
        found = super().read(size)
        self._done(self.tell())
        return found

    def readinto(self, buffer: Any, /) -> Any:
        size = super().readinto(buffer)
        self._done(self.tell())
        return size


class _Trace:
    """One trace: its events, its header, and what had to be repaired or left out."""

    def __init__(self, path: Path, done: Done) -> None:
        self.path, self.file, self.done = path, path.name, rising(done)
        self.notes: list[str] = []
        self.dropped: Counter[str] = Counter()
        self.columns = Columns()

    def opened(self) -> BinaryIO:
        return cast("BinaryIO", _Heard(self.path, self.done))

    def read(self, stream: BinaryIO) -> None:
        """Events, header and damage of the file; PerfdoctorError where it has no array of events."""
        source = _text(stream)
        text = Window(source)
        found = array_start(text)
        if found is None:
            raise _refusal(self.file, text.rest(0))
        key, start = found
        before = text.between(0, key)
        is_bare = text.between(key, key + 1) == b"["
        self.head = text.between(0, _MARKED_BYTES)
        packing = _USUAL_PACKING if isinstance(source, Inflated) else 1
        with processes.started(self.path.stat().st_size * packing) as workers:
            self.array = array = self._events(EventArray(text, start, self.columns), source, workers)
        behind = array.text.rest(array.position if array.end is None else array.end)
        self.header = _Header.of(before, behind)
        self._note_damage(is_sound=not behind.strip(_BLANK) if is_bare else is_whole(before, behind))
        if isinstance(source, Inflated) and not source.is_whole and array.end is not None:
            self.notes.append(f"the compression of `{self.file}` is damaged behind its {array.count:,} events")

    def _events(self, array: EventArray, source: TextSource, workers: Sequence[processes.PieceWorker]) -> EventArray:
        """Read all events. Returns the array that has found their end, with all that was counted."""
        text, begin = array.text, array.begin
        if workers:
            array.read(begin + piece_bytes())
        if not workers or array.end is not None or array.position >= text.length:
            array.read()
            return array
        pieces: OfFile | OfStream
        if isinstance(source, Inflated):
            pieces = OfStream(source, text.between(begin + piece_bytes() - text.origin, text.length), begin)
        else:
            pieces = OfFile(self.path, source, begin)
        # The text of a plain file is read by those who have its pieces, that of another one by this process alone.
        done = self.done if isinstance(pieces, OfFile) else unheard
        found = processes.read(pieces, workers, self.columns, text.origin + array.position, done)
        rest = Window(*pieces.rest(found.stop))
        rest.fill(found.stop - rest.origin + 1)
        last = EventArray(rest, found.stop - rest.origin, self.columns, begin)
        last.count, last.repaired = array.count + found.count, array.repaired + found.repaired
        last.skipped = array.skipped + found.skipped
        last.read()
        return last

    def _note_damage(self, *, is_sound: bool) -> None:
        array = self.array
        if array.end is None:
            lost = "" if self.header.base_ns else ", its clock too if it stood there"
            self.notes.append(f"`{self.file}` is cut off after {array.count:,} events: what follows is lost{lost}")
        elif not is_sound:
            self.notes.append(f"`{self.file}` is cut off or damaged around its {array.count:,} events")
        if array.repaired:
            self.notes.append(f"`{self.file}` was no valid JSON in {array.repaired:,} places, which were repaired")
        if array.skipped:
            what = f"is damaged beyond repair in {array.skipped:,} places: their events were left out"
            self.notes.append(f"`{self.file}` {what}")

    def timeline(self) -> Timeline:
        if not self.array.count:
            raise PerfdoctorError(f"`{self.file}` holds no events", do=_RECORD)
        tables = {name: self._table(group) for name, group in self.columns.groups.items() if len(group)}
        if tables.keys().isdisjoint(_OF_DEVICE) and (other := other_tools.refusal(self.file, self.head, with_ops=True)):
            raise other
        if not any(table["start_ns"].size for table in tables.values()):
            if other := other_tools.refusal(self.file, self.head):
                raise other
            what = (
                f"`{self.file}` is a trace of another tool (Triton's server and others write such): of its "
                f"{self.array.count:,} events none is an operator, call or kernel of PyTorch"
            )
            raise PerfdoctorError(what, do=_RECORD)
        self.notes += [f"{count:,} {what} (`{self.file}`)" for what, count in self.dropped.items() if count]
        self._link_by_flows([tables[name] for name in ("kernels", "collectives", "copies") if name in tables])
        rank = self.header.rank if self.header.rank is not None else rank_in(self.file) or 0
        hosts = Hosts.of(tables, self.columns.host_labels)
        frames = frames_of(tables, hosts, rank)
        names = self.columns.thread_names
        return Timeline.build(
            frames,
            recorded_by(frames),
            sources=(Source("kineto", self.file, self.header.version, (rank,), cut_off=self.array.end is None),),
            devices=self._devices(frames, rank),
            world_size=self.header.world_size,
            thread_names={place: name for place, name in names.items() if place[0] in hosts.processes},
            notes=self.notes,
        )

    def _table(self, group: GrowingColumns) -> EventTable:
        """The rows with absolute times, without those that have no time and repetitions."""
        table = group.table()
        start, duration = table["start_ns"], table["duration_ns"]
        is_timed = (start != NO_TIME) & (duration != NO_TIME)
        self.dropped["rows have no time and were left out"] += int((~is_timed).sum())
        self.dropped["rows end before they start and count as empty"] += int((is_timed & (duration < 0)).sum())
        if not is_timed.all():
            table.keep(is_timed)
        base_ns, is_relative = self.header.base_ns, table["start_ns"] < _LAST_RELATIVE_NS
        is_one = not base_ns or bool(is_relative.all())
        table["base_ns"] = constant(base_ns, table.length) if is_one else is_relative * base_ns
        table["start_ns"] = table["start_ns"] + table["base_ns"]
        table.keep(np.argsort(table["start_ns"], kind="stable"))
        kept = _first_of_equals(table)
        self.dropped["rows are written twice and count once"] += int((~kept).sum())
        if not kept.all():
            table.keep(kept)
        table["end_ns"] = table["start_ns"] + np.maximum(table["duration_ns"], 0)
        del table["duration_ns"]
        return table

    def _link_by_flows(self, tables: list[EventTable]) -> None:
        """Take the correlations from the flows, where no device work carries one itself."""
        if not tables or any((table["correlation"] != UNKNOWN).any() for table in tables):
            return
        tips = Tips()
        with self.opened() as stream:
            text = Window(_text(stream))
            if found := array_start(text):
                EventArray(text, found[1], tips).read()
        known = tips.correlations
        for table in tables:
            start = table["start_ns"] - table["base_ns"]
            places = zip(table["device"].tolist(), table["stream"].tolist(), start.tolist(), strict=True)
            table["correlation"] = np.fromiter((known.get(place, UNKNOWN) for place in places), np.int64, start.size)

    def _devices(self, frames: Mapping[str, Frame], rank: int) -> list[Device]:
        """The devices that this rank's work ran on, of all that the file lists; all, where none did."""
        used: set[int] = set()
        for signal in ("kernels", "collectives", "copies"):
            if signal in frames:
                used.update(np.unique(frames[signal]["device"]).tolist())
        known = self.header.devices
        # A process may see its devices in other numbers than the machine: where all are of one kind, it is theirs too.
        alike = list({repr({**each, "id": 0}): each for each in known.values()}.values())
        of_all = alike[0] if len(alike) == 1 else {}
        found = {number: known.get(number, of_all) for number in sorted(used)} or known
        return [_device(rank, number, properties) for number, properties in found.items() if properties]


def _device(rank: int, number: int, properties: Mapping[str, Any]) -> Device:
    name = properties.get("name")
    return Device(
        rank,
        number,
        name.encode("utf-8", "replace").decode() if isinstance(name, str) else "",  # JSON can hold half of a pair
        _natural(properties.get("numSms")) or 0,
        (_natural(properties.get("computeMajor")) or 0, _natural(properties.get("computeMinor")) or 0),
        _natural(properties.get("totalGlobalMem")) or 0,
    )


def _first_of_equals(table: EventTable) -> Mask:
    """True for all rows but repetitions. Equal rows of no length are kept: they may be different events."""
    start = table["start_ns"]
    kept = np.ones(start.size, dtype=bool)
    same = np.concatenate(([False], start[1:] == start[:-1]))
    among = np.flatnonzero((same | np.append(same[1:], False)) & (table["duration_ns"] > 0))
    keys = [column[among] for column in table.all_columns()]
    order = np.lexsort(keys)
    repeats = np.ones(max(order.size - 1, 0), dtype=bool)
    for key in keys:
        repeats &= key[order][1:] == key[order][:-1]
    kept[among[order[1:][repeats]]] = False
    return kept
