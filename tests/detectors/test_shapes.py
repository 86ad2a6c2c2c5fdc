"""Do the two shapes that most detectors share count the time that belongs to them, and once?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw

from perfdoctor.detectors.affected import affected
from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.of_work import of_copies, of_kernels
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import merge


@pytest.fixture
def run() -> Run:
    """Two ranks of 10 ms a step: 3 and 5 ms in other kernels, 1 and 2 ms of copies, idle at the end."""
    ranks = [
        draw(kernels="GGG" + "e" * other, copies=" " * (3 + other) + "h" * copied + " " * (7 - other - copied),
             launched_us_before=50, repeat=5, unit_us=1000, rank=rank, world_size=2)
        for rank, other, copied in ((0, 3, 1), (1, 5, 2))
    ]  # fmt: skip
    return prepare(merge(ranks))


def test_time_is_a_mean_over_all_places_and_the_worst_has_the_largest_share(run):
    asked = []

    def compute_ns(place):
        asked.append(place.rank)
        return place.compute.total_ns

    found = affected(run, compute_ns, 0.0)
    assert found.ns == run.mean(lambda place: place.compute.total_ns)
    assert found.share == found.ns / run.step_ns
    assert found.worst.rank == 1
    assert sorted(asked) == [0, 1], "each place is asked once"


def test_less_than_the_least_share_is_nothing(run):
    share = affected(run, lambda place: place.compute.total_ns, 0.0).share
    assert affected(run, lambda place: place.compute.total_ns, share) is not None
    assert affected(run, lambda place: place.compute.total_ns, share + 1e-9) is None
    assert affected(Run(run.timeline, ()), lambda place: 1.0, 0.0) is None, "where there is no place"


def test_of_kernels_counts_those_that_are_chosen(run):
    found = of_kernels(run, lambda place: place.kernel_rows("elementwise"))
    assert found.ns == 4_000_000
    assert found.worst.rank == 1
    assert found.per_step == found.worst_rows.sum() / found.worst.units
    made = found.finding(
        rule="x", saving=Shares(0.25, 0.5).of(found.ns), confidence="high", values=found.kernel_values(), evidence=()
    )
    assert made.saving_ns_per_step.likely == 2_000_000
    assert made.affected_ns == found.ns
    assert {key: rows.sum() for key, rows in made.work.items()} == {
        (place.rank, 0): found.rows(place).sum() for place in run.places
    }


def test_of_copies_counts_what_is_exposed(run):
    found = of_copies(run, lambda place: np.ones(len(place.copies), dtype=bool))
    assert found.ns == run.mean(lambda place: place.exposed_copies.total_ns)


def test_idle_of_a_cause_knows_its_steps_and_its_longest_piece():
    host = ["l" + " " * 39, " " * 29 + "i" * 11]
    run = prepare(draw(kernels="#" * 30 + " " * 10, host=host, repeat=6, unit_us=1000))
    found = of_cause(run, "input_wait", 0.03)
    assert found.ns == run.mean(lambda place: place.idle_ns("input_wait")) == 10_000_000
    assert found.longest_ns == found.each_step_ns.max() == 10_000_000
    assert found.steps_hit == found.steps_seen == found.steps_losing(0.25) == found.worst.units
    assert found.steps_losing(0.26) == 0
    assert (found.recurrence(0.25), found.recurrence(0.26)) == ("", "once")
    assert of_cause(run, "input_wait", 0.26) is None
