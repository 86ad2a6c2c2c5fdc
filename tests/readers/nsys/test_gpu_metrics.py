"""The GPU's own counters in exports of Nsight Systems: every spelling, zeros that were not read, and faulty tables."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import plant
import pytest
from folders import public
from scenes import SCENES, play
from tables import of_each

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.readers.nsys import tables as nsys_tables
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.readers.open import read as read_any
from perfdoctor.vocabulary.rulebook import load_rules

_PROCESS = 7 << 24
_TYPE = 281479271677952  # of GPU 0, as nsys 2023.4 writes it
_PERIOD = 100_000
_KERNEL = (
    "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
    " demangledName INTEGER, shortName INTEGER"
)


def export(path: Path, names: dict[int, str], rows: list[tuple], *, kind: int = _TYPE, devices=(0,)) -> Path:
    """An export with a kernel on each device, the names of one GPU's metrics by their ids, and rows of GPU_METRICS."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({_KERNEL})")
        for device in devices:
            kernel = (0, 5 * _PERIOD, device, 7, 1, _PROCESS, 1, 1)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?)", kernel)
        database.execute(
            "CREATE TABLE TARGET_INFO_GPU_METRICS"
            " (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT)"
        )
        named = [(kind, kind, "", number, name) for number, name in names.items()]
        database.executemany("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?,?,?,?,?)", named)
        database.execute("CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value)")
        database.executemany("INSERT INTO GPU_METRICS VALUES (?,?,?,?)", rows)
    database.close()
    return path


def samples(*values: tuple[float, ...], kind: int = _TYPE, first: int = -_PERIOD) -> list[tuple]:
    """Rows of GPU_METRICS: a tuple a sample, a value a metric."""
    return [
        (first + number * _PERIOD, kind, metric, value)
        for number, each in enumerate(values)
        for metric, value in enumerate(each)
    ]


@pytest.fixture(params=["adbc", "sqlite3"])
def each_way(request, monkeypatch) -> None:
    """Every table is read in the way of large tables, then in that of small ones."""
    monkeypatch.setattr(nsys_tables, "ROWS_WORTH_ADBC", 1 if request.param == "adbc" else 10**9)


@pytest.mark.usefixtures("each_way")
def test_shares_clocks_and_zeros_are_read_as_they_were_written(tmp_path):
    names = {0: "SM Active", 1: "Tensor Active", 2: "GPC Clock Frequency"}
    rows = samples((0, 0, 1_410_000_000), (50, 0, 1_400_000_000), (100, 7, 1_390_000_000))
    found = nsys.read(export(tmp_path / "run.sqlite", names, rows))["gpu_counters"]
    assert found.floats("sm_active_share").tolist() == [0, 0.5, 1]
    assert found.floats("tensor_active_share").tolist() == [0, 0, 0.07]
    assert found.floats("clock_gpc_hz").tolist() == [1.41e9, 1.4e9, 1.39e9]
    assert found.start_ns.tolist() == [-_PERIOD, 0, _PERIOD]
    assert found.end_ns.tolist() == [0, _PERIOD, 2 * _PERIOD]
    assert np.isnan(found.floats("dram_read_share")).all()  # it was not recorded


SPELLED = [
    ("SMs Active [Throughput %]", "sm_active_share"),
    ("SM Active", "sm_active_share"),
    ("SM Instructions/Tensor Active [Throughput %]", "tensor_active_share"),
    ("Tensor Active / FP16 Active", "tensor_active_share"),
    ("DRAM Read Throughput", "dram_read_share"),
    ("DRAM Read Bandwidth [Throughput %]", "dram_read_share"),
    ("DRAM Bandwidth/Read", "dram_read_share"),
    ("DRAM Bandwidth/DRAM Write Bandwidth [Throughput %]", "dram_write_share"),
    ("Compute Warps in Flight [Throughput %]", "warps_share"),
    ("Vertex/Tess/Geometry Warps In Flight", "vertex_warps_share"),
    ("PCIe Read Bandwidth [Throughput %]", "pcie_rx_share"),
    ("PCIe TX Throughput", "pcie_tx_share"),
    ("NVLink RX Responses User Data [Throughput %]", "nvlink_rx_responses_user_share"),
]


@pytest.mark.parametrize(("name", "column"), SPELLED)
def test_a_counter_is_known_by_each_of_its_spellings(tmp_path, name, column):
    found = nsys.read(export(tmp_path / "run.sqlite", {3: name}, [(0, _TYPE, 3, 25)]))["gpu_counters"]
    assert found.floats(column).tolist() == [0.25]
    assert found.text("spellings")[0] == f"{column}: {name}"


@pytest.mark.parametrize("name", ["Compute Warps in Flight [Avg]", "PCIe Read Bandwidth [Bytes]", "A New Counter"])
def test_what_is_no_known_share_keeps_its_own_name_and_number(tmp_path, name):
    read = nsys.read(export(tmp_path / "run.sqlite", {0: name}, samples((7,), (9_000_000,))))
    others = read["other_gpu_counters"]
    assert (list(others.name), others.floats("amount").tolist()) == ([name, name], [7, 9_000_000])
    assert all(np.isnan(read["gpu_counters"].floats(each)).all() for each in ("warps_share", "pcie_rx_share"))


def test_a_clock_in_mhz_becomes_hz(tmp_path):
    read = nsys.read(export(tmp_path / "run.sqlite", {0: "GPC Clock Frequency [MHz]"}, samples((1410,))))
    assert read["gpu_counters"].floats("clock_gpc_hz").tolist() == [1.41e9]


def test_values_that_cannot_be_are_unknown_and_not_zero(tmp_path):
    read = nsys.read(export(tmp_path / "run.sqlite", {0: "SM Active"}, samples((-3,), (4_000_000,), (None,), (40,))))
    values = read["gpu_counters"].floats("sm_active_share")
    assert np.isnan(values).tolist() == [True, True, True, False]
    assert values[3] == 0.4


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("lost", [0, 1])
def test_what_a_table_lacks_is_unknown_and_not_zero(tmp_path, lost):
    rows = samples((10, 20), (30, 0), (50, 0))
    path = export(tmp_path / "run.sqlite", {0: "SM Active", 1: "Tensor Active"}, [r for r in rows if r[2] != lost])
    found = nsys.read(path)["gpu_counters"]
    assert np.isnan(found.floats(("sm_active_share", "tensor_active_share")[lost])).all()
    assert (
        found.floats(("tensor_active_share", "sm_active_share")[lost]).tolist() == ([0.2, 0, 0], [0.1, 0.3, 0.5])[lost]
    )


@pytest.mark.usefixtures("each_way")
def test_a_sample_that_was_cut_off_has_what_was_written_of_it(tmp_path):
    rows = samples((10, 20), (30, 0), (0, 40))[:-1]
    found = nsys.read(export(tmp_path / "run.sqlite", {0: "SM Active", 1: "Tensor Active"}, rows))["gpu_counters"]
    assert found.floats("sm_active_share").tolist() == [0.1, 0.3, 0]
    assert found.floats("tensor_active_share").tolist() == pytest.approx([0.2, 0, np.nan], nan_ok=True)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("first", [0, 5])
def test_each_gpu_has_its_own_samples_and_numbers_of_metrics(tmp_path, first):
    path = export(tmp_path / "run.sqlite", {0: "SM Active"}, samples((10,), (0,)), devices=(0, 1))
    other = _TYPE + 1
    with sqlite3.connect(path) as database:
        names = [(other, other, "", first, "SM Active"), (other, other, "", first + 1, "Tensor Active")]
        database.executemany("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?,?,?,?,?)", names)
        rows = [(at, other, first + metric, value) for at, _, metric, value in samples((0, 70), (90, 0))]
        database.executemany("INSERT INTO GPU_METRICS VALUES (?,?,?,?)", rows)
    database.close()
    found = nsys.read(path)["gpu_counters"]
    assert found.of(device=0).floats("sm_active_share").tolist() == [0.1, 0]
    assert np.isnan(found.of(device=0).floats("tensor_active_share")).all()
    assert found.of(device=1).floats("sm_active_share").tolist() == [0, 0.9]
    assert found.of(device=1).floats("tensor_active_share").tolist() == [0.7, 0]


def test_samples_out_of_order_are_sorted_and_said(tmp_path):
    rows = [(200, _TYPE, 0, 20), (100, _TYPE, 0, 10), (300, _TYPE, 0, 0)]
    read = nsys.read(export(tmp_path / "run.sqlite", {0: "SM Active"}, rows))
    assert read["gpu_counters"].floats("sm_active_share").tolist() == [0.1, 0.2, 0]
    assert sum("go back in time" in note for note in read.notes) == 1


def test_a_hole_between_samples_is_no_long_sample(tmp_path):
    rows = [*samples(*[(50,)] * 10, first=0), *samples((50,), (50,), first=100 * _PERIOD)]
    found = nsys.read(export(tmp_path / "run.sqlite", {0: "SM Active"}, rows))["gpu_counters"]
    assert int(found.duration_ns.max()) == 4 * _PERIOD


def test_the_counters_of_another_gpu_are_left_out_and_said(tmp_path):
    path = export(tmp_path / "run.sqlite", {0: "SM Active"}, samples((50,), (60,), kind=_TYPE + 1), kind=_TYPE + 1)
    read = nsys.read(path)
    assert "gpu_counters" not in read.recorded
    assert sum("counters of a GPU on which nothing of the program ran" in note for note in read.notes) == 1


def test_the_gpu_is_the_low_byte_of_the_type(tmp_path):
    kind = _TYPE + 3
    path = export(tmp_path / "run.sqlite", {0: "SM Active"}, samples((50,), kind=kind), kind=kind, devices=(0, 3))
    found = nsys.read(path)["gpu_counters"]
    assert (found["device"].tolist(), found["rank"].tolist()) == ([3], [0])


@pytest.mark.parametrize("statement", ["DELETE FROM GPU_METRICS", "DROP TABLE GPU_METRICS",
                                       "DROP TABLE TARGET_INFO_GPU_METRICS"])  # fmt: skip
def test_tables_without_a_sample_or_a_name_are_as_if_not_recorded(tmp_path, statement):
    path = export(tmp_path / "run.sqlite", {0: "SM Active"}, samples((50,), (60,)))
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    assert "gpu_counters" not in nsys.read(path).recorded


def test_samples_as_json_of_older_exports_are_the_same(tmp_path):
    rows, names = samples((0, 50), (30, 0), (-4, 100)), {0: "SM Active", 1: "Tensor Active"}
    new = nsys.read(export(tmp_path / "new.sqlite", names, rows))["gpu_counters"]
    path = export(tmp_path / "old.sqlite", names, [])
    fields = {"Name": "", "Fields": [{"Name": name} for name in names.values()]}
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE GENERIC_EVENT_TYPES (typeId INTEGER, sourceId INTEGER, data TEXT)")
        database.execute("INSERT INTO GENERIC_EVENT_TYPES VALUES (?, ?, ?)", (_TYPE, _TYPE, json.dumps(fields)))
        database.execute("INSERT INTO GENERIC_EVENT_TYPES VALUES (7, 7, 'no JSON')")
        database.execute("CREATE TABLE GENERIC_EVENTS (rawTimestamp INTEGER, timestamp, typeId INTEGER, data TEXT)")
        for at in sorted({row[0] for row in rows}):
            event = {names[metric]: str(value) for begun, _, metric, value in rows if begun == at}
            database.execute("INSERT INTO GENERIC_EVENTS VALUES (?, NULL, ?, ?)", (at, _TYPE, json.dumps(event)))
        database.execute("INSERT INTO GENERIC_EVENTS VALUES (5, NULL, ?, '{cut')", (_TYPE,))
    database.close()
    old = nsys.read(path)["gpu_counters"]
    for column in ("start_ns", "end_ns", "sm_active_share", "tensor_active_share"):
        assert old[column].tolist() == pytest.approx(new[column].tolist(), nan_ok=True)


@pytest.mark.recordings
def test_every_mean_of_a_real_recording_is_that_of_plain_sql(tmp_path):
    report = public("nsys/ai-profiler/secondOptimization.nsys-rep")
    read = read_any([report])
    found = read["gpu_counters"]
    by_name = dict(reversed(line.split(": ")) for line in found.text("spellings")[0].splitlines())
    expected = {"GR Active": 4.118, "SM Active": 3.363, "Tensor Active": 0.546, "DRAM Read Throughput": 1.085,
                "DRAM Write Throughput": 0.853}  # fmt: skip
    for name, mean in expected.items():
        assert found.floats(by_name[name]).mean() * 100 == pytest.approx(mean, abs=0.0006)
    assert len(found) == 76_502


# A whole export whose table was damaged: one line says so, and nothing wrong follows

_ALL, _SOME = "GPU_METRICS", "timestamp BETWEEN 100000000 AND 102000000"
DAMAGED = {
    "nearly empty": (f"DELETE FROM {_ALL} WHERE NOT {_SOME}", "sampled 20 times: nothing follows", False),
    "cut off": (
        f"DELETE FROM {_ALL} WHERE rowid > (SELECT count(*) * 2 / 5 + 4 FROM {_ALL})", "not sampled in the whole", True,
    ),
    "negative": (f"UPDATE {_ALL} SET value = -5", "no value in", False),
    "of another time": (f"UPDATE {_ALL} SET timestamp = timestamp + 3000000000", "not sampled in the whole", False),
    "not monotonic": (f"UPDATE {_ALL} SET timestamp = timestamp - 1000000 WHERE timestamp > 200000000", "go back in time 1 time", True),
}  # fmt: skip


@pytest.fixture(scope="module")
def sixteen_blocks(tmp_path_factory) -> Path:
    """An export of a training in which kernels of 16 blocks take 40 % of each step."""
    name = "sixteen-blocks-on-132-sms"
    folder = plant.write_nsys([play(name, SCENES[name].sizes(0.4)[0])], tmp_path_factory.mktemp("whole"))
    return next(folder.rglob("*.sqlite"))


@of_each("statement,said,tells", DAMAGED)
def test_a_damaged_table_is_said_in_one_line_and_nothing_wrong_follows(
    statement, said, tells, sixteen_blocks, tmp_path_factory
):
    path = tmp_path_factory.mktemp("damaged") / "run.sqlite"
    path.write_bytes(sixteen_blocks.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    diagnosis = diagnose(nsys.read(path), list(load_rules().values()))
    assert sum(said in note for note in diagnosis.notes) == 1, diagnosis.notes
    assert sum("ounters of GPU 0" in note or "GPU 0's counters" in note for note in diagnosis.notes) == 1
    outcome = {each.rule: each.status for each in diagnosis.outcomes}
    assert "failed" not in outcome.values()
    assert outcome["idle-sms"] == ("found" if tells else "skipped")
    assert {each.rule for each in diagnosis.findings} == ({"idle-sms"} if tells else set())
