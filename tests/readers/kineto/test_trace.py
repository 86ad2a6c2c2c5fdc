"""Kineto traces as Timelines: old and new writers, damaged files, and real recordings to the nanosecond."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from folders import public, public_files
from kineto_traces import read_text
from recorded import in_ns, of_recordings, plain_json, recording

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import UNKNOWN, Timeline
from perfdoctor.readers.kineto import trace as kineto

BASE_NS = 1_751_410_836_000_000_000


def event(name, category, ts, dur, pid=10, tid=11, **args) -> dict:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name="gemm", ts=10, dur=5, **args) -> dict:
    place = {"device": 0, "stream": 7, "correlation": 1, "grid": [4, 2, 1], "block": [32, 8, 1]}
    return event(name, "kernel", ts, dur, 0, 7, **{**place, **args})


def launch(ts=1, dur=2, correlation=1, **args) -> dict:
    return event("cudaLaunchKernel", "cuda_runtime", ts, dur, correlation=correlation, **args)


def trace(*events: dict, **header: object) -> bytes:
    return json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events), "traceName": "t"}, indent=1).encode()


def read(data: bytes, name: str = "trace.json") -> Timeline:
    return read_text(data, name)


def rows(timeline: Timeline, signal: str, *columns: str) -> list[tuple]:
    frame = timeline[signal]
    return list(zip(*(list(frame.columns[column]) for column in columns), strict=True))


# --- what is read ---


def test_a_stream_that_was_made_to_wait_for_an_event_is_a_row_and_other_synchronizations_are_not():
    def sync(name: str, **args: int) -> dict:
        return event(name, "cuda_sync", 4, 1, 0, 24, device=0, stream=24, correlation=9, **args)

    known = sync("Stream Wait Event", wait_on_stream=20, wait_on_cuda_event_id=1)
    timeline = read(trace(launch(), kernel(), known, sync("Event Sync", wait_on_stream=20), sync("Context Sync")))
    columns = ("process", "device", "stream", "awaited_stream", "correlation")
    assert rows(timeline, "stream_waits", *columns) == [(10, 0, 24, 20, 9)]
    unknown = read(trace(launch(), kernel(), sync("Stream Wait Event")))
    assert rows(unknown, "stream_waits", "awaited_stream") == [(UNKNOWN,)]
    assert "stream_waits" not in read(trace(launch(), kernel(), sync("Context Sync"))).recorded


def test_a_kernel_has_its_place_size_and_times_in_nanoseconds():
    timeline = read(trace(launch(), kernel(ts=10.5, dur=2.001), baseTimeNanoseconds=BASE_NS))
    assert rows(timeline, "kernels", "start_ns", "end_ns") == [(BASE_NS + 10_500, BASE_NS + 12_501)]
    columns = ("device", "stream", "process", "correlation", "blocks", "threads_per_block", "rank")
    assert rows(timeline, "kernels", *columns) == [(0, 7, 10, 1, 8, 256, 0)]
    assert rows(timeline, "calls", "name", "process", "thread", "correlation") == [("cudaLaunchKernel", 10, 11, 1)]


def test_a_kernel_has_the_shared_memory_of_a_block_where_it_is_written():
    timeline = read(trace(launch(), kernel(**{"shared memory": 49_152}), kernel(ts=20)))
    assert rows(timeline, "kernels", "shared_memory_bytes") == [(49_152,), (UNKNOWN,)]


def test_the_base_time_counts_also_when_it_stands_behind_the_events():
    data = b'{"traceEvents": [%s], "baseTimeNanoseconds": %d}' % (json.dumps(kernel(ts=1)).encode(), BASE_NS)
    assert read(data).kernels.start_ns.tolist() == [BASE_NS + 1000]


def test_absolute_times_stay_absolute_where_there_is_a_base_time():
    timeline = read(trace(kernel(ts=1_751_410_836_000_001), baseTimeNanoseconds=BASE_NS))
    assert timeline.kernels.start_ns.tolist() == [1_751_410_836_000_001_000]


def test_decimals_of_an_absolute_time_are_exact_where_a_float_would_lose_them():
    data = trace(kernel(ts=0.125), launch(ts=0.125)).replace(b"0.125", b"1712195495519689.123")
    timeline = read(data)
    assert timeline.kernels.start_ns.tolist() == [1_712_195_495_519_689_123]
    assert timeline.calls.end_ns.tolist() == [1_712_195_495_519_691_123]


def test_times_may_be_written_as_text():
    assert read(trace(kernel(ts="1712195495519689.123", dur="2.5"))).kernels.end_ns.tolist() == [1712195495519691623]


def test_old_categories_are_read_like_new_ones():
    timeline = read(
        trace(
            event("gemm", "Kernel", 10, 5, 0, "stream 7", correlation=3),
            event("Memcpy HtoD (Pageable -> Device)", "Memcpy", 20, 5, 0, "stream 7", correlation=4, bytes=99),
            event("Memset (Device)", "Memset", 30, 5, 0, "stream 7", correlation=5, bytes=1),
            event("cudaLaunchKernel_v7000", "Runtime", 1, 2, 25738, "25738", correlation=3),
            event("aten::mm", "Operator", 0, 4, 25738, "25738"),
            event("ProfilerStep#5", "Operator", 0, 50, 25738, "25738"),
            event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Operator", 0, 2, 25738, "25738"),
            event("## forward ##", "Operator", 3, 2, 25738, "25738"),
        )
    )
    assert rows(timeline, "kernels", "stream", "device", "process", "blocks") == [(7, 0, 25738, UNKNOWN)]
    assert rows(timeline, "copies", "direction", "host_memory", "bytes") == [
        ("h2d", "pageable", 99),
        ("memset", "none", 1),
    ]
    assert rows(timeline, "calls", "name", "thread") == [("cudaLaunchKernel", 25738)]
    assert list(timeline.ops.name) == ["aten::mm"]
    assert set(timeline.ranges.name) == {
        "ProfilerStep#5",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "## forward ##",
    }


def test_what_the_profiler_before_kineto_exports_holds_ops_and_ranges():
    row = {"ph": "X", "pid": "CPU functions", "tid": 1, "dur": 4.5, "args": {}}
    arrow = {
        "name": "aten::mm",
        "ph": "s",
        "ts": 1,
        "tid": 1,
        "pid": "CPU functions",
        "id": 0,
        "cat": "fwd",
        "args": {},
    }
    names = ("aten::mm", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    written = [{**row, "name": name, "ts": 10.0 * number} for number, name in enumerate(names)]
    timeline = read(json.dumps([*written, arrow]).encode())
    assert rows(timeline, "ops", "name", "start_ns", "end_ns") == [("aten::mm", 0, 4500)]
    assert list(timeline.ranges.name) == [names[1]]


def test_a_function_of_windows_is_named_as_elsewhere():
    functions = (
        r"C:\Users\me\Lib\site-packages\torch\nn\modules\module.py(9): _call_impl",
        r"<built-in method f\x>",
        "a.py(3): b",
    )
    timeline = read(trace(*(event(name, "python_function", 1, 2) for name in functions)))
    assert sorted(timeline["functions"].text("name")) == sorted(
        ("site-packages/torch/nn/modules/module.py(9): _call_impl", *functions[1:])
    )


@pytest.mark.parametrize(
    ("name", "kind", "direction", "memory"),
    [
        ("Memcpy HtoD (Pinned -> Device)", "", "h2d", "pinned"),
        ("Memcpy DtoH (Device -> Pageable)", "", "d2h", "pageable"),
        ("Memcpy DtoD (Device -> Device)", "", "d2d", "none"),
        ("Memcpy PtoP (Device -> Device)", "", "p2p", "none"),
        ("Memcpy HtoH (Pageable -> Pinned)", "", "h2h", "pageable"),
        ("Memcpy HtoD (Host -> Device)", "HtoD", "h2d", "unknown"),
        ("CopyHostToDevice", "", "h2d", "unknown"),
        ("Memcpy M2D (MEMORY(Unknown) -> DEVICE)", "", "h2d", "pageable"),
        ("Memcpy D2H (DEVICE -> HOST)", "", "d2h", "pinned"),
        ("Memcpy D2D (DEVICE -> DEVICE)", "", "d2d", "none"),
        ("Memcpy S2D (SHARED -> DEVICE)", "", "h2d", "managed"),
        ("copyBuffer", "CopyDeviceToHost", "d2h", "unknown"),
        ("Memset (Device)", "", "memset", "none"),
        ("something else", "", "unknown", "unknown"),
    ],
)
def test_a_copy_has_its_direction_and_host_memory(name: str, kind: str, direction: str, memory: str):
    timeline = read(trace(event(name, "gpu_memcpy", 1, 2, 0, 7, **({"kind": kind} if kind else {}))))
    assert rows(timeline, "copies", "direction", "host_memory", "bytes") == [(direction, memory, UNKNOWN)]


@pytest.mark.parametrize(
    ("name", "given", "known"),
    [
        ("nccl:all_reduce", {"Input Dims": [[3, 4]], "Input type": ["float"]}, ("all_reduce", 48, 48, "Float")),
        ("nccl:all_to_all", {"Input Dims": [[8], [4]], "Input type": ["c10::BFloat16"] * 2}, ("all_to_all", 24, 24, "BFloat16")),
        ("nccl:_all_gather_base", {"Input Dims": [[10]], "Input type": ["long int"]}, ("all_gather", UNKNOWN, 80, "Long")),
        ("nccl:all_reduce", {"Input Dims": [[3], []], "Input type": ["float", "Scalar"]}, ("all_reduce", UNKNOWN, UNKNOWN, "")),
        ("nccl:all_reduce", {}, ("all_reduce", UNKNOWN, UNKNOWN, "")),
    ],
)  # fmt: skip
def test_what_older_versions_do_not_say_of_a_collective_its_call_says(name: str, given: dict, known: tuple):
    timeline = read(
        trace(
            event(name, "cpu_op", 1, 10, 5, 6, **given),
            event("cudaLaunchKernel", "cuda_runtime", 2, 3, 5, 6, correlation=9),
            kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", ts=20, correlation=9),
        )
    )
    assert rows(timeline, "collectives", "kind", "bytes", "sent_bytes", "data_type") == [known]


def test_collectives_are_kernels_of_their_own_with_bytes_from_elements_and_type():
    args = {
        "Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 80, "Group size": 8,
        "dtype": "BFloat16", "Process Group Name": "0", "Process Group Description": "default_pg",
    }  # fmt: skip
    timeline = read(trace(kernel("ncclDevKernel_Generic", **args), kernel("ncclKernel_AllReduce_RING", ts=20)))
    assert len(timeline.kernels) == 0
    assert rows(timeline, "collectives", "kind", "bytes", "group_name", "group_size", "data_type") == [
        ("all_gather", 160, "0", 8, "BFloat16"),
        ("all_reduce", UNKNOWN, "", UNKNOWN, ""),
    ]


@pytest.mark.parametrize(
    ("ranks", "size", "group", "group_size"),
    [
        ("[0, 1, 2, 3]", 4, "tp [0, 1, 2, 3]", 4),
        ([5, 4], 2, "tp [4, 5]", 2),
        ("[2, 3]", None, "tp [2, 3]", 2),
        ("[0, 1, 2, ..., 63]", 64, "tp", 64),
        ("[0, 1, 2, ..., 63]", None, "tp", UNKNOWN),
        ("[0, 1, 2, ...]", 64, "tp", 64),
        ("[]", 8, "tp", 8),
        ("", 8, "tp", 8),
        (None, 8, "tp", 8),
        ("all", None, "tp", UNKNOWN),
        (7, None, "tp", UNKNOWN),
    ],
)
def test_a_group_is_named_with_its_ranks_where_all_are_listed(ranks, size, group, group_size):
    args = {"Process Group Name": "tp", "Process Group Ranks": ranks, "Group size": size}
    timeline = read(trace(kernel("ncclKernel_AllReduce_RING", **args)))
    assert rows(timeline, "collectives", "group_name", "group_size") == [(group, group_size)]


def test_ranges_of_the_device_are_left_out():
    step = event("ProfilerStep#1", "user_annotation", 0, 50)
    timeline = read(
        trace(
            event("aten::mm", "cpu_op", 1, 2),
            launch(),
            kernel(),
            step,
            event("ProfilerStep#1", "gpu_user_annotation", 9, 52, 0, 7),
            event("ProfilerStep#1", "user_annotation", 9, 52, 0, "stream 7"),
        )
    )
    assert rows(timeline, "ranges", "name", "start_ns", "thread") == [("ProfilerStep#1", 0, 11)]


def test_shapes_and_types_are_kept_as_text_once_each():
    dims = {"Input Dims": [[2, 3], []], "Input type": ["long int", "Scalar"]}
    ops = [event("aten::mm", "cpu_op", n, 1, **dims) for n in range(3)]
    timeline = read(trace(*ops, event("aten::t", "cpu_op", 9, 1)))
    shapes = timeline.ops.text("input_shapes")
    assert list(shapes) == ["[[2, 3], []]"] * 3 + [""]
    assert len(shapes.values) == 2
    assert timeline.ops.text("input_types")[0] == '["long int", "Scalar"]'


def test_runtimes_of_other_accelerators_are_calls_and_their_kernels_kernels():
    timeline = read(
        trace(
            event("runFunction", "mtia_runtime", 1, 2, correlation=5),
            event("fc", "mtia_ccp_events", 4, 2, 9, 801),
            event("urEnqueueKernelLaunch", "xpu_runtime", 6, 1, correlation=6),
            event("gemm", "concurrent_kernel", 8, 2, 0, 3, correlation=6),
            {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 99, "pid": 0, "tid": 3, "ts": 8},
        )
    )
    assert rows(timeline, "kernels", "name", "correlation") == [("fc", UNKNOWN), ("gemm", 6)]
    assert list(timeline.calls["correlation"]) == [5, 6]


def test_arrows_link_kernels_where_none_carries_a_correlation():
    tip = {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 18, "pid": 9, "tid": 408, "ts": 4.25, "bp": "e"}
    launching = event("runFunction", "mtia_runtime", 1, 2, correlation=18)
    timeline = read(trace(launching, event("fc", "mtia_ccp_events", 4.25, 2, 9, 408), tip, baseTimeNanoseconds=BASE_NS))
    assert timeline.kernels["correlation"].tolist() == [18]


def test_launches_without_a_time_leave_device_work_to_the_process_with_most_ops():
    ops = [event("aten::mm", "cpu_op", ts, 1, pid=pid) for pid, ts in ((10, 1), (12, 2), (12, 3))]
    timeline = read(trace(*ops, {**launch(), "ts": None}, kernel()))
    assert rows(timeline, "kernels", "process") == [(12,)]
    assert len(timeline["calls"]) == 0


def test_python_functions_and_overheads_belong_to_the_traces_process():
    timeline = read(
        trace(
            launch(),
            event("train.py(3): step", "python_function", 0, 9),
            event("threading.py(1032): _bootstrap", "python_function", 0, 10, 0, 0),
            event("/opt/perfdoctor_agent/ranges.py(77): around", "python_function", 1, 8),
            event("Activity Buffer Request", "overhead", 2, 3, -1, 0),
        )
    )
    assert sorted(rows(timeline, "functions", "process", "thread")) == [(10, UNKNOWN), (10, 11)]
    assert rows(timeline, "overheads", "process", "thread") == [(10, UNKNOWN)]


def test_what_was_recorded_follows_from_what_is_there():
    op, function = event("aten::mm", "cpu_op", 1, 2), event("f", "python_function", 1, 2)
    assert read(trace(op)).recorded == {"ops", "ranges"}
    assert read(trace(op, function)).recorded == {"ops", "ranges", "functions"}
    assert read(trace(op, launch())).recorded == {"ops", "ranges", "calls"}
    assert read(trace(kernel())).recorded == {"kernels", "copies", "collectives"}


def test_a_device_in_numbers_of_its_own_is_named_where_all_listed_are_of_one_kind():
    listed = [{"id": number, "name": "AMD Instinct MI300X", "numSms": 304} for number in range(2)]
    (device,) = read(trace(kernel(device=5), deviceProperties=listed)).devices
    assert (device.device, device.name) == (5, "AMD Instinct MI300X")
    listed[1]["name"] = "AMD Instinct MI210"
    assert read(trace(kernel(device=5), deviceProperties=listed)).devices == ()


def test_the_device_the_rank_and_the_world_come_from_the_header():
    used = {"id": 1, "name": "NVIDIA H100", "numSms": 132, "computeMajor": 9, "computeMinor": 0}
    devices = [{"id": 0, "name": "Other", "numSms": 1}, {**used, "totalGlobalMem": 85_000_000_000}]
    info = {"backend": "nccl", "rank": 3, "world_size": 8}
    timeline = read(trace(kernel(device=1), deviceProperties=devices, distributedInfo=info, cuda_runtime_version=12090))
    (device,) = timeline.devices
    assert (device.rank, device.device, device.name, device.sm_count) == (3, 1, "NVIDIA H100", 132)
    assert (device.compute_capability, device.memory_bytes) == ((9, 0), 85_000_000_000)
    assert (timeline.world_size, timeline.ranks) == (8, (3,))
    assert timeline.sources[0].tool_version == "schemaVersion 1, CUDA 12.9"
    assert repr(read(trace(kernel(), distributedInfo={"rank": True})).ranks) == "(0,)"


@pytest.mark.parametrize(
    ("file", "rank"),
    [
        ("ddp-rank3-of-8.json", 3), ("worker12_step.pt.trace.json", 12), ("sampled_rank-0.json", 0),
        ("rank_7.json.gz", 7), ("resnet50-workers4.pt.trace.json", 0), ("frank5.json", 0), ("trace.json", 0),
    ],
)  # fmt: skip
def test_the_rank_comes_from_the_file_name_where_the_header_has_none(file: str, rank: int):
    assert read(trace(kernel()), file).ranks == (rank,)


def test_threads_of_the_host_keep_their_names():
    def named(pid: int, tid: int, name: str) -> dict:
        return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}

    timeline = read(trace(launch(), kernel(), named(10, 11, "thread 11 (python)"), named(0, 7, "stream 7")))
    assert timeline.thread_names == {(10, 11): "thread 11 (python)"}


def test_nothing_personal_enters_the_timeline():
    secret = {"host_name": "SECRET", "username": "SECRET", "tw_job": "SECRET", "environment": {"TOKEN": "SECRET"}}
    timeline = read(trace(launch(), kernel(), **secret))
    assert "SECRET" not in repr((timeline.sources, timeline.devices, timeline.notes, timeline.thread_names))


def test_negative_durations_count_as_nothing_and_are_noted():
    timeline = read(trace(kernel(dur=-3), kernel(ts=20)))
    assert timeline.kernels.duration_ns.tolist() == [0, 5000]
    assert any("1 rows end before they start" in note for note in timeline.notes)


def test_instants_and_marks_of_the_recording_make_no_rows():
    mark = {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "x", "ts": 9e18}
    span = event("PyTorch Profiler (0)", "Trace", 0, 99, "Spans", "PyTorch Profiler")
    timeline = read(trace(mark, span, kernel(), {**mark, "name": "Record Window End"}))
    assert sum(map(len, timeline.frames.values())) == 1
    assert timeline.notes == ()


def test_rows_that_are_written_twice_count_once_but_not_different_ones_of_equal_times():
    op = event("aten::zeros", "cpu_op", 5, 4, **{"External id": 1})
    inner = event("aten::zeros", "cpu_op", 5, 4, **{"External id": 2})
    timeline = read(trace(op, inner, op, kernel(correlation=1), kernel(correlation=2), kernel(correlation=2)))
    assert (len(timeline.ops), len(timeline.kernels)) == (2, 2)
    assert len(timeline.notes) == 1


def test_integers_beyond_64_bits_are_unknown():
    assert read(trace(kernel(correlation=7.0))).kernels["correlation"].tolist() == [7]
    timeline = read(trace(kernel(correlation=10159970886766084423, grid=[2**40, 1, 1], bytes=10**40)))
    assert rows(timeline, "kernels", "correlation", "blocks") == [(UNKNOWN, UNKNOWN)]


def test_a_bare_list_of_events_is_a_trace():
    assert len(read(json.dumps([launch(), kernel()]).encode()).kernels) == 1


def test_gzip_is_recognised_by_its_content_and_may_have_several_members():
    data = trace(launch(), kernel())
    assert len(read(gzip.compress(data), "trace.json").kernels) == 1
    assert len(read(gzip.compress(data[:70]) + gzip.compress(data[70:]), "trace.json").kernels) == 1


def test_the_file_is_read_where_its_content_is_not_given(tmp_path: Path):
    (tmp_path / "t.json").write_bytes(trace(kernel()))
    assert kineto.read(tmp_path / "t.json").sources[0].file == "t.json"


def test_a_trace_of_many_batches_is_read_whole():
    many = [kernel(ts=n, correlation=n) for n in range(9000)]
    assert read(trace(*many)).kernels["correlation"].tolist() == list(range(9000))


# --- what is damaged ---


def test_events_with_braces_brackets_and_nested_objects_are_read():
    odd = 'f<{lambda(int)#1}, "x"> }, { "name": 1} ]'
    nested = {"parts": [{"name": "a", "ph": "b"}, {"name": "c"}]}
    timeline = read(trace(kernel(odd, **nested), launch(**nested)))
    assert list(timeline.kernels.name) == [odd]


@pytest.mark.parametrize("value", [b"NaN", b"nan", b"-inf", b"Infinity", b"N/A"])
def test_values_that_are_no_numbers_lose_no_event(value: bytes):
    timeline = read(trace(kernel(occupancy=12345), kernel(ts=20)).replace(b"12345", value))
    assert len(timeline.kernels) == 2
    assert timeline.notes == ("`trace.json` was no valid JSON in 1 places, which were repaired",)


def test_names_that_are_not_utf8_or_hold_control_characters_are_kept():
    data = trace(kernel("bad@name"), kernel("new~line", ts=20)).replace(b"@", b"\xff\xfe").replace(b"~", b"\n")
    timeline = read(data)
    assert list(timeline.kernels.name) == ["bad\ufffd\ufffdname", "new line"]
    assert len(timeline.notes) == 1


def test_wrong_escapes_are_kept_as_they_stand():
    timeline = read(trace(kernel("C@qa"), kernel("half ~", ts=20)).replace(b"@", b":\\").replace(b"~", b"\\ud800"))
    assert list(timeline.kernels.name) == ["C:\\qa", "half \ufffd"]
    (device,) = read(trace(kernel(), deviceProperties=[{"id": 0, "name": "half \ud800"}])).devices
    assert device.name == "half ?"


def test_unescaped_quotes_in_a_name_lose_no_event():
    names = ['say "hello" to', 'a"b', 'op(x="1", y)', 'at::"native"::add']
    data = trace(launch(), *(kernel(name, ts=n) for n, name in enumerate(names)), kernel(ts=50))
    timeline = read(data.replace(b'\\"', b'"'))
    assert list(timeline.kernels.name) == [*names, "gemm"]


def test_an_event_that_cannot_be_repaired_is_left_out_alone():
    events = [kernel(f"kernel{n}", ts=n) for n in range(20)]
    data = trace(*events, launch()).replace(b'"kernel7",', b'"kernel7" ]]] :')
    timeline = read(data)
    assert list(timeline.kernels.name) == [f"kernel{n}" for n in range(20) if n != 7]
    assert any("damaged beyond repair in 1 places" in note for note in timeline.notes)


def test_events_of_wrong_types_are_left_out_alone():
    wrong = [{**kernel(), "name": 5}, {**kernel(), "cat": None}, kernel(ts=[1]), kernel(ts=None), kernel(ts="soon")]
    timeline = read(trace(kernel(), *wrong, kernel(ts=30)))
    assert timeline.kernels.start_ns.tolist() == [10_000, 30_000]
    assert len(timeline.notes) == 2


def test_a_comma_too_many_and_text_behind_the_end_do_no_harm():
    data = trace(kernel(), kernel(ts=20)).replace(b"}\n ],", b"},\n ],")
    assert len(read(data).kernels) == 2
    timeline = read(trace(kernel()) + b"\nsome more")
    assert len(timeline.kernels) == 1
    assert len(timeline.notes) == 1


def test_a_cut_off_trace_gives_all_whole_events_and_a_note():
    events = [launch(), *(kernel(f"kernel{n}", ts=n) for n in range(5))]
    data = trace(*events)
    timeline = read(data[: data.index(b"kernel4")])
    assert len(timeline.kernels) == 4
    assert timeline.notes[0].startswith("`trace.json` is cut off after 5 events: what follows is lost")
    assert timeline.sources[0].cut_off


def small_trace() -> bytes:
    op = event("aten::mm", "cpu_op", 1.5, 2, **{"Input Dims": [[1, 2], []]})
    flow = {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 0, "tid": 7, "ts": 10}
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A100", "numSms": 108}]}
    events = [op, launch(), kernel(), kernel('a{}"],x', ts=30), flow]
    behind = {"distributedInfo": {"rank": 1}, "baseTimeNanoseconds": BASE_NS}
    return json.dumps({**head, "traceEvents": events, **behind}, indent=1).encode()


def outcome(data: bytes) -> Timeline | PerfdoctorError:
    try:
        return read(data)
    except PerfdoctorError as error:
        return error


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_file_cut_at_any_byte_gives_a_noted_timeline_or_an_error_for_the_user(packed: bool):
    data = gzip.compress(small_trace()) if packed else small_trace()
    outcomes: Counter[type] = Counter()
    cut_off = ("`trace.json` is cut off", "the compression of `trace.json` is damaged")
    for length in range(len(data)):
        found = outcome(data[:length])
        outcomes[type(found)] += 1
        if isinstance(found, Timeline):
            assert found.notes, f"cut at {length}"
            assert found.notes[0].startswith(cut_off)
    assert min(outcomes.values()) > 50
    assert read(data).notes == ()


def test_a_number_that_breaks_off_in_the_header_is_not_taken():
    data = small_trace()
    timeline = read(data[: data.index(str(BASE_NS).encode()) + 5])
    assert timeline.ops.start_ns.tolist() == [1500]


@pytest.mark.parametrize("apart", [31, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_file_damaged_at_any_byte_never_raises_another_error(apart: int):
    data = small_trace()
    for place in range(0, len(data), apart):
        for wrong in (b'"', b"\xff", b"}", b"[", b"\\"):
            assert outcome(data[:place] + wrong + data[place + 1 :])


# --- what is refused ---


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b"\n \0", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x1f\x8b", "is empty"),
        (b'{"traceEvents": []}', "holds no events"),
        (b'{"traceEvents": null}', "holds no events"),
        (b"[]", "holds no events"),
        (b'{"schema": "1.0.1", "nodes": [{"name": "x"}]}', "is a PyTorch execution trace"),
        (b'{"schema": "1.0.1", "pid": 1, "nodes": [{"na', "is a PyTorch execution trace"),
        (b'{"segments": [], "device_traces": []}', "it holds segments, device_traces, and no traceEvents"),
        (b'{"schemaVersion": 1, "devicePr', "breaks off or is damaged before its first event"),
        (b"SQLite format 3\0", "is no trace"),
        (b'{"rocprofiler-sdk-tool": [{}]}', "is JSON of rocprofv3"),
        (b'{"$schema": "https://www.speedscope.app/", "profiles": [], "shared": {}}', "is a speedscope file"),
        (b"[1, 2, 3]", "holds no events"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "blink", "name": "paint", "ts": 1, "dur": 2}]}',
            "trace of another tool",
        ),
    ],
)
def test_what_is_no_trace_is_refused_with_its_reason(data: bytes, what: str):
    with pytest.raises(PerfdoctorError, match=re.escape(what)) as raised:
        read(data)
    assert raised.value.do


def test_the_head_of_a_trace_is_recognised():
    assert kineto.looks_like(trace(kernel())[:100])
    assert kineto.looks_like(b'[\n {"ph": "X"')
    assert not kineto.looks_like(b'{"schema": "1.0.1", "nodes": [')
    assert not kineto.looks_like(b"SQLite format 3")


# --- real recordings ---


KINDS = {"kernel": "kernel", "mtia_ccp_events": "kernel", "memcpy": "copy", "gpu_memcpy": "copy", "memset": "copy"}
KINDS |= {"gpu_memset": "copy", "runtime": "call", "cuda_runtime": "call", "cuda_driver": "call"}
KINDS |= {
    "mtia_runtime": "call",
    "cpu_op": "host",
    "operator": "host",
    "user_annotation": "host",
    "python_function": "function",
}


def expected(file: Path) -> dict[str, list[tuple[int, int]]]:
    """(start, duration) in ns of each row of each kind, by plain json."""
    text = plain_json(file)
    found: dict[str, list[tuple[int, int]]] = {kind: [] for kind in KINDS.values()}
    for one in text["traceEvents"]:
        kind = KINDS.get(str(one.get("cat")).lower())
        if kind and one["ph"] == "X":
            start = in_ns(one["ts"]) + text.get("baseTimeNanoseconds", 0)
            found[kind].append((start, in_ns(one["dur"])))
    return {kind: sorted(times) for kind, times in found.items()}


@pytest.mark.recordings
@of_recordings(public_files("kineto/**/*.json*"))
def test_every_row_of_a_real_trace_is_there_to_the_nanosecond(path: Path):
    timeline = recording(path).timeline
    signals = {"kernel": ["kernels", "collectives"], "copy": ["copies"], "call": ["calls"]}
    signals |= {"host": ["ops", "ranges"], "function": ["functions"]}
    for kind, times in expected(path).items():
        frames = [timeline[signal] for signal in signals[kind]]
        starts = np.concatenate([frame.start_ns for frame in frames])
        durations = np.concatenate([frame.duration_ns for frame in frames])
        assert sorted(zip(starts.tolist(), durations.tolist(), strict=True)) == times, kind
    assert timeline.notes == ()


@pytest.mark.recordings
def test_a_real_execution_trace_is_refused():
    file = public("other/execution-trace-not-kineto.json.gz")
    with pytest.raises(PerfdoctorError, match="PyTorch execution trace"):
        kineto.read(file)
