"""Which files are changed to find what no reader should do? Small ones of every format, of fixtures and of tests' builders."""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
import sys
from bisect import bisect_right
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import measured_builders
import ncu_files
import ncu_tables
import nsys_tables
import own_rule_files
import snapshots
from history.histories import facts, history
from mutations import packed, unpacked
from side_texts import SIDE_TEXTS

import perfdoctor
from perfdoctor.scale import leave
from perfdoctor.system.progress import silent

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
#: A reader needs no more events of a name in a step to go wrong, and half as many are read twice as fast.
_MOST_OF_A_NAME = 2
#: A diagnosis needs some steps that are alike.
_STEPS = 4
TRACES = (
    "copy-bound", "healthy", "healthy-old-kineto", "communication-exposed", "sync-drains-queue", "cpu-slow-input",
    "deep-queue-small-kernels",
)  # fmt: skip
EXPORTS = ("copy-bound", "cuda-graphs", "cpu-slow-input-nsys", "pageable", "sync-with-full-queue")
_SMALL_BYTES = 30_000
#: Of a table of samples or launches: some of every kind.
_LINES = 16
#: Of a table of Nsight Compute, whose lines have 8 kB: names, units and two kernels.
_LINES_OF_A_REPORT = 4
RUNS = (
    "pairs/new-shapes",
    "h100-80gb-hbm3-fp32-matmuls/torch",
    "h100-80gb-hbm3-slow-input-nsys/nsys",
    "pairs/uneven-rows",
)


def traces() -> list[bytes]:
    """Kineto traces as JSON, each with a few events of every kind in each of its first steps."""
    return [_shortened(gzip.decompress(_trace(name).read_bytes())) for name in TRACES]


def _trace(name: str) -> Path:
    return next((FIXTURES / name / "torch").glob("*.gz"))


def _shortened(text: bytes) -> bytes:
    document = json.loads(text)
    events = document["traceEvents"]
    marks = (each for each in events if each.get("cat") == "user_annotation")
    starts = sorted(each["ts"] for each in marks if each["name"].startswith("ProfilerStep"))
    if len(starts) <= _STEPS:  # none are marked: parts of its time
        times = sorted(each["ts"] for each in events if each["ph"] == "X")
        starts = times[:: max(len(times) // _STEPS, 1)]
    of_a_name: Counter[object] = Counter()
    kept = []
    for event in events:
        step = bisect_right(starts, event.get("ts", 0))
        kind = (step, event["ph"], event.get("cat"), event["name"])
        of_a_name[kind] += 1
        if step <= _STEPS and of_a_name[kind] <= _MOST_OF_A_NAME:
            kept.append(event)
    document["traceEvents"] = kept
    return json.dumps(document).encode()


def small_trace() -> bytes:
    """What files beside a recording are joined with."""
    return traces()[0]


def exports() -> list[bytes]:
    """SQLite databases of nsys."""
    return [(FIXTURES / name / "nsys" / "profile.sqlite").read_bytes() for name in EXPORTS]


def tables(ending: str) -> list[bytes]:
    """Folders of nsys' tables, packed."""
    found = []
    for name in EXPORTS[:3]:
        with TemporaryDirectory() as folder:
            made = nsys_tables.written(FIXTURES / name / "nsys" / "profile.sqlite", Path(folder) / "t", ending)
            found.append(packed({file.name: file.read_bytes() for file in made.iterdir()}))
    return found


def archives() -> list[bytes]:
    found = []
    for name, content in (("rank0.pt.trace.json", traces()[0]), ("profile.sqlite", exports()[0])):
        with TemporaryDirectory() as folder:
            file = Path(folder) / "f.zip"
            with ZipFile(file, "w") as archive:
                archive.writestr(name, content)
                archive.writestr("readme.txt", "x")
            found.append(file.read_bytes())
    return found


def ncu_reports() -> list[bytes]:
    values = {number: float(value.replace(",", "")) for number, (_, _, value) in enumerate(ncu_tables.RAW)}
    names = [name for name, _, _ in ncu_tables.RAW]
    rules = [ncu_files.rule("Tail", {"text": "Effect", "title": "Tail", "percent": 50.0})]
    launches = [ncu_files.launch(values, rules), ncu_files.launch(values, name="ampere_sgemm")]
    return [
        ncu_files.report(
            ncu_files.block([]), ncu_files.block([], sources=[b"a cubin"]), ncu_files.block(names, launches, [b"x"])
        )
    ]


def ncu_csv() -> list[bytes]:
    details = [
        ncu_tables.LONG,
        *ncu_tables.long(*([a, b, c, d, "", "", "", "", ""] for a, b, c, d in ncu_tables.DETAILS)),
    ]
    return [ncu_tables.wide(launches=3).encode(), ncu_tables.table(details).encode()]


def ncu_text() -> list[bytes]:
    head = "  void add<float>(int) (63, 63, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 7.5\n"
    dashes = "    ---------------------------- --------------- --------------------\n"
    sections = dict.fromkeys(section for section, *_ in ncu_tables.DETAILS)
    rows = "".join(
        f"    Section: {section}\n{dashes}    Metric Name                      Metric Unit         Metric Value\n{dashes}"
        + "".join(
            f"    {name:<28} {unit:>15} {value:>20}\n" for at, name, unit, value in ncu_tables.DETAILS if at == section
        )
        + dashes
        for section in sections
    )
    return [f"==PROF== Connected to process 31440 (python3)\n{(head + rows) * 2}".encode()]


def memory_snapshots() -> list[bytes]:
    made = snapshots.Recording()
    made.alloc(4 << 20, "work/model.py:3 build")
    made.begin()
    for number in range(20):
        passing = made.alloc(1000 * number + 8, "work/train.py:9 step")
        made.alloc(3 << 20, "work/train.py:12 step")
        made.free(passing)
    with TemporaryDirectory() as folder:
        return [made.write(Path(folder) / "f.pickle").read_bytes()]


def memory_timelines() -> list[bytes]:
    rows = [[-1, 1, 100, 0], [50, 2, 40, 7], [60, 3, -40, 7], [60, 3, 40, 4], [70, 2, 30, 5], [80, 4, -40, 4]]
    return [json.dumps(rows).encode(), gzip.compress(json.dumps(rows * 20).encode())]


def flight_recordings() -> tuple[list[bytes], list[bytes]]:
    """Return the seeds as pickles, and as JSON."""
    entries: list[dict[str, Any]] = [
        {
            "frames": [{"name": "step", "filename": "train.py", "line": 3}], "record_id": seq, "pg_id": 0,
            "process_group": ["0", "default_pg"], "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq,
            "profiling_name": "nccl:all_reduce", "time_created_ns": 1000 * seq, "input_sizes": [[1000, 1000]],
            "input_dtypes": ["BFloat16"], "output_sizes": [[1000, 1000]], "output_dtypes": ["BFloat16"],
            "state": "completed", "duration_ms": 0.5, "retired": True, "timeout_ms": 600_000, "is_p2p": False,
        }
        for seq in range(1, 9)
    ]  # fmt: skip
    dump = {
        "version": "2.5",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "entries": entries,
    }
    return [pickle.dumps(dump, protocol=2)], [json.dumps(dump).encode()]


def stacks() -> tuple[list[bytes], list[bytes]]:
    """Return the seeds as JSON (speedscope, chrometrace), and as lines of text."""
    frames = [{"name": "main", "file": "/p/train.py", "line": 3}, {"name": "slow", "file": "/p/data.py", "line": 8}]
    profile = {"type": "sampled", "name": 'Process 7 Thread 7 "MainThread"', "unit": "seconds", "startValue": 0.0,
               "endValue": 0.03, "samples": [[0, 1], [0, 1], [0]], "weights": [0.01, 0.01, 0.01]}  # fmt: skip
    schema = "https://www.speedscope.app/file-format-schema.json"
    speedscope = {"$schema": schema, "profiles": [profile], "shared": {"frames": frames}}
    place = {"filename": "/p/train.py", "line": 3}
    chrome = [
        {"args": {"name": "python train.py"}, "cat": "", "name": "process_name", "ph": "M", "pid": 7, "tid": 7, "ts": 0}
    ]
    chrome += [
        {"args": place, "cat": "py-spy", "name": f"main{number % 3}", "ph": phase, "pid": 7, "tid": 7, "ts": 1000 * number + (phase == "E") * 900}
        for number in range(30)
        for phase in "BE"
    ]  # fmt: skip
    lines = 'process 7:"python train.py";thread (7): MainThread;main (/p/train.py:3);slow (/p/data.py:8) 2\n' * 5
    return [json.dumps(speedscope).encode(), json.dumps(chrome).encode()], [lines.encode()]


def side_texts(kind: str) -> list[bytes]:
    return [text.encode() for text in SIDE_TEXTS[kind]]


def cpu_samples() -> list[bytes]:
    text = next((FIXTURES / "h100-80gb-hbm3-fp32-matmuls/torch/device").glob("cpu.csv")).read_text()
    return ["".join(text.splitlines(keepends=True)[:_LINES]).encode()]


def left() -> tuple[list[bytes], list[bytes]]:
    """Summaries of ranks, and of the machine beside them."""
    made = leave.left_of([FIXTURES / RUNS[1]], silent)
    ranks, others = [], []
    for file in made.files:
        (ranks if file.of_rank else others).append(file.content)
    return ranks, others


def run_folders() -> list[bytes]:
    """Whole runs, packed, with traces that are short enough to be read a thousand times."""
    found = []
    for name in RUNS:
        members = {}
        for file in sorted((FIXTURES / name).rglob("*")):
            if file.is_file() and file.name != "expected.toml":
                content = file.read_bytes()
                if file.name.endswith(".json.gz"):
                    content = gzip.compress(_shortened(gzip.decompress(content)), 1)
                elif file.suffix == ".csv":
                    lines = content.splitlines(keepends=True)
                    content = b"".join(lines[: _LINES_OF_A_REPORT if file.parent.name == "ncu" else _LINES])
                elif file.suffix == ".sqlite":
                    content = exports()[0]
                members[str(file.relative_to(FIXTURES / name))] = content
        found.append(packed(members))
    return found


def small_runs() -> list[bytes]:
    """The same with the smallest traces and few samples: what is changed is the run.json that says what is there."""
    small = {".json.gz": gzip.compress(small_trace(), 1), ".sqlite": exports()[0]}
    found = []
    for content in run_folders():
        members = {
            name: next((of_kind for ending, of_kind in small.items() if name.endswith(ending)), member)
            for name, member in unpacked(content).items()
        }
        found.append(packed({name: member for name, member in members.items() if len(member) < _SMALL_BYTES}))
    return found


def parts_of_runs() -> list[bytes]:
    """The small runs, and run.json with each one file of them: whole runs take three times as long to be copied."""
    runs = [unpacked(content) for content in small_runs()]
    parts = {name: {"run.json": run["run.json"], name: run[name]} for run in runs for name in run}
    return [packed(members) for members in (*runs, *parts.values())]


def folders_of_ranks() -> list[bytes]:
    """Four ranks of one job, and two of them, packed."""
    files = sorted((FIXTURES / "straggler" / "torch").glob("*.gz"))
    ranks = {file.name: gzip.compress(_shortened(gzip.decompress(file.read_bytes())), 1) for file in files}
    beside = {"topology.txt": side_texts("topology")[0], "gpu.csv": side_texts("nvml")[0]}
    return [packed({**dict(list(ranks.items())[:many]), **beside}) for many in (4, 2)]


def diagnoses() -> list[bytes]:
    """diagnosis.json of runs with and without a GPU."""
    sources = (
        FIXTURES / RUNS[0],
        FIXTURES / RUNS[1],
        *(FIXTURES / name / "torch" for name in ("communication-exposed",)),
    )
    return [perfdoctor.analyze(source).to_json().encode() for source in sources]


def histories() -> list[bytes]:
    with TemporaryDirectory() as folder:
        file = history(Path(folder) / "h.sqlite", map(facts, range(6)))
        with closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA journal_mode = DELETE")
        return [file.read_bytes()]


def own_rules() -> list[bytes]:
    shipped = sorted((ROOT / "rules").rglob("*.toml"))
    return [own_rule_files.DOCUMENT.encode(), *(file.read_bytes() for file in shipped[:: max(len(shipped) // 6, 1)])]


def settings() -> list[bytes]:
    text = '[tool.perfdoctor]\nrules = ["rules"]\n[tool.perfdoctor.thresholds.input-wait]\nmin_share_of_step = 0.1\n'
    return [text.encode()]


def measured() -> list[bytes]:
    made = measured_builders.document(
        *measured_builders.matmuls(bf16={8192: 700e12, 1024: 90e12}), measured_builders.measurement("launch", 4000.0)
    )
    return [json.dumps(made).encode()]
