"""What is decided against a baseline, and with how many runs it could be."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from builders import draw_steps
from comparison import simulated
from comparison.test_compare import snapshot, waiting
from msgspec.structs import replace

from perfdoctor.comparison import statistics
from perfdoctor.comparison.check import LIMIT, MOST_RUNS, BaselineRun, check, runs_needed
from perfdoctor.comparison.records import StepSample
from perfdoctor.comparison.snapshot import without_kernels
from perfdoctor.comparison.statistics import step_change
from perfdoctor.errors import PerfdoctorError

MS = 1e6


def noisy(mean_ms, *, spread=0.002, seed=0, steps=30):
    """A run whose steps differ by this share."""
    around = np.random.default_rng(seed).normal(0, spread, steps)
    return replace(
        snapshot(waiting(3)), steps=StepSample(mean_ms * MS * (1 + around - around.mean())), step_ns=mean_ms * MS
    )


def decided(before_ms, after_ms, limit=LIMIT, **how):
    runs = [BaselineRun("a", by_recording=True)]
    return check("main", runs, [noisy(before_ms, **how)], [noisy(after_ms, seed=1, **how)], limit)


@pytest.mark.parametrize(
    ("after_ms", "limit", "spread", "decision", "failed"),
    [
        (100, 0.03, 0.002, "no change", False),
        (110, 0.03, 0.002, "regression", True),
        (110, 0.20, 0.002, "regression", False),  # surely slower, and surely within the limit
        (104, 0.03, 0.002, "regression", False),  # surely slower, by 2.4 to 5.6 %
        (90, 0.03, 0.002, "improvement", False),
        (101, 0.03, 0.100, "too noisy", False),
        (101, 0.10, 0.100, "no change", False),
        (102, 0.00, 0.002, "regression", True),
    ],
)
def test_the_interval_decides_and_only_what_lies_above_the_limit_fails(after_ms, limit, spread, decision, failed):
    found = decided(100, after_ms, limit, spread=spread)
    assert (found.decision, found.failed) == (decision, failed)
    judged = found.comparison.judged
    assert found.failed == (judged.low > limit)
    assert (found.runs_needed is not None) == (decision == "too noisy")


def test_the_limit_decides_what_is_no_change():
    """The same two runs: a change of 3 % would have been seen, one of 1 % not."""
    assert decided(100, 100, 0.03).decision == "no change"
    assert decided(100, 100, 0.01).decision == "too noisy"


def sides(seed, slower, runs, run_noise):
    rng = np.random.default_rng(seed)
    noise, correlation = rng.uniform(*simulated.STEP_NOISE), rng.uniform(*simulated.CORRELATION)
    return [
        [simulated.run(rng, 30, mean, noise, correlation, run_noise) for _ in range(runs)]
        for mean in (50e6, 50e6 * (1 + slower))
    ]


@pytest.mark.parametrize(("run_noise", "within"), [(0.02, 0.03), (0.044, 0.1)])
def test_with_as_many_runs_as_are_named_it_is_decided_in_four_of_five_checks(monkeypatch, run_noise, within):
    monkeypatch.setattr(statistics, "_RESAMPLES", 500)
    needed = [runs_needed(*sides(seed, 0, 1, run_noise), run_noise, within) for seed in range(9)]
    runs = int(np.median(needed))
    for slower, right in ((0.0, "no change"), (within, "slower")):
        found = Counter(
            step_change(*sides(100 + seed, slower, runs, run_noise), run_noise, within=within).verdict
            for seed in range(40)
        )
        assert found[right] >= 28, (runs, found)  # 32 are expected; fewer than 28 in one of 40 such tests
        assert found["faster" if slower else "none"] == 0


def test_the_number_of_runs_is_that_of_the_formula():
    """Runs that differ by 2 % and steps that do not; Student's quantiles are those of tables, for 18 and 20 degrees."""
    run = StepSample(np.array([100.0, 100.0, 100.0]))
    ten, eleven = (
        (likely + often) * math.sqrt(2 * 0.02**2 / runs)
        for runs, likely, often in ((10, 2.1009, 1.3304), (11, 2.0860, 1.3253))
    )
    assert ten > math.log(1.03) > eleven
    assert runs_needed([run], [run], 0.02, 0.03) == 11


def test_no_number_of_runs_helps_against_programs_that_take_the_cores():
    run = StepSample(np.array([100.0, 101.0, 99.0] * 10), contended=0.5)
    assert runs_needed([run], [run], 0.02, 0.03) is None
    free = replace(run, contended=0.0)
    assert runs_needed([free], [free], 0.02, 0.03) <= MOST_RUNS
    assert runs_needed([free], [StepSample(np.array([100.0]))], 0.02, 0.03) is None  # one step shows no spread


def test_another_batch_is_refused_and_one_that_varies_is_not():
    before, after = (replace(noisy(100), items_per_step=items) for items in (32.0, 64.0))
    with pytest.raises(PerfdoctorError, match="main has another batch: 32 items a step, here 64"):
        check("main", [BaselineRun("a", by_recording=True)], [before], [after], LIMIT)
    packed = replace(after, items_per_step=32.5)
    assert check("main", [BaselineRun("a", by_recording=True)], [before], [packed], LIMIT).comparison.item is not None


def test_where_one_side_knows_the_parts_alone_these_are_compared_and_sum_exactly():
    whole = snapshot(draw_steps(kernels="  ####", host=["iil"]))
    found = check("main", [BaselineRun("a", by_recording=False)], [without_kernels(whole)], [whole], LIMIT).comparison
    assert {each.key for each in found.causes} >= {"compute", "input_wait"}
    assert all(each.delta_ns == 0 for each in found.causes)
    assert found.work == ()
    assert any("kernels, ops, lines and memory were not compared" in note for note in found.notes)
