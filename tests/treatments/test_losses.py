"""Two trainings are the same where their losses differ by no more than roundings do."""

from __future__ import annotations

import math

import pytest

from perfdoctor.treatments.losses import compared, not_finite_from

ONE = [2.0, 1.8, 1.6, 1.5]
MOVED = [2.0, 1.8000004, 1.6000008, 1.500002]


@pytest.mark.parametrize(
    ("treated", "control", "verdict"),
    [
        (ONE, None, "equal"),
        ([2.0000001, 1.8000002, 1.6000003, 1.5000004], MOVED, "rounding"),
        ([2.0, 1.8, 1.61, 1.5], MOVED, "differs"),
        ([2.0, 1.8, 1.6, math.nan], MOVED, "differs"),
        ([2.1, 1.8, 1.6, 1.5], MOVED, "differs"),
        ([2.0, 1.8, 1.6001, 1.5], None, "differs"),
    ],
)
def test_what_roundings_explain_is_no_difference(treated, control, verdict):
    assert compared([ONE, ONE], [treated], control).verdict == verdict


def test_a_program_that_differs_from_itself_allows_as_much():
    other = [2.0, 1.801, 1.602, 1.503]
    assert compared([ONE, other], [[2.0, 1.8005, 1.6015, 1.502]], None).verdict == "rounding"


def test_an_unseeded_program_cannot_be_judged():
    found = compared([ONE, [3.0, 2.0, 1.0, 0.5]], [[2.5, 2.0, 1.0, 0.4]], None)
    assert found.verdict == "not judged"
    assert "seed" in found.why


@pytest.mark.parametrize(("apart", "verdict"), [(3e-4, "not judged"), (5e-5, "not judged"), (2e-6, "rounding")])
def test_an_unseeded_language_model_is_known_though_it_begins_near_the_logarithm_of_its_vocabulary(apart, verdict):
    first, second, treated = ([10.9 * (1 + apart * each), 10.7, 10.5] for each in (0, 1, 0.5))
    assert compared([first, second], [treated], None).verdict == verdict


def test_without_a_loss_nothing_is_known():
    assert compared([[]], [ONE], None).verdict == "unknown"


@pytest.mark.parametrize(
    ("untreated", "treated", "first"),
    [
        ([ONE], [ONE], 0),
        ([ONE], [ONE, [2.0, math.inf, math.nan, math.nan]], 2),
        ([ONE], [[2.0, math.inf, 1.6, 1.5]], 0),
        ([ONE], [[math.nan] * 9], 1),
        ([ONE, [2.0, 1.8, 1.6, math.nan]], [[2.0, 1.8, 1.6, math.nan]], 0),
        ([ONE], [[]], 0),
    ],
)
def test_losses_that_stay_without_numbers_count_where_the_untreated_ones_have_them(untreated, treated, first):
    assert not_finite_from(untreated, treated) == first
