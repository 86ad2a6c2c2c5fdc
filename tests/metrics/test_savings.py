"""How much can be won, and how do numbers become those of a summary?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent, us
from perfdoctor.records.savings import Saving


def test_a_saving_is_a_range_of_the_removable_time():
    assert saving(1_000, 0.25, 0.5, 0.75) == Saving(250, 500, 750)
    assert saving(1_000, 0.25, 0.5).high == 1_000


@given(st.integers(0, 10**15), st.lists(st.floats(0, 1), min_size=3, max_size=3).map(sorted))
def test_a_saving_never_exceeds_what_there_is(removable_ns, shares):
    found = saving(removable_ns, *shares)
    assert 0 <= found.low <= found.likely <= found.high <= removable_ns


@pytest.mark.parametrize("broken", [(2, 1, 3), (0, 3, 2), (-1, 0, 1)])
def test_a_saving_that_is_not_ordered_is_refused(broken):
    with pytest.raises(AssertionError, match="ordered"):
        Saving(*broken)


def test_units_of_a_summary():
    assert (ms(2_500_000), us(2_500), percent(0.25)) == (2.5, 2.5, 25.0)
