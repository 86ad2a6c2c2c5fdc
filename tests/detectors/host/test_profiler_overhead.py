"""profiler-overhead: the profiler itself makes the GPU wait."""

from __future__ import annotations

import itertools

import pytest
from builders import draw, findings, only_finding, summary

from perfdoctor.metrics.accounting.prepare import prepare


def step(lost: int, char: str = "P", *, of: int = 40, **more):
    """A step of `of` ms, busy but for the last `lost`, in which the host is in the profiler's flush."""
    host = ["l" + " " * (of - 1), " " * (of - lost - 1) + char * (lost + 1)]
    return draw(kernels="#" * (of - lost) + " " * lost, host=host, repeat=6, unit_us=1000, **more)


def test_it_fires_where_the_device_waits_for_it():
    finding = only_finding("profiler-overhead", step(10))
    assert finding.values["lost_ms"] == 10.0
    assert finding.values["step_ms"] == 40.0
    assert finding.values["lost_percent"] == 25.0
    assert finding.saving_ns_per_step.high == 0, "without the profiler there is nothing to win"
    assert "10.0 ms of a 40.0 ms step (25 %)" in summary(finding)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("profiler-overhead", step(1, of=40)) == []  # 2.5 %
    assert len(findings("profiler-overhead", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_device_is_busy_meanwhile():
    """The host runs ahead: it is in the profiler's flush for most of the step, and the device never notices."""
    host = ["l" + " " * 39, "  " + "P" * 36]
    assert findings("profiler-overhead", draw(kernels="#" * 40, host=host, host_ahead=45, repeat=6, unit_us=1000)) == []


@pytest.mark.parametrize("other", ["i", "a", "f"])
def test_it_stays_silent_where_the_host_does_something_else(other):
    assert findings("profiler-overhead", step(10, other)) == []


def test_the_number_is_what_plain_counting_gives():
    """Of each device row the pause before the next, and of that what the host's rows cover, summed up by hand."""
    drawn = step(7)
    (place,) = prepare(drawn).places
    low, high = int(place.window.starts[0]), int(place.window.ends[-1])
    work = sorted(zip(drawn.kernels.start_ns.tolist(), drawn.kernels.end_ns.tolist(), strict=True))
    rows = [
        (int(start), int(end))
        for signal in ("calls", "ops", "ranges", "functions", "overheads")
        for start, end, name in zip(drawn[signal].start_ns, drawn[signal].end_ns, drawn[signal].name, strict=True)
        if name == "Activity Buffer Request"
    ]
    lost = 0
    for (_, end), (start, _) in itertools.pairwise(work):
        for begin, until in rows:
            lost += max(0, min(start, until, high) - max(end, begin, low))
    finding = only_finding("profiler-overhead", drawn)
    assert finding.values["lost_ms"] == pytest.approx(lost / place.units / 1e6)
