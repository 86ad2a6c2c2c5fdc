"""What ran on a device, and which call launched it?"""

from __future__ import annotations

from builders import draw, timeline

from perfdoctor.model.device_work import SIGNALS, device_work, launch_rows
from perfdoctor.model.timeline import UNKNOWN


def work(start: int, correlation: int, **columns: object) -> dict[str, object]:
    return {"start_ns": start, "end_ns": start + 1, "name": "k", "correlation": correlation, **columns}


def test_work_is_joined_to_its_call_by_correlation():
    run = timeline(kernels=[work(50, 2), work(60, 1)], calls=[work(0, 1), work(1, 2)])
    assert launch_rows(run.kernels, run.calls).tolist() == [1, 0]


def test_equal_correlations_of_other_processes_are_other_calls():
    run = timeline(
        kernels=[work(50, 1, process=100), work(60, 1, process=200)],
        calls=[work(0, 1, process=200), work(1, 1, process=100)],
    )
    assert launch_rows(run.kernels, run.calls).tolist() == [1, 0]


def test_equal_processes_of_other_ranks_are_other_machines():
    run = timeline(
        kernels=[work(50, 1, rank=0), work(60, 1, rank=1)],
        calls=[work(0, 1, rank=1), work(1, 1, rank=0)],
    )
    assert launch_rows(run.kernels, run.calls).tolist() == [1, 0]
    assert [device_work(run, rank, 0).launch.tolist() for rank in (0, 1)] == [[1], [0]]


def test_of_a_runtime_call_and_the_driver_call_inside_it_the_outer_one_counts():
    run = timeline(kernels=[work(50, 1)], calls=[work(0, 1), work(1, 1)])
    assert launch_rows(run.kernels, run.calls).tolist() == [0]


def test_many_kernels_of_one_graph_launch_share_its_call():
    run = timeline(kernels=[work(50, 9), work(60, 9)], calls=[work(0, 9)])
    assert launch_rows(run.kernels, run.calls).tolist() == [0, 0]


def test_work_without_a_recorded_call_has_none():
    run = timeline(kernels=[work(50, 7), work(60, UNKNOWN)], calls=[work(0, 1), work(1, UNKNOWN)])
    assert launch_rows(run.kernels, run.calls).tolist() == [UNKNOWN, UNKNOWN]


def test_without_calls_nothing_is_joined():
    run = timeline(kernels=[work(50, 7)], calls=[])
    assert launch_rows(run.kernels, run.calls).tolist() == [UNKNOWN]


def test_a_correlation_of_zero_is_a_correlation():
    run = timeline(kernels=[work(50, 0)], calls=[work(0, 0)])
    assert launch_rows(run.kernels, run.calls).tolist() == [0]


def test_all_work_of_a_device_is_sorted_by_start_with_its_calls():
    run = draw(
        kernels="   ##   ##",
        nccl="     ==   ",
        copies=" h        ",
        host="cl l  l   ",
    )
    found = device_work(run, 0, 0)
    assert found.start_ns.tolist() == sorted(found.start_ns.tolist())
    assert found.launch.tolist() == [0, 1, 2, 3]
    assert found.is_h2d.tolist() == [True, False, False, False]
    assert found.is_blocking_copy.tolist() == [False] * 4


def test_rows_of_a_signal_are_found_among_all_work():
    run = draw(kernels=" ##  # ", nccl="   =   ", copies="h     d", host="l      ", repeat=3)
    found = device_work(run, 0, 0)
    for signal in SIGNALS:
        assert found.start_ns[found.rows[signal]].tolist() == run[signal].start_ns.tolist()
    assert sorted(row for rows in found.rows.values() for row in rows.tolist()) == list(range(len(found)))


def test_a_copy_to_pageable_memory_blocks_and_one_from_it_does_not_count():
    found = device_work(draw(copies="H D h d x"), 0, 0)
    assert found.is_blocking_copy.tolist() == [False, True, False, False, False]
    assert found.is_h2d.tolist() == [True, False, True, False, False]


def test_work_of_other_devices_and_ranks_is_left_alone():
    run = timeline(kernels=[work(1, 1), work(2, 2, device=1), work(3, 3, rank=1)])
    assert [len(device_work(run, rank, device)) for rank, device in run.places] == [1, 1, 1]
