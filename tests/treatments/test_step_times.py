"""What other programs made steps longer by is taken off, what the program itself did is not; turns are compared in pairs."""

from __future__ import annotations

import math
import random

import pytest

from perfdoctor.recording.treated_run import TrialReport, _Queued, _queued, _turns, _without_waits
from perfdoctor.treatments.step_times import log_ratio, mean_ns, undisturbed

MS = 1_000_000


def waited(milliseconds: int, **facts: float) -> TrialReport:
    """Forty steps of 10 ms of work, in each of which the training thread was queued for so long."""
    return TrialReport((10 * MS + milliseconds * MS,) * 40, queued_ns=(milliseconds * MS,) * 40, **facts)


def test_time_in_which_others_had_the_cores_is_no_part_of_the_step() -> None:
    assert mean_ns(waited(30, others=1.5)) == pytest.approx(10 * MS)


def test_on_a_free_machine_the_program_queues_behind_itself() -> None:
    assert mean_ns(waited(30, others=0.05, beside=1.0)) == pytest.approx(40 * MS)


def test_what_workers_and_others_used_is_shared_out() -> None:
    assert mean_ns(waited(30, others=0.5, beside=1.5)) == pytest.approx((40 - 30 / 4) * MS)


def test_without_counts_of_the_kernel_steps_are_as_they_were() -> None:
    assert undisturbed(TrialReport((5, 7), others=1.9)).tolist() == [5, 7]


def taken_in_turns(seed: int, factor: float) -> tuple[TrialReport, TrialReport]:
    """Two programs on a machine that is two to ten times as slow from one turn to the next, for both alike."""
    drawn = random.Random(seed)
    paces = [drawn.uniform(2, 10) for _ in range(20)]
    turns = {(n + 1) * 5: (n * 4, n * 4 + 4) for n in range(20)}

    def made(times: float) -> TrialReport:
        lengths = tuple(round(MS * pace * times * drawn.uniform(0.98, 1.02)) for pace in paces for _ in range(4))
        return TrialReport(lengths, turns=turns)

    return made(factor), made(1.0)


def test_what_is_the_same_for_both_in_each_turn_leaves_the_ratio_alone() -> None:
    found = [log_ratio(*taken_in_turns(seed, 1.05)) for seed in range(20)]
    assert max(abs(each - math.log(1.05)) for each in found) < 0.01


def test_runs_without_common_turns_are_compared_as_a_whole() -> None:
    assert log_ratio(TrialReport((20,) * 40), TrialReport((10,) * 40)) == pytest.approx(math.log(2))


def test_steps_in_which_the_program_waited_for_its_turn_are_left_out() -> None:
    lengths = list(range(10))  # step n lies between end n and end n + 1; turns of four steps
    assert _without_waits(lengths, (4, 8)) == (0, 1, 2, 4, 5, 6, 8, 9)
    turns = _turns(len(lengths), (4, 8))
    assert turns == {4: (3, 6), 8: (6, 8)}
    assert [_without_waits(lengths, (4, 8))[slice(*each)] for each in turns.values()] == [(4, 5, 6), (8, 9)]


def test_what_is_queued_is_counted_for_the_step_that_it_belongs_to() -> None:
    known = _Queued(first=3, sums_ns=(100, 110, 140, 140))  # at the ends of steps 3 to 6, counted from 1
    assert _queued(6, known) == [0, 0, 10, 30, 0, 0]
    assert _queued(6, _Queued()) == []
