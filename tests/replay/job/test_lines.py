"""Is a rank's line cut where it meets others, and is what it waits no work of its own?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.persistence import persistence_of
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.grouping import weighted_median
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, merge
from perfdoctor.replay.job.late import late_ranks, uneven_stages
from perfdoctor.replay.job.lines import between, line_of, own_by_step_ns

UNIT_NS = 100_000


def drawn(*ranks: tuple[str, str]) -> Run:
    """Kernels and collectives of each rank, in steps."""
    return prepare(merge([
        draw(kernels=kernels, nccl=nccl, repeat=6, launched_us_before=10, rank=rank) for rank, (kernels, nccl) in enumerate(ranks)
    ]))  # fmt: skip


ONE_LATE = drawn(
    ("####      ", "    ======"),
    ("########  ", "        =="),
    ("####      ", "    ======"),
)  # fmt: skip


def test_what_a_rank_waits_is_no_work_of_its_own():
    matched = skew(ONE_LATE.job)
    assert matched is not None
    quick, late = (line_of(ONE_LATE.places[number], matched, number) for number in (0, 1))
    steps = ONE_LATE.places[0].steps.used
    assert (quick.own_ns.sum() / UNIT_NS / steps, late.own_ns.sum() / UNIT_NS / steps) == (4, 8)
    assert not quick.unknown_ns.any()
    assert (quick.comes_to != UNKNOWN).sum() == quick.asks.sum() == steps
    assert set(own_by_step_ns(ONE_LATE.places[1]) // UNIT_NS) == {8}


def test_a_rank_that_computes_longer_is_late_by_what_the_others_wait():
    found = late_ranks(ONE_LATE)
    assert found is not None
    assert found.shares.round(6).tolist() == [0, 1, 0]
    assert found.step_ns == pytest.approx(10 * UNIT_NS)
    assert found.saved_ns[1] == pytest.approx(4 * UNIT_NS)
    assert uneven_stages(ONE_LATE) is None


def test_ranks_without_collectives_have_no_graph():
    assert late_ranks(drawn(("####      ", ""), ("########  ", ""))) is None


def test_what_lies_between_two_chosen_meetings_and_no_other_is_between_them():
    matched = skew(ONE_LATE.job)
    assert matched is not None
    line = line_of(ONE_LATE.places[0], matched, 0)
    none, every = np.zeros(len(matched.kinds), dtype=bool), np.ones(len(matched.kinds), dtype=bool)
    assert not between(line, none).any()
    # The first piece lies before all of them, the last behind.
    assert between(line, every).tolist() == ((line.segment > 0) & (line.segment < len(matched.kinds))).tolist()


def test_a_rank_that_takes_longer_in_every_step_does_so_again_and_again():
    peers = [np.array([10, 11, 10, 9, 10, 11]), np.array([11, 10, 9, 10, 10, 10])]
    again = persistence_of(np.array([14, 15, 14, 15, 14, 15]), peers)
    assert (again.late_in, again.compared, again.of_steps) == (6, 6, True)
    assert again.chance < 0.01
    assert persistence_of(np.array([10, 10, 11, 10, 9, 10]), peers).chance > 0.1
    assert persistence_of(np.array([10, 10]), []).chance == 1.0


def test_the_weighted_median_is_what_half_of_the_weight_reaches():
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 5.0])) == 2.0
    assert weighted_median(np.array([100.0, 1.0]), np.array([1.0, 9.0])) == 1.0
