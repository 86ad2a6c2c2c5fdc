"""Does each kernel change by its own share, and does the host launch as much later?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw
from graphs import EVERYTHING

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.records.findings import Finding, KernelChanges
from perfdoctor.records.savings import Saving
from perfdoctor.replay.edits.actions import edit_of
from perfdoctor.replay.edits.shorter import with_changed_work, with_slower_launches
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import simulate

MS = 1_000_000


@pytest.fixture
def run():
    """Steps of two kernels, of 10 and 30 ms, that are launched one behind the other; for their end the host waits."""
    host = ["ll" + "s" * 40 + " "]
    drawn = draw(kernels=" " + "e" * 10 + "#" * 30 + "  ", host=host, repeat=6, unit_us=1000, recorded=EVERYTHING)
    return prepare(drawn)


def test_each_row_changes_by_its_own_share(run):
    """The first goes to a half, the second gets a third longer."""
    (graph,) = graphs_of(run)
    work = graph.place.work
    first = work.end_ns - work.start_ns < 20 * MS
    changed = with_changed_work(graph, np.where(first, 0.5, -1 / 3))
    assert simulate([changed]).step_ns - simulate([graph]).step_ns == pytest.approx(-5 * MS + 10 * MS, abs=1_000)


def test_launches_behind_a_long_kernel_may_take_longer(run):
    """Of 3 ms in front of each launch the first ones delay the device; the others pass while it computes."""
    (graph,) = graphs_of(run)
    slower = with_slower_launches(graph, np.full(len(graph.place.work), 3.0 * MS))
    assert simulate([slower]).step_ns - simulate([graph]).step_ns == pytest.approx(3 * MS, abs=1_000)


def test_a_finding_that_changes_each_kernel_goes_from_case_to_case(run):
    (place,) = run.places
    share = np.array([0.1, 0.5, 0.9])[:, None] * np.ones(len(place.kernels))
    changes = {place.rank_and_device: KernelChanges(share, np.zeros_like(share))}
    found = Finding("x", Saving(4 * MS, 20 * MS, 36 * MS), "high", {}, affected_ns=40 * MS, changes=changes)
    (graph,) = graphs_of(run)
    edit, before_ns = edit_of("kernels", found, run), simulate([graph]).step_ns
    for asked, saved in ((0.0, 0), (0.05, 2), (0.1, 4), (0.3, 12), (0.5, 20), (0.9, 36)):
        assert before_ns - simulate([edit(graph, asked)]).step_ns == pytest.approx(saved * MS, abs=10_000)
