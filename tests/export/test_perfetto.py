"""Does the exported file have every row of the Timeline, and the findings? Read back by an independent reader."""

from __future__ import annotations

from collections import Counter

import numpy as np
import perfetto_file
import pytest
from builders import draw, timeline
from counters_builder import sampled
from folders import RECORDINGS
from msgspec.structs import replace
from recorded import of_recordings, recording
from report.samples import POISON

from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError
from perfdoctor.export.perfetto import FIRST_TRACK, render
from perfdoctor.export.trace import shown
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.accounting.inferred_waits import with_inferred_waits
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Device, Timeline, merge
from perfdoctor.vocabulary import signals
from perfdoctor.vocabulary.parts import PARTS
from perfdoctor.vocabulary.rulebook import load_rules

RULES = load_rules()
SIGNALS = {name: signal.event for name, signal in signals.SIGNALS.items() if signal.event}
POISONED = (POISON, "a\x00b", "\ud800", "", "  ", "x" * 5000, "名前", "\u202egnp.exe")


def data(recorded):
    run = prepare(recorded)
    examination = examine(run, list(RULES.values()))
    return b"".join(render(examination)), run, examination.diagnosis


def exported(recorded):
    return perfetto_file.read(data(recorded)[0])


def job(**more):
    """Two ranks of five steps: input waits, a sync, communication, copies; every signal that a thread has."""
    ranks = [
        draw(
            rank=rank, repeat=5, world_size=2,
            kernels="  ###  e###       GG",
            nccl="       ===          ",
            copies="hh                  ",
            host=["c l   @ll        l s", "oooooo  ooo   f  R P", "          iiiiii    "],
            **more,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    return merge(ranks)


def rows(frame):
    return sorted(zip(frame.start_ns.tolist(), frame.end_ns.tolist(), map(shown, frame.name), strict=True))


# --- the recording ---


def test_every_row_of_every_signal_is_a_slice_with_its_own_times_and_name():
    recorded = job()
    file = exported(recorded)
    for signal, category in SIGNALS.items():
        assert len(recorded[signal]), f"{signal} is not in the picture"
        assert file.rows(category) == rows(recorded[signal]), signal


def test_a_row_lies_on_the_track_of_its_own_rank_stream_and_thread():
    recorded = job()
    file = exported(recorded)
    kernels = recorded.kernels
    of_track = Counter(file.path(each.track) for each in file.of("kernel"))
    assert of_track == Counter(
        (f"rank {rank} · process {process}", f"GPU 0 stream {stream}")
        for rank, process, stream in zip(
            *(kernels[name].tolist() for name in ("rank", "process", "stream")), strict=True
        )
    )
    threads = {file.tracks[each.track].tid for each in file.of("op")}
    assert threads == {1}
    assert {file.tracks[each.track].pid for each in file.of("op")} == {100, 101}


def test_an_arrow_leads_from_the_call_to_what_it_launched():
    recorded = job()
    file = exported(recorded)
    calls = {flow: each for each in file.of("call") for flow in each.flows}
    work = [each for category in ("kernel", "collective", "copy") for each in file.of(category)]
    by_correlation = {
        (int(process), int(correlation)): int(start)
        for process, correlation, start in zip(
            *(recorded.calls[name] for name in ("process", "correlation", "start_ns")), strict=True
        )
        if correlation >= 0
    }
    launches = Counter()
    for signal in ("kernels", "collectives", "copies"):
        frame = recorded[signal]
        for row in range(len(frame)):
            place = int(frame["process"][row]), int(frame["correlation"][row])
            if place in by_correlation:
                launches[int(frame.start_ns[row]), by_correlation[place]] += 1
    arrows = Counter((each.start, calls[flow].start) for each in work for flow in each.flows)
    assert arrows == launches
    assert sum(launches.values()) > 20


def test_one_arrow_leads_from_a_call_to_all_that_it_launched():
    recorded = timeline(
        calls=[{"start_ns": 10, "end_ns": 12, "correlation": 5, "name": "cudaGraphLaunch"}],
        kernels=[
            {"start_ns": start, "end_ns": start + 5, "correlation": 5, "name": "k", "stream": stream}
            for start, stream in ((20, 7), (21, 8), (30, 7))
        ],
    )
    file = exported(recorded)
    (call,) = file.of("call")
    assert [each.flows for each in file.of("kernel")] == [call.flows] * 3
    assert len(call.flows) == 1


def test_a_slice_shows_its_size_and_shapes():
    recorded = timeline(
        kernels=[{"start_ns": 0, "end_ns": 5, "name": "k", "blocks": 108, "threads_per_block": 256}],
        copies=[{"start_ns": 6, "end_ns": 9, "name": "c", "bytes": 2**40 + 1, "host_memory": "pageable"}],
        collectives=[
            {
                "start_ns": 9,
                "end_ns": 12,
                "name": "n",
                "group_name": "tp",
                "group_size": 8,
                "data_type": "bf16",
                "bytes": 0,
            },
            {"start_ns": 12, "end_ns": 13, "name": "unknown"},
        ],
        ops=[{"start_ns": 0, "end_ns": 3, "name": "aten::mm", "input_shapes": "[[2, 3]]", "input_types": "['float']"}],
    )
    args = {each.name: each.args for each in exported(recorded).slices}
    assert args["k"] == {"blocks": 108, "threads per block": 256}
    assert args["c"] == {"bytes": 2**40 + 1, "direction": "h2d", "host memory": "pageable"}
    assert args["n"] == {"kind": "all_reduce", "bytes": 0, "group": "tp", "group size": 8, "type": "bf16"}
    assert args["unknown"] == {"kind": "all_reduce"}
    assert args["aten::mm"] == {"shapes": "[[2, 3]]", "types": "['float']"}


@pytest.mark.parametrize("base_ns", [0, 1, 2**31, 1_700_000_000_123_456_789, 2**60 + 1])
def test_times_are_exact_to_the_nanosecond(base_ns):
    times = [(base_ns, base_ns + 1), (base_ns + 1, base_ns + 1), (base_ns + 2, base_ns + 1003)]
    recorded = timeline(kernels=[{"start_ns": start, "end_ns": end, "name": "k"} for start, end in times])
    assert exported(recorded).rows("kernel") == [(*each, "k") for each in times]


def test_times_below_zero_are_moved_together_and_the_wall_clock_with_them():
    rows = [{"start_ns": start, "end_ns": start + 5, "name": "k"} for start in (-100, 7)]
    recorded = replace(timeline(kernels=rows), epoch_ns=1_000_000)
    file = exported(recorded)
    assert file.rows("kernel") == [(0, 5, "k"), (107, 112, "k")]
    assert file.clocks == {6: 0, 1: 1_000_000 - 100}


def test_ranks_with_the_same_process_number_stay_apart():
    """Two containers, each with its training as process 1."""
    frames = {
        "ops": [{"rank": rank, "process": 1, "start_ns": 1, "end_ns": 9, "name": f"op of {rank}"} for rank in (0, 1)]
    }
    file = exported(timeline(**frames))
    tracks = {each.name: file.tracks[each.track] for each in file.of("op")}
    assert tracks["op of 0"].pid != tracks["op of 1"].pid
    assert file.path(tracks["op of 1"].parent) == ("rank 1 · process 1",)


@pytest.mark.parametrize(("process", "thread"), [(-1, -1), (0, 0), (2**40, 2**50), (77, -5)])
def test_numbers_that_no_process_has_are_replaced(process, thread):
    rows = [{"process": process, "thread": thread, "start_ns": 1, "end_ns": 9, "name": "o"}]
    file = exported(timeline(ops=rows))
    (op,) = file.of("op")
    track = file.tracks[op.track]
    parent = track if track.pid is not None else file.tracks[track.parent]
    assert 0 < parent.pid < 2**31
    assert track.tid is None or 0 < track.tid < 2**31


def test_rows_that_overlap_without_nesting_are_all_there():
    """Kernels that a device runs side by side in one stream, and ranges that were ended out of order."""
    crossing = [(0, 10), (5, 15), (8, 9), (12, 20), (15, 15)]
    recorded = timeline(
        kernels=[{"start_ns": start, "end_ns": end, "name": f"k{start}"} for start, end in crossing],
        ranges=[{"start_ns": start, "end_ns": end, "name": f"r{start}"} for start, end in crossing],
    )
    file = exported(recorded)
    assert file.rows("kernel") == sorted((start, end, f"k{start}") for start, end in crossing)
    assert file.rows("range") == sorted((start, end, f"r{start}") for start, end in crossing)
    assert {file.path(each.track)[-1] for each in file.of("kernel")} == {"GPU 0 stream 7"}


def test_hostile_names_are_shown_as_text():
    recorded = timeline(
        kernels=[
            {"start_ns": 10 * number, "end_ns": 10 * number + 5, "name": name} for number, name in enumerate(POISONED)
        ],
        ops=[
            {"start_ns": 10 * number, "end_ns": 10 * number + 5, "name": "o", "input_shapes": name}
            for number, name in enumerate(POISONED)
        ],
    )
    recorded = replace(recorded, thread_names={(100, 1): POISON}, devices=(Device(0, 0, POISON),))
    file = exported(recorded)
    texts = [name for _, _, name in file.rows("kernel")] + [track.name for track in file.tracks.values()]
    texts += [value for each in file.slices for value in each.args.values() if isinstance(value, str)]
    assert len(file.of("kernel")) == len(POISONED)
    assert any("</script><img src=x onerror=alert(1)>" in text for text in texts), "kept, as text"
    for text in texts:
        assert text
        assert not any(char < " " or "\x7f" <= char <= "\x9f" or char in "\u202e\ufeff" for char in text), repr(text)


def test_a_recording_without_timestamps_is_an_error():
    with pytest.raises(PerfdoctorError, match="nothing in this recording has timestamps"):
        data(Timeline.build({}, ()))


# --- counters ---


def test_memory_is_shown_as_it_was_counted():
    moments = [(5, 100, 400), (9, 50, -1), (30, 2**40, 2**41)]
    recorded = timeline(
        ops=[{"start_ns": 0, "end_ns": 40, "name": "o"}],
        memory_totals=[
            {"start_ns": at, "end_ns": at, "allocated_bytes": allocated, "reserved_bytes": reserved, "name": "cuda"}
            for at, allocated, reserved in moments
        ],
        memory_changes=[
            {"start_ns": at, "end_ns": at, "bytes": change, "name": name}
            for at, change, name in (
                (1, 10, "parameters"),
                (2, 7, "gradients"),
                (3, 5, "parameters"),
                (4, -12, "parameters"),
            )
        ],
    )
    file = exported(recorded)
    assert file.counter("GPU 0 memory allocated") == [(5, 100), (9, 50), (30, 2**40)]
    assert file.counter("GPU 0 memory reserved") == [(5, 400), (30, 2**41)]
    assert file.counter("GPU 0 memory for parameters") == [(1, 10), (3, 15), (4, 3)]
    assert file.counter("GPU 0 memory for gradients") == [(2, 7)]


def test_driver_samples_with_timestamps_are_shown():
    def sample(at, power, *, on_clock=True):
        blank = dict.fromkeys(("sm_clock_mhz", "temperature_c"), float("nan"))
        return {
            "rank": -1,
            "start_ns": at,
            "end_ns": at,
            "gpu": "H100",
            "reasons": -1,
            "is_on_clock": on_clock,
            "power_w": power,
            **blank,
        }

    names = [name for name in timeline(ops=[])["device_samples"].columns if name not in sample(0, 0)]
    unknown = {name: float("nan") for name in names if name not in ("device", "name")}
    recorded = timeline(
        ops=[{"start_ns": 0, "end_ns": 40, "name": "o"}],
        device_samples=[
            {**unknown, **each} for each in (sample(1, 0.1), sample(5, 700.25), sample(9, 1.0, on_clock=False))
        ],
    )
    file = exported(recorded)
    assert file.counter("power_w") == [(1, 0.1), (5, 700.25)]
    (track,) = file.counters
    assert file.path(track) == ("machine", "GPU 0 (H100)", "power_w")
    assert file.tracks[track].unit == "W"


def test_the_gpus_own_counters_are_tracks_of_their_rank():
    recorded = sampled(draw(kernels="GGG  ", repeat=6, launched_us_before=5), {"gemm": {"tensor_active_share": 0.6}})
    file, frame = exported(recorded), recorded["gpu_counters"]
    name = "GPU 0 tensor cores active"
    assert file.counter(name) == list(zip(frame.start_ns, frame.floats("tensor_active_share"), strict=True))
    track = next(each for each in file.counters if file.path(each)[-1] == name)
    assert (file.path(track)[0].split(" ·")[0], file.tracks[track].unit) == ("rank 0", "share")
    assert not any("NVLink" in file.path(each)[-1] for each in file.counters)


# --- findings ---


def test_idle_by_cause_is_that_of_the_diagnosis():
    written, _, diagnosis = data(job())
    file = perfetto_file.read(written)
    assert any(split.idle_ns for split in diagnosis.time)
    for split in diagnosis.time:
        found = Counter()
        for each in file.on(f"rank {split.rank} · process {100 + split.rank}", "idle and exposed, by cause"):
            found[each.name] += each.end - each.start
        parts = {PARTS[cause].label: ns for cause, ns in split.idle_causes_ns.items() if ns}
        parts |= {PARTS[part].label: getattr(split, f"{part}_ns") for part in ("exposed_communication", "exposed_copy")}
        assert found == Counter({name: ns for name, ns in parts.items() if ns})


def test_steps_and_window_are_those_that_were_analysed():
    written, run, _ = data(job())
    file = perfetto_file.read(written)
    for place in run.places:
        steps = [each for each in file.on("steps") if file.path(each.track)[0].startswith(f"rank {place.rank} ")]
        used = [each for each in steps if each.name != "step left out"]
        assert [each.name for each in used] == [f"step {number}" for number in range(1, place.steps.used + 1)]
        assert sum(each.end - each.start for each in used) == place.window_ns
        (window,) = file.on("analysed window", f"rank {place.rank} GPU 0")
        assert (window.start, window.end) == (int(place.window.starts[0]), int(place.window.ends[-1]))


def test_each_finding_has_its_track_with_the_intervals_that_it_is_about():
    written, run, diagnosis = data(job())
    file = perfetto_file.read(written)
    advices = [each for cause in diagnosis.findings for each in (cause, *cause.symptoms)]
    assert "input-wait" in {each.rule for each in advices}
    for advice in advices:
        track = f"{advice.rank}. {advice.rule}: {advice.title}"
        for place in run.places:
            shown_there = file.on(FIRST_TRACK, track, f"rank {place.rank} GPU 0")
            (around,) = [each for each in shown_there if not each.depth]
            pieces = [each for each in shown_there if each.name == advice.rule]
            assert around.name == advice.title
            assert around.args["summary"] == shown(advice.summary)
            assert around.args["predicted saving, likely (ms a step)"] == advice.saving_ns_per_step.likely / 1e6
            if advice.rule == "input-wait":
                waits = place.idle_causes["input_wait"]
                assert [(each.start, each.end) for each in pieces] == list(waits)
                assert waits


def test_findings_about_kernels_mark_those_kernels():
    recorded = draw(kernels="SSSSSSSSSSSSSSSSSS#", host="l                 l", repeat=6, gpu="NVIDIA A100-SXM4-80GB")
    file = exported(recorded)
    (track,) = [each for each in file.tracks.values() if "fp32-matmuls" in each.name]
    marked = sorted(
        (each.start, each.end) for each in file.slices if each.track == track.uuid and each.name == "fp32-matmuls"
    )
    window = prepare(recorded).places[0].window
    sgemm = recorded.kernels.take(recorded.kernels.name.where(lambda name: "sgemm" in name))
    inside = [
        (s, e) for s, e in zip(sgemm.start_ns.tolist(), sgemm.end_ns.tolist(), strict=True) if s < window.ends[-1]
    ]
    assert marked == inside


def test_a_run_without_a_gpu_has_the_same_tracks():
    recorded = draw(host=["ooooo  ooo ", "     ii    "], repeat=5)
    written, run, _ = data(recorded)
    file = perfetto_file.read(written)
    assert host_places(run)
    assert file.rows("op") == rows(recorded.ops)
    assert {each.name for each in file.on("idle and exposed, by cause")} >= {PARTS["input_wait"].label}
    assert len(file.on("steps")) == 5


# --- the schema that Perfetto publishes ---


def test_perfettos_own_schema_knows_every_field():
    schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="pip install perfetto")
    unknown_fields = pytest.importorskip("google.protobuf.unknown_fields")
    written, _, _ = data(job())
    trace = schema.Trace.FromString(written)

    def known(message):
        assert not len(unknown_fields.UnknownFieldSet(message)), message
        for field, value in message.ListFields():
            if field.message_type is not None:
                for each in value if isinstance(value, (list, tuple)) or hasattr(value, "add") else [value]:
                    known(each)

    for packet in trace.packet:
        known(packet)
    types = Counter(packet.track_event.type for packet in trace.packet if packet.HasField("track_event"))
    file = perfetto_file.read(written)
    begin, end = schema.TrackEvent.TYPE_SLICE_BEGIN, schema.TrackEvent.TYPE_SLICE_END
    assert types[begin] == types[end] == len(file.slices)
    assert {packet.track_descriptor.name for packet in trace.packet if packet.HasField("track_descriptor")} == {
        track.name for track in file.tracks.values()
    }
    assert len(trace.SerializeToString()) == len(written)


# --- public recordings ---

PUBLIC = (
    "kineto/bert-small-h100.json.gz", "kineto/qwen-0.5b-h100.json.gz", "kineto/compile-triton-mi300.json.gz",
    "kineto/gpu-only-mi210.json.gz", "kineto/edge/cpu-only-rank34-of-300.json.gz", "kineto/edge/no-gpu-events.json.gz",
    "kineto/edge/mi250-minitoy.json.gz", "kineto/dlrm-8rank", "kineto/sampled-2-of-128", "nsys/mock.sqlite",
    "nsys/cuda-graphs-a100.sqlite", "nsys/laptop-ada-not-utf8.sqlite", "nsys/no-kernels-not-utf8.sqlite",
    "nsys/power-iteration-t4.sqlite", "nsys/cloverleaf-mpi-a100.sqlite",
)  # fmt: skip


@pytest.mark.recordings
@of_recordings(RECORDINGS / name for name in PUBLIC)
def test_public_recordings_come_back_row_by_row(path):
    # Beside what was recorded it shows the waits that were found, as they are named.
    recorded, file = with_inferred_waits(recording(path).timeline), perfetto_file.read(recording(path).perfetto)
    shift_ns = max(0, -min(int(recorded[signal].start_ns.min()) for signal in SIGNALS if len(recorded[signal])))
    for signal, category in SIGNALS.items():
        expected = [
            (start + shift_ns, end + shift_ns, text or "(no name)") for start, end, text in rows(recorded[signal])
        ]
        assert file.rows(category) == sorted(expected), signal
    launched = sum(bool(each.flows) for category in ("kernel", "collective", "copy") for each in file.of(category))
    calls = set(zip(recorded.calls["process"].tolist(), recorded.calls["correlation"].tolist(), strict=True))
    joined = sum(
        (process, correlation) in calls and correlation >= 0
        for signal in ("kernels", "collectives", "copies")
        for process, correlation in zip(
            recorded[signal]["process"].tolist(), recorded[signal]["correlation"].tolist(), strict=True
        )
    )
    assert launched == joined
    assert not np.isnan([value for values in file.counters.values() for _, value in values]).any()
