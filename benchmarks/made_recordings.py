"""How are recordings made of kinds of which no public one is there, so that what is true of them is known?

`made.toml` says of each which recording is edited how, or which program of `made_programs.py` is recorded, and what is
true of it: written before it was diagnosed for the first time. They are made in a temporary folder.
"""

from __future__ import annotations

import csv
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from recorded_otherwise import read_trace
from trace_edits import EDITS, MS, US, Trace, end_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HERE = Path(__file__).parent
_PYTHON = "PERFDOCTOR_TORCH_PYTHON"
Case = Mapping[str, Any]


def made_cases(recordings: Path | None) -> list[Case]:
    """The cases whose source is on this machine: the recordings in this folder, or a Python that has PyTorch."""
    listed = tomllib.loads((_HERE / "made.toml").read_text("utf-8"))["case"]
    return [{**case, "is_made": True} for case in listed if _can_be_made(case, recordings)]


def _can_be_made(case: Case, recordings: Path | None) -> bool:
    if "program" in case:
        return bool(os.environ.get(_PYTHON))
    return recordings is not None and all((recordings / name).exists() for name in _sources(case))


def _sources(case: Case) -> Sequence[str]:
    return [case["source"]] if isinstance(case["source"], str) else case["source"]


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="perfdoctor-made-")


def made_paths(case: Case, recordings: Path) -> list[Path]:
    """What is analysed of a case, made where it was not yet."""
    folder = Path(_folder().name) / case["path"]
    if not folder.exists():
        folder.mkdir()
        _KINDS[case.get("kind", "trace")](
            case, [recordings / name for name in _sources(case)] if "source" in case else [], folder
        )
    return sorted(folder.iterdir())


# --- traces ----------------------------------------------------------------------------------------------------------


def _edited(case: Case, sources: Sequence[Path]) -> Trace:
    trace = Trace.of(sources[0])
    for edit in case.get("edits", ()):
        EDITS[edit["edit"]](trace, **{name: value for name, value in edit.items() if name != "edit"})
    return trace


def _trace(case: Case, sources: Sequence[Path], folder: Path) -> None:
    """`cut`: the share of its bytes that is left of the file."""
    text = _edited(case, sources).text()
    (folder / "trace.json").write_bytes(text[: round(len(text) * case.get("cut", 1.0))])


def _with_samples(case: Case, sources: Sequence[Path], folder: Path) -> None:
    """A trace, and `nvidia-smi --query-gpu` beside it, `days` apart from it, with the SMs at `sm_mhz` for this reason."""
    trace = _edited(case, sources)
    (folder / "trace.json").write_bytes(trace.text())
    begin = trace.base_ns - 1_000 * MS + case["days"] * 86_400_000 * MS
    end = trace.base_ns + max(end_of(row) for row in trace.device) + 1_000 * MS + case["days"] * 86_400_000 * MS
    with (folder / "gpu.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(
            [
                "timestamp",
                "index",
                "clocks.sm [MHz]",
                "clocks.max.sm [MHz]",
                "clocks_event_reasons.active",
                "power.draw [W]",
            ]
        )
        for at in range(begin, end, 20 * MS):
            when = datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=at // US)
            table.writerow(
                [f"{when:%Y-%m-%dT%H:%M:%S.%f}Z", 0, case["sm_mhz"], case["max_sm_mhz"], case["reason"], 110]
            )


def _together(_: Case, sources: Sequence[Path], folder: Path) -> None:
    for source in sources:
        shutil.copyfile(source, folder / source.name)


def _ranks_renamed(_: Case, sources: Sequence[Path], folder: Path) -> None:
    """The files of a job's ranks in the opposite order, named by another launcher, and without the rank in them."""
    for number, file in enumerate(sorted(sources[0].iterdir(), reverse=True)):
        document = {name: value for name, value in read_trace(file).items() if name != "distributedInfo"}
        (folder / f"node0-rank_{number}.json").write_bytes(msgspec.json.encode(document))


# --- other writers ---------------------------------------------------------------------------------------------------


def _rocprof_table(case: Case, sources: Sequence[Path], folder: Path) -> None:
    """`rocprofv3 --kernel-trace --output-format csv`: one row a kernel."""
    with (folder / "1234_kernel_trace.csv").open("w", newline="") as stream:
        table = csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC)
        table.writerow([
            "Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name", "Correlation_Id",
            "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count",
            "SGPR_Count", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z",
        ])  # fmt: skip
        for number, row in enumerate(_edited(case, sources).of_category("kernel")):
            begin = 1_512_000_000_000_000 + row["ts"]
            table.writerow([
                "KERNEL_DISPATCH", "Agent 4", 1, 0, 4242, number + 1, 17, row["name"], number + 1, begin, begin + row["dur"],
                0, 0, 24, 4, 32, 256, 1, 1, 65536, 1, 1,
            ])  # fmt: skip


def _xla_trace(case: Case, sources: Sequence[Path], folder: Path) -> None:
    """What `jax.profiler.trace` writes for the trace viewer: processes `/device:GPU:0` and `/host:CPU`."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 2, "name": "process_sort_index", "args": {"sort_index": 2}},
        {"ph": "M", "pid": 2, "tid": 14, "name": "thread_name", "args": {"name": "Stream #14(Compute)"}},
        {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},
    ]
    for number, row in enumerate(_edited(case, sources).of_category("kernel")):
        name = f"loop_fusion_{number % 40}"
        args = {"hlo_module": "jit_train_step", "hlo_op": name.replace("_", ".", 2), "correlation_id": str(number)}
        events.append(
            {"ph": "X", "pid": 2, "tid": 14, "ts": row["ts"] / US, "dur": row["dur"] / US, "name": name, "args": args}
        )
    document = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": events}
    (folder / "plugins.trace.json").write_bytes(msgspec.json.encode(document))


def _ascend_trace(case: Case, sources: Sequence[Path], folder: Path) -> None:
    """The `trace_view.json` of torch_npu: a list, times as texts, one process each for Python, CANN and the hardware."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}
        for pid, name in ((1, "Python"), (2, "CANN"), (3, "Ascend Hardware"), (4, "Overlap Analysis"))
    ]
    trace = _edited(case, sources)
    for row in trace.rows:
        if "dur" not in row:
            continue
        when = {"ts": f"{(1_699_529_623_000_000_000 + row['ts']) / US:.3f}", "dur": row["dur"] / US}
        if row.get("cat") == "cpu_op":
            events.append({"ph": "X", "name": row["name"], "pid": 1, "tid": 7, **when, "cat": "cpu_op", "args": {}})
        elif row.get("cat") == "cuda_runtime":
            events.append(
                {"ph": "X", "name": "AscendCL@aclnnMatmul", "pid": 2, "tid": 7, **when, "args": {"Mode": "ACL_OP"}}
            )
        elif row.get("cat") == "kernel":
            args = {"Model Id": 4294967295, "Task Type": "AI_CORE", "Stream Id": 2, "Task Id": 7, "connection_id": 9}
            events.append(
                {"ph": "X", "name": "aclnnMatmul_MatMulCommon_MatMulV2", "pid": 3, "tid": 2, **when, "args": args}
            )
    (folder / "trace_view.json").write_bytes(msgspec.json.encode(events))


def _export(case: Case, sources: Sequence[Path], folder: Path) -> None:
    """An export of Nsight Systems with other names of kernels and ranges. `numbered`: the same name gets a number."""
    path = folder / "report.sqlite"
    shutil.copyfile(sources[0], path)
    database = sqlite3.connect(path)
    database.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for number, pattern, name in [(n, p, t) for n, (p, t) in enumerate(case["kernels"])]:
        rows = database.execute("SELECT id FROM StringIds WHERE value LIKE ?", (pattern,)).fetchall()
        for (each,) in rows:
            database.execute(
                "UPDATE StringIds SET value = ? WHERE id = ?", (name.replace("{n}", f"{number}{each}"), each)
            )
    for pattern, name in case.get("ranges", ()):
        rows = database.execute("SELECT rowid FROM NVTX_EVENTS WHERE text LIKE ?", (pattern,)).fetchall()
        for (each,) in rows:
            database.execute(
                "UPDATE NVTX_EVENTS SET text = ? WHERE rowid = ?", (name.replace("{n}", str(each % 50)), each)
            )
    database.commit()
    database.close()


# --- programs --------------------------------------------------------------------------------------------------------


def _program(case: Case, _: Sequence[Path], folder: Path) -> None:
    """A program of `made_programs.py`, recorded by torch.profiler on this machine's processor."""
    command = [os.environ[_PYTHON], str(_HERE / "made_programs.py"), case["program"], str(folder)]
    subprocess.run(command, check=True, timeout=120, capture_output=True)


_KINDS: Mapping[str, Callable[[Case, Sequence[Path], Path], None]] = {
    "trace": _trace, "with_samples": _with_samples, "together": _together, "ranks_renamed": _ranks_renamed,
    "rocprof_table": _rocprof_table, "xla_trace": _xla_trace, "ascend_trace": _ascend_trace, "export": _export,
    "program": _program,
}  # fmt: skip
