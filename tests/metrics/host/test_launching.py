"""Where the host asked for work: its window, the op and the own function around each launch."""

from __future__ import annotations

import numpy as np
from builders import BASE_NS, draw, only_place, timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.enclosing import lines_of, ops_of
from perfdoctor.metrics.host.launching import asked, host_window, in_line, in_op
from perfdoctor.model.timeline import UNKNOWN

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


def functions_and_ops(**more):
    return timeline(
        kernels=[{"start_ns": 500, "end_ns": 600, "name": "k", "correlation": 1}],
        calls=[{"start_ns": 30, "end_ns": 31, "name": "cudaLaunchKernel", "correlation": 1, **more}],
        ops=[
            {"start_ns": 10, "end_ns": 60, "name": "aten::linear"},
            {"start_ns": 20, "end_ns": 50, "name": "aten::addmm"},
        ],
        functions=[
            {"start_ns": 0, "end_ns": 400, "name": "train.py(3): train"},
            {"start_ns": 5, "end_ns": 70, "name": "model.py(9): forward"},
            {"start_ns": 6, "end_ns": 69, "name": "torch/nn/modules/linear.py(130): forward"},
        ],
    )


def names(drawn):
    run = prepare(drawn)
    when = asked(run.timeline.calls, np.array([0]))
    op, line = in_op(run, 0, when)[0], in_line(run, 0, when)[0]
    return (
        ops_of(run, 0).rows.name[op] if op != UNKNOWN else "",
        lines_of(run, 0).rows.name[line] if line != UNKNOWN else "",
    )


def test_a_launch_belongs_to_the_innermost_op_and_own_function():
    assert names(functions_and_ops()) == ("aten::addmm", "model.py(9): forward")


def test_a_thread_without_functions_works_for_the_one_that_waits():
    assert names(functions_and_ops(thread=2, start_ns=200, end_ns=201)) == ("", "train.py(3): train")


def test_what_was_launched_before_the_recording_belongs_to_nothing():
    run = prepare(functions_and_ops())
    when = asked(run.timeline.calls, np.array([UNKNOWN]))
    assert (when.at_ns[0], when.thread[0]) == (UNKNOWN, UNKNOWN)
    assert (in_op(run, 0, when)[0], in_line(run, 0, when)[0]) == (UNKNOWN, UNKNOWN)
