"""Memory snapshots of torch: the new form, the old ones, and files that are no snapshot."""

from __future__ import annotations

import pickle

import pytest
from msgspec.structs import replace
from snapshots import FIRST_ADDRESS, MIB, START_US, Recording, frames

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import UNKNOWN, Timeline
from perfdoctor.readers.open import read
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot
from perfdoctor.readers.torch_memory import snapshot_ranks

TRAIN = "work/train.py:9 step"


def small() -> Recording:
    """4 MiB from before, 1 KiB that came and went, 3 MiB that stay."""
    made = Recording()
    made.alloc(4 * MIB, "work/model.py:3 build")
    made.begin()
    passing = made.alloc(1000, TRAIN)
    made.alloc(3 * MIB, TRAIN)
    made.free(passing)
    return made


def rows(timeline, signal, *columns):
    frame = timeline[signal]
    return list(
        zip(
            *(list(frame.columns[c]) if hasattr(frame.columns[c], "values") else frame[c].tolist() for c in columns),
            strict=True,
        )
    )


def written(tmp_path, data, name="run.pickle"):
    path = tmp_path / name
    path.write_bytes(pickle.dumps(data))
    return path


def test_allocations_have_their_place_time_size_and_line(tmp_path):
    timeline = memory_snapshot.read(small().write(tmp_path / "run.pickle"))
    assert sorted(
        rows(timeline, "allocations", "made_at", "freed_at", "bytes", "requested_bytes", "name", "category")
    ) == [
        (UNKNOWN, UNKNOWN, 4 * MIB, 4 * MIB, "", "before_recording"),
        (0, 3, 1024, 1000, "work/train.py:9 step", "unknown"),
        (1, UNKNOWN, 3 * MIB, 3 * MIB, "work/train.py:9 step", "unknown"),
    ]
    (first,) = [row for row in rows(timeline, "allocations", "made_at", "start_ns", "end_ns", "address") if row[0] == 0]
    begin_us = START_US + 30  # a segment and an allocation came before
    assert first == (0, begin_us * 1000, (begin_us + 30) * 1000, FIRST_ADDRESS + (64 << 20) + 4 * MIB)
    assert timeline.recorded == {"allocations", "memory_segments", "memory_events"}


def test_segments_are_as_torch_counts_them(tmp_path):
    timeline = memory_snapshot.read(small().write(tmp_path / "run.pickle"))
    columns = ("bytes", "allocated_bytes", "active_bytes", "requested_bytes", "is_expandable", "name")
    assert rows(timeline, "memory_segments", *columns) == [(20 * MIB, 7 * MIB, 7 * MIB, 7 * MIB, False, "large")]


def test_memory_that_waits_for_another_stream_is_in_use_but_not_allocated(tmp_path):
    made = small()
    made.free(made.alloc(MIB, TRAIN), completed=False)
    timeline = memory_snapshot.read(made.write(tmp_path / "run.pickle"))
    ((allocated, active),) = rows(timeline, "memory_segments", "allocated_bytes", "active_bytes")
    assert active - allocated == MIB
    assert timeline["allocations"]["freed_at"].tolist().count(UNKNOWN) == 3


def test_a_free_without_an_allocation_is_of_memory_from_before(tmp_path):
    made = Recording()
    old = made.alloc(2 * MIB)
    made.begin()
    made.free(old)
    again = made.alloc(2 * MIB, TRAIN)
    assert again == old
    timeline = memory_snapshot.read(made.write(tmp_path / "run.pickle"))
    assert sorted(rows(timeline, "allocations", "made_at", "freed_at", "category")) == [
        (UNKNOWN, 1, "before_recording"),
        (2, UNKNOWN, "unknown"),
    ]


def test_what_ended_without_a_recorded_free_is_noted_and_not_in_use(tmp_path):
    made = small()
    lost = made.alloc(MIB, TRAIN)
    del made.blocks[lost]
    timeline = memory_snapshot.read(made.write(tmp_path / "run.pickle"))
    assert timeline.notes == ("1 allocation of `run.pickle` ended without a recorded free",)
    assert (timeline["allocations"]["freed_at"] == UNKNOWN).sum() == 2


def test_events_of_the_driver_and_marks_are_kept_and_nothing_else(tmp_path):
    made = small()
    made.mark()
    made.alloc(30 * MIB, TRAIN)
    made.fail(900 * MIB, 5 * MIB, "work/loss.py:2 loss")
    timeline = memory_snapshot.read(made.write(tmp_path / "run.pickle"))
    assert rows(timeline, "memory_events", "name", "at", "bytes", "device_free_bytes", "line") == [
        ("mark", 3, UNKNOWN, UNKNOWN, "Optimizer.step#AdamW.step"),
        ("segment_alloc", 4, 30 * MIB, UNKNOWN, ""),
        ("oom", 6, 900 * MIB, 5 * MIB, "work/loss.py:2 loss"),
    ]


def test_several_devices_are_kept_apart(tmp_path):
    first, second = small(), Recording(device=1)
    second.alloc(5 * MIB, TRAIN)
    whole = first.snapshot()
    whole["segments"] += second.written_segments()
    whole["device_traces"].append(second.events)
    timeline = memory_snapshot.read(written(tmp_path, whole))
    assert sorted(set(rows(timeline, "allocations", "device"))) == [(0,), (1,)]
    assert timeline["allocations"].of(device=1)["bytes"].tolist() == [5 * MIB]


# ---- older forms


def test_the_bare_list_of_segments_holds_what_is_in_use(tmp_path):
    timeline = memory_snapshot.read(written(tmp_path, small().written_segments()))
    assert "memory_events" not in timeline.recorded
    assert sorted(rows(timeline, "allocations", "made_at", "bytes", "name")) == [
        (UNKNOWN, 3 * MIB, "work/train.py:9 step"),
        (UNKNOWN, 4 * MIB, ""),
    ]


def test_blocks_of_the_first_versions_have_no_place_and_a_history(tmp_path):
    segments = small().written_segments()
    for segment in segments:
        segment["blocks"] = [
            {"size": b["size"], "state": b["state"]}
            | (
                {"history": [{"addr": 1, "real_size": b["size"] - 7, "frames": frames(TRAIN)}]}
                if b["state"] != "inactive"
                else {}
            )
            for b in segment["blocks"]
        ]
        del segment["requested_size"]
    timeline = memory_snapshot.read(written(tmp_path, segments))
    first = FIRST_ADDRESS + (64 << 20)
    # 1,024 bytes between the two were freed, and the second lies behind them.
    assert sorted(rows(timeline, "allocations", "address", "bytes", "requested_bytes", "name")) == [
        (first, 4 * MIB, 4 * MIB - 7, "work/train.py:9 step"),
        (first + 4 * MIB + 1024, 3 * MIB, 3 * MIB - 7, "work/train.py:9 step"),
    ]
    assert timeline["memory_segments"]["requested_bytes"].tolist() == [UNKNOWN]


def test_without_times_the_order_stays(tmp_path):
    whole = small().snapshot()
    for event in whole["device_traces"][0]:
        del event["time_us"]
    timeline = memory_snapshot.read(written(tmp_path, whole))
    assert timeline.notes == ("`run.pickle` has no times: only the order of its events is known",)
    assert rows(timeline, "allocations", "made_at", "freed_at", "start_ns", "end_ns")[-1] == (1, UNKNOWN, 1, 3)


# ---- how it is recognised, and its rank


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", ["run.pickle", "run.bin", "snapshot"])
def test_a_snapshot_is_recognised_by_its_content(tmp_path, protocol, name):
    assert read([small().write(tmp_path / name, protocol)]).sources[0].kind == "memory"


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["a.pickle"], [0]),
        (["rank3.pickle"], [3]),
        (["memory_rank_0.pickle", "memory_rank_2.pickle"], [0, 2]),
        (["a.pickle", "b.pickle"], [0, 1]),
        (["a.pickle", "rank0.pickle"], [1, 0]),
        (["frank7.pickle"], [0]),
    ],
)
def test_a_rank_is_that_of_the_files_name_or_the_next_free_one(tmp_path, names, ranks):
    timeline = read([small().write(tmp_path / name) for name in names])
    assert [source.ranks[0] for source in timeline.sources] == ranks
    assert timeline.ranks == tuple(sorted(ranks))


def test_two_snapshots_of_one_rank_are_kept_apart_and_noted(tmp_path):
    (tmp_path / "early").mkdir()
    paths = [small().write(tmp_path / "early" / "rank0.pickle"), small().write(tmp_path / "rank0.pickle")]
    timeline = read(paths)
    assert timeline.ranks == (0, 1)
    assert "`rank0.pickle` is a second snapshot of rank 0, and shown as rank 1" in timeline.notes


def test_a_snapshot_joins_the_trace_of_its_run(tmp_path):
    trace = tmp_path / "rank5.pt.trace.json"
    trace.write_text(
        '{"schemaVersion": 1, "distributedInfo": {"rank": 5}, "traceEvents": ['
        '{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1700000000000000, "dur": 5,'
        ' "args": {"device": 0, "stream": 7, "correlation": 1}}]}'
    )
    timeline = read([trace, small().write(tmp_path / "snapshot.pickle")])
    assert timeline.ranks == (5,)
    assert (len(timeline.kernels), len(timeline["allocations"])) == (1, 3)
    assert {source.kind for source in timeline.sources} == {"kineto", "memory"}


def test_a_snapshot_is_put_on_the_clock_of_the_recording_it_joins(tmp_path):
    snapshot = memory_snapshot.read(small().write(tmp_path / "run.pickle"))
    begun_ns = (START_US - 5) * 1000
    system = replace(Timeline.build({}, ()), epoch_ns=begun_ns)
    joined = snapshot_ranks.joined(system, [snapshot])
    shifted = snapshot["allocations"].start_ns - joined["allocations"].start_ns
    assert set(shifted.tolist()) == {begun_ns}


# ---- what is no snapshot


def test_a_snapshot_of_an_unused_gpu_is_refused_with_its_reason(tmp_path):
    with pytest.raises(PerfdoctorError, match="holds no memory"):
        read([written(tmp_path, {"segments": [], "device_traces": [[]]})])


def test_another_pickle_is_refused_with_its_reason(tmp_path):
    with pytest.raises(PerfdoctorError, match="is a pickle, but no memory snapshot"):
        read([written(tmp_path, {"weights": [1, 2, 3]})])


def test_every_damage_to_a_value_is_a_clear_error_or_is_read(tmp_path):
    for part, key in [("segments", None), ("device_traces", None), ("external_annotations", None), *[("segments", k) for k in (
        "device", "address", "total_size", "allocated_size", "stream", "blocks")], *[("event", k) for k in (
        "addr", "size", "time_us", "frames", "action", "stream")], *[("block", k) for k in ("size", "state", "frames", "address")]]:  # fmt: skip
        for value in (None, "x", -1, 2**80, 1.5, [], {}, [[]], [None], float("nan"), True):
            made = small()
            made.mark()
            whole = made.snapshot()
            target = {"segments": whole["segments"][0], "event": whole["device_traces"][0][0]}.get(part)
            if part == "block":
                target = whole["segments"][0]["blocks"][0]
            if key is None:
                whole[part] = value
            else:
                target[key] = value
            try:
                memory_snapshot.read(written(tmp_path, whole))
            except PerfdoctorError as error:
                assert error.what
                assert error.do


def test_a_list_that_repeats_itself_takes_no_hours(tmp_path):
    segment = small().written_segments()[0]
    segment["blocks"] = [segment["blocks"][0]] * 3000
    with pytest.raises(PerfdoctorError, match="no memory snapshot that perfdoctor understands"):
        memory_snapshot.read(written(tmp_path, [segment] * 3000))


def bomb() -> list[object]:
    nested: list[object] = []
    for _ in range(200):
        nested = [nested, nested]
    return nested


def test_stacks_that_nest_without_end_are_not_followed(tmp_path):
    whole = small().snapshot()
    for event in whole["device_traces"][0]:
        event["frames"] = [{"filename": bomb(), "line": 1, "name": "x"}] * 3
    timeline = memory_snapshot.read(written(tmp_path, whole))
    assert len(timeline["allocations"]) == 3


@pytest.mark.parametrize(
    ("part", "key"),
    [("segment", "segment_type"), ("segment", "device"), ("segment", "is_expandable"), ("block", "state"), ("block", "size"),
     ("event", "action"), ("event", "addr"), ("mark", "name"), ("mark", "stage"), ("mark", "time_us")],
)  # fmt: skip
def test_values_that_nest_without_end_are_not_written_out(tmp_path, part, key):
    made = small()
    made.mark()
    whole = made.snapshot()
    segment = whole["segments"][0]
    {
        "segment": segment,
        "block": segment["blocks"][0],
        "event": whole["device_traces"][0][0],
        "mark": whole["external_annotations"][0],
    }[part][key] = bomb()
    try:
        memory_snapshot.read(written(tmp_path, whole))
    except PerfdoctorError as error:
        assert "perfdoctor understands" in error.what


def test_more_devices_than_a_machine_has_are_refused(tmp_path):
    segment = small().written_segments()[0]
    whole = [{**segment, "device": number} for number in range(300)]
    with pytest.raises(PerfdoctorError, match="no memory snapshot that perfdoctor understands"):
        memory_snapshot.read(written(tmp_path, whole))
