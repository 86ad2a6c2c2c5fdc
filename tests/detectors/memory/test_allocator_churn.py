"""allocator-churn: memory is asked from the driver in every step."""

from __future__ import annotations

import itertools

import pytest
from builders import draw, findings, only_finding, summary

from perfdoctor.metrics.accounting.prepare import prepare


def step(lost: int, char: str = "a", *, of: int = 40, **more):
    """A step of `of` ms, busy but for the last `lost`, in which the host is in cudaMalloc."""
    host = ["l" + " " * (of - 1), " " * (of - lost - 1) + char * (lost + 1)]
    return draw(kernels="#" * (of - lost) + " " * lost, host=host, repeat=6, unit_us=1000, **more)


def test_it_fires_where_the_device_waits_for_it():
    finding = only_finding("allocator-churn", step(10), recoverable_share_low=0.5, recoverable_share_likely=0.9)
    assert finding.values["lost_ms"] == 10.0
    assert finding.values["step_ms"] == 40.0
    assert finding.values["lost_percent"] == 25.0
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (5_000_000, 9_000_000, 10_000_000)
    assert (finding.values["name"], finding.values["steps_hit"]) == ("cudaMalloc", finding.values["steps_seen"])
    assert "10.0 ms of a 40.0 ms step (25 %)" in summary(finding)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("allocator-churn", step(1, of=40)) == []  # 2.5 %
    assert len(findings("allocator-churn", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_device_is_busy_meanwhile():
    """The host runs ahead: it is in cudaMalloc for most of the step, and the device never notices."""
    host = ["l" + " " * 39, "  " + "a" * 36]
    assert findings("allocator-churn", draw(kernels="#" * 40, host=host, host_ahead=45, repeat=6, unit_us=1000)) == []


@pytest.mark.parametrize("other", ["i", "g", "f"])
def test_it_stays_silent_where_the_host_does_something_else(other):
    assert findings("allocator-churn", step(10, other)) == []


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
        if name == "cudaMalloc"
    ]
    lost = 0
    for (_, end), (start, _) in itertools.pairwise(work):
        for begin, until in rows:
            lost += max(0, min(start, until, high) - max(end, begin, low))
    finding = only_finding("allocator-churn", drawn)
    assert finding.values["lost_ms"] == pytest.approx(lost / place.units / 1e6)


def one_step_of_six():
    """The fourth step takes 40 ms longer, in which the host is in cudaMalloc."""
    kernels, launches, doing, marks = "", "", "", ""
    for number in range(7):
        gap = 40 if number == 3 else 1
        kernels += "#" * 39 + " " * gap
        launches += "l" + " " * (38 + gap)
        doing += " " * 38 + ("a" * 41 if number == 3 else "  ")
        marks += str(number) * (39 + gap)
    return draw(kernels=kernels, host=[launches, doing, marks], unit_us=1000)


def test_what_comes_in_one_step_only_promises_nothing():
    finding = only_finding("allocator-churn", one_step_of_six())
    assert finding.situation == "once"
    assert (finding.values["steps_hit"], finding.confidence) == (1, "low")
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (0, 0)
    assert "no saving is predicted" in summary(finding)


def test_without_steps_it_tells_and_promises_nothing():
    host = ["l" + " " * 38 + "l", " " * 9 + "a" * 30]
    finding = only_finding("allocator-churn", draw(kernels="#" * 10 + " " * 29 + "+" * 10, host=host, unit_us=1000))
    assert (finding.situation, finding.saving_ns_per_step.likely) == ("window", 0)
    assert "No steps were found" in summary(finding)
