"""Nsight Compute's tables, written as it writes them, and what they say in plain arithmetic."""

from __future__ import annotations

import csv
import io

import pytest

ABOUT = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
]
LONG = [*ABOUT, "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]  # fmt: skip
ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
#: One launch: metric, unit, value as the raw page has them in base units.
RAW = [
    ("gpu__time_duration.sum", "ns", "52,576"),
    (f"sm__throughput{ELAPSED}", "%", "27.80"),
    (f"gpu__compute_memory_throughput{ELAPSED}", "%", "88.39"),
    (f"gpu__dram_throughput{ELAPSED}", "%", "88.39"),
    (f"lts__throughput{ELAPSED}", "%", "26.22"),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", "79.37"),
    ("sm__maximum_warps_per_active_cycle_pct", "%", "100"),
    ("launch__waves_per_multiprocessor", "", "24.81"),
    ("launch__occupancy_limit_warps", "block", "4"),
    ("launch__occupancy_limit_registers", "block", "16"),
    ("dram__bytes_read.sum", "byte", "9,612,288"),
    ("dram__bytes_write.sum", "byte", "4,189,344"),
    ("smsp__cycles_elapsed.avg", "cycle", "28,419.58"),
    ("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", "inst", "6.00"),
    ("smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", "inst", "3.00"),
    ("smsp__average_warps_issue_stalled_selected_per_issue_active.ratio", "inst", "1.00"),
    ("memory_l2_theoretical_sectors_global", "sector", "400"),
    ("memory_l2_theoretical_sectors_global_ideal", "sector", "100"),
    ("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", "inst", "1,000"),
    ("smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", "inst", "10"),
    ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "inst", "100"),
]  # fmt: skip


def about(number: int = 0, name: str = "void add<float>(int)") -> list[str]:
    return [str(number), "31440", "python3", "127.0.0.1", name, "1", "7", "(256, 1, 1)", "(63, 63, 1)", "0", "7.5"]


def table(rows: list[list[str]], delimiter: str = ",", quoting: int = csv.QUOTE_ALL) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator="\n").writerows(rows)
    return text.getvalue()


def wide(metrics=RAW, *, units: bool = True, launches: int = 1, **how) -> str:
    rows = [[*ABOUT, *(name for name, _, _ in metrics)]]
    if units:
        rows.append([""] * len(ABOUT) + [unit for _, unit, _ in metrics])
    rows += [[*about(number), *(value for _, _, value in metrics)] for number in range(launches)]
    return table(rows, **how)


#: What RAW says, in plain arithmetic.
TRUTH = {
    "gpu_time_ns": 52576, "sm_share": 0.278, "memory_share": 0.8839, "dram_share": 0.8839, "l2_share": 0.2622,
    "occupancy_share": 0.7937, "occupancy_limit_share": 1, "waves_per_sm": 24.81, "dram_bytes": 9612288 + 4189344,
    "stall": "long scoreboard", "stall_share": 6 / 10, "excess_sector_share": 3 / 4, "useful_bytes": 100 * 32, "flop": 1000 + 10 + 2 * 100,
    "occupancy_limiter": "warps", "blocks": 63 * 63, "threads_per_block": 256, "compute_capability": 75,
    "name": "void add<float>(int)", "process": 31440, "device": 0, "start_ns": 0, "end_ns": 52576,
}  # fmt: skip


def agrees(found, truth=TRUTH, rel: float = 1e-9):
    for column, value in truth.items():
        assert found[column] == (value if isinstance(value, str) else pytest.approx(value, rel=rel)), column


DETAILS = [
    ("GPU Speed Of Light Throughput", "DRAM Frequency", "Ghz", "4.64"),
    ("GPU Speed Of Light Throughput", "SM Frequency", "Mhz", "540.54"),
    ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "88.39"),
    ("GPU Speed Of Light Throughput", "DRAM Throughput", "%", "88.39"),
    ("GPU Speed Of Light Throughput", "Duration", "us", "52.576"),
    ("GPU Speed Of Light Throughput", "L2 Cache Throughput", "%", "26.22"),
    ("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%", "27.80"),
    ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "262.508216676"),
    ("Launch Statistics", "Waves Per SM", "", "24.81"),
    ("Launch Statistics", "# SMs", "SM", "40"),
    ("Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"),
    ("Occupancy", "Block Limit Registers", "block", "16"),
    ("Occupancy", "Block Limit Warps", "block", "4"),
    ("Occupancy", "Theoretical Occupancy", "%", "100"),
    ("Occupancy", "Achieved Occupancy", "%", "79.37"),
]
RULE = ["SourceCounters", "", "", "", "UncoalescedGlobalAccess", "OPT",
        "This kernel has uncoalesced global accesses resulting in a total of 300 excessive sectors (75% of the total 400 sectors).",
        "global", "74.14"]  # fmt: skip


def long(*rows: list[str], number: int = 0) -> list[list[str]]:
    return [[*about(number), *row] for row in rows]
