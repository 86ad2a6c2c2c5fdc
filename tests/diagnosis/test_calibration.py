"""Is a range as wide as measured savings were from likely ones, and never beyond physics?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.diagnosis import calibration
from perfdoctor.diagnosis.calibration import SavingSpread, in_calibrated_range, spread_of
from perfdoctor.diagnosis.predicted_saving import PredictedSaving
from perfdoctor.records.predictions import PredictedStep, Prediction
from perfdoctor.records.savings import Range, Saving
from perfdoctor.vocabulary.categories import CATEGORIES

WIDE = SavingSpread(0.5, 1.5)
ns = st.integers(0, 10**9)
ordered = st.tuples(ns, ns, ns).map(lambda each: Saving(*sorted(each)))
spreads = st.builds(SavingSpread, st.floats(-2, 3), st.floats(-2, 3))


@given(ordered, spreads, st.integers(1, 2 * 10**9))
def test_a_range_gets_wider_and_never_goes_beyond_nothing_and_all_that_there_is(saving, spread, step_ns):
    own = PredictedSaving(saving, step_ns=step_ns)
    calibrated = replace(own, spread=spread).ns
    assert own.ns == own.calibrated(None)
    assert calibrated.likely == own.ns.likely
    assert 0 <= calibrated.low <= own.ns.low <= own.ns.high <= calibrated.high <= step_ns
    if own.ns.likely:
        assert calibrated.low <= max(spread.low * own.ns.likely, 0) + 1
        assert calibrated.high >= min(spread.high * own.ns.likely, step_ns) - 1


def test_a_range_that_is_wider_by_itself_stays():
    assert PredictedSaving(Saving(100, 1_000, 2_000), spread=WIDE).ns == Saving(100, 1_000, 2_000)
    assert PredictedSaving(Saving(900, 1_000, 1_100), spread=WIDE).ns == Saving(500, 1_000, 1_500)


def test_the_remaining_work_keeps_what_it_needs():
    bound = PredictedSaving(Saving(900, 1_000, 1_100), bound_ns=1_200, spread=WIDE)
    assert bound.ns == Saving(500, 1_000, 1_200)
    assert replace(bound, real_share=0.5, most_real_share=0.5).ns == Saving(250, 500, 600)


def test_nothing_is_widened_where_nothing_is_likely():
    assert PredictedSaving(Saving(0, 0, 300), spread=WIDE).ns == Saving(0, 0, 300)


@pytest.mark.skipif(not calibration.known(), reason="nothing was measured yet: make pairs")
def test_every_category_has_a_spread_that_holds_what_is_likely():
    known = {category: spread_of(category) for category in CATEGORIES}
    assert all(spread is not None and spread.low <= 1 <= spread.high for spread in known.values()), known
    assert spread_of("a category of tomorrow") == calibration.known()[calibration.OTHERS]


def test_a_step_with_several_fixes_has_the_range_of_their_savings():
    """Of 100 likely ns the fixes save 40 to 150; the step gets shorter by 80 of 200, since they hide each other."""
    step = Prediction(
        fixed=("a", "b"), step_ns=Range(118, 120, 122), speedup=Range(1.64, 1.67, 1.69), recorded_ns=200,
        steps=(PredictedStep("b", 120),),
    )  # fmt: skip
    savings = [Saving(30, 60, 80), Saving(10, 40, 70)]
    found = in_calibrated_range(step, savings)
    assert found.step_ns == (200 - 120, 120, 200 - 32)
    assert found.speedup == (200 / 168, 200 / 120, 200 / 80)
    assert in_calibrated_range(replace(step, step_ns=Range(10, 120, 200)), savings).step_ns == Range(10, 120, 200)
    assert in_calibrated_range(step, []) == step


def test_fixes_together_save_no_more_than_each_by_itself_and_never_the_whole_step():
    """They save 90 ns together where 40 are likely: in proportion it would be 270 at most, of 200."""
    step = Prediction(
        fixed=("a", "b"), step_ns=Range(100, 110, 120), speedup=Range(1.6, 1.8, 2.0), recorded_ns=200,
        steps=(PredictedStep("b", 110),),
    )  # fmt: skip
    savings = [Saving(0, 20, 70), Saving(10, 20, 50)]
    assert in_calibrated_range(step, savings).step_ns == (200 - 120, 110, 200 - 22)
    long = replace(step, step_ns=Range(100_000, 110_000, 120_000), recorded_ns=200_000)
    largest = in_calibrated_range(long, [Saving(0, 20_000, 150_000), Saving(10_000, 20_000, 150_000)])
    assert largest.step_ns[0] == 200
    assert largest.speedup[2] == 1000
