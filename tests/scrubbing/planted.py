"""A run of several ranks whose files tell of a machine, its user and their secrets, in every way that we know."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import sqlite3
from pathlib import Path

from folders import FIXTURES

HOST, USER, SECRET = "gpu-node-17", "lovelace", "Tr0ub4dor-and-3"
#: None of these may be in a copy, in whatever file.
PRIVATE = (HOST, USER, SECRET, "acme", "10.20.30.40", "a1b2c3d4-", "stranger", "printed by the program")
HOME = f"/home/{USER}"
ENVIRONMENT = {
    "HOSTNAME": HOST,
    "USER": USER,
    "HOME": HOME,
    "DB_PASSWORD": SECRET,
    "PATH": f"{HOME}/bin:/usr/bin",
    "COMPANY": "acme",
}
TRACE = FIXTURES / "cpu-slow-input" / "torch" / "rank0.pt.trace.json.gz"
EXPORT = FIXTURES / "cpu-slow-input-nsys" / "nsys" / "profile.sqlite"


def trace(target: Path, **unknown: object) -> Path:
    """A recording with a host, an environment and members that nobody knows."""
    document = json.loads(gzip.decompress(TRACE.read_bytes()))
    like = next(event for event in document["traceEvents"] if event.get("cat") == "user_annotation")
    document["traceEvents"].append(
        {**like, "name": f"read {HOME}/acme/data.bin", "args": {"note": [{"by": f"{USER}@{HOST}"}]}}
    )
    document = {
        **document,
        "hostname": HOST,
        "traceName": str(target),
        "environ": ENVIRONMENT,
        "argv": ["x", "--password", SECRET],
        **unknown,
    }
    text = json.dumps(document).encode()
    target.write_bytes(gzip.compress(text) if target.suffix == ".gz" else text)
    return target


def export(target: Path) -> Path:
    """An export with an environment in three places, other programs, output, bytes, and what was deleted."""
    shutil.copy(EXPORT, target)
    target.chmod(0o600)
    block = "".join(f"{name}={value}\0" for name, value in ENVIRONMENT.items())
    with sqlite3.connect(target) as database:
        (thread,) = database.execute("SELECT globalTid FROM NVTX_EVENTS WHERE end IS NOT NULL").fetchone()
        database.executescript("""
            CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
            CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
            CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
            CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER); -- REFERENCES StringIds(id)
            CREATE TABLE NOBODY_KNOWS (id INTEGER PRIMARY KEY, words, payload BLOB);
            CREATE TABLE gone (text TEXT);
        """)
        rows = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"') for name, value in ENVIRONMENT.items()]
        rows += [
            ("DEVICE_DISPLAY_NAME", HOST),
            ("PROCESS_0:COMMAND", f"{HOME}/acme/train.py"),
            ("PROCESS_0:COLLECT_NVTX_TRACE", "true"),
        ]
        database.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", rows)
        variables = ";".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        database.executemany(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, ?, ?, 1, ?)",
            [(HOST, "DeviceEnvironment", variables), (HOST, "Hostname", HOST), ("", "CpuCores", "8")],
        )
        database.executemany(
            "INSERT INTO PROCESSES VALUES (?, ?, ?)",
            [(thread & ~0xFFFFFF, 1, f"{HOME}/bin/python"), (77 << 24, 77, "stranger")],
        )
        strings = {
            900_001: block,
            900_002: "stranger",
            900_003: "printed by the program",
            900_004: f"{HOME}/acme/out.log",
            900_005: f"epoch of {USER}",
        }
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", strings.items())
        database.execute("INSERT INTO ThreadNames (nameId, globalTid) VALUES (900002, ?)", [77 << 24])
        database.execute("INSERT INTO ProcessStreams VALUES (?, 900004, 900003)", [thread & ~0xFFFFFF])
        database.executemany(
            "INSERT INTO NOBODY_KNOWS VALUES (?, ?, ?)",
            [
                (1, f"on {HOST} at 10.20.30.40", b"\1\2\3"),
                (2, b"\0" + HOST.encode(), HOST.encode("utf-16-le")),
                (3, 4.5, None),
            ],
        )
        database.execute(
            f"INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (1, 2, 59, 'on {HOST}', {thread})"
        )
        database.executemany("INSERT INTO gone VALUES (?)", [(SECRET * 20,)] * 400)
        database.execute("DROP TABLE gone")
    return target


def snapshot(target: Path) -> Path:
    frame = {"filename": f"{HOME}/acme/train.py", "name": "step", "line": 3}
    frames = [frame, {"filename": "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", "name": "f", "line": 9}]
    block = {"size": 512, "requested_size": 500, "address": 1, "state": "active_allocated", "frames": frames}
    segment = {
        "device": 0,
        "address": 1,
        "total_size": 1024,
        "allocated_size": 512,
        "active_size": 512,
        "stream": 0,
        "segment_type": "small",
        "blocks": [block],
        "frames": frames,
    }
    event = {"action": "alloc", "addr": 1, "size": 512, "stream": 0, "frames": frames, "time_us": 1}
    target.write_bytes(
        pickle.dumps({"segments": [segment], "device_traces": [[event] * 3], "host": HOST, "raw": HOST.encode()})
    )
    return target


def run_folder(folder: Path) -> Path:
    """All of these as a run, with side files, what cannot be cleaned, and links out of it."""
    for name in ("agents", "torch", "nsys", "nccl", "device", "ncu"):
        (folder / name).mkdir(parents=True)
    manifest = {
        "format": 1, "perfdoctor": "0", "command": [f"{HOME}/bin/python", "train.py", "--password", SECRET],
        "environment": {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG_FILE": f"{HOME}/log", "COMPANY": "acme"},
        "passes": [{"name": "torch", "state": "done", "files": [f"torch/{HOST}_1.1700000000000.pt.trace.json.gz"]}],
        "started_in": f"~{USER}/acme", "project": {"name": "acme", "id": "a1b2c3d4-", "program": "train.py"},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(manifest, indent=1))
    report = {
        "pass": "torch",
        "pid": 1,
        "rank": 0,
        "trace": f"{HOST}_1.1700000000000.pt.trace.json.gz",
        "steps_seen": 9,
    }
    (folder / "agents" / "torch-1.json").write_text(json.dumps(report))
    trace(folder / "torch" / f"{HOST}_1.1700000000000.pt.trace.json.gz")
    trace(folder / "torch" / f"{HOST}_2.1700000000000.pt.trace.json")
    export(folder / "nsys" / "profile.sqlite")
    (folder / "nsys" / "profile.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report " + HOST.encode())
    snapshot(folder / "memory.pickle")
    (folder / "nccl" / "rank0.log").write_text(
        f"{HOST}:12:13 [0] NCCL INFO Bootstrap : Using eth0:10.20.30.40<0>\n" * 3
    )
    (folder / "device" / "odd.bin").write_bytes(b"\0\1\2" + HOST.encode())
    (folder / "report.html").write_text(f"<!doctype html>\n<!-- perfdoctor report 1 -->\n{HOST}")
    secret = folder.parent / "outside.json"
    secret.write_text(json.dumps({"x": "stranger"}))
    (folder / "device" / "link.json").symlink_to(secret)
    (folder / "up").symlink_to(folder.parent)
    (folder / "link.json").symlink_to(secret)
    return folder
