"""What all ranks win where some get faster: never more of a rank's step than it waits and loses."""

from __future__ import annotations

import pytest
from builders import draw, draw_steps

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.communication.step_together import won_ns
from perfdoctor.model.timeline import merge

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
