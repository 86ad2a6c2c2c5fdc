"""Which kernels follow each other on a stream?"""

from __future__ import annotations

from builders import timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.chains import stream_order


def place_of(kernels):
    (place,) = prepare(timeline(kernels=kernels)).places
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


def test_kernels_come_stream_by_stream():
    place = place_of([kernel(10, 1, stream=8), kernel(20, 2, stream=7), kernel(30, 3, stream=8)])
    assert stream_order(place).tolist() == [1, 0, 2]
