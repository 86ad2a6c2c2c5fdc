"""Which op launched which kernel, and which kernels are largest?"""

from __future__ import annotations

import numpy as np
from builders import draw, only_place, timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.sets import largest, launching_rows, stream_order


def place_of(ops, calls, kernels):
    (place,) = prepare(timeline(ops=ops, calls=calls, kernels=kernels)).places
    return place


def kernel(start: int, correlation: int, stream: int = 7):
    return {
        "start_ns": start,
        "end_ns": start + 10,
        "name": "k",
        "correlation": correlation,
        "stream": stream,
        "process": 1,
    }


def call(start: int, correlation: int, thread: int = 1):
    return {
        "start_ns": start,
        "end_ns": start + 1,
        "name": "cudaLaunchKernel",
        "correlation": correlation,
        "thread": thread,
        "process": 1,
    }


def op(start: int, end: int, name: str = "aten::mm", thread: int = 1):
    return {"start_ns": start, "end_ns": end, "name": name, "thread": thread, "process": 1}


def test_a_kernel_belongs_to_the_outermost_row_around_its_launch_on_the_same_thread():
    place = place_of(
        ops=[op(0, 100, "outer"), op(10, 50, "inner"), op(200, 300, "later"), op(0, 400, "elsewhere", thread=2)],
        calls=[call(20, 1), call(99, 2), call(100, 3), call(250, 4), call(250, 5, thread=2), call(150, 6, thread=3)],
        kernels=[kernel(1000 + 10 * n, n) for n in range(1, 7)] + [kernel(2000, 99)],
    )
    row, outer = launching_rows(place, place.timeline.ops)
    names = ["" if each < 0 else outer.name[each] for each in row.tolist()]
    # the end of an op is no longer inside; thread 3 has no op; nobody launched the last
    assert names == ["outer", "outer", "", "later", "elsewhere", "", ""]


def test_without_ops_or_calls_nothing_is_known():
    place = place_of(ops=[], calls=[], kernels=[kernel(1000, 1)])
    assert launching_rows(place, place.timeline.ops)[0].tolist() == [-1]


def test_kernels_come_stream_by_stream():
    place = place_of([], [], [kernel(10, 1, stream=8), kernel(20, 2, stream=7), kernel(30, 3, stream=8)])
    assert stream_order(place).tolist() == [1, 0, 2]


def test_the_table_names_the_largest_first_and_leaves_out_what_has_no_time():
    place = only_place(draw(kernels="SSSDDDDDe", launched_us_before=50))
    rows = np.array([True, True, False])
    table = largest(place, rows, "label")
    assert [(name, count) for name, count, _ in table.rows] == [
        ("volta_dgemm_64x64_nn", 1.0),
        ("ampere_sgemm_128x64_tn", 1.0),
    ]
    assert [ns for *_, ns in table.rows] == [500_000, 300_000]
