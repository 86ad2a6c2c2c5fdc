"""Is each thing where and when the recording says? Tracks held against plain loops over the rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from builders import BASE_NS, draw, frame, timeline
from counters_builder import sampled
from folders import FIXTURES
from hypothesis import given
from hypothesis import strategies as st
from machine_builders import beside, samples
from msgspec.structs import replace
from ncu_builders import alone
from recorded import of_recordings, recording

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.accounting.longest import analysed_span
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run, Selection
from perfdoctor.model.timeline import UNKNOWN, Timeline, merge
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, Span
from perfdoctor.records.savings import Range, Saving
from perfdoctor.records.views import TimelineView, Track
from perfdoctor.views.pages.timeline import view
from perfdoctor.views.timeline.lanes import exact_size
from perfdoctor.vocabulary.parts import IDLE_CAUSES

RECORDINGS = sorted(path for path in FIXTURES.glob("*/*") if path.name in ("torch", "nsys"))
UNIT = 100_000

ON_DEVICE = ("kernels", "collectives", "copies")
ON_HOST = ("ranges", "ops", "functions", "calls", "os_calls")
STEP = {
    "kernels": ["####   ##", "  ee  "],
    "nccl": "    ==",
    "copies": "HH       ",
    "host": {1: ["llll c   ", "  ooooo  ", " rrrrrrr "], 2: ["s    "]},
}


def shown(drawn: Timeline | Run, diagnosis: Diagnosis | None = None) -> TimelineView:
    run = drawn if isinstance(drawn, Run) else prepare(drawn)
    (found,) = view(run, diagnosis or examine(run, []).diagnosis)
    return found


def tracks(found: TimelineView, kind: str, group: str = "") -> list[Track]:
    return [each for each in found.tracks if each.kind == kind and group in found.groups[each.group].title]


def pieces(found: TimelineView, track: Track) -> list[tuple[int, int, str]]:
    return [
        (start, start + length, found.names[name])
        for start, length, name in zip(
            track.start_ns.tolist(), track.duration_ns.tolist(), track.name.tolist(), strict=True
        )
    ]


def rows_in(drawn: Timeline, signal: str, window: tuple[int, int], where: tuple[str, ...]):
    """By where it ran, (start, end, name) of each row in the window, cut at its edges, as plain Python finds them."""
    rows, found = drawn[signal], defaultdict(list)
    places = zip(*(rows[column].tolist() for column in where), strict=True)
    for place, start, end, name in zip(places, rows.start_ns.tolist(), rows.end_ns.tolist(), rows.name, strict=True):
        if end > window[0] and start < window[1]:
            found[place].append((max(start, window[0]) - window[0], min(end, window[1]) - window[0], name))
    return found


def window_of(run: Run) -> tuple[int, int]:
    edges = [edge for place in run.places for piece in place.window for edge in piece]
    return min(edges), max(edges)


# ---- everything is there --------------------------------------------------------------------------------------------


def assert_all_rows_are_shown(run: Run, found: TimelineView) -> None:
    window = window_of(run)
    assert found.length_ns == window[1] - window[0]
    on_cpu = bool(host_places(run))
    for signal in (*ON_DEVICE, *ON_HOST):
        where = ("rank", "device", "stream") if signal in ON_DEVICE else ("rank", "process", "thread")
        if signal == "collectives" and on_cpu:
            continue  # those of the host are rows of ranges
        expected = rows_in(run.timeline, signal, window, where)
        assert all((track.count == 1).all() for track in tracks(found, signal))
        theirs = sorted((place[0], tuple(sorted(rows))) for place, rows in expected.items())
        ours = sorted(
            (found.groups[track.group].rank, tuple(sorted(pieces(found, track)))) for track in tracks(found, signal)
        )
        assert ours == theirs, signal


@of_recordings(RECORDINGS)
def test_each_track_holds_the_rows_of_its_stream_or_thread_and_idle_as_it_is_accounted_for(path):
    run = recording(path).run
    found = shown(run)
    assert_all_rows_are_shown(run, found)
    assert found.pieces_in_all == sum(track.start_ns.size for track in found.tracks)
    assert_well_formed(found)
    assert_idle_is_that_of_the_accounting(run, found)


def assert_well_formed(found: TimelineView) -> None:
    for track in found.tracks:
        assert track.start_ns.size
        assert (np.diff(track.start_ns) >= 0).all()
        assert (track.start_ns >= 0).all()
        assert (track.start_ns + track.duration_ns <= found.length_ns).all()
        assert (track.busy_ns <= track.duration_ns).all()
        sizes = {
            column.size
            for column in (track.duration_ns, track.name, track.row, track.count, track.busy_ns, track.launch_track,
                           track.launch_ns, track.detail)
        }  # fmt: skip
        assert sizes == {track.start_ns.size}
        assert track.values.size in ({track.start_ns.size} if track.kind == "counter" else {0})
    begin, end = found.typical
    assert 0 <= begin < end <= found.length_ns


def assert_idle_is_that_of_the_accounting(run: Run, found: TimelineView) -> None:
    for place, title in (
        (place, f"rank {place.rank} · {'training' if place.device is None else f'GPU {place.device}'}")
        for place in run.places
    ):
        expected = {cause: stretches.total_ns for cause, stretches in place.idle_causes.items() if stretches}
        mine: Counter[str] = Counter()
        for track in tracks(found, "idle", title):
            for start, end, cause in pieces(found, track):
                mine[cause] += end - start
        assert dict(mine) == expected
        assert set(mine) <= set(IDLE_CAUSES)


def test_zero_is_the_first_event_of_the_window():
    drawn = draw(**STEP, repeat=5)
    run = prepare(drawn)
    assert analysed_span(run) == window_of(run)
    found = shown(run)
    (first, *_) = pieces(found, tracks(found, "copies")[0])
    assert first[0] == 0  # the copy is what a step begins with


def test_two_ranks_count_from_the_same_zero():
    early = draw(kernels="## ", host="l  ", repeat=5)
    late = draw(kernels=" ##", host="l  ", repeat=5, rank=1)
    found = shown(merge([early, late]))
    assert [group.title for group in found.groups] == [
        "rank 0 · GPU 0",
        "rank 0 · host",
        "rank 1 · GPU 0",
        "rank 1 · host",
    ]
    (ours,), (theirs,) = (tracks(found, "kernels", f"rank {rank}") for rank in (0, 1))
    assert (ours.start_ns[0], theirs.start_ns[0]) == (0, UNIT)


# ---- details and launches -------------------------------------------------------------------------------------------


def test_arrows_lead_from_the_call_to_what_it_launched():
    drawn = draw(**STEP, repeat=6)
    found, zero = shown(drawn), window_of(prepare(drawn))[0]
    calls = drawn.calls
    by_correlation = dict(zip(calls["correlation"].tolist(), calls.start_ns.tolist(), strict=True))
    started = {
        (start - zero, name): by_correlation[number] - zero
        for signal in ON_DEVICE
        for start, name, number in zip(
            drawn[signal].start_ns.tolist(), drawn[signal].name, drawn[signal]["correlation"].tolist(), strict=True
        )
        if number != UNKNOWN
    }
    linked = 0
    for signal in ON_DEVICE:
        for track in tracks(found, signal):
            for (start, _, name), number, at in zip(
                pieces(found, track), track.launch_track.tolist(), track.launch_ns.tolist(), strict=True
            ):
                if number == -1:
                    assert started.get((start, name), -1) < 0  # launched before the window, or by no recorded call
                    continue
                linked += 1
                assert at == started[start, name]
                assert found.tracks[number].kind == "calls"
                assert at in found.tracks[number].start_ns.tolist()
    assert linked == sum(
        0 <= at < found.length_ns for (start, _), at in started.items() if start >= 0 and start < found.length_ns
    )
    assert linked


def test_details_of_each_kind_of_event():
    at = {"start_ns": 10, "end_ns": 20, "name": "k"}
    found = shown(
        timeline(
            kernels=[{**at, "blocks": 1_080, "threads_per_block": 128}, {**at, "stream": 8, "is_graph": True}],
            copies=[
                {**at, "bytes": 4 << 20, "host_memory": "pageable"},
                {**at, "direction": "d2d", "host_memory": "none", "stream": 9},
            ],
            collectives=[{**at, "bytes": 3_136, "group_name": "tp", "group_size": 8, "data_type": "BFloat16"}],
            ops=[{**at, "input_shapes": "[[64, 1024], []]"}, {**at, "thread": 2}],
        )
    )
    details = {
        (track.kind, found.names[place] if place >= 0 else "")
        for track in found.tracks
        for place in track.detail.tolist()
    }
    assert details == {
        ("kernels", "1,080 blocks of 128 threads"),
        ("kernels", "one launch of a CUDA graph"),
        ("copies", "4 MiB, h2d, pageable"),
        ("copies", "d2d"),
        ("collectives", "all_reduce, 3,136 B, group tp, 8 ranks, BFloat16"),
        ("ops", "[[64, 1024], []]"),
        ("ops", ""),
        ("idle", ""),
    } - ({("idle", "")} if not tracks(found, "idle") else set())


@given(st.integers(0, 1 << 50))
def test_sizes_are_exact(size):
    number, unit = exact_size(size).split(" ")
    assert int(number.replace(",", "")) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit) == size


def test_steps_are_numbered_as_in_findings():
    found = shown(draw(**STEP, repeat=6))
    (track,) = tracks(found, "step")
    assert [name for *_, name in pieces(found, track)] == [f"step {n}" for n in range(1, 6)]
    assert found.typical in [(start, end) for start, end, _ in pieces(found, track)]


def test_the_typical_step_has_the_median_length():
    usual = "####  ## "
    steps = [usual, "####  ########## ", usual, usual, "####  ########## ", usual, usual]
    edges = (BASE_NS + UNIT * np.cumsum([0, *map(len, steps)])).tolist()
    marks = [{"start_ns": a, "end_ns": b, "name": f"ProfilerStep#{n}"} for n, (a, b) in enumerate(pairwise(edges))]
    drawn = draw(kernels="".join(steps), launched_us_before=0)
    run = prepare(Timeline.build({**drawn.frames, "ranges": frame("ranges", marks)}, {*drawn.recorded, "ranges"}))
    begin, end = shown(run).typical
    assert end - begin == len(usual) * UNIT


def test_chosen_steps_keep_their_numbers():
    run = prepare(draw(**STEP, repeat=8), Selection(steps=(3, 5)))
    found = shown(run)
    (track,) = tracks(found, "step")
    assert [name for *_, name in pieces(found, track)] == ["step 3", "step 4", "step 5"]
    assert found.length_ns == 3 * 9 * UNIT
    assert_all_rows_are_shown(run, found)


def test_executions_of_a_range_end_where_its_time_does():
    step = {"kernels": "## ## ###", "host": ["ll   l   ", "rrr      "]}
    run = prepare(draw(**step, repeat=6), Selection(range_name="forward"))
    found = shown(run)
    (track,) = tracks(found, "step")
    (place,) = run.places
    assert [name for *_, name in pieces(found, track)] == [f"execution {n}" for n in range(1, track.start_ns.size + 1)]
    assert [end - start for start, end, _ in pieces(found, track)] == place.window.durations_ns.tolist()
    assert found.typical in [(start, end) for start, end, _ in pieces(found, track)]
    assert_all_rows_are_shown(run, found)


# ---- other recordings -----------------------------------------------------------------------------------------------


def test_without_steps_everything_is_typical():
    found = shown(draw(kernels="## ##", host="l  l "))
    assert not tracks(found, "step")
    assert found.typical == (0, found.length_ns)


def test_several_gpus_of_one_process():
    both = [draw(kernels="##", device=device, launched_us_before=5).kernels for device in (0, 1)]
    joined = both[0].join(both)
    found = shown(Timeline.build({"kernels": joined}, ["kernels"]))
    assert [(group.title, group.rank, group.device) for group in found.groups] == [
        ("rank 0 · GPU 0", 0, 0),
        ("rank 0 · GPU 1", 0, 1),
    ]


def test_kernels_that_overlap_on_one_stream_get_rows():
    rows = [{"start_ns": a, "end_ns": b, "name": "k"} for a, b in ((0, 10), (5, 15), (12, 20))]
    (track,) = tracks(shown(timeline(kernels=rows)), "kernels")
    assert track.row.tolist() == [0, 1, 0]


def test_what_has_no_name_is_said_to_have_none():
    found = shown(timeline(kernels=[{"start_ns": 0, "end_ns": 5, "name": ""}]))
    (track,) = tracks(found, "kernels")
    assert pieces(found, track) == [(0, 5, "(no name)")]


def test_quiet_threads_share_a_track_and_none_is_left_out():
    threads = {number: ["l" * 3 + "  "] if number == 7 else ["  R  "] for number in range(1, 60)}
    drawn = draw(kernels="# # #", host=threads)
    found = shown(drawn)
    (calls,) = tracks(found, "calls")
    assert "thread 7" in calls.title
    *own, rest = tracks(found, "os_calls")
    assert rest.title == "27 other threads · system calls"
    assert len(own) == 31
    assert sum(track.start_ns.size for track in (*own, rest)) == 58
    assert sorted(rest.row.tolist()) == list(range(27))


def test_the_thread_that_trains_comes_first():
    autograd = {1: "rrrrrrrr", 2: "  l ooo ", 3: ["        ", "RRRRRRRR"]}
    found = shown(draw(kernels="  ####  ", host=autograd, repeat=4, mark=None))
    assert [each.title.split(" · ")[0] for each in found.tracks if found.groups[each.group].title == "rank 0 · host"] == [
        "thread 1", "thread 2", "thread 2", "thread 3",
    ]  # fmt: skip


def test_threads_are_called_by_their_names():
    drawn = draw(kernels="#", host={4: "l", 5: "o"})
    named = Timeline.build(
        drawn.frames, drawn.recorded, thread_names={(100, 4): "python", (100, 5): "thread 5 (pt_main)"}
    )
    assert {each.title for each in shown(named).tracks} >= {
        "python (thread 4) · CUDA calls",
        "thread 5 (pt_main) · ops",
    }


def test_a_run_without_a_gpu_shows_its_training_thread():
    found = shown(recording(FIXTURES / "cpu-slow-input" / "torch").run)
    assert {(group.title, group.device) for group in found.groups} == {
        ("rank 0 · training thread", None),
        ("rank 0 · host", None),
    }
    assert tracks(found, "ops", "host")
    assert tracks(found, "idle", "training thread")


def test_messages_of_a_run_without_a_gpu():
    step = {"host": {1: ["oooo    ", "rrrrrrrr"], 9: ["    tt  "]}, "legend": {"t": ("ranges", "gloo:all_reduce")}}
    found = shown(draw(**step, repeat=5))
    (track,) = tracks(found, "collectives", "training thread")
    assert track.start_ns.size == 5
    assert {found.names[place] for place in track.detail.tolist()} == {"all_reduce"}


@pytest.mark.parametrize("drawn", [
    timeline(),
    timeline(memory_changes=[{"start_ns": 1, "end_ns": 1, "bytes": 4, "name": "parameters"}]),
    beside(device_samples=samples(3)),
    alone([{"gpu_time_ns": 500.0}]),
])  # fmt: skip
def test_without_timestamps_there_is_no_timeline(drawn):
    run = prepare(drawn)
    assert list(view(run, examine(run, []).diagnosis)) == []


def test_sixty_four_ranks():
    found = shown(merge([draw(**STEP, repeat=4, rank=rank) for rank in range(64)]))
    assert len(found.groups) == 128
    assert [group.rank for group in found.groups] == [rank for rank in range(64) for _ in range(2)]
    assert_well_formed(found)


# ---- numbers over time ----------------------------------------------------------------------------------------------


def test_memory_holds_from_one_change_to_the_next_and_starts_with_the_value_before():
    changes = [(-5, 100, 400), (20, 300, 400), (25, 50, 800)]
    rows = [
        {"start_ns": BASE_NS + at * UNIT, "end_ns": BASE_NS + at * UNIT, "allocated_bytes": a, "reserved_bytes": r}
        for at, a, r in changes
    ]
    drawn = draw(kernels="#" * 40, launched_us_before=1)
    found = shown(Timeline.build({**drawn.frames, "memory_totals": frame("memory_totals", rows)}, drawn.recorded))
    allocated, reserved = tracks(found, "counter", "GPU 0")
    assert (allocated.title, allocated.unit) == ("memory allocated", "bytes")
    assert allocated.start_ns.tolist() == [0, 20 * UNIT, 25 * UNIT]
    assert allocated.duration_ns.tolist() == [20 * UNIT, 5 * UNIT, 15 * UNIT]
    assert allocated.values.tolist() == [100, 300, 50]
    assert (reserved.values.tolist(), reserved.duration_ns.tolist()) == ([400, 800], [25 * UNIT, 15 * UNIT])


def test_samples_of_the_gpu_where_they_are_on_the_clock():
    taken = samples(
        4, start_ns=BASE_NS, every_ns=10 * UNIT, sm_clock_mhz=[1_400.0, 1_410.0, 1_420.0, 1_430.0],
        is_on_clock=[True, True, True, False],
    )  # fmt: skip
    found = shown(beside(draw(kernels="#" * 40, launched_us_before=1, gpu="NVIDIA A100"), device_samples=taken))
    clock = next(each for each in tracks(found, "counter") if each.title == "SM clock")
    assert clock.values.tolist() == [1.40e9, 1.41e9, 1.42e9]
    assert clock.unit == "hertz"
    assert "power" not in {each.title for each in found.tracks}


def test_the_gpus_own_counters_are_tracks_that_hold_until_the_next_sample():
    recorded = sampled(draw(kernels="GGG  " * 8, launched_us_before=1), {"gemm": {"tensor_active_share": 0.6}})
    recorded_at, values = recorded["gpu_counters"].start_ns, recorded["gpu_counters"].floats("tensor_active_share")
    found = {each.title: each for each in tracks(shown(recorded), "counter")}
    assert {"SM active", "tensor cores active", "DRAM read and written"} == set(found)
    track = found["tensor cores active"]
    begin = int(recorded["kernels"].start_ns[0])
    for at, value in zip(track.start_ns.tolist(), track.values.tolist(), strict=True):
        assert value == values[np.searchsorted(recorded_at, begin + at, "right") - 1]


# ---- long runs ------------------------------------------------------------------------------------------------------


def long_run(count: int = 200_000) -> Timeline:
    rng = np.random.default_rng(3)
    gaps, lengths = rng.integers(500, 5_000, count), rng.integers(1_000, 50_000, count)
    start = BASE_NS + np.cumsum(gaps + np.append(0, lengths[:-1]))
    rows = frame("kernels", [{"start_ns": 0, "end_ns": 0, "name": "k", "rank": 0}]).take(np.zeros(count, np.int64))
    return Timeline.build({"kernels": rows.with_columns(start_ns=start, end_ns=start + lengths)}, ["kernels"])


def advice(*spans: Span) -> Advice:
    return Advice(
        rank=1, rule="x", title="", summary="", why="", category="host", confidence="high", confidence_because="",
        saving_ns_per_step=Saving(0, 0, 0), speedup=Range(1, 1, 1), symptoms=(), values={}, evidence=spans, fixes=(),
        not_a_problem_when="", references=(),
    )  # fmt: skip


def test_a_long_run_is_thinned_but_adds_up_and_moments_stay_whole():
    run = prepare(long_run())
    at = 2_000_000_000
    cause = examine(run, []).diagnosis
    diagnosis = replace(cause, findings=(advice(Span("the longest of them", 0, at, at + 3_000_000)),))
    found = shown(run, diagnosis)
    (track,) = tracks(found, "kernels")
    kernels = run.timeline.kernels
    assert track.start_ns.size < 90_000
    assert int(track.count.sum()) == len(kernels)
    assert int(track.busy_ns.sum()) == int(kernels.duration_ns.sum())
    assert found.pieces_in_all == len(kernels) + sum(each.count.sum() for each in tracks(found, "idle"))
    assert found.whole == ((at - 3_000_000, at + 6_000_000),)
    around = (track.start_ns < at + 6_000_000) & (track.start_ns + track.duration_ns > at - 3_000_000)
    assert (track.count[around] == 1).all()
    assert_well_formed(found)
