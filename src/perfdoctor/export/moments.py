"""Which moments do the findings of an exported trace show? Read back from the file that `perfetto` wrote.

The trace alone is asked, and not the report beside it: the two may be of different steps.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import IO, NamedTuple, TypeVar

from perfdoctor.errors import PerfdoctorError
from perfdoctor.export import trace as written
from perfdoctor.export.findings import EVIDENCE, FIRST_TRACK
from perfdoctor.system.protobuf import LONGEST_VARINT, Value, fields, varint

Kind = TypeVar("Kind", int, bytes)

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
            known = dict(fields(packet))
            if number > _MOST_PACKETS or not findings.take(known):
                break
            for moment in findings.ended(known):
                found.setdefault(moment.finding, moment)
    except (EOFError, LookupError, ValueError, struct.error) as error:
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

    def take(self, packet: Mapping[int, Value]) -> bool:
        """Learn names of tracks and categories. False: here begins what is of no finding."""
        if descriptor := packet.get(written.DESCRIPTOR):
            track = dict(fields(descriptor))
            name = _checked(bytes, track.get(written.TRACK_NAME, b"")).decode()
            self.tracks[_checked(int, track[written.TRACK_UUID])] = (
                name,
                _checked(int, track.get(written.TRACK_PARENT, 0)),
            )
        elif interned := packet.get(written.INTERNED):
            self.evidence = self.evidence or _category(interned)
        elif event := packet.get(written.TRACK_EVENT):
            track = dict(fields(event))
            return self.finding_of(_checked(int, track.get(written.EVENT_TRACK, 0))) is not None
        return True

    def ended(self, packet: Mapping[int, Value]) -> Iterator[Moment]:
        """The moment that ends with this event."""
        if written.TRACK_EVENT not in packet:
            return
        event, at_ns = dict(fields(packet[written.TRACK_EVENT])), _checked(int, packet[written.TIMESTAMP])
        track = _checked(int, event[written.EVENT_TRACK])
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


def _category(interned: Value) -> int:
    for field, value in fields(interned):
        if field == written.CATEGORIES:
            entry = dict(fields(value))
            if entry.get(2) == EVIDENCE.encode():
                return _checked(int, entry[1])
    return 0


def _packets(file: IO[bytes]) -> Iterator[bytes]:
    left = _MOST_BYTES
    while head := file.read(1):
        if head[0] >> 3 != written.PACKET:
            raise EOFError
        length = _length(file)
        packet = file.read(length) if length <= _LARGEST_PACKET else b""
        left -= length
        if len(packet) != length or left < 0:
            raise EOFError
        yield packet


def _length(file: IO[bytes]) -> int:
    """The number that comes next. Raises IndexError at the end of the file."""
    digits = b""
    for _ in range(LONGEST_VARINT):
        digits += file.read(1)
        if digits[-1] < 128:
            break
    return varint(digits, 0)[0]


def _checked(kind: type[Kind], value: Value) -> Kind:
    if not isinstance(value, kind):
        raise EOFError  # noqa: TRY004 the file is damaged
    return value
