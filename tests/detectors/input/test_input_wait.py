"""input-wait: the training waits for its next batch while the device has nothing to do."""

from __future__ import annotations

import pytest
from builders import draw, findings, full_queue, of_step, only_finding, summary

from perfdoctor.model.timeline import merge

MS = 1_000_000


def step(wait: int, char: str = "i", *, of: int = 40, repeat: int = 6, unit_us: float = 1000, **more):
    """A step of `of` units, busy but for the last `wait`, in which the loader is awaited."""
    kernels = "#" * (of - wait) + " " * wait
    host = ["l" + " " * (of - 1), " " * (of - wait - 1) + char * (wait + 1)]
    return draw(kernels=kernels, host=host, repeat=repeat, unit_us=unit_us, **more)


def test_it_fires_where_the_device_waits_for_workers():
    finding = only_finding("input-wait", step(10), recoverable_share_low=0.7, recoverable_share_likely=0.95)
    assert finding.situation == "workers"
    assert finding.confidence == "high"
    # 10 of 40 ms
    assert finding.values == {**of_step("wait", 10.0, 40.0), "longest_ms": 10.0}
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (7 * MS, 9.5 * MS)
    assert finding.saving_ns_per_step.high == 10 * MS
    assert "10.0 ms of a 40.0 ms step (25 %)" in summary(finding)
    assert "workers that cannot keep up" in summary(finding)


def test_it_tells_a_loader_without_workers():
    finding = only_finding("input-wait", step(10, "I"))
    assert finding.situation == "single-process"
    assert "`num_workers=0`" in summary(finding)


def test_it_tells_a_wait_that_only_the_users_own_range_marks():
    finding = only_finding("input-wait", step(10, "z", legend={"z": ("ranges", "wait_for_batch")}))
    assert (finding.situation, finding.confidence) == ("other", "high")


def test_a_wait_that_is_only_inferred_is_reported_as_such():
    picture = draw(
        copies="  h" + " " * 22,
        kernels="   #######" + " " * 15,
        host=["  cl" + " " * 21, "zzzzzzzzzz" + " " * 15],
        legend={"z": ("ranges", "train_step")},
        repeat=5,
        mark=None,
        unit_us=1000,
    )
    finding = only_finding("input-wait", picture)
    assert (finding.situation, finding.confidence) == ("unmarked", "medium")
    assert finding.values["wait_ms"] == 15.0
    assert "is inferred" in summary(finding)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("input-wait", step(1, of=40)) == []  # 2.5 %
    assert len(findings("input-wait", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_loader_is_awaited_while_the_device_is_busy():
    """The host runs ahead: it stands in `__next__` for most of the step, and the device never notices."""
    assert findings("input-wait", full_queue("i" * 36)) == []


def test_it_stays_silent_where_copies_and_not_the_loader_fill_the_step():
    """A copy-bound run: the loader is awaited, but the device is busy copying all the time."""
    picture = draw(
        copies="h" * 38 + "  ",
        kernels=" " * 38 + "# ",
        host=["cl" + " " * 38, "   " + "i" * 34],
        repeat=6,
        unit_us=1000,
    )
    assert findings("input-wait", picture) == []


def test_it_averages_ranks_and_shows_the_longest_wait_of_the_worst():
    finding = only_finding("input-wait", merge([step(4, rank=0), step(16, rank=1)]))
    assert finding.values["wait_ms"] == pytest.approx(10.0)
    assert finding.values["longest_ms"] == 16.0


def test_without_steps_numbers_are_for_the_window():
    picture = draw(kernels="####        ++++", host=["l          l    ", "   iiiiiiii     "], unit_us=1000)
    assert only_finding("input-wait", picture).values["step_ms"] == 16.0
