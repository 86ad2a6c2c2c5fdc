"""The interval of a change holds however often one looks at it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfdoctor.treatments.evidence import change, level


def test_one_pair_shows_nothing_and_two_no_end():
    assert change([0.1], 0.05) is None
    assert change([0.1, 0.2], 0.001).high == math.inf


def test_of_sequences_without_an_effect_few_ever_leave_the_interval():
    rng = np.random.default_rng(1)
    left = 0
    for _ in range(400):
        values = rng.normal(0, 0.1, 40)
        looks = (change(values[:n], 0.1) for n in range(3, 41))
        left += any(look.low > 0 or look.high < 0 for look in looks)
    assert left <= 400 * 0.1


def test_an_interval_for_a_fixed_number_would_be_left_by_more():
    rng = np.random.default_rng(1)
    left = 0
    for _ in range(400):
        values = rng.normal(0, 0.1, 40)
        t = [abs(values[:n].mean()) / values[:n].std(ddof=1) * math.sqrt(n) for n in range(3, 41)]
        left += any(each > 2.0 for each in t)
    assert left > 400 * 0.2


@pytest.mark.parametrize(("n", "alpha"), [(4, 0.1), (6, 0.05), (16, 0.02)])
def test_the_ends_are_where_the_martingale_is_one_over_alpha(n, alpha):
    values = np.random.default_rng(2).normal(-0.3, 0.05, n)
    end = math.log1p(change(values, alpha).high)
    squared = (values.mean() - end) ** 2 / values.var(ddof=1) * n / (n - 1)
    r = 0.05 / (n + 0.05)
    martingale = math.sqrt(r) * ((1 + squared) / (1 + r * squared)) ** (n / 2)
    assert martingale == pytest.approx(1 / alpha)


def test_more_treatments_need_more_evidence():
    assert level(1) > level(2) > level(8)
    assert level(4) * 4 / 2 == pytest.approx(0.05)
