"""In which calls does the host wait for the device?"""

from __future__ import annotations

from builders import draw, only_place, timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.queued import blocking_rows


def waits(place):
    """Names and starts of these calls."""
    calls = place.timeline.calls.take(blocking_rows(place.host, place.work))
    return [(name, int(start)) for name, start in zip(calls.name, calls.start_ns, strict=True)]


def test_calls_wait_by_name_and_where_they_copy_to_pageable_memory():
    place = only_place(draw(kernels=" ##    ", copies="     DD", host="l c sss"))
    names = [name for name, _ in waits(place)]
    assert names == ["cudaMemcpyAsync", "cudaStreamSynchronize"]


def test_a_call_that_waits_for_both_reasons_is_one():
    place = only_place(draw(kernels="##     ", copies="     DD", host="l CCC  "))
    assert [name for name, _ in waits(place)] == ["cudaMemcpy"]


def test_calls_of_other_threads_and_processes_that_begin_at_the_same_moment_do_not_wait():
    call = {"start_ns": 500, "end_ns": 900, "thread": 1}
    calls = [
        {**call, "name": "cudaStreamSynchronize"},
        {**call, "name": "cudaEventQuery", "process": 200},
        {**call, "name": "cudaEventQuery", "thread": 1 + 1_000_003, "start_ns": 499},
        *({**call, "name": "cudaLaunchKernel", "start_ns": 10 * n, "end_ns": 10 * n + 1} for n in range(9)),
    ]
    (place,) = prepare(timeline(kernels=[{"start_ns": 950, "end_ns": 960, "name": "k"}], calls=calls)).places
    assert waits(place) == [("cudaStreamSynchronize", 500)]
