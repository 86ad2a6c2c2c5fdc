"""pageable-copies: copies between the device and host memory that is not pinned."""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw, draw_steps, findings, of_step, only_finding, summary
from exposed_copy_cases import MS, exposed_step
from measured_builders import H100, measurement, with_rates
from msgspec.structs import replace

from perfdoctor.model.timeline import Timeline
from perfdoctor.records.savings import Saving

#: Of PCIe 5 with 16 lanes, in bytes/s: less acknowledgements, and 24 bytes beside each 256.
LINK = 63e9 * (57.88 / 62.96) * (256 / 280)


def in_compute_stream(drawn: Timeline) -> Timeline:
    copies = drawn.copies.with_columns(stream=np.full(len(drawn.copies), 7))
    return replace(drawn, frames={**drawn.frames, "copies": copies})


def step(exposed: int, char: str = "H", **more):
    return in_compute_stream(exposed_step(exposed, char, **{"gigabytes_per_second": 6, **more}))


def saving(drawn: Timeline, **thresholds) -> Saving:
    return only_finding("pageable-copies", drawn, **thresholds).saving_ns_per_step


@pytest.mark.parametrize(("char", "high"), [("H", 10), ("D", 5)])
def test_it_fires_where_a_pageable_copy_is_waited_for(char, high):
    finding = only_finding("pageable-copies", step(10, char), pinned_speedup=2.0)
    assert finding.values == {
        **finding.values,
        **of_step("exposed", 10.0, 40.0),
        "megabytes": pytest.approx(60.0),
        "gigabytes_per_second": pytest.approx(6.0),
    }
    # at twice the rate 10 ms become 5 ms, which 30 ms of compute hide on the way to the device; nothing is known of it
    assert finding.saving_ns_per_step == Saving(0, 5 * MS, high * MS)
    assert finding.confidence == "medium"
    assert "60.0 MB a step at 6.0 GB/s" in summary(finding)


def test_pinned_copies_in_a_stream_of_their_own_run_beside_compute():
    own_stream = exposed_step(10, "H", gigabytes_per_second=6)
    assert saving(own_stream, pinned_speedup=2.0) == Saving(0, 10 * MS, 10 * MS)
    # 2 ms of compute hide 2 of the 19 ms that are left
    assert saving(exposed_step(38, "H", gigabytes_per_second=6), pinned_speedup=2.0).likely == pytest.approx(
        21 * MS, abs=2
    )


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


@pytest.mark.parametrize(("char", "took_ms"), [("H", 60 / 40), ("D", 60 / 50)])
def test_pinned_memory_is_as_fast_as_measured_on_the_machine(char, took_ms):
    """Of 60 MB in 10 ms; at the least a tenth slower."""
    rates = (*PAGEABLE, measurement("h2d_pinned", 40e9), measurement("d2h_pinned", 50e9))
    finding = only_finding("pageable-copies", with_rates(step(10, char, gpu=H100), *rates))
    found = finding.saving_ns_per_step
    assert found.likely == pytest.approx((10 - took_ms) * MS, abs=2)
    assert found.low == pytest.approx((10 - 1.1 * took_ms) * MS, abs=2)
    assert finding.confidence == "high"
    assert {"H": 40e9, "D": 50e9}[char] in [getattr(each, "value", 0) for each in finding.evidence]


def test_where_pinned_memory_is_no_faster_nothing_is_saved():
    drawn = with_rates(step(10, gpu=H100), *PAGEABLE, measurement("h2d_pinned", 5e9))
    assert saving(drawn).likely == 0


def test_pinned_copies_in_the_recording_count_more_than_all_else():
    """10 ms of 60 MB beside a pinned copy of 50 MB in 2 ms: at that rate they take 2.4 ms."""
    drawn = in_compute_stream(
        draw_steps(copies=["H" * 10 + " " * 30, " " * 20 + "h" * 2 + " " * 18], kernels=" " * 10 + "#" * 30, gpu=H100)
    )
    copies = drawn.copies
    size = np.where(copies.text("host_memory").equals("pinned"), 50_000_000, 60_000_000)
    drawn = replace(drawn, frames={**drawn.frames, "copies": copies.with_columns(bytes=size)})
    fast = with_rates(drawn, measurement("h2d_pinned", 50e9))
    for each in (drawn, fast):
        assert saving(each).likely == pytest.approx(7.6 * MS, abs=2)


def test_the_latency_of_smaller_pinned_copies_is_taken_off():
    """1 MB in 60 µs, of which 20 µs are what 1 kB takes: 25 GB/s. 10 ms of 60 MB become 2.4."""
    picture = draw(
        copies="H" * 500 + " " * 1500, kernels=" " * 500 + "#" * 1500, unit_us=20, repeat=6, launched_us_before=50
    )
    beside = draw(
        copies=" " * 600 + "hhh" + " " * 97 + "h" + " " * 1299, kernels=" " * 2000, unit_us=20, repeat=6, mark=None,
        launched_us_before=50,
    )  # fmt: skip
    frame = picture.copies.join([picture.copies, beside.copies])
    size = np.select([frame.duration_ns > 1_000_000, frame.duration_ns > 50_000], [60_000_000, 1_000_000], 1000)
    drawn = replace(picture, frames={**picture.frames, "copies": frame.with_columns(bytes=size)})
    assert saving(in_compute_stream(drawn)).likely == pytest.approx(7.6 * MS, rel=1e-3)


@pytest.mark.parametrize("measured", [(), (measurement("d2h_pinned", 50e9),)])
def test_else_they_are_as_many_times_as_fast_as_elsewhere_and_at_best_as_the_link_without_its_protocol(measured):
    found = saving(with_rates(step(10, gpu=H100), *measured))
    took_ns = 60e6 / LINK * 1e9
    assert (found.low, found.likely) == (
        pytest.approx(10 * MS * (1 - 1 / 1.4), rel=1e-3), pytest.approx(10 * MS * (1 - 1 / 2.1), rel=1e-3),
    )  # fmt: skip
    assert found.high >= 10 * MS - took_ns
