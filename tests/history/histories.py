"""Histories for tests: rows as a run writes them, and files with many of them."""

from __future__ import annotations

import json
from pathlib import Path

from perfdoctor.history import runs, schema, store
from perfdoctor.history.facts import Facts, new_id

STEP_NS = 100_000_000


def facts(number=0, *, step_ns=STEP_NS, **changes):
    """The `number`th run of one training, a day after the one before."""
    name = new_id()
    day = f"2026-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}T10:00:00.{number // 336:03d}Z"
    row = dict.fromkeys(schema.RUN_COLUMNS)
    row |= {
        "id": name, "recorded_at": day, "stored_at": day, "source": "run", "recording": f"recording {name}",
        "program": "train.py", "command": "python train.py", "files": "rank0.pt.trace.json.gz", "exit_code": 0,
        "perfdoctor": "0.1.0", "torch": "2.8.0", "device": "NVIDIA H100", "gpus": 2, "world_size": 2, "work": "training",
        "step_ns": step_ns, "recorded_step_ns": step_ns, "median_ns": step_ns, "p10_ns": step_ns - 1000,
        "p90_ns": step_ns + 1000, "steps": 3, "window_ns": 6 * step_ns, "mfu": 0.4,
        "step_times_ns": json.dumps([step_ns - 1000, step_ns, step_ns + 1000]),
    }  # fmt: skip
    row |= changes
    parts = (
        {"run_id": name, "part": "compute", "ns": 5 * step_ns},
        {"run_id": name, "part": "input_wait", "ns": step_ns},
    )
    finding = dict.fromkeys(schema.FINDING_COLUMNS) | {
        "run_id": name, "position": 1, "rule": "input-wait", "title": "Training waits for data", "category": "input",
        "confidence": "high", "low_ns": 1, "likely_ns": step_ns // 6, "high_ns": step_ns // 3, "speedup": 1.2,
        "summary": "It waits.",
    }  # fmt: skip
    return Facts(row, parts, (finding,))


def history(file: Path, every):
    """A file with these runs."""
    with store.written(file) as db:
        for each in every:
            runs.save(db, each)
    return file


#: What a program runs that only writes: each line it prints is the id of a run that was reported as stored.
WRITER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from histories import facts
from perfdoctor.history import runs, store
for begin in range(0, {count}, {at_once}):
    with store.written(Path({file!r})) as db:
        for number in range(begin, min(begin + {at_once}, {count})):
            print(runs.save(db, facts(number, step_ns={first} + number)), flush=True)
"""


def writer(file: Path, count: int, first: int = STEP_NS, at_once: int = 1) -> str:
    """It opens the file anew after `at_once` runs."""
    root = Path(__file__).parents[2]
    path = [str(root / "src"), str(Path(__file__).parent)]
    return WRITER.format(path=path, file=str(file), count=count, first=first, at_once=at_once)
