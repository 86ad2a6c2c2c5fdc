"""exposed-copies: copies that run while no kernel does."""

from __future__ import annotations

import pytest
from builders import draw, draw_steps, findings, of_step, only_finding, summary
from exposed_copy_cases import MS, exposed_step
from msgspec.structs import replace

from perfdoctor.model.timeline import Text
from perfdoctor.records.savings import Saving


def step(exposed: int, char: str = "h", **more):
    """A copy of `exposed` ms in front of each step's compute."""
    return exposed_step(exposed, char, **more)


def test_it_fires_where_a_pinned_copy_is_waited_for():
    finding = only_finding("exposed-copies", step(10))
    assert finding.values == {
        **finding.values,
        **of_step("exposed", 10.0, 40.0),
        "direction": "h2d",
        "gigabytes_per_second": pytest.approx(25.0),
        "hideable_ms": 10.0,
    }
    assert finding.situation == ""
    # 30 ms of compute could hide all 10
    assert finding.saving_ns_per_step == Saving(5 * MS, 10 * MS, 10 * MS)
    assert finding.confidence == "high"
    assert "(h2d, 25.0 GB/s)" in summary(finding)


def test_a_copy_bound_run_is_reported_as_such():
    """One stream copies for 97 % of the time, kernels take 2 %: little compute hides little."""
    finding = only_finding("exposed-copies", step(97, of=100))
    assert finding.values["exposed_percent"] == 97.0
    assert finding.situation == "copy-bound"
    assert "only 3.0 ms of compute remain to hide them behind" in summary(finding)
    # half of the bytes at most, since nobody knows what they are
    assert finding.saving_ns_per_step == Saving(1.5 * MS, 3 * MS, (3 + 97 / 2) * MS)
    assert finding.confidence == "medium"


@pytest.mark.parametrize(
    ("types", "likely", "high"),
    [
        ('["float", "float"]', 97 / 2, 3 + 97 / 2),
        ('["long int", "long int"]', 97 / 2, 3 + 97 / 2),
        ('["float", "unsigned char"]', 97 / 2, 3 + 97 / 2),  # converted on the host: floats cross the link
        ('["unsigned char", "unsigned char"]', 3, 3),
        ('["c10::BFloat16", "c10::BFloat16"]', 3, 3),
        ("", 3, 3 + 97 / 2),
        ("[1", 3, 3 + 97 / 2),
    ],
)
def test_half_of_the_bytes_are_saved_of_types_that_can_be_halved(types, likely, high):
    drawn = step(97, of=100, host=["n" * 100], legend={"n": ("ops", "aten::copy_")})
    ops = drawn.ops.with_columns(input_types=Text.constant(types, len(drawn.ops)))
    saving = only_finding("exposed-copies", replace(drawn, frames={**drawn.frames, "ops": ops})).saving_ns_per_step
    assert (saving.likely, saving.high) == (likely * MS, high * MS)


def test_it_tells_copies_within_the_device():
    finding = only_finding("exposed-copies", step(10, "x"))
    assert finding.situation == "on-device"
    assert "within the GPU's own memory (d2d, 25.0 GB/s)" in summary(finding)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("exposed-copies", step(1, of=40)) == []  # 2.5 %
    assert len(findings("exposed-copies", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_copy_runs_beside_kernels():
    picture = draw(kernels="#" * 40, copies=" " * 5 + "h" * 30, launched_us_before=50, repeat=6)
    assert findings("exposed-copies", picture) == []


def test_it_stays_silent_where_the_copy_is_pageable():
    """That is pageable-copies' finding: one stretch of time has one cause."""
    assert findings("exposed-copies", step(10, "H")) == []


def test_it_stays_silent_where_the_copy_runs_beside_a_collective():
    picture = draw(
        nccl="=" * 10 + " " * 30,
        copies="h" * 10 + " " * 30,
        kernels=" " * 10 + "#" * 30,
        launched_us_before=50,
        repeat=6,
    )
    assert findings("exposed-copies", picture) == []


def test_the_direction_with_the_longest_exposed_copies_comes_first():
    picture = draw_steps(copies="hhdddd" + " " * 34, kernels=" " * 6 + "#" * 34)
    finding = only_finding("exposed-copies", picture)
    assert finding.values["direction"] == "d2h"
    table = finding.evidence[2]
    assert [(row[0], row[1], row[2]) for row in table.rows] == [("d2h", 1.0, 4 * MS), ("h2d", 1.0, 2 * MS)]


def test_the_direction_named_is_one_that_the_rule_counts():
    """9 ms of pageable copies belong to pageable-copies; the 6 ms that this rule counts go to the host."""
    picture = draw_steps(copies="H" * 9 + "d" * 6 + " " * 25, kernels=" " * 15 + "#" * 25)
    finding = only_finding("exposed-copies", picture)
    assert finding.values["exposed_ms"] == 6.0
    assert finding.values["direction"] == "d2h"
