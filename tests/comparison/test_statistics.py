"""Intervals of the difference: right so often as they say, of the right sign, and the same each time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from comparison.simulated import alternating, pair, timed_pair
from msgspec.structs import replace

from perfdoctor.comparison import statistics
from perfdoctor.comparison.records import StepSample
from perfdoctor.comparison.statistics import block_length, drift, paired_change, run_spread, step_change

#: benchmarks/comparisons.py has 200 of each.
PAIRS = 24


def sample(*steps_ns):
    return StepSample(np.array(steps_ns, np.float64))


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch):
    monkeypatch.setattr(statistics, "_RESAMPLES", 800)


def verdicts(**how):
    return [pair(seed, **how).verdict for seed in range(PAIRS)]


def test_the_same_program_shows_no_change():
    assert verdicts().count("no change") >= PAIRS - 2
    assert verdicts(runs=3).count("no change") >= PAIRS - 2


def test_slow_programs_are_found_and_never_with_the_wrong_sign():
    assert verdicts(slower=0.03).count("slower") >= PAIRS * 0.9
    assert "faster" not in verdicts(slower=0.03)
    assert verdicts(slower=0.01, runs=5).count("slower") >= PAIRS * 0.6
    assert verdicts(slower=-0.03).count("faster") >= PAIRS * 0.9


def test_equal_samples_differ_by_nothing():
    steps = sample(*np.random.default_rng(0).normal(100, 2, 30))
    change = step_change([steps], [steps])
    assert (change.change, change.verdict) == (0, "no change")
    assert change.low < 0 < change.high


def test_one_step_has_no_interval():
    change = step_change([sample(100.0)], [sample(*[200.0] * 8)])
    assert (change.low, change.high, change.verdict) == (None, None, "too noisy")


def test_the_interval_is_the_same_each_time_and_turns_with_the_sides():
    one, other = sample(*np.linspace(100, 110, 30)), sample(*np.linspace(120, 126, 30))
    assert step_change([one], [other]) == step_change([one], [other])
    there, back = step_change([one], [other]), step_change([other], [one])
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1, abs=0.01)


def test_runs_that_differ_widen_the_interval_more_than_their_steps():
    rng = np.random.default_rng(1)
    runs = [StepSample(level + rng.normal(0, 0.1, 30)) for level in (100, 104, 98, 102)]
    alike = [StepSample(101 + rng.normal(0, 0.1, 30)) for _ in range(4)]
    wide, narrow = step_change(runs, runs), step_change(alike, alike)
    assert wide.high - wide.low > 10 * (narrow.high - narrow.low)
    assert wide.before.spread == pytest.approx(np.std([100, 104, 98, 102], ddof=1) / 101, rel=0.05)


def test_where_one_side_has_one_run_the_other_sides_spread_counts():
    rng = np.random.default_rng(2)
    runs = [StepSample(level + rng.normal(0, 0.1, 30)) for level in (100, 104, 98, 102)]
    change = step_change(runs, runs[:1])
    assert (change.before.spread_from, change.after.spread_from) == ("runs", "other side")
    assert change.after.spread == change.before.spread


def test_a_few_long_steps_hide_what_the_median_shows():
    rng = np.random.default_rng(3)
    before, after = (mean + rng.normal(0, 0.5, 30) for mean in (100, 90))
    before[5], after[20], after[25] = 500, 400, 500
    change = step_change([StepSample(before)], [StepSample(after)])
    assert change.verdict == "too noisy"
    assert change.hidden_by_long_steps
    assert change.median_high < 0


def test_unrecorded_steps_count_where_they_are_known():
    change = step_change([StepSample(np.full(20, 100.0), 0.8)], [StepSample(np.full(20, 100.0), 1.0)])
    assert (change.before.mean_ns, change.after.mean_ns) == (80, 100)


@pytest.mark.parametrize(
    ("freedom", "expected"), [(2, 4.3027), (4, 2.7764), (8, 2.3060), (28, 2.0484), (math.inf, 1.96)]
)
def test_students_quantiles_are_those_of_tables(freedom, expected):
    assert statistics.student(freedom) == pytest.approx(expected, abs=0.002)


def test_blocks_grow_with_the_correlation():
    rng = np.random.default_rng(4)
    noise = rng.normal(size=2000)
    slow = np.convolve(rng.normal(size=2040), np.ones(40), mode="valid")[:2000]
    assert block_length(noise) <= 2000 ** (1 / 3) + 4
    assert block_length(slow) > 3 * block_length(noise)
    assert block_length(np.full(30, 5.0)) == 1


def test_the_noise_of_steps_is_no_spread_of_runs():
    rng = np.random.default_rng(5)
    runs = [100 + rng.normal(0, 5, 400) for _ in range(6)]
    assert run_spread(runs) < 0.004


def test_a_run_whose_cores_others_had_says_little_alone():
    rng = np.random.default_rng(6)
    steps = [
        StepSample(level * (1 + rng.normal(0, 0.01, 30)), contended=share) for level, share in ((100, 0.5), (140, 0))
    ]
    free = [replace(each, contended=0.0) for each in steps]
    assert step_change(free[:1], free[1:]).verdict == "slower"
    change = step_change(steps[:1], steps[1:])
    assert (change.verdict, change.before.spread_from, change.after.spread_from) == ("too noisy", "contended", "usual")
    assert change.low > -1


def test_where_one_side_waited_for_cores_its_wait_may_be_the_whole_difference():
    rng = np.random.default_rng(7)
    slow, fast = (
        StepSample(level * (1 + rng.normal(0, 0.01, 100)), contended=share) for level, share in ((100, 0.6), (40, 0))
    )
    assert step_change([slow], [fast]).verdict == "too noisy"
    assert step_change([fast], [slow]).verdict == "too noisy"
    alike = [replace(each, contended=0.6) for each in (slow, fast)]
    assert step_change(alike[:1], alike[1:]).high < step_change([slow], [fast]).high


def test_large_changes_are_found_in_all_timed_steps_of_one_run_and_equal_runs_seldom_differ():
    def told(**how):
        return sum(timed_pair(seed, **how).verdict in ("faster", "slower") for seed in range(PAIRS))

    assert told(faster=1.8) >= PAIRS - 1
    assert told() <= 2
    assert told(wander=0.3) <= 4
    assert {timed_pair(seed, faster=1.8).verdict for seed in range(PAIRS)} <= {"faster", "too noisy"}


def test_a_level_that_wanders_within_a_run_is_a_spread_of_runs():
    rng = np.random.default_rng(8)
    level = np.repeat([1.0, 1.4, 0.9, 1.2, 1.5, 0.8, 1.0, 1.1], 20) * rng.normal(100, 3, 160)
    assert drift(level) > 0.25
    assert drift(rng.normal(100, 20, 160)) < 0.1
    assert drift(rng.normal(100, 20, 30)) == 0, "of so few steps nobody knows"
    sides = [[StepSample(level)], [StepSample(level / 1.3)]]
    change = step_change(*sides)
    assert (change.verdict, change.before.spread_from) == ("too noisy", "drift")


def test_pairs_of_runs_are_judged_by_their_ratios_whatever_drifts_from_pair_to_pair():
    levels = (100, 180, 60, 140)
    sides = [[StepSample(np.full(30, level / by)) for level in levels] for by in (1.0, 1.25)]
    change = paired_change(*sides)
    assert (change.verdict, change.before.spread_from, change.before.runs) == ("faster", "pairs", 4)
    assert change.change == pytest.approx(-0.2)
    assert change.after.mean_ns / change.before.mean_ns - 1 == pytest.approx(change.change)
    assert (change.low, change.high) == pytest.approx((-0.2, -0.2))


def test_the_interval_of_pairs_is_students():
    ratios = np.array([0.1, 0.2, 0.3])
    sides = [[StepSample(np.full(2, 100 * math.exp(each))) for each in by] for by in (np.zeros(3), -ratios)]
    change = paired_change(*sides)
    reach = 4.3027 * 0.1 / math.sqrt(3)
    assert math.log1p(change.low) == pytest.approx(-0.2 - reach, abs=1e-3)
    assert math.log1p(change.high) == pytest.approx(-0.2 + reach, abs=1e-3)


def test_runs_in_turn_find_large_changes_on_a_machine_that_drifts_and_equal_ones_seldom():
    found = [alternating(seed, faster=1.8, pairs=5).verdict for seed in range(PAIRS)]
    assert found.count("faster") >= PAIRS - 1
    equal = [alternating(seed, pairs=5).verdict for seed in range(PAIRS)]
    assert equal.count("faster") + equal.count("slower") <= 4
