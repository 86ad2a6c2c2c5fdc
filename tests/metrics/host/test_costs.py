"""When did the host launch the work of a place's window?"""

from __future__ import annotations

from builders import BASE_NS, draw, only_place, timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.costs import host_window

US = 100_000  # of a picture


def test_a_host_that_is_steps_ahead_has_its_own_window():
    """A step of 10: the host launches at its beginning, 25 before the device begins."""
    place = only_place(draw(kernels="########  ", host="l", repeat=8, host_ahead=25))
    (begin, end) = next(iter(host_window(place)))
    assert begin == int(place.window.starts[0]) - 25 * US
    assert end - begin == place.window_ns


def test_without_launches_the_window_is_the_devices_own():
    place = only_place(draw(kernels="####  ####"))
    assert host_window(place) == place.window


def test_a_run_without_a_gpu_has_one_window():
    ops = [{"start_ns": BASE_NS, "end_ns": BASE_NS + 50, "name": "aten::mm"}]
    (place,) = prepare(timeline(ops=ops)).places
    assert host_window(place) == place.window
