"""On public recordings: is the diagnosis right, and are the numbers those that plain SQL and plain Python find?"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from labels import cases, recordings, wrong
from real_nsys import nsys
from recorded import in_ns, of_recordings, parameter, plain_json, recording

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.open import read
from perfdoctor.report import json_report

FOLDER = recordings()
CASES = cases() if FOLDER else []
REPORTS = (".qdrep", ".nsys-rep")

pytestmark = [
    pytest.mark.recordings,
    pytest.mark.skipif(FOLDER is None, reason="the public recordings are not here: set PERFDOCTOR_RECORDINGS"),
]
each_case = pytest.mark.parametrize("case", [parameter(FOLDER / case["path"], case) for case in CASES])

Piece = tuple[int, int]


def path_of(case: dict[str, Any]) -> Path:
    assert FOLDER is not None
    path = FOLDER / case["path"]
    if path.suffix in REPORTS:
        os.environ["PERFDOCTOR_NSYS"] = nsys()
    return path


@each_case
def test_every_label_holds_and_times_are_exact_and_those_that_plain_code_finds_in_the_raw_file(
    case: dict[str, Any],
) -> None:
    path = path_of(case)
    if "fails" in case:
        with pytest.raises(PerfdoctorError, match=case["fails"]):
            read([path])
        return
    diagnosis = recording(path).diagnosis
    assert list(wrong(case, diagnosis)) == []
    for row in (*diagnosis.time, *diagnosis.recording):
        assert row.compute_ns + row.exposed_communication_ns + row.exposed_copy_ns + row.idle_ns == row.window_ns
        assert sum(row.idle_causes_ns.values()) == row.idle_ns
        assert row.communication_ns == row.exposed_communication_ns + row.hidden_communication_ns
    if not case.get("timeless"):
        theirs, keys = count(path), Counted.KEYS
        ours = [{key: getattr(row, key) for key in keys} for row in diagnosis.recording if row.device is not None]
        assert sorted(ours, key=str) == sorted(theirs, key=str)


# ---- the same numbers by other means: plain loops over plain rows ---------------------------------------------------


def union(pieces: Iterable[Piece]) -> list[Piece]:
    result: list[list[int]] = []
    for start, end in sorted(pieces):
        if result and start <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        elif end > start:
            result.append([start, end])
    return [(start, end) for start, end in result]


def length(pieces: Iterable[Piece]) -> int:
    return sum(end - start for start, end in union(pieces))


class Counted:
    """One device's rows as plain tuples, and what follows from them."""

    KEYS = (
        "window_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "copy_ns", "exposed_copy_ns", "idle_ns",
        "kernel_count",
    )  # fmt: skip

    def __init__(self) -> None:
        self.compute: list[Piece] = []
        self.nccl: list[Piece] = []
        self.copies: list[Piece] = []

    def add(self, name: str | None, start: int, end: int) -> None:
        if name is None:
            self.copies.append((start, end))
        else:
            talks = "nccl" in name.lower() or "multimem_all" in name
            (self.nccl if talks else self.compute).append((start, end))

    def numbers(self) -> dict[str, int]:
        rows = self.compute + self.nccl + self.copies
        window = max(end for _, end in rows) - min(start for start, _ in rows)
        compute, with_nccl = length(self.compute), length(self.compute + self.nccl)
        busy = length(rows)
        numbers = (
            window, compute, length(self.nccl), with_nccl - compute, length(self.copies), busy - with_nccl, window - busy,
            len(self.compute) + len(self.nccl),
        )  # fmt: skip
        return dict(zip(self.KEYS, numbers, strict=True))


def count_sqlite(path: Path) -> dict[object, Counted]:
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    database.text_factory = lambda raw: raw.decode("utf-8", "replace")
    found: dict[object, Counted] = defaultdict(Counted)
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}

    def rows(table: str, name: str) -> None:
        if table not in tables:
            return
        columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
        process = "globalPid" if "globalPid" in columns else "0"
        for device, owner, start, end, text in database.execute(
            f"SELECT deviceId, {process}, start, end, {name} FROM {table}"
        ):
            found[owner, device].add(text, start, end)

    rows("CUPTI_ACTIVITY_KIND_KERNEL", "(SELECT value FROM StringIds WHERE id = coalesce(demangledName, shortName))")
    rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "'graph'")
    rows("CUPTI_ACTIVITY_KIND_MEMCPY", "NULL")
    rows("CUPTI_ACTIVITY_KIND_MEMSET", "NULL")
    database.close()
    return found


def count_kineto(path: Path) -> dict[object, Counted]:
    document = plain_json(path)
    events = document["traceEvents"] if isinstance(document, dict) else document
    found: dict[object, Counted] = defaultdict(Counted)
    for event in events:
        category = str(event.get("cat", "")).lower()
        if event.get("ph") != "X" or category not in ("kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset"):
            continue
        start, duration = in_ns(event["ts"]), in_ns(event["dur"])
        name = event["name"] if category == "kernel" else None
        found[path, event.get("args", {}).get("device", event["pid"])].add(name, start, start + duration)
    return found


def count(path: Path) -> list[dict[str, int]]:
    if path.is_dir():
        return [numbers for file in sorted(path.iterdir()) for numbers in count(file)]
    if path.suffix in REPORTS:
        path = nsys_export.export(path)
    found = count_sqlite(path) if path.suffix == ".sqlite" else count_kineto(path)
    return [counted.numbers() for counted in found.values()]


EDGES = sorted((FOLDER / "kineto" / "edge").iterdir()) if FOLDER else []


@of_recordings(EDGES)
def test_every_odd_trace_is_diagnosed_or_refused_in_words(path: Path) -> None:
    try:
        diagnosis = recording(path).diagnosis
    except PerfdoctorError as error:
        assert error.what
        assert error.do
        return
    assert [outcome for outcome in diagnosis.outcomes if outcome.status == "failed"] == []
    assert diagnosis.time or diagnosis.notes


def of(*names: str) -> list[Path]:
    return [FOLDER / name for name in names] if FOLDER else []


@of_recordings(of("nsys/mfu_2gpu_before.sqlite", "nsys/mfu_2gpu_after.sqlite"))
def test_no_kernel_named_nvjet_counts_as_off_tensor_cores(path: Path) -> None:
    kernels = recording(path).diagnosis.kernels
    assert {row.math_path for row in kernels if row.name.startswith("nvjet")} == {"tensor_core"}


@of_recordings(of("kineto/ddp-world1-v100-ns.pt.trace.json.gz"))
def test_secrets_of_a_recording_are_in_no_report(path: Path) -> None:
    for text in (json_report.render(recording(path).diagnosis), recording(path).page):
        for secret in ("twshared", "sraikund", "tsp_pnb", "mast_hpc"):
            assert secret not in text
