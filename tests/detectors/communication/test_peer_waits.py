"""peer-waits: the host waits for other processes."""

from __future__ import annotations

import itertools

import pytest
from builders import draw, findings, only_finding, summary

from perfdoctor.metrics.accounting.prepare import prepare


def step(lost: int, char: str = "b", *, of: int = 40, **more):
    """A step of `of` ms, busy but for the last `lost`, in which the host is in a barrier."""
    host = ["l" + " " * (of - 1), " " * (of - lost - 1) + char * (lost + 1)]
    return draw(kernels="#" * (of - lost) + " " * lost, host=host, repeat=6, unit_us=1000, **more)


def test_it_fires_where_the_device_waits_for_it():
    finding = only_finding("peer-waits", step(10), recoverable_share_low=0.1, recoverable_share_likely=0.5)
    assert finding.values["lost_ms"] == 10.0
    assert finding.values["step_ms"] == 40.0
    assert finding.values["lost_percent"] == 25.0
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (1_000_000, 5_000_000, 10_000_000)
    assert finding.values["name"] == "barrier"
    assert "10.0 ms of a 40.0 ms step (25 %)" in summary(finding)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("peer-waits", step(1, of=40)) == []  # 2.5 %
    assert len(findings("peer-waits", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_device_is_busy_meanwhile():
    """The host runs ahead: it is in a barrier for most of the step, and the device never notices."""
    host = ["l" + " " * 39, "  " + "b" * 36]
    assert findings("peer-waits", draw(kernels="#" * 40, host=host, host_ahead=45, repeat=6, unit_us=1000)) == []


@pytest.mark.parametrize("other", ["i", "a", "f"])
def test_it_stays_silent_where_the_host_does_something_else(other):
    assert findings("peer-waits", step(10, other)) == []


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
        if name == "barrier"
    ]
    lost = 0
    for (_, end), (start, _) in itertools.pairwise(work):
        for begin, until in rows:
            lost += max(0, min(start, until, high) - max(end, begin, low))
    finding = only_finding("peer-waits", drawn)
    assert finding.values["lost_ms"] == pytest.approx(lost / place.units / 1e6)


def test_without_a_gpu_the_training_thread_plays_the_device():
    drawn = draw(host=["o" * 30 + " " * 10, " " * 30 + "b" * 10], repeat=6, unit_us=1000)
    assert only_finding("peer-waits", drawn).values["lost_ms"] == pytest.approx(10.0)


@pytest.mark.parametrize("function", ["barrier", "monitored_barrier", "all_gather_object", "broadcast_object_list"])
def test_collectives_of_objects_are_such_waits(function):
    name = f"torch/distributed/distributed_c10d.py(2400): {function}"
    assert len(findings("peer-waits", step(10, "z", legend={"z": ("functions", name)}))) == 1


def test_without_steps_the_numbers_are_for_the_window():
    host = ["l" + " " * 38 + "l", " " * 9 + "b" * 30]
    finding = only_finding("peer-waits", draw(kernels="#" * 10 + " " * 29 + "+" * 10, host=host, unit_us=1000))
    assert finding.situation == "window"
    assert "ms recorded" in summary(finding)
