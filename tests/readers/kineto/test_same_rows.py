"""A trace gives the same rows however it is read: typed or with any values, through whatever window, inflated by whom."""

from __future__ import annotations

import gzip
import json
import zlib
from io import BytesIO
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_traces import damaged, events, outcome, trace
from msgspec import Raw

from perfdoctor.readers.kineto import inflate, repair, window
from perfdoctor.readers.kineto.columns import InexactError, of_digits
from perfdoctor.readers.kineto.events import Columns


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
