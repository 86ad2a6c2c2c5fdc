"""The kind of a communication kernel, by the range in which it was launched."""

from __future__ import annotations

import numpy as np
from builders import frame

from perfdoctor.model.timeline import Frame
from perfdoctor.readers.collective_kinds import kinds_as_launched

PAIRS = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def frames(ranges: list[tuple[str, int, int, int]], launches: list[tuple[int, int]]) -> dict[str, Frame]:
    """Ranges as (name, start, end, thread), launching calls as (time, thread); one kernel for each call."""
    return {
        "collectives": frame(
            "collectives",
            [
                {"start_ns": 1000 + n, "end_ns": 1001 + n, "name": PAIRS, "kind": "send_recv", "correlation": n}
                for n in range(len(launches))
            ],
        ),
        "calls": frame(
            "calls",
            [
                {"start_ns": at, "end_ns": at + 1, "thread": thread, "correlation": n, "name": "cudaLaunchKernelExC"}
                for n, (at, thread) in enumerate(launches)
            ],
        ),
        "ranges": frame(
            "ranges",
            [{"name": name, "start_ns": start, "end_ns": end, "thread": thread} for name, start, end, thread in ranges],
        ),
    }


def kinds(*args, **more) -> list[str]:
    return list(kinds_as_launched(frames(*args), **more))


def test_the_range_around_the_launch_gives_the_kind():
    ranges = [("nccl:all_to_all", 0, 10, 1), ("nccl:_reduce_scatter_base", 20, 30, 1), ("nccl:send 0->1", 40, 50, 1)]
    assert kinds(ranges, [(5, 1), (25, 1), (45, 1)]) == ["all_to_all", "reduce_scatter", "send_recv"]


def test_outside_of_any_range_and_at_its_end_the_kernels_name_counts():
    assert kinds([("nccl:all_to_all", 0, 10, 1)], [(10, 1), (15, 1)]) == ["send_recv", "send_recv"]


def test_a_range_on_another_thread_does_not_count():
    assert kinds([("nccl:all_to_all", 0, 10, 2)], [(5, 1)]) == ["send_recv"]


def test_other_ranges_and_coalesced_ones_do_not_count():
    assert kinds([("forward", 0, 10, 1)], [(5, 1)]) == ["send_recv"]
    assert kinds([("nccl:coalesced", 0, 10, 1)], [(5, 1)]) == ["send_recv"]


def test_a_kind_that_the_recording_names_is_kept():
    is_named = np.array([True, False])
    assert kinds([("nccl:all_to_all", 0, 10, 1)], [(4, 1), (5, 1)], is_named=is_named) == ["send_recv", "all_to_all"]


def test_without_calls_or_ranges_nothing_changes():
    full = frames([("nccl:all_to_all", 0, 10, 1)], [(5, 1)])
    for lacking in ("calls", "ranges"):
        rest = {name: rows for name, rows in full.items() if name != lacking}
        assert list(kinds_as_launched(rest)) == ["send_recv"]
    assert list(kinds_as_launched({**full, "ranges": Frame.empty("ranges")})) == ["send_recv"]
    assert len(kinds_as_launched({**full, "collectives": Frame.empty("collectives")})) == 0
