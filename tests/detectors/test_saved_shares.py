"""Is a saving a range of the affected time, never more than there is?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.detectors.saved_shares import NO_SAVING, Shares, at_most, half_certain, shares
from perfdoctor.records.savings import Saving


def test_a_saving_is_a_range_of_the_affected_time():
    assert Shares(0.25, 0.5, 0.75).of(1_000) == Saving(250, 500, 750)
    assert Shares(0.25, 0.5).of(1_000).high == 1_000


@given(st.integers(0, 10**15), st.lists(st.floats(0, 1), min_size=3, max_size=3).map(sorted))
def test_a_saving_never_exceeds_what_there_is(affected_ns, ends):
    found = Shares(*ends).of(affected_ns)
    assert 0 <= found.low <= found.likely <= found.high <= affected_ns


def test_shares_are_those_of_the_rules_document_and_all_of_it_where_it_names_no_highest():
    at = {"avoidable_share_low": 0.2, "avoidable_share_likely": 0.5, "won_share_high": 0.7}
    assert shares(at, "avoidable_share") == Shares(0.2, 0.5, 1.0)
    assert shares({**at, "avoidable_share_high": 0.9}, "avoidable_share") == Shares(0.2, 0.5, 0.9)


def test_half_of_a_likely_saving_is_certain_where_nothing_else_is_known():
    assert half_certain(101, 300) == Saving(50, 101, 300)
    assert half_certain(100, 40) == Saving(50, 100, 100)


def test_what_is_only_bounded_promises_nothing():
    assert at_most(300) == Saving(0, 0, 300)
    assert Saving(0, 0, 0) == NO_SAVING


@pytest.mark.parametrize("broken", [(2, 1, 3), (0, 3, 2), (-1, 0, 1)])
def test_a_saving_that_is_not_ordered_is_refused(broken):
    with pytest.raises(AssertionError, match="ordered"):
        Saving(*broken)
