"""Exports of Nsight Systems as Timelines: every schema, damaged files, nothing private, and real recordings."""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from folders import public, public_files

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Text, Timeline
from perfdoctor.readers.nsys import tables as nsys_tables
from perfdoctor.readers.nsys import timeline as nsys

PID = 77
_IDS = ("demangledName", "shortName", "nameId", "textId")


def in_process(pid=PID, thread=0) -> int:
    return (pid << 24) | thread


def kernel(start=10, end=20, name="gemm", *, pid=PID, device=0, **more) -> dict:
    grid = dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), 2)
    place = {"deviceId": device, "streamId": 7, "correlationId": 1, "globalPid": in_process(pid)}
    return {"start": start, "end": end, "demangledName": name, "shortName": "short", **place, **grid, **more}


def copy(start=10, end=20, *, kind=1, source=1, target=2, **more) -> dict:
    place = {"deviceId": 0, "streamId": 7, "correlationId": 1, "globalPid": in_process()}
    return {
        "start": start,
        "end": end,
        **place,
        "bytes": 64,
        "copyKind": kind,
        "srcKind": source,
        "dstKind": target,
        **more,
    }


def call(name="cudaLaunchKernel_v7000", start=1, end=2, *, correlation=1, pid=PID, thread=PID) -> dict:
    tid = in_process(pid, thread)
    return {"start": start, "end": end, "globalTid": tid, "correlationId": correlation, "nameId": name}


def nvtx(text=None, start=1, end=2, *, kind=59, text_id=None, pid=PID, **more) -> dict:
    tid = in_process(pid, pid)
    return {"start": start, "end": end, "eventType": kind, "text": text, "textId": text_id, "globalTid": tid, **more}


def graph(start=10, end=20, **more) -> dict:
    place = {"deviceId": 0, "streamId": 7, "correlationId": 1, "globalPid": in_process()}
    return {"start": start, "end": end, **place, "graphId": 5, **more}


def export(path: Path, version="META_DATA_EXPORT", **tables: list[dict]) -> Path:
    """An export with these rows; names are put into StringIds, which comes first as nsys writes it."""
    strings: dict[str, int] = {}
    coded = {table: [with_ids(row, strings) for row in rows] for table, rows in tables.items()}
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, s) for s, i in strings.items()])
        if version:
            connection.execute(f"CREATE TABLE {version} (name, value)")
            connection.execute(f"INSERT INTO {version} VALUES ('EXPORT_PRODUCT_VERSION', '2026.2.1.210')")
        for table, rows in coded.items():
            columns = list(dict.fromkeys(c for row in rows for c in row))
            connection.execute(f"CREATE TABLE {full_name(table)} ({', '.join(map(quoted, columns))})")
            values = [[row.get(column) for column in columns] for row in rows]
            connection.executemany(f"INSERT INTO {full_name(table)} VALUES ({', '.join('?' * len(columns))})", values)
    connection.close()
    return path


def with_ids(row: dict, strings: dict[str, int]) -> dict:
    def coded(column, value):
        named = column in _IDS and isinstance(value, str)
        return strings.setdefault(value, len(strings) + 1) if named else value

    return {column: coded(column, value) for column, value in row.items()}


def quoted(column: str) -> str:
    return f'"{column}"'


def full_name(table: str) -> str:
    short = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE", "OVERHEAD", "SYNCHRONIZATION")
    return f"CUPTI_ACTIVITY_KIND_{table}" if table.startswith(short) else table


def rows(timeline: Timeline, signal: str, *columns: str) -> list[tuple]:
    frame = timeline[signal]
    return list(zip(*(list(frame.columns[column]) for column in columns), strict=True))


def all_texts(timeline: Timeline) -> str:
    """Every text that a report could show."""
    columns = [c for frame in timeline.frames.values() for c in frame.columns.values() if isinstance(c, Text)]
    values = [value for column in columns for value in column.values]
    return "\n".join(
        [*values, *timeline.notes, repr(timeline.sources), repr(timeline.devices), *timeline.thread_names.values()]
    )


@pytest.fixture
def at(tmp_path: Path) -> Path:
    return tmp_path / "run.sqlite"


@pytest.fixture(params=["adbc", "sqlite3"])
def each_way(request, monkeypatch) -> None:
    """Every table is read in the way of large tables, then in that of small ones."""
    if request.param == "adbc":
        pytest.importorskip("nanoarrow", reason="this environment is older than the dependency: pip install .")
    monkeypatch.setattr(nsys_tables, "ROWS_WORTH_ADBC", 1 if request.param == "adbc" else 10**9)


# --- the device ---


def test_a_kernel_has_its_place_size_and_name(at):
    timeline = nsys.read(export(at, KERNEL=[kernel(name="gemm<float>", device=3, correlationId=9, gridX=5)]))
    columns = (
        "start_ns",
        "end_ns",
        "rank",
        "device",
        "stream",
        "process",
        "correlation",
        "blocks",
        "threads_per_block",
    )
    assert rows(timeline, "kernels", *columns) == [(10, 20, 0, 3, 7, PID, 9, 20, 8)]
    assert rows(timeline, "kernels", "name", "is_graph") == [("gemm<float>", False)]
    assert timeline.sources[0].kind == "nsys"
    assert timeline.sources[0].file == "run.sqlite"
    assert timeline.sources[0].tool_version == "2026.2.1.210"
    assert timeline.sources[0].ranks == (0,)


def test_the_shared_memory_of_a_block_is_the_static_and_the_dynamic_one(at):
    one = kernel(staticSharedMemory=1_024, dynamicSharedMemory=48_128)
    other = kernel(30, 40, staticSharedMemory=None, dynamicSharedMemory=16)
    assert rows(nsys.read(export(at, KERNEL=[one, other])), "kernels", "shared_memory_bytes") == [(49_152,), (-1,)]


def test_rows_in_any_order_are_sorted_by_their_start(at):
    timeline = nsys.read(export(at, KERNEL=[kernel(30, 40, "c"), kernel(10, 20, "a"), kernel(20, 30, "b")]))
    assert rows(timeline, "kernels", "start_ns", "name") == [(10, "a"), (20, "b"), (30, "c")]


def test_the_short_name_replaces_a_missing_demangled_one(at):
    timeline = nsys.read(export(at, KERNEL=[kernel(name=None), kernel(30, 40, name="long")]))
    assert list(timeline.kernels.name) == ["short", "long"]


def test_of_a_table_in_several_versions_the_highest_counts(at):
    tables = {"KERNEL": [kernel(name="old")], "KERNEL_V2": [kernel(name="older")], "KERNEL_V11": [kernel(name="new")]}
    assert list(nsys.read(export(at, **tables)).kernels.name) == ["new"]


def test_missing_columns_are_unknown_and_not_zero(at):
    lean = [{"start": 10, "end": 20, "shortName": "gemm"}]
    timeline = nsys.read(export(at, KERNEL=lean, MEMCPY=[{"start": 30, "end": 40}]))
    assert rows(timeline, "kernels", "device", "stream", "correlation", "blocks") == [(0, UNKNOWN, UNKNOWN, UNKNOWN)]
    assert rows(timeline, "copies", "bytes", "direction", "host_memory") == [(UNKNOWN, "unknown", "unknown")]


def test_a_launch_of_a_whole_cuda_graph_is_work_on_the_device(at):
    timeline = nsys.read(export(at, KERNEL=[kernel(10, 20)], GRAPH_TRACE=[graph(20, 90), graph(95, 99, graphId=None)]))
    assert rows(timeline, "kernels", "start_ns", "end_ns", "is_graph", "name", "blocks") == [
        (10, 20, False, "gemm", 8), (20, 90, True, "CUDA graph 5", UNKNOWN), (95, 99, True, "CUDA graph", UNKNOWN),
    ]  # fmt: skip


def test_graph_launches_without_a_time_are_dropped_and_counted(at):
    timeline = nsys.read(export(at, GRAPH_TRACE=[graph(20, 90), graph(0, 0), graph(0, 0)]))
    assert len(timeline.kernels) == 1
    assert "2 rows of CUPTI_ACTIVITY_KIND_GRAPH_TRACE without a time: dropped." in timeline.notes


def test_rows_that_never_ended_or_ended_before_they_started_are_dropped_and_counted(at):
    timeline = nsys.read(export(at, KERNEL=[kernel(10, None), kernel(30, 29), kernel(40, 40), kernel(50, 60)]))
    assert timeline.kernels.start_ns.tolist() == [40, 50]
    assert timeline.notes == (
        "2 rows of CUPTI_ACTIVITY_KIND_KERNEL without an end, or with one before the start: dropped.",
    )


@pytest.mark.parametrize(
    ("kind", "source", "target", "direction", "memory"),
    [
        (1, 0, 2, "h2d", "pageable"), (1, 1, 2, "h2d", "pinned"), (2, 2, 0, "d2h", "pageable"),
        (2, 2, 1, "d2h", "pinned"), (1, 4, 2, "h2d", "managed"), (2, 2, 6, "d2h", "managed"),
        (1, 7, 2, "h2d", "unknown"), (1, 2, 2, "h2d", "none"), (8, 2, 2, "d2d", "none"), (10, 0, 0, "p2p", "none"),
        (9, 0, 1, "h2h", "pageable"), (7, 2, 3, "unknown", "none"),
        # moves of managed memory's pages, whatever memory kinds the row contains
        (11, 4, 2, "h2d", "managed"), (11, 7, 7, "h2d", "managed"), (12, 2, 4, "d2h", "managed"), (13, 2, 2, "d2d", "none"),
    ],
)  # fmt: skip
def test_a_copy_has_its_direction_and_the_memory_of_its_host_side(at, kind, source, target, direction, memory):
    timeline = nsys.read(export(at, MEMCPY=[copy(kind=kind, source=source, target=target)]))
    assert rows(timeline, "copies", "direction", "host_memory", "bytes") == [(direction, memory, 64)]


def test_a_memset_is_a_copy_without_a_host(at):
    timeline = nsys.read(export(at, MEMSET=[copy()], KERNEL=[kernel()]))
    assert rows(timeline, "copies", "name", "direction", "host_memory") == [("memset", "memset", "none")]


@pytest.mark.parametrize(
    ("name", "kind", "data_type"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce", "f32"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter", "bf16"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce", "float"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "all_gather", "int8_t"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv", ""),
    ],
)
def test_kernels_that_talk_to_other_devices_are_collectives(at, name, kind, data_type):
    timeline = nsys.read(export(at, KERNEL=[kernel(name=name), kernel(30, 40)]))
    assert rows(timeline, "collectives", "kind", "data_type", "bytes", "group_size") == [(kind, data_type, -1, -1)]
    assert list(timeline.kernels.name) == ["gemm"]


# --- the host ---


def test_a_call_loses_its_version_and_keeps_its_thread_and_correlation(at):
    timeline = nsys.read(export(at, KERNEL=[kernel()], RUNTIME=[call("cuLaunchKernelEx_v11060_v2", thread=5)]))
    columns = ("name", "process", "thread", "correlation", "rank")
    assert rows(timeline, "calls", *columns) == [("cuLaunchKernelEx", PID, 5, 1, 0)]


def test_a_call_that_is_listed_twice_counts_once(at):
    twins = [call("cudaMemcpy", 1, 9), call("cudaMemcpy_v3020", 2, 8), call("cudaMemcpy_v3020", 20, 30, correlation=2)]
    timeline = nsys.read(export(at, KERNEL=[kernel()], RUNTIME=twins))
    assert rows(timeline, "calls", "start_ns", "end_ns", "correlation") == [(1, 9, 1), (20, 30, 2)]
    assert timeline.notes == ()


def test_names_of_ranges_come_from_the_row_or_by_id(at):
    events = [nvtx("forward_v2", 3, 4), nvtx(None, 5, 6, text_id="backward", kind=60), nvtx("", 7, 8, text_id="third")]
    timeline = nsys.read(export(at, KERNEL=[kernel()], NVTX_EVENTS=events))
    assert list(timeline.ranges.name) == ["forward_v2", "backward", "third"]
    assert "ops" not in timeline.recorded


def test_marks_and_categories_are_no_ranges(at):
    events = [
        nvtx("mark", kind=34, end=None),
        nvtx("category", kind=33),
        nvtx("domain", kind=75, end=None),
        nvtx("step"),
    ]
    timeline = nsys.read(export(at, KERNEL=[kernel()], NVTX_EVENTS=events))
    assert list(timeline.ranges.name) == ["step"]
    assert timeline.notes == ()


def test_ranges_that_were_still_open_are_dropped_and_counted(at):
    events = [nvtx("open", end=None), nvtx("backwards", 9, 3), nvtx("whole")]
    timeline = nsys.read(export(at, KERNEL=[kernel()], NVTX_EVENTS=events))
    assert list(timeline.ranges.name) == ["whole"]
    assert timeline.notes == (
        "1 NVTX range was still open when the recording ended: dropped.",
        "1 NVTX range was without a start, or ended before it: dropped.",
    )


@pytest.mark.parametrize(
    ("text", "name", "shapes"),
    [
        ("aten::mul_", "aten::mul_", ""),
        ("aten::add, op_id = 317177", "aten::add", ""),
        ("aten::mm, seq = 7, op_id = 3, sizes = [[64, 8], [8, 2], []]", "aten::mm", "[[64, 8], [8, 2], []]"),
        ("aten::mm, seq = 7, sizes = [[64, 8]], input_op_ids = [(3, 0)]", "aten::mm", "[[64, 8]]"),
        ("autograd::engine::evaluate_function: MulBackward0, seq = 5", "autograd::engine::evaluate_function: MulBackward0", ""),
        ("torch::autograd::AccumulateGrad", "torch::autograd::AccumulateGrad", ""),
        ("ConvolutionBackward0, seq = 12", "ConvolutionBackward0", ""),
        ("c10d::allreduce_", "c10d::allreduce_", ""),
    ],
)  # fmt: skip
def test_ranges_that_emit_nvtx_wrote_are_ops(at, text, name, shapes):
    timeline = nsys.read(export(at, KERNEL=[kernel()], NVTX_EVENTS=[nvtx(text), nvtx("step 3, seq = 4")]))
    assert rows(timeline, "ops", "name", "input_shapes", "input_types") == [(name, shapes, "")]
    assert list(timeline.ranges.name) == ["step 3, seq = 4"]
    assert "ops" in timeline.recorded


def test_ops_by_id_and_in_the_row_share_a_name(at):
    events = [nvtx("aten::add, op_id = 1"), nvtx(None, 3, 4, text_id="aten::add"), nvtx("aten::add, op_id = 2", 5, 6)]
    names = nsys.read(export(at, KERNEL=[kernel()], NVTX_EVENTS=events)).ops.name
    assert list(names) == ["aten::add"] * 3
    assert len(set(names.codes.tolist())) == 1


def test_calls_of_the_system_and_of_the_profiler_keep_their_names(at):
    system = [{"start": 1, "end": 2, "globalTid": in_process(thread=5), "nameId": "pthread_cond_wait"}]
    own = [{"start": 3, "end": 4, "globalTid": None, "nameId": "CUPTI Buffer flush"}]
    timeline = nsys.read(export(at, KERNEL=[kernel()], OSRT_API=system, PROFILER_OVERHEAD=own))
    assert rows(timeline, "os_calls", "name", "thread") == [("pthread_cond_wait", 5)]
    assert rows(timeline, "overheads", "name", "thread", "process") == [("CUPTI Buffer flush", UNKNOWN, PID)]


def test_overheads_of_the_driver_keep_their_names_beside_the_profilers(at):
    overheads = [
        {"start": 1, "end": 2, "globalTid": in_process(), "nameId": "Command Buffer Full", "overheadType": 8},
        {"start": 3, "end": 4, "globalTid": in_process(), "nameId": "Buffer Flush", "overheadType": 3},
    ]
    timeline = nsys.read(
        export(at, KERNEL=[kernel()], OVERHEAD=overheads, PROFILER_OVERHEAD=[overheads[1] | {"start": 9, "end": 9}])
    )
    assert rows(timeline, "overheads", "name", "start_ns") == [
        ("Command Buffer Full", 1),
        ("Buffer Flush", 3),
        ("Buffer Flush", 9),
    ]


# --- ranks, devices, threads ---


def test_two_processes_on_two_devices_are_two_ranks_in_the_order_of_their_devices(at):
    kernels = [kernel(10, 20, "b", pid=5, device=1), kernel(10, 20, "a", pid=9, device=0)]
    calls = [call(pid=5, thread=5), call(pid=9, thread=9)]
    timeline = nsys.read(export(at, KERNEL=kernels, RUNTIME=calls))
    assert sorted(rows(timeline, "kernels", "rank", "device", "process", "name")) == [(0, 0, 9, "a"), (1, 1, 5, "b")]
    assert sorted(rows(timeline, "calls", "rank", "process")) == [(0, 9), (1, 5)]
    assert timeline.sources[0].ranks == (0, 1)
    assert timeline.notes == ("Nsight Systems does not record rank numbers: ranks are numbered by device.",)


def test_host_rows_of_processes_without_gpu_work_are_left_out_and_counted(at):
    timeline = nsys.read(
        export(at, KERNEL=[kernel()], NVTX_EVENTS=[nvtx("mine"), nvtx("worker", pid=78), nvtx("x", pid=79)])
    )
    assert list(timeline.ranges.name) == ["mine"]
    assert timeline.notes == ("2 events of processes without GPU work (data loaders, shells) were left out.",)


def test_without_gpu_work_the_process_with_most_ranges_is_the_only_rank(at):
    events = [nvtx("shell", pid=5), nvtx("step", 1, 2, pid=6), nvtx("step", 3, 4, pid=6)]
    timeline = nsys.read(export(at, NVTX_EVENTS=events))
    assert rows(timeline, "ranges", "rank", "process", "name") == [(0, 6, "step"), (0, 6, "step")]
    assert timeline.recorded == {"ranges"}
    assert "No GPU activity was recorded in run.sqlite." in timeline.notes


def test_kernels_without_a_process_belong_to_the_one_that_launches(at):
    lean = [{key: value for key, value in kernel().items() if key != "globalPid"}]
    timeline = nsys.read(export(at, KERNEL=lean, RUNTIME=[call()]))
    assert rows(timeline, "kernels", "process", "correlation") == rows(timeline, "calls", "process", "correlation")
    assert timeline.notes == ()


def gpu(number: int, name: str, **more: int) -> dict:
    return {"id": number, "name": name, "smCount": 132, "totalMemory": 80, "memoryBandwidth": 3, **more}


def test_devices_that_have_work_are_described(at):
    gpus = [gpu(0, "A", computeMajor=9, computeMinor=0), gpu(1, "B", computeMajor=8, computeMinor=6), gpu(2, "C")]
    timeline = nsys.read(export(at, KERNEL=[kernel(device=1)], TARGET_INFO_GPU=gpus))
    assert [(d.rank, d.device, d.name, d.sm_count) for d in timeline.devices] == [(0, 1, "B", 132)]
    assert timeline.devices[0].compute_capability == (8, 6)
    assert timeline.devices[0].memory_bytes == 80
    assert timeline.devices[0].memory_bytes_per_second == 3


def test_a_device_that_nsys_numbers_otherwise_is_found_by_cudas_number(at):
    timeline = nsys.read(export(at, KERNEL=[kernel(device=0)], TARGET_INFO_GPU=[{"id": 4, "cuDevice": 0, "name": "H"}]))
    assert [device.name for device in timeline.devices] == ["H"]


def test_without_a_table_of_gpus_no_device_is_invented(at):
    assert nsys.read(export(at, KERNEL=[kernel()])).devices == ()


def test_threads_of_ranks_have_their_names(at):
    threads = [
        {"globalTid": in_process(PID, 5), "nameId": "pt_autograd_0"}, {"globalTid": in_process(8, 6), "nameId": "bash"},
    ]  # fmt: skip
    timeline = nsys.read(export(at, KERNEL=[kernel()], ThreadNames=threads))
    assert timeline.thread_names == {(PID, 5): "pt_autograd_0"}


# --- what was recorded ---


def test_a_profile_of_the_system_alone_did_not_record_the_gpu(at):
    system = [{"start": 1, "end": 2, "globalTid": in_process(), "nameId": "read"}]
    timeline = nsys.read(export(at, OSRT_API=system))
    assert timeline.recorded == {"os_calls"}


def test_empty_tables_of_a_complete_export_were_not_recorded(at):
    export(at, RUNTIME=[call()])
    with sqlite3.connect(at) as connection:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName)")
        connection.execute("CREATE TABLE OSRT_API (start, end, globalTid, nameId)")
    timeline = nsys.read(at)
    assert timeline.recorded == {"calls"}
    assert "No GPU activity was recorded in run.sqlite." in timeline.notes


def test_work_of_any_kind_proves_that_kernels_were_traced(at):
    timeline = nsys.read(export(at, MEMCPY=[copy()]))
    assert {"kernels", "copies", "collectives"} <= timeline.recorded
    assert len(timeline.kernels) == 0


def test_nvtx_that_was_traced_without_a_range_is_an_answer(at):
    capture = [{"name": "PROCESS_0:COLLECT_NVTX_TRACE", "value": "true"}]
    assert "ranges" in nsys.read(export(at, KERNEL=[kernel()], META_DATA_CAPTURE=capture)).recorded


def test_nvtx_that_was_not_traced_was_not_recorded(at):
    capture = [{"name": "PROCESS_0:COLLECT_NVTX_TRACE", "value": "false"}]
    export(at, KERNEL=[kernel()], META_DATA_CAPTURE=capture)
    with sqlite3.connect(at) as connection:
        connection.execute("CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid)")
    assert "ranges" not in nsys.read(at).recorded


@pytest.mark.parametrize("table", ["EXPORT_META_DATA", "META_DATA_EXPORT"])
def test_the_version_stands_in_the_old_or_the_new_table(at, table):
    assert nsys.read(export(at, version=table, KERNEL=[kernel()])).sources[0].tool_version == "2026.2.1.210"


def test_an_export_without_a_version_is_read_all_the_same(at):
    assert nsys.read(export(at, version="", KERNEL=[kernel()])).sources[0].tool_version == ""


# --- nothing private ---

SECRET = "AKIAIOSFODNN7EXAMPLE"


def test_the_environment_the_host_and_the_user_never_reach_a_report(at):
    private = f"AWS_SECRET_ACCESS_KEY={SECRET}\0HOME=/home/jane"
    messages = [
        f"CUPTI was not collected: TOKEN={SECRET}", "CUPTI library /home/jane/libcupti.so is not supported.",
        "CUDA events were not collected on host node17.", "CUPTI is not supported here. See /tmp/x.log of jane@node17.",
    ]  # fmt: skip
    path = export(
        at, KERNEL=[kernel()], NVTX_EVENTS=[nvtx("step")],
        META_DATA_CAPTURE=[{"name": "ENVIRONMENT_VARIABLE", "value": private}, {"name": "HOST_NAME", "value": "node17"}],
        TARGET_INFO_SYSTEM_ENV=[{"name": "Hostname", "nameEnum": "x", "value": "node17"}, {"name": "User", "value": "jane"}],
        DIAGNOSTIC_EVENT=[{"severity": 3, "text": text} for text in messages], UNUSED=[{"nameId": private}],
    )  # fmt: skip
    shown = all_texts(nsys.read(path))
    assert SECRET not in shown
    assert "jane" not in shown
    assert "node17" not in shown
    assert "Nsight Systems reports: CUPTI is not supported here." in shown


def test_complaints_of_nsys_that_concern_something_else_are_not_repeated(at):
    messages = [
        {"severity": 3, "text": "OpenGL failed."},
        {"severity": 1, "text": "Loaded CUPTI."},
        {"severity": 4, "text": "CUPTI 7"},
    ]
    assert nsys.read(export(at, KERNEL=[kernel()], DIAGNOSTIC_EVENT=messages)).notes == ()


def test_warnings_are_repeated_where_no_gpu_activity_arrived(at):
    messages = [{"severity": 2, "text": "No CUDA events collected. Does the process use CUDA?"}]
    notes = nsys.read(export(at, NVTX_EVENTS=[nvtx("step")], DIAGNOSTIC_EVENT=messages)).notes
    assert notes[-1] == "Nsight Systems reports: No CUDA events collected."


def test_text_that_is_not_utf8_is_read_with_replacements(at):
    export(at, KERNEL=[kernel(name="gemm")], NVTX_EVENTS=[nvtx("step")], version="EXPORT_META_DATA")
    with sqlite3.connect(at) as connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'67ff6d' AS TEXT) WHERE value = 'gemm'")
        connection.execute("UPDATE NVTX_EVENTS SET text = CAST(x'73fe' AS TEXT)")
    timeline = nsys.read(at)
    assert list(timeline.kernels.name) == ["g\ufffdm"]
    assert list(timeline.ranges.name) == ["s\ufffd"]


# --- files ---


def test_where_adbc_cannot_be_loaded_large_tables_are_read_all_the_same(at, monkeypatch):
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite", None)
    monkeypatch.setattr(nsys_tables, "ROWS_WORTH_ADBC", 1)
    assert rows(nsys.read(export(at, KERNEL=[kernel(3, 7)])), "kernels", "start_ns", "end_ns") == [(3, 7)]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize(
    "name",
    ["a b.sqlite", "a#b.sqlite", "a?mode=rw.sqlite", "100%20.sqlite", "ä'\".sqlite", os.fsdecode(b"\xff.sqlite")],
    ids=ascii,
)
def test_odd_names_are_read_and_nothing_appears_beside_the_file(tmp_path, name):
    folder = tmp_path / f"in {name}"
    folder.mkdir()
    path = export(folder / name, KERNEL=[kernel()])
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with closing(nsys_tables.Database.open(path)) as database:
        database.read_ahead({"CUPTI_ACTIVITY_KIND_KERNEL": ["start"]}, {})
        assert database.is_fast, "ADBC could not read it"
        assert database.integers("CUPTI_ACTIVITY_KIND_KERNEL", ["start"])["start"].tolist() == [10]
    assert len(nsys.read(path).kernels) == 1
    assert [file.name for file in folder.iterdir()] == [name]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


@pytest.mark.usefixtures("each_way")
def test_a_database_that_was_not_closed_stays_as_it_is(at, tmp_path):
    writer = sqlite3.connect(export(at, KERNEL=[kernel()]))
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("INSERT INTO StringIds VALUES (99, 'late')")
    writer.commit()
    folder = tmp_path / "copied while it was written"
    folder.mkdir()
    for file in (at, Path(f"{at}-wal")):
        (folder / file.name).write_bytes(file.read_bytes())
    writer.close()
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert len(before) == 2
    assert len(nsys.read(folder / at.name).kernels) == 1
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_large_tables_and_small_ones_are_read_alike(at, monkeypatch):
    pytest.importorskip("nanoarrow", reason="this environment is older than the dependency: pip install .")
    kernels = [kernel(i, i + 5, f"k{i % 3}", correlationId=None if i % 7 else i, gridX=1.5) for i in range(300)]
    export(at, KERNEL=kernels, MEMCPY=[copy(i, i + 1, bytes="64") for i in range(9)])
    slow = nsys.read(at)
    monkeypatch.setattr(nsys_tables, "ROWS_WORTH_ADBC", 1)
    with closing(nsys_tables.Database.open(at)) as database:
        database.read_ahead({"CUPTI_ACTIVITY_KIND_KERNEL": ["start"]}, {})
        assert database.is_fast, "ADBC could not read it"
        assert database.columns_ahead
    fast = nsys.read(at)
    for signal in ("kernels", "copies"):
        columns = slow[signal].columns
        assert rows(slow, signal, *columns) == rows(fast, signal, *columns)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "`run.sqlite` is empty"),
        (b"{}" * 100, "`run.sqlite` is no SQLite file"),
        (b"SQLite format 3\0" + b"\xff" * 5000, "`run.sqlite` is damaged"),
        (b"SQLite format 3\0", "`run.sqlite` is"),
    ],
)
def test_what_is_no_whole_database_is_refused_in_one_line(at, content, what):
    at.write_bytes(content)
    with pytest.raises(PerfdoctorError) as caught:
        nsys.read(at)
    assert caught.value.what.startswith(what)
    assert caught.value.do


def test_a_database_of_something_else_is_named_as_such(at):
    with sqlite3.connect(at) as connection:
        connection.execute("CREATE TABLE customers (id, name)")
    connection.close()
    with pytest.raises(PerfdoctorError) as caught:
        nsys.read(at)
    assert caught.value.what == "`run.sqlite` is a SQLite file, but not an export of Nsight Systems"


def test_a_missing_file_is_an_error_for_the_user(at):
    with pytest.raises(PerfdoctorError, match="cannot be opened: No such file"):
        nsys.read(at)


def many_rows() -> dict[str, list[dict]]:
    return {
        "KERNEL": [kernel(i * 10, i * 10 + 5, f"kernel_{i % 9}", correlationId=i) for i in range(1, 400)],
        "RUNTIME": [call(start=i, end=i + 1, correlation=i) for i in range(400)],
        "NVTX_EVENTS": [nvtx(f"range {i}", i, i + 1) for i in range(400)],
    }


def read_or_refuse(path: Path) -> Timeline | None:
    """None where the file is refused; any error but PerfdoctorError fails the test."""
    try:
        return nsys.read(path)
    except PerfdoctorError:
        return None


@pytest.mark.usefixtures("each_way")
def test_a_cut_file_gives_whole_tables_or_an_error_and_never_a_part_without_a_note(at):
    data = export(at, **many_rows()).read_bytes()
    whole = {signal: len(frame) for signal, frame in nsys.read(at).frames.items()}
    partly, page = 0, 4096
    for length in [*range(0, len(data), len(data) // 60), len(data) - 1]:
        at.write_bytes(data[:length])
        timeline = read_or_refuse(at)
        if timeline is None:
            continue
        partly += length < len(data) - page
        assert any("damaged" in note for note in timeline.notes)
        for signal in timeline.recorded:
            assert len(timeline[signal]) == whole[signal], (length, signal)
    assert partly > 10


@pytest.mark.usefixtures("each_way")
def test_flipped_bytes_never_raise_anything_but_our_error(at):
    data = export(at, **many_rows()).read_bytes()
    chance = random.Random(4)
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(30):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        at.write_bytes(broken)
        read_or_refuse(at)


@pytest.mark.usefixtures("each_way")
def test_the_tables_of_a_damaged_file_that_are_whole_are_used(at):
    data = bytearray(export(at, **many_rows()).read_bytes())
    with sqlite3.connect(at) as connection:
        sql = "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        root = connection.execute(sql).fetchone()[0]
        page = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    data[(root - 1) * page : root * page] = bytes(page)
    at.write_bytes(data)
    timeline = nsys.read(at)
    assert not timeline.recorded & {"kernels", "collectives"}
    assert {"calls", "ranges"} <= timeline.recorded
    assert len(timeline["calls"]) == 400
    assert timeline.notes[0].startswith("`run.sqlite` is damaged: CUPTI_ACTIVITY_KIND_KERNEL cannot be read")


# --- real recordings ---


def plainly(path: Path, sql: str) -> list[tuple]:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = bytes
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def union_ns(pieces: Iterable[tuple[int, int]]) -> int:
    total, reach = 0, -(1 << 62)
    for start, end in sorted(pieces):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total


@pytest.mark.recordings
@pytest.mark.parametrize("path", public_files("nsys/*.sqlite"), ids=lambda path: path.stem)
def test_real_exports_agree_with_plain_sql_to_the_nanosecond(path):
    timeline = nsys.read(path)
    tables = {name.decode() for (name,) in plainly(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    pieces: dict[str, list[tuple[int, int]]] = {}
    for kind in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET"):
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        found = plainly(path, f'SELECT start, "end" FROM {table}') if table in tables else []
        pieces[kind] = [(start, end) for start, end in found if (start, end) != (0, 0)]
    kernels, graphs = timeline.kernels, timeline.kernels["is_graph"]
    assert len(kernels) - graphs.sum() + len(timeline["collectives"]) == len(pieces["KERNEL"])
    assert graphs.sum() == len(pieces["GRAPH_TRACE"])
    assert len(timeline.copies) == len(pieces["MEMCPY"]) + len(pieces["MEMSET"])
    work = [timeline[signal] for signal in ("kernels", "collectives", "copies")]
    busy = Intervals.of(np.concatenate([f.start_ns for f in work]), np.concatenate([f.end_ns for f in work]))
    assert busy.total_ns == union_ns(piece for each in pieces.values() for piece in each)
    assert ("kernels" in timeline.recorded) == bool(any(pieces.values()))


@pytest.mark.recordings
def test_a_program_of_cuda_graphs_is_busy_though_it_has_few_kernels():
    timeline = nsys.read(public("nsys/cuda-graphs-a100.sqlite"))
    kernels = timeline.kernels
    window = kernels.end_ns.max() - kernels.start_ns.min()
    plain = kernels.take(~kernels["is_graph"])
    assert Intervals.of(plain.start_ns, plain.end_ns).total_ns < 0.01 * window
    assert Intervals.of(kernels.start_ns, kernels.end_ns).total_ns > 0.95 * window


@pytest.mark.recordings
def test_four_small_copies_of_a_real_run_are_pageable_and_the_large_ones_pinned():
    copies = nsys.read(public("nsys/h100_2gpu_1s.sqlite")).copies
    pageable = copies.take(copies.text("host_memory").equals("pageable"))
    pinned = copies.take(copies.text("host_memory").equals("pinned") & copies.text("direction").equals("h2d"))
    assert (len(pageable), pageable["bytes"].sum()) == (4, 3_136)
    assert pinned["bytes"].sum() > 50_000_000_000


@pytest.mark.recordings
def test_an_export_without_a_kernel_table_recorded_no_gpu_activity():
    timeline = nsys.read(public("nsys/no-kernels-not-utf8.sqlite"))
    assert not timeline.recorded & {"kernels", "copies", "collectives"}
    assert "No GPU activity was recorded in no-kernels-not-utf8.sqlite." in timeline.notes


def test_a_stream_that_was_made_to_wait_for_an_event_is_a_row_whatever_its_kind_is_numbered(at):
    def sync(correlation: int, stream: int = 22, **more: int) -> dict:
        place = {"deviceId": 0, "streamId": stream, "correlationId": correlation, "globalPid": in_process()}
        return {"start": 4, "end": 5, **place, "syncType": 2, "eventId": 3, **more}

    calls = [
        call(),
        call("cudaStreamWaitEvent_v3020", 4, 5, correlation=2),
        call("cudaStreamSynchronize", 6, 7, correlation=3),
    ]
    syncs = [sync(2), sync(3), sync(4), sync(2, 4294967295)]
    timeline = nsys.read(export(at, KERNEL=[kernel()], RUNTIME=calls, SYNCHRONIZATION=syncs))
    columns = ("process", "device", "stream", "awaited_stream", "correlation")
    assert rows(timeline, "stream_waits", *columns) == [(PID, 0, 22, UNKNOWN, 2)]
    assert "stream_waits" not in nsys.read(export(at.with_name("b.sqlite"), KERNEL=[kernel()], RUNTIME=calls)).recorded
