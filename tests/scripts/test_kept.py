"""Is a recording that is too large cut to whole steps, with what their calls launched and nothing else?"""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import kept
from folders import FIXTURES

from perfdoctor.readers.open import read

STEPS = 6


def trace() -> list[dict[str, Any]]:
    """Six steps of 100 µs; each calls one kernel, which runs when the host is two steps ahead."""
    events: list[dict[str, Any]] = []
    for step in range(STEPS):
        begin = 100 * step
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin, "dur": 90},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begin + 10, "dur": 5, "args": {"correlation": step}},
            {"ph": "s", "cat": "ac2g", "id": step, "ts": begin + 10},
            {"ph": "f", "cat": "ac2g", "id": step, "ts": begin + 210},
            {"ph": "X", "cat": "kernel", "name": "gemm", "ts": begin + 210, "dur": 50, "args": {"correlation": step}},
        ]  # fmt: skip
    return events


def names(events: list[dict[str, Any]]) -> list[str]:
    return sorted(f"{event['ph']} {event.get('name', event.get('id'))}" for event in events)


def test_a_trace_is_cut_behind_a_step_and_keeps_the_kernels_that_run_later():
    assert names(kept.until(trace(), 190)) == names(trace()[: 2 * len(trace()) // STEPS])
    assert [event["ts"] for event in kept.until(trace(), 190) if event.get("cat") == "kernel"] == [210, 310]


def test_an_export_is_cut_alike(tmp_path: Path):
    export = tmp_path / "profile.sqlite"
    with contextlib.closing(sqlite3.connect(export)) as database:
        database.executescript("""
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, correlationId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER);
        """)
        for step in range(STEPS):
            begin = 100 * step
            database.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL)", (begin, begin + 90, f"ProfilerStep#{step}")
            )
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?)", (begin + 10, begin + 15, step))
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, ?)", (begin + 210, begin + 260, step)
            )
        database.commit()
    kept.cut(export, 190)
    with contextlib.closing(sqlite3.connect(export)) as database:
        assert database.execute("SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall() == [(210,), (310,)]
        assert database.execute("SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchall() == [(0,), (1,)]
        assert database.execute("SELECT text FROM NVTX_EVENTS").fetchall() == [("ProfilerStep#0",), ("ProfilerStep#1",)]


def run_folder(path: Path) -> Path:
    (path / "torch").mkdir(parents=True)
    source = FIXTURES / "cpu-slow-input" / "torch" / "rank0.pt.trace.json.gz"
    (path / "torch" / source.name).write_bytes(source.read_bytes())
    manifest = {"format": 1, "perfdoctor": "0.1.0", "command": ["/home/somebody/bin/python", "train.py"], "environment": {"OMP_NUM_THREADS": "1"}, "passes": [{"name": "torch", "command": ["/usr/bin/python"], "state": "done", "files": [f"torch/{source.name}"]}]}  # fmt: skip
    (path / "run.json").write_text(json.dumps(manifest), "utf-8")
    return path


def test_what_is_kept_is_a_run_folder_without_paths_and_settings(tmp_path: Path):
    assert list(kept.keep(run_folder(tmp_path / "run"), tmp_path / "kept")) == []
    manifest = json.loads((tmp_path / "kept" / "run.json").read_text("utf-8"))
    assert (manifest["command"], manifest["environment"]) == (["python", "train.py"], {})
    assert len(read([tmp_path / "kept"]).ops) > 0


def test_a_trace_beyond_the_limit_is_cut_until_it_fits(tmp_path: Path):
    source = FIXTURES / "cpu-slow-input" / "torch" / "rank0.pt.trace.json.gz"
    most = source.stat().st_size // 2
    (line,) = kept.keep(run_folder(tmp_path / "run"), tmp_path / "kept", most)
    assert line == "torch/rank0.pt.trace.json.gz: the first 3 of 6 steps"
    cut = tmp_path / "kept" / "torch" / source.name
    assert cut.stat().st_size <= most
    steps = [event for event in json.loads(gzip.decompress(cut.read_bytes()))["traceEvents"] if event["name"].startswith("ProfilerStep#")]  # fmt: skip
    assert len(steps) == 3
