"""Is a file of another tool named, with what to record or to pass instead?"""

from __future__ import annotations

import cProfile
import gzip
import json
import marshal
import sqlite3

import pytest
from tables import of_each

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers import other_tools
from perfdoctor.readers.open import read


def events(*rows: dict, **members) -> bytes:
    return json.dumps({"traceEvents": list(rows), **members}).encode()


def piece(name: str, **more) -> dict:
    return {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 5, "dur": 2, **more}


def process(name: str) -> dict:
    return {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": name}}


def statistics() -> bytes:
    profile = cProfile.Profile()
    profile.runcall(sorted, [2, 1])
    profile.create_stats()
    return marshal.dumps(profile.stats)


FILES = {
    "chrome.json": (events(piece("ThreadControllerImpl::RunTask", cat="toplevel")), "the browser Chrome", "torch.profiler"),
    "jax.json": (events(process("/device:GPU:0"), piece("fusion", args={"hlo_op": "fusion.1"})), "JAX or TensorFlow", "Nsight"),
    "tensorflow.json": (events(process("/job:localhost/replica:0/task:0/device:GPU:0"), piece("MatMul", cat="Op")), "JAX or TensorFlow", "Nsight"),
    "viztracer.json": (events(piece("f", cat="FEE"), viztracer_metadata={}), "VizTracer", "torch.profiler"),
    "rocprof.json": (events(piece("hipMalloc", args={"BeginNs": "1"})), "rocprof or hipprof", "torch.profiler"),
    "unitrace.json": (events(piece("zeCommandListAppendLaunchKernel")), "unitrace or VTune", "torch.profiler"),
    "trace_view.json": (json.dumps([process("Ascend Hardware"), piece("aten::mm", cat="cpu_op")]).encode(), "Ascend NPU", "torch.profiler"),
    "legacy.json": (json.dumps([piece("mm", pid="CPU functions"), piece("mm", ph="s", cat="cpu_to_cuda")]).encode(), "without Kineto", "torch.profiler"),
    "kernel_trace.csv": (b'"Kind","Agent_Id","Queue_Id","Kernel_Name"\n"KERNEL_DISPATCH",1,2,"k"\n', "rocprofv3", "torch.profiler"),
    "onnx.json": (json.dumps([piece("Conv_kernel_time", cat="Node")]).encode(), "ONNX Runtime", "Nsight"),
    "android.json": (events(piece("x", cat="atrace")), "Android or Perfetto", "torch.profiler"),
    "nsys.json": (b'{"Type":79,"TraceProcessEvent":{"startNs":"1"}}\n{"Type":80}\n', "nsys export --type json", ".nsys-rep"),
    "pyinstrument.json": (b'{"session": {}, "root_frame": {}}', "pyinstrument", "torch.profiler"),
    "scalene.json": (b'{"elapsed_time_sec": 1.5, "files": {}}', "Scalene", "torch.profiler"),
    "speedscope.json": (b'{"shared": {"frames": []}, "profiles": []}', "speedscope", "torch.profiler"),
    "trace.dat": (b"\x17\x08Dtracing6\0", "trace-cmd", "torch.profiler"),
    "report.txt": (b"cpus=8\n  python-12 [001] 1.5: sched_switch: x\n", "trace-cmd", "torch.profiler"),
    "perf.data": (b"PERFILE2" + bytes(80), "Linux perf", "torch.profiler"),
    "perf.txt": (b"python 1234 [000]  10.5:     250000 cycles:u: \n\tffff foo (/usr/bin/python)\n", "perf script", "torch.profiler"),
    "stacks.txt": (b"main;train;step 12\nmain;train;loss 3\n", "collapsed stacks", "torch.profiler"),
    "stats.prof": (statistics(), "cProfile", "torch.profiler"),
    "memory.html": (b'<!DOCTYPE html><script>import {add_local_files} from "MemoryViz.js"</script>', "memory_viz", "snapshot.pickle"),
    "heaptrack.txt": (b"v 10200 3\nX python train.py\n", "heaptrack", "snapshot.pickle"),
    "memray.bin": (b"memray\0", "memray", "snapshot.pickle"),
    "flops.txt": (b"---- DeepSpeed Flops Profiler ----\n", "DeepSpeed", "torch.profiler"),
    "events.out": (b'\x18\0\0\0\0\0\0\0\xa3\x7fK"\t\0\0\xc0\x1a\xd0\x1a\rbrain.Event:2', "TensorBoard", ".pt.trace.json"),
    "breakdown.csv": (b"rank,idle_time(us),compute_time(us)\n0,1,2\n", "HolisticTraceAnalysis", "traces"),
    "old.nvvp": (b'<?xml version="1.0"?>\n<session></session>', "Visual Profiler", "Nsight"),
    "x.xplane.pb": (b"\n\xc2\x10\x08\x01\x12\x0b/device:GPU:0\x1a\0", "XPlane", "Nsight"),
    "trace.pftrace": (b"\n\x8d\x01\x50\x01" + bytes(range(256)), "protobuf", "torch.profiler"),
    "page.html": (b"<html><body>hello</body></html>", "a web page", "recording"),
}  # fmt: skip


@of_each("name,file", {name: (name, file) for name, file in FILES.items()})
def test_it_is_named_and_so_is_what_to_do(name, file, tmp_path):
    data, what, do = file
    for packed in (False, True):
        path = tmp_path / (name + ".gz" * packed)
        path.write_bytes(gzip.compress(data) if packed else data)
        with pytest.raises(PerfdoctorError) as raised:
            read([path])
        assert what in raised.value.what
        assert do in raised.value.do
        assert "\n" not in raised.value.what + raised.value.do


def test_the_database_of_another_profiler_is_named(tmp_path):
    for table, what in (("rocpd_api", "rocprofv3"), ("CUPTI_ACTIVITY_KIND_DRIVER", "nvprof"), ("songs", "SQLite file")):
        path = tmp_path / f"{table}.db"
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE {table} (id INTEGER, value TEXT)")
            connection.execute("CREATE TABLE StringTable (_id_ INTEGER, value TEXT)")
        with pytest.raises(PerfdoctorError, match=what):
            read([path])


def test_text_and_traces_of_pytorch_bear_no_mark_of_another_tool():
    head = b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k"}]}'
    for data in (head, b"NCCL INFO Bootstrap : Using eth0\n", b"\nplain text\n", b"", b"timestamp, index\n1, 2\n"):
        assert other_tools.refusal("file", data) is None
