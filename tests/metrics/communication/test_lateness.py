"""What makes a rank late, and could the others go faster without it?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw, draw_steps, findings, only_finding

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.lateness import (
    between_collectives,
    excess_ns,
    made_late_by,
    pushed_back_ns,
    won_ns,
)
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.host.pace import busy_as_recorded_ns, exposed_waiting_ns, paced_waiting_ns, sooner_ns, spare_ns
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import merge

UNIT = 10_000  # 10 µs: pauses between calls are short enough to count as launching


def rank(number: int, kernels: str, nccl: str, *, host: list[str] | None = None, repeat: int = 6, unit_us: int = 10):
    host = host or ["l" + " " * 18 + "l" + " " * 20, "o" * 40]
    return draw(kernels=kernels, nccl=nccl, host=host, rank=number, repeat=repeat, unit_us=unit_us)


def late_for_lack_of_work(others_host: list[str], *, repeat: int = 6):
    """Rank 2's device is idle for 12 of 40 units before it comes; ranks 0 and 1 wait in the collective for 12."""
    waiting = [rank(n, "#" * 20 + " " * 20, " " * 20 + "=" * 20, host=others_host, repeat=repeat) for n in (0, 1)]
    late = rank(2, "#" * 10 + " " * 12 + "#" * 10 + " " * 8, " " * 32 + "=" * 8, host=["l" + " " * 20 + "l" + " " * 9 + "l" + " " * 8, "o" * 40], repeat=repeat)  # fmt: skip
    return prepare(merge([*waiting, late]))


BUSY = ["l" + " " * 18 + "l" + " " * 20, "o" * 40]
WAITS_FOR_THE_DEVICE = ["l" + " " * 18 + "l" + "s" * 20, "o" * 40]


def test_a_late_rank_has_more_idle_than_the_others():
    run = late_for_lack_of_work(BUSY)
    excess = excess_ns(run.places, skew(run))
    # five steps are used, and four lie between the ends of the first and the last collective in them
    assert {name: ns for name, ns in excess[2].items() if ns} == {"launch_bound": 4 * 12 * UNIT}
    assert not any(excess[0].values())
    assert made_late_by(run.places, skew(run))["launch_bound"] == pytest.approx(1, abs=0.05)


def test_between_the_same_collectives_the_same_time_passes_on_all_ranks():
    run = late_for_lack_of_work(BUSY)
    found = skew(run)
    assert {between_collectives(place, found).total_ns for place in run.places} == {4 * 40 * UNIT}


def test_what_held_it_up_long_before_it_came_is_what_made_it_late():
    """Idle at the beginning, then it computes as the others do, and comes late."""
    on_time = [rank(n, "#" * 20 + " " * 20, " " * 20 + "=" * 20) for n in (0, 1)]
    late = rank(2, " " * 12 + "#" * 20 + " " * 8, " " * 32 + "=" * 8, host=[" " * 12 + "l" + " " * 19 + "l" + " " * 7, "i" * 12 + "o" * 28])  # fmt: skip
    run = prepare(merge([*on_time, late]))
    assert made_late_by(run.places, skew(run))["input_wait"] == pytest.approx(1, abs=0.1)


def test_a_host_that_launches_all_the_time_has_nothing_to_spare():
    run = late_for_lack_of_work(BUSY)
    place = run.places[0]
    assert spare_ns(place) == pytest.approx(0, abs=2 * UNIT * place.units)
    assert exposed_waiting_ns(place, skew(run)) == pytest.approx(12 * UNIT * place.units)


def test_a_host_that_waits_for_the_device_has_that_to_spare():
    place = late_for_lack_of_work(WAITS_FOR_THE_DEVICE).places[0]
    assert spare_ns(place) / place.units == pytest.approx(20 * UNIT, rel=0.1)


def test_a_host_that_was_ahead_when_the_window_began_could_have_been_sooner_by_that():
    place = late_for_lack_of_work(BUSY).places[0]
    ahead = prepare(draw(kernels="#" * 20, nccl=" " * 20 + "=" * 20, host=BUSY, host_ahead=30, repeat=6, unit_us=10)).places[0]  # fmt: skip
    # What recording cost a host that is ahead counts for its pace, and not for who came late.
    hidden_ns = spare_ns(ahead) - (ahead.window_ns - busy_as_recorded_ns(ahead))
    assert sooner_ns(ahead) - spare_ns(ahead) + hidden_ns == pytest.approx(30 * UNIT, abs=2 * UNIT)
    assert sooner_ns(place) == max(place.window_ns - busy_as_recorded_ns(place), 0)


def test_over_one_step_nothing_is_known_of_a_pace():
    assert spare_ns(late_for_lack_of_work(BUSY, repeat=2).places[0]) is None


def test_where_all_hosts_are_the_limit_waiting_counts_as_what_holds_them_up():
    run = late_for_lack_of_work(BUSY)
    # two of three ranks wait 12 units of each step; their hosts have next to nothing to spare
    assert paced_waiting_ns(run, "launch_bound") == pytest.approx(12 * UNIT * 2 / 3, rel=0.2)
    assert paced_waiting_ns(run, "input_wait") == 0
    assert paced_waiting_ns(late_for_lack_of_work(WAITS_FOR_THE_DEVICE), "launch_bound") == 0


def test_a_late_rank_is_only_blamed_for_what_the_others_could_win():
    assert findings("rank-skew", late_for_lack_of_work(BUSY).timeline) == []
    found = only_finding("launch-bound", late_for_lack_of_work(BUSY).timeline)
    # 12 units on each rank: as idle on one, as waiting for it on the others
    assert found.values["lost_percent"] == pytest.approx(30, abs=4)
    # on the late rank it is idle, on the mean of three ranks two thirds of it are waiting
    assert (found.values["rank"], found.situation) == (2, "paced")
    assert found.values["paced_ms"] == pytest.approx(0.08, abs=0.02)
    assert only_finding("rank-skew", late_for_lack_of_work(WAITS_FOR_THE_DEVICE).timeline).values["late_rank"] == 2


def test_one_rank_waits_for_nobody():
    assert paced_waiting_ns(prepare(rank(0, "#" * 20, " " * 20 + "=" * 20)), "launch_bound") == 0


QUEUED_NS = 20


def pushed(collectives, waits, compute_until):
    starts, ends = np.array(collectives).T
    exposed = Intervals.of(starts, ends) - Intervals.single(0, compute_until)
    return pushed_back_ns(starts, ends, Intervals.of(*np.array(waits).T), exposed, QUEUED_NS)


@pytest.mark.parametrize(
    ("collectives", "waits", "compute_until", "goes"),
    [
        # The wait is hidden, but what it pushes is not; the last was asked for when compute was over, and stays.
        ([(1000, 1800), (1800, 2100), (2100, 2400)], [(1000, 1500)], 2000, 100),
        # The last one begins when compute is over: its transfer stays, however long the wait before it was.
        ([(1000, 2000), (2000, 2300)], [(1000, 1700)], 2000, 0),
        # A wait that nothing hides goes wholly.
        ([(1000, 1800)], [(1000, 1500)], 1000, 500),
        # A pause between them: the second was not queued behind the first.
        ([(1000, 1800), (1900, 2200)], [(1000, 1500)], 1900, 0),
        # Waits in two of them push together: the second would be over 10 ns after compute.
        ([(1000, 1800), (1810, 2500)], [(1000, 1500), (1810, 2200)], 2100, 390),
        # Two at the same time are one chain.
        ([(1000, 1800), (1100, 2000)], [(1000, 1500)], 1700, 300),
    ],
)
def test_what_a_wait_pushes_out_of_compute_goes_with_it(collectives, waits, compute_until, goes):
    assert pushed(collectives, waits, compute_until) == goes


MS = 1_000_000


def run_of(*busy: int):
    """Ranks that compute for so many of 20 ms, and stand in a collective for the rest of the step."""
    return prepare(
        merge([
            draw_steps(
                kernels="#" * ms + " " * (20 - ms),
                nccl=" " * ms + "=" * (20 - ms),
                rank=rank,
                device=rank,
            )
            for rank, ms in enumerate(busy)
        ])
    )  # fmt: skip


@pytest.mark.parametrize(
    ("less", "won"),
    [
        ({2: 5.0}, 5.0),  # less than the others wait: what it has less to do
        ({2: 12.0}, 8.0),  # more: the rank that waits least, 18 - 10
        ({1: 5.0}, 0.0),  # nobody waits for it
        ({1: 5.0, 2: 5.0}, 5.0),
        ({0: 1.0, 1: 4.0, 2: 12.0}, 11.0),  # rank 0 waits for 10 and does 1 less; rank 1 for 8 and 4
    ],
)
def test_it_is_the_least_of_waiting_and_own_loss(less, won):
    found = won_ns(run_of(8, 10, 18), {(rank, rank): ms * MS for rank, ms in less.items()})
    assert found == pytest.approx(won * MS, rel=1e-6)


def test_ranks_that_are_not_known_to_wait_win_each_for_itself():
    alone = prepare(
        merge([draw(kernels="### ", repeat=6, rank=rank, launched_us_before=50) for rank in range(4)])
    )  # fmt: skip
    assert won_ns(alone, {(1, 0): 8.0}) == 2.0


def test_collectives_outside_the_windows_are_matched_as_well_where_that_is_asked_for():
    run = run_of(8, 10, 18)
    recorded = len(run.places[0].recorded_collectives)
    assert skew(run, everywhere=True).rows.shape == (3, recorded)
    assert skew(run).rows.shape[1] < recorded
