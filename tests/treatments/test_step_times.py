"""Of runs that took turns, each turn is held against the same one of the other run."""

from __future__ import annotations

import math
import random

import pytest

from perfdoctor.recording.treated_run import TrialReport, _turns, _without_waits
from perfdoctor.treatments.step_times import log_ratio

MS = 1_000_000


def taken_in_turns(seed: int, factor: float) -> tuple[TrialReport, TrialReport]:
    """Two programs on a machine that is two to ten times as slow from one turn to the next, for both alike."""
    drawn = random.Random(seed)
    paces = [drawn.uniform(2, 10) for _ in range(20)]
    turns = {(n + 1) * 4: (n * 4, n * 4 + 4) for n in range(20)}

    def made(times: float) -> TrialReport:
        lengths = tuple(round(MS * pace * times * drawn.uniform(0.98, 1.02)) for pace in paces for _ in range(4))
        return TrialReport(lengths, turns=turns)

    return made(factor), made(1.0)


def test_what_is_the_same_for_both_in_each_turn_leaves_the_ratio_alone() -> None:
    found = [log_ratio(*taken_in_turns(seed, 1.05)) for seed in range(20)]
    assert max(abs(each - math.log(1.05)) for each in found) < 0.01


def paused(step_ms: float, pause_ms: float, first_ms: float = 0.0) -> TrialReport:
    """A turn is a step; each twelfth one has a pause, the first three take longer."""
    lengths = [step_ms + pause_ms * (n % 12 == 11) + first_ms * (n < 3) for n in range(60)]
    return TrialReport(tuple(round(MS * each) for each in lengths), turns={n + 1: (n, n + 1) for n in range(60)})


@pytest.mark.parametrize(
    ("treated", "untreated", "ratio"),
    [
        (paused(45, 450), paused(60, 0), 82.5 / 60),
        (paused(60, 0), paused(60, 600), 60 / 110),
        (paused(30, 0, 3000), paused(60, 0, 3000), 30 / 60),
        (paused(30, 0, 3000), paused(60, 0, 6000), 30 / 60),
    ],
)
def test_what_falls_on_few_turns_counts_with_all_its_time_but_in_the_warm_up(
    treated: TrialReport, untreated: TrialReport, ratio: float
) -> None:
    assert log_ratio(treated, untreated) == pytest.approx(math.log(ratio), abs=0.02)


def test_of_a_turn_that_one_did_not_finish_the_steps_that_both_made_are_compared() -> None:
    whole = TrialReport((10,) * 8, turns={2: (0, 2), 4: (2, 4), 6: (4, 8)})
    cut = TrialReport((10,) * 5, turns={2: (0, 2), 4: (2, 4), 6: (4, 5)})
    assert log_ratio(cut, whole) == 0


def test_runs_without_common_turns_are_compared_as_a_whole() -> None:
    assert log_ratio(TrialReport((20,) * 40), TrialReport((10,) * 40)) == pytest.approx(math.log(2))


def test_the_turns_of_others_are_no_part_of_a_step() -> None:
    lengths = (10, 10, 10, 95, 10, 10, 10, 110, 10)  # step n lies between end n and end n + 1; turns of four steps
    handed = ((4, 85), (8, 100), (12, 5))
    assert _without_waits(lengths, handed) == (10,) * 9
    turns = _turns(len(lengths), handed)
    assert turns == {4: (3, 7), 8: (7, 9)}
    assert sum(len(lengths[slice(*each)]) for each in turns.values()) == 9 - 3
