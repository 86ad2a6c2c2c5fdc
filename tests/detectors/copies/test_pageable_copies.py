"""pageable-copies: copies between the device and host memory that is not pinned."""

from __future__ import annotations

import pytest
from builders import draw, findings, of_step, only_finding, summary
from exposed_copy_cases import MS, exposed_step
from measured_builders import H100, measurement, with_rates

from perfdoctor.records.savings import Saving


def step(exposed: int, char: str = "H", **more):
    return exposed_step(exposed, char, **{"gigabytes_per_second": 6, **more})


@pytest.mark.parametrize("char", ["H", "D"])
def test_it_fires_where_a_pageable_copy_is_waited_for(char):
    finding = only_finding("pageable-copies", step(10, char), pinned_speedup=2.0)
    assert finding.values == {
        **of_step("exposed", 10.0, 40.0),
        "megabytes": pytest.approx(60.0),
        "gigabytes_per_second": pytest.approx(6.0),
    }
    # at twice the rate 10 ms become 5 ms
    assert finding.saving_ns_per_step == Saving(2.5 * MS, 5 * MS, 10 * MS)
    assert "60.0 MB a step at 6.0 GB/s" in summary(finding)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("pageable-copies", step(1, of=40)) == []  # 2.5 %
    assert len(findings("pageable-copies", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_same_copy_is_pinned():
    assert findings("pageable-copies", step(10, "h")) == []


def test_it_stays_silent_where_compute_hides_the_copy():
    picture = draw(kernels="#" * 40, copies="  " + "H" * 30, launched_us_before=50, repeat=6)
    assert findings("pageable-copies", picture) == []


def test_it_stays_silent_where_a_loss_of_a_few_bytes_is_read():
    picture = draw(
        copies=" " * 998 + "D" + " ",
        kernels="#" * 998,
        launched_us_before=5,
        repeat=5,
        unit_us=10,
        gigabytes_per_second=0.001,
    )
    assert findings("pageable-copies", picture) == []


@pytest.mark.parametrize("char", ["x", "m"])
def test_it_stays_silent_where_the_host_has_no_part_in_the_copy(char):
    assert findings("pageable-copies", step(10, char)) == []


PAGEABLE = (measurement("h2d_pageable", 8e9), measurement("d2h_pageable", 5e9))


@pytest.mark.parametrize(("char", "faster"), [("H", 5.0), ("D", 10.0)])
def test_pinned_memory_is_as_much_faster_as_measured_on_the_machine(char, faster):
    """Of 10 ms a fifth or a tenth remains, instead of the assumed half."""
    rates = (*PAGEABLE, measurement("h2d_pinned", 40e9), measurement("d2h_pinned", 50e9))
    drawn = with_rates(step(10, char, gpu=H100), *rates)
    finding = only_finding("pageable-copies", drawn, pinned_speedup=2.0)
    saving = finding.saving_ns_per_step
    assert saving.likely == pytest.approx(10 * MS * (1 - 1 / faster))
    assert (saving.low, saving.high) == (saving.likely // 2, 10 * MS)
    assert 50e9 in [getattr(each, "value", 0) for each in finding.evidence]


def test_where_pinned_memory_was_no_faster_nothing_is_saved():
    drawn = with_rates(step(10, gpu=H100), *PAGEABLE, measurement("h2d_pinned", 7e9))
    assert only_finding("pageable-copies", drawn).saving_ns_per_step.likely == 0


def test_a_direction_that_was_not_measured_is_assumed():
    drawn = with_rates(step(10, gpu=H100), measurement("d2h_pinned", 50e9), measurement("d2h_pageable", 5e9))
    assert only_finding("pageable-copies", drawn, pinned_speedup=2.0).saving_ns_per_step.likely == 5 * MS
