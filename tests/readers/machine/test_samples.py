"""Samples of GPUs in every form that tools print them: literal files, and real ones beside plain Python."""

from __future__ import annotations

import csv
import math
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from folders import public, public_files

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import SAMPLE_NUMBERS, Timeline
from perfdoctor.readers import formats
from perfdoctor.readers.machine import sample_tables
from perfdoctor.readers.machine import samples as device_samples
from perfdoctor.readers.machine.sample_columns import of_query
from perfdoctor.readers.machine.sample_times import parsed
from perfdoctor.recording.tools.nvml import COLUMNS

NAN = float("nan")


def read(tmp_path: Path, text: str, name: str = "samples.csv") -> Timeline:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert formats.kind_of(file) == "nvml"
    return device_samples.read(file)


def column(timeline: Timeline, name: str) -> list[float | None]:
    """Unknown is None."""
    return [None if math.isnan(value) else value for value in timeline["device_samples"].floats(name).tolist()]


# --- nvidia-smi --query-gpu ------------------------------------------------------------------------------------------

QUERY = """\
timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W], enforced.power.limit [W], clocks.current.sm [MHz], clocks.max.sm [MHz], temperature.gpu, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, clocks_event_reasons.active
2024/05/01 12:34:56.500, 0, NVIDIA H100 80GB HBM3, 98 %, 71234 MiB, 687.12 W, 700.00 W, 1740 MHz, 1980 MHz, 71, 5, 5, 16, 16, 0x0000000000000004
2024/05/01 12:34:56.502, 1, NVIDIA H100 80GB HBM3, [N/A], [Not Supported], [Unknown Error], 700.00 W, N/A, 1980 MHz, ERR!, 5, 5, 16, 16, [N/A]
"""


def test_a_query_has_its_units_in_header_and_rows(tmp_path):
    found = read(tmp_path, QUERY)
    frame = found["device_samples"]
    assert frame["device"].tolist() == [0, 1]
    assert column(found, "utilization_share") == [0.98, None]
    assert column(found, "memory_used_bytes") == [71234 * 2**20, None]
    assert column(found, "power_w") == [687.12, None]
    assert column(found, "power_limit_w") == [700, 700]
    assert column(found, "sm_clock_mhz") == [1740, None]
    assert column(found, "max_sm_clock_mhz") == [1980, 1980]
    assert column(found, "temperature_c") == [71, None]
    assert [
        column(found, c)[0] for c in ("pcie_generation", "max_pcie_generation", "pcie_width", "max_pcie_width")
    ] == [5, 5, 16, 16]
    assert frame["reasons"].tolist() == [4, -1]
    assert list(frame.text("gpu")) == ["NVIDIA H100 80GB HBM3"] * 2
    # local time of no known zone: kept as if it were UTC, and not on any clock
    assert frame.start_ns[0] == datetime.fromisoformat("2024-05-01T12:34:56.500+00:00").timestamp() * 1e9
    assert not frame["is_on_clock"].any()
    assert found.ranks == ()
    assert found.recorded == {"device_samples"}


def test_without_units_the_headers_own_count(tmp_path):
    with_units = read(tmp_path, QUERY)
    bare = QUERY
    for unit in (" W,", " MHz,", " MiB,", " %,"):
        bare = bare.replace(unit, ",")
    without = read(tmp_path, bare, "bare.csv")
    for name in SAMPLE_NUMBERS:
        assert column(without, name) == column(with_units, name), name


def test_a_reason_each_in_its_own_column(tmp_path):
    text = (
        "index, utilization.gpu [%], clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.hw_thermal_slowdown\n"
        "0, 99 %, Active, Not Active\n0, 99 %, Active, Active\n0, 99 %, Not Active, Not Active\n0, 99 %, [N/A], [N/A]\n"
    )
    assert read(tmp_path, text)["device_samples"]["reasons"].tolist() == [0x4, 0x44, 0, -1]


def test_without_a_header_only_what_cannot_be_anything_else_is_read(tmp_path):
    text = "0, 297.37, 307.72, 0x0000000000000004, 638, Disabled, [N/A]\n1, 289.76, 309.90, 0x0000000000000000, 638, Disabled, [N/A]\n"
    found = read(tmp_path, text)
    assert found["device_samples"]["reasons"].tolist() == [4, 0]
    assert all(column(found, name) == [None, None] for name in SAMPLE_NUMBERS)
    assert any("has no header" in note for note in found.notes)


def test_the_mask_of_reasons_that_a_gpu_knows_is_not_taken_for_those_that_hold(tmp_path):
    text = "0, 50 %, 0x00000000000001FF\n0, 60 %, 0x00000000000001FF\n"
    assert read(tmp_path, text)["device_samples"]["reasons"].tolist() == [-1, -1]


def test_semicolons_and_decimal_commas_are_read(tmp_path):
    found = read(tmp_path, "index;power.draw [W];temperature.gpu\n0;387,26;71\n0;388,5;72\n")
    assert column(found, "power_w") == [387.26, 388.5]


def test_a_second_header_begins_a_new_table_and_garbage_is_counted(tmp_path):
    text = "index, power.draw [W]\n0, 100 W\nKilled\n0, 1, 2, 3\nx, 5 W\nindex, temperature.gpu\n0, 50\n"
    found = read(tmp_path, text)
    assert column(found, "power_w") == [100, None]
    assert column(found, "temperature_c") == [None, 50]
    assert any("3 lines are no samples" in note for note in found.notes)


# --- our own ---------------------------------------------------------------------------------------------------------


def ours(**values: object) -> str:
    return ",".join(str(values.get(name, "")) for name in COLUMNS)


def test_what_our_sampler_writes_is_read_whole(tmp_path):
    start = 1_790_000_000_000_000_000
    rows = [
        ours(unix_ns=start, device=0, uuid="1a2b3c4d", power_mw=387_260, power_limit_mw=400_000, sm_clock_mhz=1410,
             memory_clock_mhz=1593, max_sm_clock_mhz=1410, temperature_c=71, utilization_percent=97,
             memory_used_bytes=5, memory_total_bytes=9, throttle_reasons="0x24", pcie_rx_kb_per_s=12, pcie_tx_kb_per_s=7,
             pcie_generation=4, pcie_width=16, max_pcie_generation=4, max_pcie_width=16, nvlink_rx_kib=1000,
             nvlink_tx_kib=500, processes=2),
        ours(unix_ns=start + 500_000_000, device=0, nvlink_rx_kib=3000, nvlink_tx_kib=400),
    ]  # fmt: skip
    found = read(tmp_path, "\n".join([",".join(COLUMNS), *rows]) + "\n")
    frame = found["device_samples"]
    first = {name: column(found, name)[0] for name in SAMPLE_NUMBERS}
    assert first == {
        "power_w": pytest.approx(387.26), "power_limit_w": 400, "default_power_limit_w": None, "sm_clock_mhz": 1410,
        "max_sm_clock_mhz": 1410, "application_clock_mhz": None, "memory_clock_mhz": 1593, "temperature_c": 71,
        "utilization_share": 0.97, "memory_utilization_share": None, "memory_used_bytes": 5, "memory_total_bytes": 9,
        "pcie_generation": 4, "max_pcie_generation": 4, "pcie_width": 16, "max_pcie_width": 16,
        "pcie_rx_bytes_per_second": 12_000, "pcie_tx_bytes_per_second": 7_000, "nvlink_rx_bytes_per_second": None,
        "nvlink_tx_bytes_per_second": None, "processes": 2, "gr_active_share": None, "sm_active_share": None, "tensor_active_share": None,
        "dram_active_share": None, "power_violation_share": None,
    }  # fmt: skip
    assert frame["reasons"].tolist() == [0x24, -1]
    assert frame.start_ns.tolist() == [start, start + 500_000_000]
    assert frame["is_on_clock"].all()
    # a counter that rose by 2000 KiB in half a second; one that fell began anew
    assert column(found, "nvlink_rx_bytes_per_second")[1] == 2000 * 1024 / 0.5
    assert column(found, "nvlink_tx_bytes_per_second")[1] is None


def test_every_column_of_our_sampler_has_a_meaning_but_the_hash():
    assert [name for name in COLUMNS if of_query(name) is None] == ["uuid"]


# --- dmon ------------------------------------------------------------------------------------------------------------

DMON = """\
#Date        Time         gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk  pviol  tviol     fb   bar1   ccpm  sbecc  dbecc    pci  rxpci  txpci
#YYYYMMDD    HH:MM:SS     Idx      W      C      C      %      %      %      %      %      %    MHz    MHz      %   bool     MB     MB     MB   errs   errs   errs   MB/s   MB/s
 20260816    09:22:34       0    295     81      -     98     57      0      0      0      0  13365   1897     99      0  90538      4      0      -      -      0     12     34
 20260816    09:22:34       1     60     38      -      0      0      0      0      0      0    405    180      0      1      2      2      0      -      -      0      0      2
#Date        Time         gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk  pviol  tviol     fb   bar1   ccpm  sbecc  dbecc    pci  rxpci  txpci
#YYYYMMDD    HH:MM:SS     Idx      W      C      C      %      %      %      %      %      %    MHz    MHz      %   bool     MB     MB     MB   errs   errs   errs   MB/s   MB/s
 20260816    09:22:35       0    296     82      -     99     58      0      0      0      0  13365   1890     98      0  90538      4      0      -      -      0     13     35
"""  # fmt: skip


def test_dmon_with_all_groups_and_repeated_headers(tmp_path):
    found = read(tmp_path, DMON, "dmon.txt")
    frame = found["device_samples"]
    assert frame["device"].tolist() == [0, 1, 0]
    assert column(found, "power_w") == [295, 60, 296]
    assert column(found, "temperature_c") == [81, 38, 82]
    assert column(found, "utilization_share") == [0.98, 0, 0.99]
    assert column(found, "sm_clock_mhz") == [1897, 180, 1890]
    assert column(found, "memory_used_bytes") == [90538 * 2**20, 2 * 2**20, 90538 * 2**20]
    assert column(found, "pcie_rx_bytes_per_second") == [12e6, 0, 13e6]
    assert column(found, "power_violation_share") == [0.99, 0, 0.98]
    assert frame["reasons"].tolist() == [0x4, 0x20, 0x4]  # power for half of the time and more; a thermal flag
    assert (frame.start_ns - frame.start_ns[0]).tolist() == [0, 0, 1_000_000_000]
    assert not any("left out" in note for note in found.notes)


def test_dmon_as_csv_gives_the_same(tmp_path):
    rows = [", ".join(line.lstrip("# ").split()) for line in DMON.splitlines()]
    text = "\n".join(
        "#" + row if line.startswith("#") else row for row, line in zip(rows, DMON.splitlines(), strict=True)
    )
    found, plain = read(tmp_path, text + "\n"), read(tmp_path, DMON, "dmon.txt")
    for name in SAMPLE_NUMBERS:
        assert column(found, name) == column(plain, name), name
    assert found["device_samples"].start_ns.tolist() == plain["device_samples"].start_ns.tolist()


def test_dmon_without_times_counts_the_rounds(tmp_path):
    text = "# gpu    pwr\n# Idx      W\n    0    100\n    1    200\n    0    110\n    1    210\n    0   -\n"
    found = read(tmp_path, text)
    assert found["device_samples"].start_ns.tolist() == [0, 0, 10**9, 10**9, 2 * 10**9]
    assert column(found, "power_w") == [100, 200, 110, 210, None]


def test_times_of_day_go_on_over_midnight(tmp_path):
    text = "#Time  gpu  pwr\n#HH:MM:SS Idx W\n 23:59:59 0 1\n 00:00:01 0 2\n"
    start = read(tmp_path, text)["device_samples"].start_ns
    assert start[1] - start[0] == 2_000_000_000


# --- dcgmi -----------------------------------------------------------------------------------------------------------


def test_dcgmi_by_its_short_names(tmp_path):
    text = (
        "#Entity   SMCLK  POWER   TMPTR  SMACT  TENSO  DRAMA  NVLTX        TXTPT  DVCCTR\n"
        "ID               W       C                                        KB/s\n"
        "GPU 3     1410   301.5   55     0.912  0.401  0.5    19694075554  17     4\n"
        "GPU 2     N/A    N/A     N/A    N/A    N/A    N/A    N/A          N/A    N/A\n"
        "...\n"
    )
    found = read(tmp_path, text)
    frame = found["device_samples"]
    assert frame["device"].tolist() == [3, 2]
    for name, value in (
        ("sm_clock_mhz", 1410), ("power_w", 301.5), ("temperature_c", 55), ("sm_active_share", 0.912),
        ("tensor_active_share", 0.401), ("dram_active_share", 0.5), ("nvlink_tx_bytes_per_second", 19694075554),
        ("pcie_tx_bytes_per_second", 17e3),
    ):  # fmt: skip
        assert column(found, name) == [value, None], name
    assert frame["reasons"].tolist() == [4, -1]
    assert any("1 line is no sample:" in note for note in found.notes)


def test_of_units_that_name_no_gpu_no_row_is_taken(tmp_path):
    with pytest.raises(PerfdoctorError):
        read(tmp_path, "#Entity[r . 4 4\nU . 4 4\n")


SCRAPES = """\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A100",Hostname="secret"} 1410
DCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-2",device="nvidia1",modelName="NVIDIA A100",Hostname="secret"} 1200
DCGM_FI_DEV_POWER_USAGE{gpu="0",modelName="NVIDIA A100"} 301.5
DCGM_FI_DEV_FB_USED{gpu="0",modelName="NVIDIA A100"} 100
DCGM_FI_DEV_XID_ERRORS{gpu="0",modelName="NVIDIA A100"} 0
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="1",modelName="NVIDIA A100"} 0.25
DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName="NVIDIA A100"} 1395
garbage
"""


def test_scrapes_of_the_exporter(tmp_path):
    found = read(tmp_path, SCRAPES)
    frame = found["device_samples"]
    assert frame["device"].tolist() == [0, 1, 0]
    assert column(found, "sm_clock_mhz") == [1410, 1200, 1395]
    assert column(found, "power_w") == [301.5, None, None]
    assert column(found, "memory_used_bytes") == [100 * 2**20, None, None]
    assert column(found, "tensor_active_share") == [None, 0.25, None]
    assert set(frame.text("gpu")) == {"NVIDIA A100"}
    assert frame.start_ns.tolist() == [0, 0, 1_000_000_000]
    assert any("1 line is no sample:" in note for note in found.notes)
    assert not any("secret" in value for value in (*frame.text("gpu"), *frame.name, *found.notes))


def test_scrapes_with_times_are_on_the_clock(tmp_path):
    text = 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 50 1758685713493\nDCGM_FI_DEV_GPU_TEMP{gpu="0"} 51 1758685714493\n'
    frame = read(tmp_path, text)["device_samples"]
    assert frame["is_on_clock"].all()
    assert frame.start_ns.tolist() == [1758685713493000000, 1758685714493000000]


# --- times, and what is no sample ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unix_ns", "is_on_clock"),
    [
        ("2025-09-24T03:48:33.493Z", 1758685713493000000, True),
        ("2025-09-24T05:48:33.493+02:00", 1758685713493000000, True),
        ("2025-09-24 03:48:33", 1758685713000000000, False),
        ("2025/09/24 03:48:33.493", 1758685713493000000, False),
        ("1758685713", 1758685713000000000, True),
        ("1758685713.25", 1758685713250000000, True),
        ("1758685713493", 1758685713493000000, True),
        ("1758685713493000000", 1758685713493000000, True),
        ("03:48:33", 13713000000000, False),
    ],
)
def test_a_time_in_the_ways_that_tools_write_it(text, unix_ns, is_on_clock):
    assert parsed(text) == (unix_ns, is_on_clock)


@pytest.mark.parametrize("text", ["", "yesterday", "2025-13-41 00:00:00", "25", "[N/A]", "9" * 30])
def test_what_is_no_time(text):
    assert parsed(text) is None


def test_a_header_alone_is_refused(tmp_path):
    file = tmp_path / "empty.csv"
    file.write_text("index, power.draw [W]\n")
    with pytest.raises(PerfdoctorError, match="only a header"):
        device_samples.read(file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello, world\n",
        '{"traceEvents": []}',
        "name,age\nA,5\n",
        "epoch,step,loss\n1,2,3\n",
        "a, b, c\n0, 1, 2\n",
        "# gpu pid type sm mem\n0 12 C 5 5\n",
    ],
)
def test_other_files_are_not_taken_for_samples(text):
    assert not sample_tables.looks_like(text.encode())


def test_hostile_text_is_data(tmp_path):
    found = read(
        tmp_path, "index, name, power.draw [W]\n0, \x1b[31m<script>[/]{0}, 5 W\n0, " + "x" * 50_000 + ", 6 W\n"
    )
    assert found["device_samples"].text("gpu")[0] == "<script>[/]{0}"
    assert column(found, "power_w")[0] == 5


# --- real files ------------------------------------------------------------------------------------------------------


@pytest.mark.recordings
def test_eight_gpus_of_a_real_run_as_the_csv_module_reads_them():
    path = public("device/nanogpt-gpu-metrics.csv")
    found = device_samples.read(path)
    with path.open(encoding="utf-8") as stream:
        plain = [row for row in csv.DictReader(stream) if None not in row.values() and None not in row]
    assert len(found["device_samples"]) == len(plain)
    assert found["device_samples"]["is_on_clock"].all()
    for device in range(8):
        own = found["device_samples"].of(device=device)
        rows = [row for row in plain if int(row["gpu_index"]) == device]
        for ours_, theirs, factor in (
            ("power_w", "power_W", 1), ("temperature_c", "temperature_C", 1),
            ("utilization_share", "utilization_gpu_percent", 0.01),
        ):  # fmt: skip
            assert own.floats(ours_).tolist() == pytest.approx([float(row[theirs]) * factor for row in rows])
        times = [
            round(datetime.fromisoformat(row["timestamp"].replace("Z", "+00:00")).timestamp() * 1e3) for row in rows
        ]
        assert (own.start_ns // 10**6).tolist() == times


@pytest.mark.recordings
def test_dmon_and_dcgmi_of_real_machines_as_split_words():
    found = device_samples.read(public("device/rtxpro6000_4gpu_dmon_pucm.txt"))
    plain = [
        line.split()
        for line in (public("device/rtxpro6000_4gpu_dmon_pucm.txt")).read_text().splitlines()
        if "#" not in line
    ]
    for place, name, factor in ((1, "power_w", 1), (2, "temperature_c", 1), (4, "utilization_share", 0.01), (11, "sm_clock_mhz", 1), (12, "memory_used_bytes", 2**20)):  # fmt: skip
        assert column(found, name) == pytest.approx([float(row[place]) * factor for row in plain]), name
    for path in public_files("device/*dcgmi*"):
        rows = [line.split() for line in path.read_text().splitlines() if line.startswith("GPU ")]
        own = device_samples.read(path)["device_samples"]
        assert sorted(own["device"].tolist()) == sorted(int(row[1]) for row in rows)
        sent = [float(row[2]) for row in rows if row[2] != "N/A"]
        rates = own.floats("nvlink_tx_bytes_per_second")
        assert sorted(rates[~np.isnan(rates)].tolist()) == sorted(sent)


@pytest.mark.recordings
def test_four_capped_gpus_without_a_header_have_their_reason():
    found = device_samples.read(public("device/rtxpro6000_4gpu_query_throttle.csv"))
    assert found["device_samples"]["reasons"].tolist() == [4] * 4
    assert len(device_samples.read(public("device/rtxpro6000_4gpu_query_main.csv"))["device_samples"]) == 4
