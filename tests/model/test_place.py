"""Do the parts of a window sum to it, whatever ran on the device?"""

from __future__ import annotations

import pytest
from builders import BASE_NS, draw, frame, only_place, timeline
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.split import split, whole_recording
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.vocabulary.parts import IDLE_CAUSES

UNIT_NS = 100_000


@st.composite
def work_on_streams(draw_value, signal: str) -> list[dict]:
    rows = draw_value(
        st.lists(
            st.tuples(st.integers(0, 60), st.integers(0, 15), st.integers(7, 9), st.sampled_from([UNKNOWN, 1, 2, 3])),
            max_size=8,
        )
    )
    names = {"kernels": "gemm", "collectives": "ncclDevKernel_AllReduce_Sum_f32", "copies": "Memcpy HtoD"}
    return [
        {"start_ns": start, "end_ns": start + length, "stream": stream, "correlation": call, "name": names[signal]}
        for start, length, stream, call in rows
    ]


_CALLS = ("cudaLaunchKernel", "cudaStreamSynchronize", "cudaMalloc", "cudaMemcpyAsync", "cudaMemcpy")
_RANGES = ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "Python GC", "barrier", "forward")


@st.composite
def host_rows(draw_value, names: tuple[str, ...]) -> list[dict]:
    rows = draw_value(
        st.lists(
            st.tuples(
                st.integers(-20, 60), st.integers(0, 20), st.sampled_from(names), st.sampled_from([UNKNOWN, 1, 2, 3])
            ),
            max_size=8,
        )
    )
    return [
        {"start_ns": at, "end_ns": at + length, "name": name, "correlation": call} for at, length, name, call in rows
    ]


def instants(rows: list[dict]) -> set[int]:
    return {at for row in rows for at in range(row["start_ns"], row["end_ns"])}


@given(work_on_streams("kernels"), work_on_streams("collectives"), work_on_streams("copies"))
def test_the_four_parts_are_what_sets_of_instants_say(kernels, collectives, copies):
    run = prepare(timeline(kernels=kernels, collectives=collectives, copies=copies))
    compute, communication, copying = (instants(rows) for rows in (kernels, collectives, copies))
    everything = [*kernels, *collectives, *copies]
    window = set(
        range(min((r["start_ns"] for r in everything), default=0), max((r["end_ns"] for r in everything), default=0))
    )
    if not window:
        assert run.places == ()
        return
    (place,) = run.places
    parts = split(place)
    assert parts.compute_ns == len(compute)
    assert parts.exposed_communication_ns == len(communication - compute)
    assert parts.exposed_copy_ns == len(copying - communication - compute)
    assert parts.idle_ns == len(window - compute - communication - copying)
    assert parts.hidden_communication_ns == len(communication & compute)
    assert parts.compute_ns + parts.exposed_communication_ns + parts.exposed_copy_ns + parts.idle_ns == parts.window_ns


@given(
    work_on_streams("kernels"), work_on_streams("copies"), host_rows(_CALLS), host_rows(_RANGES), host_rows(("aten::add",)),
    st.sets(st.sampled_from(["ops", "ranges", "os_calls"])),
)  # fmt: skip
def test_causes_of_idle_are_disjoint_and_sum_to_it(kernels, copies, calls, ranges, ops, also_recorded):
    recorded = {"kernels", "copies", "calls"} | also_recorded
    spread = 50_000  # from single ns to real distances, so that queues and syncs matter

    def apart(rows: list[dict]) -> list[dict]:
        return [{**row, "start_ns": row["start_ns"] * spread, "end_ns": row["end_ns"] * spread} for row in rows]

    run = prepare(
        timeline(
            recorded,
            kernels=apart(kernels),
            copies=apart(copies),
            calls=apart(calls),
            ranges=apart(ranges),
            ops=apart(ops),
        )
    )
    for place in run.places:
        split(place)  # checks its sums itself
        union = Intervals.empty()
        for pieces in place.idle_causes.values():
            assert not union & pieces
            union = union | pieces
        assert union == place.idle
        assert set(place.idle_causes) == set(IDLE_CAUSES)


def test_compute_comes_before_communication_and_communication_before_copies():
    parts = split(
        only_place(
            draw(
                kernels="####        ",
                nccl="  ====      ",
                copies="  hhhhhh  hh",
            )
        )
    )
    assert (parts.compute_ns, parts.exposed_communication_ns, parts.exposed_copy_ns, parts.idle_ns) == tuple(
        units * UNIT_NS for units in (4, 2, 4, 2)
    )
    assert (parts.communication_ns, parts.hidden_communication_ns, parts.copy_ns) == (4e5, 2e5, 8e5)


def test_two_streams_that_are_each_half_idle_but_never_together_leave_no_idle():
    place = only_place(
        draw(
            kernels=[
                "##  ##  ##  ",
                "  ++  ++  ++",
            ]
        )
    )
    assert place.idle.total_ns == 0
    assert place.compute.total_ns == place.window_ns == 12 * UNIT_NS


def test_kernels_that_overlap_count_once_in_compute_and_in_full_by_family():
    parts = split(only_place(draw(kernels=["GGGG", "  ee"])))
    assert parts.compute_ns == 4 * UNIT_NS
    assert parts.compute_by_family_ns["gemm"] == 4 * UNIT_NS
    assert parts.compute_by_family_ns["elementwise"] == 2 * UNIT_NS


def test_a_cuda_graph_is_busy_from_its_first_to_its_last_kernel():
    place = only_place(draw(kernels="@@@@@@@@@@  ##", host=" "))
    whole = timeline(
        kernels=[
            {"start_ns": 0, "end_ns": 90, "name": "CUDA graph", "is_graph": True},
            {"start_ns": 95, "end_ns": 100, "name": "k"},
        ]
    )
    assert place.compute.total_ns == 12 * UNIT_NS
    assert split(only_place(whole)).compute_ns == 95


def test_matmul_time_is_split_by_math_path():
    parts = split(only_place(draw(kernels="GGGGSSSTTe", kernel_names={"T": "triton_mm"})))
    assert parts.matmul_ns_by_math_path == {
        "tensor_core": 4 * UNIT_NS,
        "no_tensor_core": 3 * UNIT_NS,
        "unknown": 2 * UNIT_NS,
    }


def test_only_what_lies_in_the_window_counts():
    """Steps cut the window: the kernel that reaches over its edge counts with its inner part."""
    place = only_place(draw(kernels="  ########", host="l         ", repeat=4))
    assert place.window_ns == 30 * UNIT_NS
    assert place.kernel_ns.sum() == 24 * UNIT_NS
    assert place.per_step(place.window_ns) == 10 * UNIT_NS


def test_the_window_begins_where_the_recordings_own_clock_says():
    assert split(only_place(draw(kernels="  ##"))).window_start_ns == BASE_NS + 2 * UNIT_NS


def test_without_steps_the_window_is_the_whole_recording():
    parts = split(only_place(draw(kernels="##  ##")))
    assert (parts.step_ns, parts.window_ns) == (None, 6 * UNIT_NS)


def test_the_whole_recording_also_holds_what_steady_steps_leave_out():
    place = only_place(draw(kernels="#####     ", host="l         ", repeat=4))
    assert place.window_ns == 30 * UNIT_NS
    assert whole_recording(place).window_ns == 35 * UNIT_NS


def busy_and_idle(of: str) -> Run:
    """Of two devices, or ranks, the first is busy for 100 ns, and the second idle for half of them."""
    pieces = ((0, 0, 100), (1, 0, 40), (1, 90, 100))
    kernels = [{"start_ns": start, "end_ns": end, "name": "k", of: number} for number, start, end in pieces]
    return prepare(timeline(kernels=kernels))


def test_each_device_is_accounted_for_on_its_own():
    run = busy_and_idle("device")
    assert [(place.device, place.idle.total_ns) for place in run.places] == [(0, 0), (1, 50)]


def test_a_run_of_several_places_is_their_mean_and_names_the_worst():
    run = busy_and_idle("rank")
    assert run.mean(lambda place: place.idle.total_ns) == 25
    assert run.share(lambda place: place.idle.total_ns) == 0.25
    assert run.worst(lambda place: place.idle.total_ns).rank == 1


def test_numbers_are_per_step_only_if_every_place_has_steps():
    marked = draw(kernels="#####     ", host="l         ", repeat=4)
    assert prepare(marked).per_step
    assert not prepare(draw(kernels="## ##")).per_step
    assert not prepare(timeline(ops=[])).per_step


def test_a_recording_of_nothing_has_no_place():
    assert prepare(timeline(kernels=[], copies=[], collectives=[])).places == ()
    assert prepare(timeline()).step_ns == 0


def test_work_of_zero_length_is_no_place_to_look_at():
    assert prepare(timeline(kernels=[{"start_ns": 5, "end_ns": 5, "name": "k"}])).places == ()


@pytest.mark.parametrize("signal", ["kernels", "collectives", "copies"])
def test_any_kind_of_work_alone_makes_a_place(signal):
    place = only_place(timeline(**{signal: [{"start_ns": 5, "end_ns": 9, "name": "ncclDevKernel_AllReduce"}]}))
    assert (place.window_ns, place.idle.total_ns) == (4, 0)
    assert len(frame(signal, [])) == 0
