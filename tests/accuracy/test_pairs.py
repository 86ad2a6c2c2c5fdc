"""Are the pairs whole: recorded, measured, listed, and are ranges calibrated on them as the page says?"""

from __future__ import annotations

import math
import random
import shlex
from dataclasses import replace
from pathlib import Path

import calibrate
import pairs
import pytest
import scrub
from folders import ROOT
from pairs import Held, Measured, Pair

from perfdoctor.diagnosis.calibration import OTHERS, SavingSpread
from perfdoctor.diagnosis.predicted_saving import PredictedSaving
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

ENTRIES = pairs.entries()
MOST_BYTES = 300_000


measured_already = pytest.mark.skipif(not pairs.measured(), reason="nothing was measured yet: make pairs")


def pair_of(rule: str, recording: str = "a", left: float = 0.5) -> Pair:
    return Pair(Path(recording), (rule,), recording, measured=Measured((100.0,), (100.0 * left,)))


def held_of(rule: str, ratio: float, recording: str) -> Held:
    """A step of 100 ms, of which 50 are likely to be saved, to within a ms."""
    saving = PredictedSaving(Saving(49_000_000, 50_000_000, 51_000_000))
    measured_ms = 100 - 50 * ratio
    return Held(pair_of(rule, recording, measured_ms / 100), 100.0, measured_ms, (49.0, 50.0, 51.0), saving)


@measured_already
def test_there_are_enough_pairs_over_enough_rules():
    known = pairs.measured()
    own = [each for each in pairs.own() if each["name"] in known]
    assert len(own) >= 25
    rules = {rule for each in (*own, *pairs.public()) for rule in each["fixed"]} & set(load_rules())
    assert len(rules) >= 12


def test_every_pair_is_named_once_and_its_programs_are_there():
    names = [each["name"] for each in pairs.own()]
    assert len(names) == len(set(names))
    assert set(pairs.measured()) <= set(names)
    for each in pairs.own():
        assert set(each["fixed"]) <= set(load_rules())
        for side in ("before", "after"):
            assert (ROOT / "benchmarks" / shlex.split(each[side])[0]).is_file(), each[side]


def test_recordings_are_small_and_tell_nothing_of_the_machine():
    files = [file for file in pairs.KEPT.rglob("*") if file.is_file()]
    assert {file.relative_to(pairs.KEPT).parts[0] for file in files} <= {
        *(each["recording"] for each in pairs.own()),
        pairs.MEASURED.name,
    }
    for file in files:
        assert file.stat().st_size <= MOST_BYTES, file
        assert scrub.private(file) == [], file


def test_the_page_lists_every_pair_that_was_measured():
    page = (ROOT / "docs" / "savings.md").read_text("utf-8")
    counting = [each.pair.name for each in pairs.held([each for each in pairs.pairs() if each.measured])]
    missing = [name for name in counting if f"| {name} |" not in page]
    assert missing == [], "make calibration writes it"


@pytest.mark.parametrize("count", [9, 10, 11, 18, 19, 20, 47])
def test_bounds_hold_the_next_of_equally_likely_orders_in_80_of_100_cases(count):
    """The next one falls into each of the n + 1 gaps between n others with the same probability."""
    low, high = calibrate.bounds(random.Random(count).sample(range(count), count))
    inside = (high - low) / (count + 1)  # gaps between the two: values are their own ranks
    assert 0.8 <= inside < 0.8 + 2 / (count + 1)
    assert low == count - 1 - high, "as many outside on either side"


def test_fewer_than_nine_bound_nothing():
    assert calibrate.bounds([1.0] * 8) == (-math.inf, math.inf)


def test_a_category_with_too_few_pairs_gets_the_widest_of_all():
    found = [held_of("input-wait", 0.9 + number / 100, f"i{number}") for number in range(9)]
    found += [held_of("host-work", 0.5 + number / 10, f"h{number}") for number in range(10)]
    found += [held_of("rank-skew", 0.8, "r")]
    table = calibrate.spreads(found, {"device": SavingSpread(0.2, 1.1, 0, 40), "input": SavingSpread(0.1, 9.0, 0, 40)})
    assert (table["input"].low, table["input"].high, table["input"].pairs) == pytest.approx((0.9, 0.98, 9))
    assert (table["host"].low, table["host"].high) == pytest.approx((0.5, 1.4))
    assert (table["communication"].low, table["communication"].high) == pytest.approx((0.5, 1.4))
    assert table["communication"].pairs == 1
    assert (table["device"].low, table["device"].high) == pytest.approx((0.2, 1.4))
    assert table["device"].planted == 40
    assert table[OTHERS].pairs == 20


def test_a_pair_is_judged_by_the_other_recordings_alone():
    found = [held_of("input-wait", 0.9 + number / 100, f"i{number}") for number in range(10)]
    odd = held_of("input-wait", 0.2, "odd")
    assert not odd.holds
    assert odd.with_spread(calibrate.spreads([*found, odd], {})["input"]).holds
    (*_, alone) = calibrate.judged_by_others([*found, odd], {})
    assert not alone.holds


def test_a_saving_of_less_than_two_runs_differ_says_nothing_of_its_prediction():
    small = replace(held_of("input-wait", 1.0, "a"), saving=PredictedSaving(Saving(0, 4_999_999, 6_000_000)))
    assert small.ratio is None
    assert held_of("input-wait", 0.7, "a").ratio == pytest.approx(0.7)


def test_rounds_are_compared_one_behind_the_other():
    """A machine that was half as fast in the second round changes nothing."""
    measured = Measured((100.0, 200.0, 100.0), (50.0, 100.0, 60.0))
    assert measured.left == 0.5
    assert measured.spread == pytest.approx(0.05)


@measured_already
def test_a_pair_is_predicted_from_its_recording_by_the_findings_own_saving():
    pair = next(each for each in pairs.pairs() if each.measured and each.rule == "input-wait")
    (held,) = pairs.held([pair])
    assert held.saving is not None
    ns = held.saving.ns
    assert held.predicted_ms == pytest.approx([held.base_ms - each / 1e6 for each in (ns.high, ns.likely, ns.low)])
    assert held.measured_ms == pytest.approx(held.base_ms * pair.measured.left)
