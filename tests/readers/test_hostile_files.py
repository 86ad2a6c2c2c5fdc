"""Files that no tool writes: they end in two lines, soon and in little memory, or in numbers that add up."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import ROOT
from side_texts import SIDE_TEXTS

import perfdoctor
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.packed_columns import Numbers, UnpackedColumns, Words
from perfdoctor.readers.kineto import inflate
from perfdoctor.readers.kineto.inflate import whole_text
from perfdoctor.readers.kineto.window import MOST_BYTES
from perfdoctor.readers.open import read
from perfdoctor.report import json_document, stored_diagnosis
from perfdoctor.system import paths
from perfdoctor.system.paths import unzipped
from perfdoctor.system.run_folder import RunFolder

RUN = ROOT / "fixtures" / "h100-80gb-hbm3-fp32-matmuls" / "torch"


def kernel(**facts: Any) -> dict[str, Any]:
    args = {"stream": 7, "device": 0}
    return {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "pid": 0, "tid": 7, "args": args, **facts}


def traced(folder: Path, *rows: dict[str, Any], **others: Any) -> Path:
    (folder / "t.json").write_text(json.dumps({**others, "traceEvents": rows}))
    return folder / "t.json"


@pytest.mark.parametrize(
    ("begin", "repeated", "end"),
    [("", " ", ""), ('{"ph":"X","name":"', "a", '","ts":1,"dur":2},'), ("", "{},", "")],
    ids=["blanks", "a name", "empty events"],
)
def test_a_trace_that_would_fill_the_memory_is_refused(tmp_path: Path, begin: str, repeated: str, end: str) -> None:
    text = f'{{"traceEvents":[{json.dumps(kernel())},{begin}{repeated * (3 * MOST_BYTES)}{end}{json.dumps(kernel())}]}}'
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(text.encode(), 1))
    with pytest.raises(PerfdoctorError, match=r"t.json.gz: an event, or what stands beside .*is longer than 32 MB"):
        read([tmp_path / "t.json.gz"])


def test_a_file_that_would_be_many_times_as_long_is_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "_FREE_BYTES", 1 << 20)
    assert whole_text(gzip.compress(os.urandom(1 << 22))) is not None
    with pytest.raises(PerfdoctorError, match="more than 200 times as long"):
        whole_text(gzip.compress(bytes(1 << 26)))


def test_a_pipe_is_no_recording_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.json")
    with pytest.raises(PerfdoctorError, match="t.json is no file"):
        read([tmp_path / "t.json"])
    with pytest.raises(PerfdoctorError, match="holds no recording"):
        read([tmp_path])


@pytest.mark.parametrize(
    "name",
    [
        "run.json",
        "agents/torch-1.json",
        "device/measured.json",
        "device/cpu.csv",
        "torch/rank0.pt.trace.json.gz",
        "x.json",
    ],
)
def test_a_pipe_in_the_place_of_a_file_of_a_run_is_not_waited_for(tmp_path: Path, name: str) -> None:
    shutil.copytree(RUN, tmp_path / "run")
    file = tmp_path / "run" / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    with contextlib.suppress(PerfdoctorError):
        perfdoctor.analyze(tmp_path / "run")


def test_a_text_that_would_be_many_times_as_long_as_its_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "_FREE_BYTES", 1 << 20)
    lines = SIDE_TEXTS["nccl"][0] + "\n" * (1 << 24)
    (tmp_path / "nccl.log.gz").write_bytes(gzip.compress(lines.encode()))
    with pytest.raises(PerfdoctorError, match=r"nccl\.log\.gz cannot be read: it would be more than 200 times as long"):
        read([tmp_path / "nccl.log.gz"])


@pytest.mark.parametrize(
    "numbers",
    [
        Numbers(0, 0, b"", 1 << 60),
        Numbers(0, 0, b"\0" * 7, 9),
        Numbers(0, 3, b"\1" * 12, 3),
        Numbers(5, 0, b"\1", 0),
    ],
)
def test_packed_numbers_that_are_not_there_are_damaged(numbers: Numbers) -> None:
    with pytest.raises(ValueError, match=r"differences|multiple of element size"):
        numbers.values()


def test_a_packed_text_with_a_code_of_no_value_is_damaged() -> None:
    with pytest.raises(ValueError, match="a code of no text"):
        Words(Numbers.of(np.array([0, 2])), ("a", "b")).text(UnpackedColumns())


def test_what_zlib_packed_is_unpacked_as_far_as_it_is_not_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    text = os.urandom(1 << 16)
    assert unzipped(zlib.compress(text)) == text
    with pytest.raises(zlib.error):
        unzipped(zlib.compress(text)[:-5])
    monkeypatch.setattr(paths, "_FREE_BYTES", 1 << 20)
    with pytest.raises(zlib.error):
        unzipped(zlib.compress(bytes(1 << 26)))


def test_times_that_do_not_add_up_are_left_out_and_counted(tmp_path: Path) -> None:
    long = [kernel(dur=2**60 / 1000, ts=number) for number in range(40)]
    found = read([traced(tmp_path, *long, *(kernel(ts=1000 * number) for number in range(9)))])
    assert len(found.kernels) == 9
    assert "40 kernels with impossible times were left out." in found.notes


def test_a_name_is_cut_where_no_name_is_as_long(tmp_path: Path) -> None:
    found = read([traced(tmp_path, kernel(name="k" * 100_000))])
    assert [len(name) for name in found.kernels.name.values] == [1 << 13]


def test_a_number_in_a_name_or_an_argument_may_have_more_digits_than_python_reads(tmp_path: Path) -> None:
    endless = "9" * 5_000
    rows = [
        kernel(name=f"triton_poi_fused_add_{endless}"), kernel(name=f"ampere_sgemm_{endless}x{endless}_tn", ts=9),
        {"ph": "X", "cat": "cpu_op", "name": "aten::convolution", "ts": 1, "dur": 9, "pid": 0, "tid": 7,
         "args": {"Input Dims": [f"[{endless}, 3]"], "Concrete Inputs": [f"[{endless}]"]}},
    ]  # fmt: skip
    traced(tmp_path, *rows, *({**row, "ts": 100 + 10 * number} for number in range(20) for row in rows))
    outcomes = perfdoctor.analyze(tmp_path / "t.json").outcomes
    assert [each.error for each in outcomes if each.status == "failed"] == []


def test_a_lone_surrogate_in_a_devices_name_is_read(tmp_path: Path) -> None:
    found = read([traced(tmp_path, kernel(), deviceProperties=[{"id": 0, "name": "\udcff"}])])
    assert len(found.kernels) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"passes": 1}, {"passes": [1]}, {"passes": [{"name": 1}]}, {"passes": [{"name": "torch", "notes": [[]]}]},
        {"passes": [{"name": "torch", "started_unix_ns": 2**70}]}, {"passes": [{"name": "torch", "seconds": "x"}]},
        {"notes": "x"}, {"notes": [1]}, {"ranks": [1]}, {"checkout": []}, {"project": {"id": 1}}, {"command": 1},
        {"environment": {"A": 1}}, {"started_unix_ns": -1}, {"started_unix_ns": 1.5}, {"exit_code": "x"},
        {"left_out": []}, {"perfdoctor": {}}, {"started_in": 1},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_run_json_of_wrong_types_is_damaged(tmp_path: Path, wrong: dict[str, Any]) -> None:
    known = json.loads((RUN / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**known, **wrong}))
    with pytest.raises(PerfdoctorError, match=r"run\.json is damaged: "):
        RunFolder.open(tmp_path)


def test_json_that_is_nested_without_end_is_damaged(tmp_path: Path) -> None:
    deep = '{"perfdoctor": "1", "format": 1, "time": ' + "[" * 100_000
    (tmp_path / "run.json").write_text(deep)
    (tmp_path / "diagnosis.json").write_text(deep)
    assert RunFolder.open(tmp_path) is None
    with pytest.raises(PerfdoctorError, match="is damaged or breaks off"):
        json_document.document("d", tmp_path / "diagnosis.json")


@pytest.mark.parametrize(
    "wrong",
    [{"notes": [1]}, {"kernels": [{"name": 1}]}, {"base_ns": "x"}, {"findings": [1]}, {"run": {}}],
    ids=json.dumps,
)
def test_a_diagnosis_of_wrong_types_is_damaged(tmp_path: Path, wrong: dict[str, Any]) -> None:
    known = json.loads(perfdoctor.analyze(RUN).to_json())
    (tmp_path / "diagnosis.json").write_text(json.dumps({**known, **wrong}))
    with pytest.raises(PerfdoctorError, match="d is damaged"):
        json_document.document("d", tmp_path / "diagnosis.json")


def test_a_saving_that_is_limited_by_nothing_known_is_damaged(tmp_path: Path) -> None:
    known = json.loads(perfdoctor.analyze(RUN).to_json())
    found = next(each for each in known["findings"] if each["derivation"] and each["derivation"]["bounds"])
    found["derivation"]["bounds"][0]["by"] = "[rank0]:"
    (tmp_path / "diagnosis.json").write_text(json.dumps(known))
    with pytest.raises(PerfdoctorError, match="d is damaged"):
        stored_diagnosis.stored("d", tmp_path / "diagnosis.json")


def test_a_database_with_a_damaged_list_of_tables_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "p.sqlite"
    with sqlite3.connect(file) as database:
        for number in range(200):
            database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_{number} (start INTEGER, name TEXT)")
    database.close()
    whole = bytearray(file.read_bytes())
    for page in range(1, len(whole) // 4096):  # all but the first
        whole[4096 * page : 4096 * page + 64] = b"\xff" * 64
    file.write_bytes(whole)
    with pytest.raises(PerfdoctorError):
        read([file])
