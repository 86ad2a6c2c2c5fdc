"""On public recordings: is the diagnosis right, and are the numbers those that plain SQL and plain Python find?"""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from folders import RECORDINGS, public, public_files
from formulas import all_missed
from labels import all_findings, cases, paths, wrong
from real_nsys import nsys
from recorded import in_ns, of_recordings, parameter, plain_json, recording

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.start import what
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.open import read
from perfdoctor.records.findings import Advice
from perfdoctor.report import json_report
from perfdoctor.vocabulary.rulebook import load_rules

CASES = cases()
REPORTS = (".qdrep", ".nsys-rep")

pytestmark = pytest.mark.recordings
each_case = pytest.mark.parametrize(
    "case", [parameter(RECORDINGS / case["path"], case) for case in CASES if "files" not in case]
)

Piece = tuple[int, int]


def path_of(case: dict[str, Any]) -> Path:
    path = public(case["path"])
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
    assert all_missed(all_findings(diagnosis)) == {}
    for row in (*diagnosis.time, *diagnosis.recording):
        assert row.compute_ns + row.exposed_communication_ns + row.exposed_copy_ns + row.idle_ns == row.window_ns
        assert sum(row.idle_causes_ns.values()) == row.idle_ns
        assert row.communication_ns == row.exposed_communication_ns + row.hidden_communication_ns
    if not case.get("timeless"):
        theirs, keys = count(path), Counted.KEYS
        ours = [{key: getattr(row, key) for key in keys} for row in diagnosis.recording if row.device is not None]
        assert sorted(ours, key=str) == sorted(theirs, key=str)


@pytest.mark.parametrize("case", [case for case in CASES if "files" in case], ids=lambda case: case["path"])
def test_every_label_of_some_of_a_folders_files_holds(case: dict[str, Any]) -> None:
    diagnosis = diagnose(read(paths(case, public())), list(load_rules().values()))
    assert list(wrong(case, diagnosis)) == []


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


@of_recordings(public_files("kineto/edge/*"))
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
    return [RECORDINGS / name for name in names]


@of_recordings(of("nsys/mfu_2gpu_before.sqlite", "nsys/mfu_2gpu_after.sqlite"))
def test_no_kernel_named_nvjet_counts_as_off_tensor_cores(path: Path) -> None:
    kernels = recording(path).diagnosis.kernels
    assert {row.math_path for row in kernels if row.name.startswith("nvjet")} == {"tensor_core"}


@of_recordings(of("kineto/ddp-world1-v100-ns.pt.trace.json.gz"))
def test_secrets_of_a_recording_are_in_no_report(path: Path) -> None:
    for text in (json_report.render(recording(path).diagnosis), recording(path).page):
        for secret in ("twshared", "sraikund", "tsp_pnb", "mast_hpc"):
            assert secret not in text


def advice_of(path: Path, rule: str) -> Advice:
    (found,) = [each for each in recording(path).diagnosis.findings if each.rule == rule]
    return found


@of_recordings(of("wild/k-timesformer-h100.json.gz"))
def test_a_single_step_is_what_its_mark_spans_and_is_replayed_through_the_copy_that_ends_it(path: Path) -> None:
    """218 of 382.5 ms pass before the first device work; 160 follow, most of which the host spends in a copy."""
    assert recording(path).run.step_ns == pytest.approx(382.5e6, rel=1e-3)
    prepared = advice_of(path, "host-work")
    assert prepared.values["work_ms"] == pytest.approx(222, abs=1)
    assert "preprocess" in str(prepared.values["inside"])
    assert advice_of(path, "unfused-attention").saving_ns_per_step.likely > 0.2 * 160e6


@of_recordings(of("wild/k-sglang-decode.json.gz"))
def test_a_stream_that_waits_is_named_with_the_call_that_the_host_is_in(path: Path) -> None:
    found = advice_of(path, "idle-unknown")
    assert (found.values["stream"], found.values["longest_ms"]) == (3, pytest.approx(463.2, abs=0.1))
    assert "hipStreamWaitEvent" in str(found.values["behind"])
    assert "`hipMemcpyWithStream` for 463.1 ms (from `aten::copy_` in `" in found.summary


@of_recordings(of("wild/n-sglang-base.sqlite"))
def test_a_compiler_in_child_processes_is_found_from_the_launch_before_to_the_load_of_its_result(path: Path) -> None:
    kinds = {row[0]: row[1] for row in advice_of(path, "one-time-costs").evidence[0].rows}
    assert kinds[what("compiling")] == pytest.approx(510.7e6, rel=0.01)


@of_recordings(of("wild/n-zx-27.sqlite"))
def test_the_pauses_between_the_copies_of_a_model_are_its_way_to_the_gpu(path: Path) -> None:
    (place,) = recording(path).run.places
    assert place.idle_ns("unknown") < 0.01 * place.window_ns
    kinds = {row[0]: row[1] for row in advice_of(path, "one-time-costs").evidence[0].rows}
    assert kinds[what("model")] == pytest.approx(5.29e9, rel=0.01)


@of_recordings(of("kineto/ddp-a100-rank3-of-8.json.gz", "kineto/resnet50-workers0.pt.trace.json.gz"))
def test_what_is_left_of_a_file_that_is_cut_off_in_its_gpu_activity_gets_the_answer_of_the_whole(
    path: Path, tmp_path
) -> None:
    text = gzip.decompress(path.read_bytes())
    cut = tmp_path / "cut.json"
    cut.write_bytes(text[: int(0.8 * len(text))])
    whole, found = recording(path).diagnosis, diagnose(read([cut]), load_rules().values())
    assert found.findings[0].rule == whole.findings[0].rule
    assert found.base_ns == pytest.approx(whole.base_ns, rel=0.06)
    shares = [each.time[0].compute_ns / each.time[0].window_ns for each in (found, whole)]
    assert shares[0] == pytest.approx(shares[1], rel=0.1)
