"""Are fields of many messages encoded as protobuf's documentation says?"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto_file import fields

from perfdoctor.export import packets

UNSIGNED = st.integers(0, 2**64 - 1)
SIGNED = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (150, "9601"), (-1, "ff" * 9 + "01")]
)
def test_a_varint_is_the_one_of_the_documentation(value, encoded):
    assert packets.varint(value).hex() == encoded


@given(st.lists(SIGNED, min_size=1, max_size=30))
def test_a_column_of_numbers_is_each_number(values):
    data = packets.written([packets.numbers(3, np.array(values, np.int64))])
    assert data == b"".join(packets.number(3, value) for value in values)
    assert fields(data) == {3: [value % 2**64 for value in values]}


@given(st.lists(st.tuples(st.booleans(), SIGNED), min_size=1, max_size=30))
def test_an_absent_field_takes_no_byte(rows):
    present = np.array([each for each, _ in rows])
    data = packets.written([packets.fixed(47, np.array([value for _, value in rows], np.int64), present)])
    present = [struct.pack("<q", value) for is_there, value in rows if is_there]
    assert fields(data) == ({47: present} if present else {})


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_doubles_are_exact(values):
    data = packets.written([packets.fixed(44, np.array(values, np.float64))])
    assert [struct.unpack("<d", each)[0] for each in fields(data)[44]] == values


@given(st.lists(st.tuples(st.binary(max_size=300), SIGNED), min_size=1, max_size=20))
def test_a_message_contains_its_fields_and_nothing_else(rows):
    table = packets.table([packets.message(7, text) for text, _ in rows])
    parts = [packets.chosen(table, np.arange(len(rows))), packets.numbers(2, np.array([n for _, n in rows], np.int64))]
    found = fields(packets.written(packets.messages(1, parts)))[1]
    assert [fields(each) for each in found] == [{7: [text], 2: [n % 2**64]} for text, n in rows]
