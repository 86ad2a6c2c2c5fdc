"""Which moments do the findings of an exported trace show? Read back from the file that `perfetto` wrote.

The trace alone is asked, and not the report beside it: the two may be of different steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import IO, NamedTuple

from perfdoctor.errors import PerfdoctorError
from perfdoctor.export import trace as written
from perfdoctor.export.findings import EVIDENCE, FIRST_TRACK

#: Findings come first in a file: what is longer is not one that we wrote.
_LARGEST_PACKET = 1 << 26
_MOST_PACKETS = 1 << 20
#: What a small compressed file becomes may be without end.
_MOST_BYTES = 1 << 28
_BEGIN = 1
#: A finding, a place, a lane.
_DEEPEST = 4


class Moment(NamedTuple):
    """A finding's name, as its track is called (`1. input-wait: …`), and what the file shows, in its ns."""

    finding: str
    start_ns: int
    end_ns: int


def moments(file: IO[bytes]) -> list[Moment]:
    """The moment of each finding that has one, in the order of the findings. `file`: the trace, not compressed.

    Raises PerfdoctorError where it is no trace of perfdoctor export, or breaks off.
    """
    findings, found = _Findings(), dict[str, Moment]()
    try:
        for number, packet in enumerate(_packets(file)):
            if number == 1 and FIRST_TRACK.encode() not in packet:
                raise PerfdoctorError("it is no trace of perfdoctor export", do="Write one: perfdoctor export.")
            fields = dict(_fields(packet))
            if number > _MOST_PACKETS or not findings.take(fields):
                break
            for moment in findings.ended(fields):
                found.setdefault(moment.finding, moment)
    except (EOFError, LookupError, UnicodeDecodeError) as error:
        raise PerfdoctorError("the trace is damaged or breaks off", do="Write it again: perfdoctor export.") from error
    return list(found.values())


class _Findings:
    """The tracks of findings, and which of their slices are open."""

    def __init__(self) -> None:
        #: Each track's name and parent.
        self.tracks: dict[int, tuple[str, int]] = {}
        self.evidence = 0
        #: By track the open slices, the innermost last: when each began, and is it evidence?
        self.open: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)

    def take(self, fields: Mapping[int, int | bytes]) -> bool:
        """Learn names of tracks and categories. False: here begins what is of no finding."""
        if descriptor := fields.get(written.DESCRIPTOR):
            track = dict(_fields(_bytes(descriptor)))
            name = _bytes(track.get(written.TRACK_NAME, b"")).decode()
            self.tracks[_int(track[written.TRACK_UUID])] = name, _int(track.get(written.TRACK_PARENT, 0))
        elif interned := fields.get(written.INTERNED):
            self.evidence = self.evidence or _category(_bytes(interned))
        elif event := fields.get(written.TRACK_EVENT):
            track = dict(_fields(_bytes(event)))
            return self.finding_of(_int(track.get(written.EVENT_TRACK, 0))) is not None
        return True

    def ended(self, fields: Mapping[int, int | bytes]) -> Iterator[Moment]:
        """The moment that ends with this event."""
        if written.TRACK_EVENT not in fields:
            return
        event, at_ns = dict(_fields(_bytes(fields[written.TRACK_EVENT]))), _int(fields[written.TIMESTAMP])
        track = _int(event[written.EVENT_TRACK])
        if event.get(written.EVENT_TYPE) == _BEGIN:
            is_evidence = bool(self.evidence) and event.get(written.EVENT_CATEGORY) == self.evidence
            self.open[track].append((at_ns, is_evidence))
        elif self.open[track]:
            start_ns, is_evidence = self.open[track].pop()
            if is_evidence:
                yield Moment(self.finding_of(track) or "", start_ns, at_ns)

    def finding_of(self, track: int) -> str | None:
        """The name of the track below that of all findings; None where it is of something else."""
        for _ in range(_DEEPEST):
            name, parent = self.tracks.get(track, ("", 0))
            if self.tracks.get(parent) == (FIRST_TRACK, 0):
                return name
            track = parent
        return None


def _category(interned: bytes) -> int:
    for field, value in _fields(interned):
        if field == written.CATEGORIES:
            entry = dict(_fields(_bytes(value)))
            if entry.get(2) == EVIDENCE.encode():
                return _int(entry[1])
    return 0


def _packets(file: IO[bytes]) -> Iterator[bytes]:
    left = _MOST_BYTES
    while head := file.read(1):
        if head[0] >> 3 != written.PACKET:
            raise EOFError
        length = _varint(file)
        packet = file.read(length) if length <= _LARGEST_PACKET else b""
        left -= length
        if len(packet) != length or left < 0:
            raise EOFError
        yield packet


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message. Raises EOFError or IndexError where it breaks off."""
    rest = BytesIO(message)
    while rest.tell() < len(message):
        key = _varint(rest)
        kind = key & 7
        if kind == 0:
            yield key >> 3, _varint(rest)
            continue
        if kind not in (1, 2, 5):
            raise EOFError
        length = {1: 8, 5: 4}.get(kind) or _varint(rest)
        value = rest.read(length) if length <= len(message) else b""
        if len(value) < length:
            raise EOFError
        yield key >> 3, value


def _varint(file: IO[bytes]) -> int:
    """The number that comes next. Raises IndexError at the end of the file."""
    value = shift = 0
    while True:
        byte = file.read(1)[0]
        value |= (byte & 127) << shift
        if byte < 128 or shift > 63:
            return value
        shift += 7


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise EOFError  # noqa: TRY004 the file is damaged
    return value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise EOFError  # noqa: TRY004
    return value
