"""A number of Nsight Compute is the same in every locale and unit."""

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import of_each

from perfdoctor.readers.ncu.cell_numbers import has_decimal_comma, number, unit_of


@of_each(
    ("unit", "factor", "counts"),
    [
        ("ns", 1, "ns"), ("nsecond", 1, "ns"), ("usecond", 1e3, "ns"), ("us", 1e3, "ns"), ("msecond", 1e6, "ns"),
        ("second", 1e9, "ns"), ("byte", 1, "byte"), ("Kbyte", 1e3, "byte"), ("Gbyte", 1e9, "byte"), ("Mibyte", 1 << 20, "byte"),
        ("byte/s", 1, "byte/s"), ("Gbyte/second", 1e9, "byte/s"), ("byte/nsecond", 1e9, "byte/s"), ("hz", 1, "hz"),
        ("Ghz", 1e9, "hz"), ("cycle/nsecond", 1e9, "hz"), ("cycle/second", 1, "hz"), ("cycle/usecond", 1e6, "hz"),
        ("%", 0.01, "share"), ("", 1, "count"), ("warp", 1, "count"), ("register/thread", 1, "count"),
        ("byte/block", 1, "count"), ("Kbyte/block", 1e3, "count"), ("inst/cycle", 1, "count"), ("Minst", 1e6, "count"),
        ("sector/s", 1, "sector/s"), ("made up", 1, "count"),
    ],
)  # fmt: skip
def test_every_unit_has_a_base(unit, factor, counts):
    assert unit_of(unit) == (pytest.approx(factor), counts)


@of_each(
    ("cells", "comma"),
    [
        (["4,963,609,951.19", "61.84"], False),
        (["4.963.609.951,19", "61,84"], True),
        (["61,84", "100"], True),
        (["61.84"], False),
        (["1,234", "7,000"], False),  # both are possible: as ncu writes it without a locale
        (["1.234", "0,5"], True),
        (["0.500"], False),
        (["0,500"], True),
        (["1,234,567"], False),
        (["1.234.567"], True),
        (["4 963 609,19"], True),
        (["dram__bytes.sum,lts__t.sum", "PolicySpread", "", "n/a"], False),
        (["1,5", "2,5", "3.25"], True),  # most cells have it
    ],
)
def test_the_whole_table_decides_what_its_commas_are(cells, comma):
    assert has_decimal_comma(cells) is comma


@pytest.mark.parametrize(
    ("cell", "comma", "value"),
    [
        ("4,963,609,951.19", False, 4963609951.19), ("4.963.609.951,19", True, 4963609951.19), ("1 234,5", True, 1234.5),
        ("1\u202f234,5", True, 1234.5), ("1'234.5", False, 1234.5), ("100", True, 100), ("-3.5", False, -3.5),
        ("1.5e+06", False, 1.5e6), ("12 (1; 2; 9)", False, 12), ("0", False, 0), (" 7 ", False, 7),
    ],
)  # fmt: skip
def test_a_cell_is_a_number(cell, comma, value):
    assert number(cell, decimal_comma=comma) == value


@pytest.mark.parametrize(
    "cell", ["", "n/a", "nan", "inf", "-", "(1; 2)", "12 apples", "1.2.3,4x", "1,2,3.4.5", "..", "e5"]
)
def test_what_is_no_number_is_unknown_and_not_zero(cell):
    assert isnan(number(cell, decimal_comma=False))


@given(st.floats(min_value=0, max_value=1e15).map(lambda value: round(value, 2)))
def test_a_number_survives_both_locales(value):
    us = f"{value:,.2f}"
    german = us.translate(str.maketrans(",.", ".,"))
    assert number(us, decimal_comma=False) == pytest.approx(value)
    assert number(german, decimal_comma=True) == pytest.approx(value)
    assert not has_decimal_comma([us])
    assert has_decimal_comma([german])
