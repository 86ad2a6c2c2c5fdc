"""A trace gives the same rows however it is read: typed or with any values, through whatever window, inflated by whom."""

from __future__ import annotations

import gzip
import json
import zlib
from io import BytesIO
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.columns import Text
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.kineto import inflate, repair, window
from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.readers.kineto.columns import InexactError, of_digits
from perfdoctor.readers.kineto.events import Columns

CATEGORIES = (
    "cpu_op", "user_annotation", "kernel", "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset", "python_function",
    "cpu_instant_event", "overhead", "cuda_sync", "ac2g", "Trace", "Kernel", "xpu_sync", "never_seen_runtime", "other",
)  # fmt: skip
#: Microseconds as writers write them, and as nobody should.
TIMES = st.one_of(
    st.integers(0, 10**6), st.integers(0, 10**9).map(lambda ns: ns / 1000), st.sampled_from([True, None, "7.125", "x"])
)
ODD = st.sampled_from([None, True, 7.0, 7.5, "stream 7", "24", "", [1], {"a": 1}, 2**63, -(2**70), 10**30])
NUMBERS = st.one_of(st.integers(0, 40), st.integers(0, 2**40))
NAMES = st.one_of(
    st.sampled_from(["aten::mm", "aten::convolution", "ncclKernel_AllReduce_RING", "[memory]", "Stream Wait Event"]),
    st.text(max_size=8),
    st.sampled_from(['}, {"name": 1', '"}]}', "\\", "},\n  {", '{"ph":"X"}', "\u2028\ud7ff🙂", "a\x00b"]),
)
ARGS = {
    "correlation": NUMBERS, "device": NUMBERS, "stream": NUMBERS, "wait_on_stream": NUMBERS, "bytes": NUMBERS,
    "External id": NUMBERS, "Total Allocated": NUMBERS, "Total Reserved": NUMBERS, "Device Type": st.integers(0, 1),
    "Device Id": st.integers(0, 2), "grid": st.just([4, 2, 1]), "block": st.just([32, 1, 1]), "kind": NAMES,
    "Input Dims": st.lists(st.lists(NUMBERS, max_size=2), max_size=2), "Input type": st.lists(NAMES, max_size=2),
    "Concrete Inputs": st.lists(NAMES, max_size=2), "Collective name": NAMES, "In msg nelems": NUMBERS,
    "Group size": st.integers(1, 8), "Process Group Ranks": st.just("[0, 1]"), "dtype": st.just("Float"),
    "parts": st.just([{"name": "a"}, {"name": "b", "ph": "X"}]),
}  # fmt: skip


@st.composite
def events(draw, odd: float = 0.1) -> dict[str, object]:
    """One event; `odd`: the share of values that are of another type than writers give them."""

    def value(usual):
        return draw(ODD) if draw(st.floats(0, 1)) < odd else draw(usual)

    chosen = draw(st.lists(st.sampled_from(sorted(ARGS)), max_size=6, unique=True))
    event = {
        "ph": "X", "cat": draw(st.sampled_from(CATEGORIES)), "name": draw(NAMES), "pid": value(NUMBERS),
        "tid": value(NUMBERS), "ts": value(TIMES), "dur": value(TIMES), "args": {name: value(ARGS[name]) for name in chosen},
    }  # fmt: skip
    for missing in draw(st.lists(st.sampled_from(["dur", "args", "pid", "ts", "cat"]), max_size=1)):
        del event[missing]
    return event


def outcome(text: bytes) -> object:
    """All of the timeline in plain values, or the refusal."""
    try:
        return plain(kineto.read(Path("trace.json"), text))
    except PerfdoctorError as error:
        return error.what


def plain(timeline: Timeline) -> object:
    frames = {
        signal: {
            name: (column.codes.tolist(), list(column.values)) if isinstance(column, Text) else column.tolist()
            for name, column in frame.columns.items()
        }
        for signal, frame in timeline.frames.items()
        if len(frame)
    }
    assert all(np.diff(frame.start_ns).min(initial=0) >= 0 for frame in timeline.frames.values())
    return frames, timeline.recorded, timeline.notes, timeline.thread_names, timeline.sources


@st.composite
def damaged(draw, text: bytes) -> bytes:
    """The text with a few bytes of it gone or wrong, or cut off, or none of that."""
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(text)))
        wrong = draw(st.sampled_from([b"", b'"', b"\xff", b"}", b"]", b"{", b"\\", b",", b"NaN", b"\x01"]))
        text = text[:place] + wrong + text[place + draw(st.integers(0, 2)) :]
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 9)) == 0 else text


def trace(rows: list[dict[str, object]], decimals: bool = False) -> bytes:
    text = json.dumps({"schemaVersion": 1, "traceEvents": rows}, indent=1)
    return (text.replace('"ts": ', '"ts": 1712195495') if decimals else text).encode()


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(events(odd=0), events()), max_size=12), st.booleans())
def test_a_typed_batch_gives_the_rows_of_any_other(rows, decimals):
    text = trace(rows, decimals)
    fast = outcome(text)
    with mock.patch.object(Columns, "add_typed", return_value=None):
        assert outcome(text) == fast


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(events(odd=0), min_size=1, max_size=12))
def test_what_writers_write_is_decoded_typed(rows):
    usual = [
        {**row, "cat": "cpu_op", "ts": 7, "dur": 8, "pid": 1, "tid": 1, "args": {"External id": 3}} for row in rows
    ]
    found = Columns()
    assert found.add_typed(json.dumps(usual).encode()) == len(rows)
    decimal = json.dumps(usual).replace('"ts": 7', '"ts": 1712195495519689.123').encode()
    assert Columns().add_typed(decimal) == len(rows)
    assert found.add_typed(decimal.replace(b".123", b".12")) is None


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.lists(events(odd=0.02), min_size=1, max_size=12), st.sampled_from([40, 300, 2000]))
def test_a_small_window_gives_the_rows_and_notes_of_a_large_one(data, rows, batch):
    text = data.draw(damaged(trace(rows)))
    with mock.patch.object(repair, "BATCH_BYTES", batch), mock.patch.object(repair, "_LENGTHS", (100, 1 << 24)):
        whole = outcome(text)
        with mock.patch.object(window, "BYTES", 64):
            assert outcome(text) == whole
            assert outcome(gzip.compress(text)) == whole


@settings(deadline=None, max_examples=100)
@given(st.data(), st.lists(st.binary(max_size=3000), min_size=1, max_size=3), st.integers(1, 5000))
def test_gzip_is_inflated_to_the_same_text_with_and_without_a_fast_library(data, members, piece):
    packed = data.draw(damaged(b"".join(gzip.compress(each * 40, mtime=0) for each in members)))
    with mock.patch.object(inflate, "_PIECE_BYTES", piece):
        found = inflate.decompressed(packed)
        with mock.patch.object(inflate, "_fast", zlib):
            assert inflate.decompressed(packed) == found
    assert found[0] == (bytes(read_slowly(packed)) if packed[:2] == inflate.MAGIC else packed)


def read_slowly(packed: bytes) -> bytearray:
    """By zlib alone, a byte at a time: all that stands before the damage."""
    text, rest = bytearray(), BytesIO(packed)
    while packed[rest.tell() : rest.tell() + 2] == inflate.MAGIC:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            byte = rest.read(1)
            try:
                text += member.decompress(byte)
            except zlib.error:
                return text
            if not byte:
                return text
    return text


@pytest.mark.parametrize(
    "others", ["12.34 567.890", "1.500 12.345", "1e3 1.5", "1234 5678", "-1.500 -2.500", '"1.500" "2.500"']
)
def test_decimals_are_taken_from_their_digits_only_where_all_are_alike(others):
    with pytest.raises(InexactError):
        of_digits([Raw(text.encode()) for text in others.split()])
    alike = [Raw(b"1712195495519689.123"), Raw(b"0000000000000001.005")]
    assert of_digits(alike).tolist() == [1712195495519689123, 1005]
