"""A reader of Perfetto's format for the tests, written from its documentation alone, independent of the writer.

Wire format: https://protobuf.dev/programming-guides/encoding/. Field numbers: protos/perfetto/trace in google/perfetto.
Slices are put together as the importer does it: all events by time, those of one moment in the file's order; an end
closes the innermost open slice of its track.
"""

from __future__ import annotations

import gzip
import struct
from collections import defaultdict
from dataclasses import dataclass, field


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """A message as {field number: [values]}: int for varints, bytes for the others."""
    found = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
        elif wire == 2:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
            assert len(value) == length, "cut off"
        else:
            raise AssertionError(f"wire type {wire}")
        found[key >> 3].append(value)
    return dict(found)


def one(message, number, default=None):
    values = message.get(number, [default])
    assert len(values) == 1, f"field {number} stands there {len(values)} times"
    return values[0]


def _signed(value, bits=64):
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass
class Slice:
    track: int
    name: str
    category: str
    start: int
    end: int | None = None
    args: dict = field(default_factory=dict)
    flows: tuple = ()
    depth: int = 0


@dataclass
class Track:
    uuid: int
    name: str
    parent: int
    place: int | None
    pid: int | None = None
    tid: int | None = None
    thread_name: str = ""
    unit: str | int | None = None


@dataclass
class File:
    tracks: dict
    slices: list
    counters: dict  # track → [(at, value)]
    clocks: dict  # clock → ns

    def path(self, uuid):
        track = self.tracks[uuid]
        return (*self.path(track.parent), track.name) if track.parent else (track.name,)

    def on(self, *path):
        """Slices of the tracks whose path ends so."""
        return [each for each in self.slices if self.path(each.track)[-len(path) :] == path]

    def of(self, category):
        return [each for each in self.slices if each.category == category]

    def rows(self, category):
        return sorted((each.start, each.end, each.name) for each in self.of(category))

    def counter(self, name):
        (found,) = [values for uuid, values in self.counters.items() if self.tracks[uuid].name == name]
        return found


def _interned(data):
    message = fields(data)
    return {
        kind: {one(entry, 1): one(entry, 2).decode() for entry in map(fields, message.get(number, []))}
        for kind, number in (("categories", 1), ("names", 2), ("labels", 3), ("strings", 29))
    }


def _track(data):
    message = fields(data)
    track = Track(one(message, 1), one(message, 2).decode(), one(message, 5, 0), one(message, 12))
    if 3 in message:
        track.pid = one(fields(one(message, 3)), 1)
    if 4 in message:
        thread = fields(one(message, 4))
        track.pid, track.tid, track.thread_name = one(thread, 1), one(thread, 2), one(thread, 5).decode()
    if 8 in message:
        counter = fields(one(message, 8))
        track.unit = one(counter, 6).decode() if 6 in counter else one(counter, 3)
    return track


def _argument(data, known):
    message = fields(data)
    label = known["labels"][one(message, 1)]
    (number,) = set(message) - {1}
    value = one(message, number)
    if number == 17:
        return label, known["strings"][value]
    if number == 5:
        return label, struct.unpack("<d", value)[0]
    return label, {2: bool, 4: _signed}[number](value)


def read(data):
    """The tracks, slices and counters of a file."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    trace = fields(data)
    assert set(trace) == {1}, "only packets"
    known = {"categories": {}, "names": {}, "labels": {}, "strings": {}}
    tracks, events, clocks, is_first = {}, [], {}, True
    for packet in map(fields, trace[1]):
        assert one(packet, 10) == 1, "one sequence"
        assert one(packet, 13) == (1 if is_first else 2), "the first clears what was interned, the others need it"
        is_first = False
        if 6 in packet:
            clocks = {one(clock, 1): one(clock, 2) for clock in map(fields, fields(one(packet, 6))[1])}
        if 60 in packet:
            track = _track(one(packet, 60))
            assert track.uuid not in tracks
            assert not track.parent or track.parent in tracks
            tracks[track.uuid] = track
        if 12 in packet:
            for kind, names in _interned(one(packet, 12)).items():
                assert not known[kind].keys() & names.keys()
                known[kind].update(names)
        if 11 in packet:
            events.append((one(packet, 8), fields(one(packet, 11))))
    return _shown(tracks, events, known, clocks)


def _shown(tracks, events, known, clocks):
    slices, counters, stacks = [], defaultdict(list), defaultdict(list)
    for at, event in sorted(events, key=lambda pair: pair[0]):
        track, kind = one(event, 11), one(event, 9)
        assert track in tracks, "an event of no track"
        if kind == 1:
            found = Slice(
                track,
                known["names"][one(event, 10)],
                known["categories"][one(event, 3)],
                at,
                args=dict(_argument(each, known) for each in event.get(4, [])),
                flows=tuple(struct.unpack("<Q", each)[0] for each in event.get(47, [])),
                depth=len(stacks[track]),
            )
            slices.append(found)
            stacks[track].append(found)
        elif kind == 2:
            assert set(event) == {9, 11}
            stacks[track].pop().end = at
        else:
            assert kind == 4
            assert tracks[track].unit is not None, "a counter without a description"
            value = struct.unpack("<d", one(event, 44))[0] if 44 in event else _signed(one(event, 30))
            counters[track].append((at, value))
    assert not any(stacks.values()), "a slice that never ends"
    return File(tracks, slices, dict(counters), clocks)
