"""Peaks of GPUs by the names that drivers write: right, dense, and none where a name does not identify the board."""

from __future__ import annotations

import re
import sys
from importlib.resources import files

import pytest
from tables import of_each

from perfdoctor.hardware.links import link_of
from perfdoctor.hardware.peaks import DATA_TYPES, named, peaks_of, with_rates

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENTRIES = tomllib.loads((files("perfdoctor.hardware") / "gpus.toml").read_text("utf-8"))["gpu"]
GIB = 2**30

#: Name, multiprocessors and memory as in recordings, and TFLOP/s and GB/s out of the vendors' documents.
KNOWN = [
    ("NVIDIA H100 80GB HBM3", 132, 85_018_279_936, "bf16", 989.4, 3350),
    ("NVIDIA H100 PCIe", 114, 0, "bf16", 756, 2039),
    ("NVIDIA H100 NVL", 132, 0, "bf16", 835.5, 3900),
    ("NVIDIA H200", 132, 150_137_864_192, "fp8", 1978.9, 4800),
    ("NVIDIA GH200 480GB", 132, 0, "bf16", 989.4, 4000),
    ("NVIDIA B200", 148, 191_503_138_816, "bf16", 2250, 8000),
    ("NVIDIA GB200", 152, 0, "bf16", 2500, 8000),
    ("NVIDIA B300 SXM6 AC", 0, 0, "fp64", 1.25, 8000),
    ("NVIDIA A100-SXM4-40GB", 108, 42_297_524_224, "bf16", 312, 1555),
    ("NVIDIA A100-SXM4-80GB", 108, 84_990_623_744, "tf32", 156, 2039),
    ("A100-SXM4-40GB", 0, 0, "fp64", 19.5, 1555),
    ("NVIDIA A100-PCIE-40GB", 108, 0, "bf16", 312, 1555),
    ("NVIDIA A100 80GB PCIe", 108, 0, "bf16", 312, 1935),
    ("NVIDIA A100-PG509-200", 108, 42_505_273_344, "bf16", 312, 1555),
    ("Tesla V100-SXM2-16GB", 80, 16_945_512_448, "fp16", 125, 900),
    ("Tesla V100-SXM2-32GB", 80, 34_089_730_048, "fp32", 15.7, 900),
    ("Tesla V100-DGXS-32GB", 80, 34_084_028_416, "fp16", 125, 900),
    ("Tesla V100-PCIE-16GB", 80, 0, "fp16", 112, 900),
    ("Tesla T4", 40, 15_828_320_256, "fp16", 65, 320),
    ("NVIDIA A10", 72, 0, "bf16", 125, 600),
    ("NVIDIA A10G", 80, 0, "bf16", 70, 600),  # half of an A10's matrix rate
    ("NVIDIA A30", 56, 0, "bf16", 165, 933),
    ("NVIDIA A40", 84, 0, "bf16", 149.7, 696),
    ("NVIDIA L4", 58, 0, "bf16", 121, 300),
    ("NVIDIA L40", 142, 0, "bf16", 181, 864),  # half of an L40S's
    ("NVIDIA L40S", 142, 0, "bf16", 362, 864),
    ("NVIDIA RTX A6000", 84, 0, "bf16", 154.8, 768),
    ("NVIDIA RTX 6000 Ada Generation", 142, 0, "bf16", 364.2, 960),
    ("NVIDIA GeForce RTX 3090", 82, 0, "bf16", 71.2, 936.2),
    ("NVIDIA GeForce RTX 4090", 128, 0, "bf16", 165.2, 1008),
    ("NVIDIA GeForce RTX 5090", 170, 0, "bf16", 209.6, 1792),
    ("NVIDIA GeForce RTX 5060 Ti", 36, 0, "bf16", 47.4, 448),
    ("NVIDIA GeForce RTX 5060", 30, 0, "fp4", 306.8, 448),
    ("NVIDIA RTX PRO 5000 Blackwell", 110, 0, "bf16", 258, 1344),
    ("NVIDIA GeForce RTX 2080 Ti", 68, 11_554_586_624, "fp16", 53.8, 616),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188, 0, "bf16", 438.9, 1792),
    ("AMD Instinct MI210", 104, 68_702_699_520, "bf16", 181, 1638),
    ("AMD Instinct MI250X", 110, 0, "bf16", 191.5, 1638),
    ("AMD Instinct MI300A", 228, 0, "tf32", 490.3, 5300),
    ("AMD Instinct MI300X", 304, 206_141_652_992, "bf16", 1307.4, 5300),
    ("AMD Instinct MI300X VF", 304, 205_571_227_648, "fp8", 2614.9, 5300),
    ("AMD Instinct MI325X", 304, 0, "bf16", 1307.4, 6000),
    ("AMD Instinct MI355X", 256, 0, "fp4", 10066.3, 8000),
]


@of_each(("name", "sm_count", "memory_bytes", "data_type", "teraflops", "gigabytes"), KNOWN)
def test_a_driver_s_name_identifies_the_board(name, sm_count, memory_bytes, data_type, teraflops, gigabytes):
    peaks = peaks_of(name, sm_count, memory_bytes)
    assert peaks is not None
    assert peaks.matmul_flop_per_second(data_type) == pytest.approx(teraflops * 1e12)
    assert peaks.memory_bytes_per_second == pytest.approx(gigabytes * 1e9)


@of_each(
    ("name", "sm_count", "memory_bytes"),
    [
        ("", 0, 0),
        ("A new one", 0, 0),
        ("NVIDIA RTX 5000 Ada Generation Laptop GPU", 76, 0),  # named like the board of a workstation
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 76, 0),
        ("NVIDIA GeForce RTX 4090 D", 114, 0),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 0),
        ("NVIDIA H100 80GB HBM3", 16, 0),  # a slice that keeps the name
        ("NVIDIA A100-SXM-64GB", 124, 0),  # one of a kind
        ("GRID A100X-40C", 108, 0),
        ("AMD Instinct MI300X", 38, 0),  # one of eight dies
        ("AMD Radeon Graphics", 104, 0),
        ("NVIDIA H100", 0, 0),  # which one?
        ("NVIDIA GeForce RTX 3080", 0, 0),  # there are two
        ("NVIDIA A100-PG509-200", 108, 0),  # there are two
    ],
)
def test_a_name_that_does_not_identify_the_board_has_no_peaks(name, sm_count, memory_bytes):
    assert peaks_of(name, sm_count, memory_bytes) is None


@of_each(
    ("name", "sm_count", "memory_bytes", "board"),
    [
        ("NVIDIA H100", 114, 0, "NVIDIA H100 PCIe"),
        ("NVIDIA H100", 132, 0, "NVIDIA H100 SXM"),
        ("NVIDIA GeForce RTX 3080", 68, 0, "NVIDIA GeForce RTX 3080 10GB"),
        ("NVIDIA GeForce RTX 3080", 0, 12 * GIB - 5, "NVIDIA GeForce RTX 3080 12GB"),
        ("AMD Instinct MI250X / MI250", 104, 0, "AMD Instinct MI250 (one die)"),
        ("AMD Instinct MI250X / MI250", 110, 0, "AMD Instinct MI250X (one die)"),
        ("NVIDIA A100-PG509-200", 108, 84_990_623_744, "NVIDIA A100 SXM 80GB"),
    ],
)
def test_siblings_of_one_name_are_distinguished_by_their_size(name, sm_count, memory_bytes, board):
    peaks = peaks_of(name, sm_count, memory_bytes)
    assert peaks is not None
    assert peaks.name == board


def test_the_ridge_point_of_an_h100_is_295_flop_a_byte():
    peaks = peaks_of("NVIDIA H100 80GB HBM3")
    assert peaks is not None
    assert round(peaks.ridge_flop_per_byte("bf16")) == 295
    assert peaks.ridge_flop_per_byte("fp4") == 0


@of_each("entry", ENTRIES)
def test_rates_of_a_board_fit_each_other(entry):
    """A rate with sparsity, or with fp16 sums on a GeForce, stands out: types of half the size run at twice the rate."""
    rates = {kind: entry[kind] for kind in DATA_TYPES if kind in entry}
    assert entry["source"]
    assert entry["memory"] > 0
    assert entry["pcie"] in (15.75, 31.5, 63)
    assert {"fp64", "fp32", "fp16"} <= rates.keys()
    matrix_fp32 = max(entry["fp32"], entry.get("fp32_matrix", 0))
    assert rates["fp16"] > matrix_fp32
    if "tf32" in rates:
        assert rates["fp16"] / rates["tf32"] == pytest.approx(2, rel=0.02)
        assert rates["bf16"] == rates["fp16"]
    if "fp8" in rates:
        assert rates["fp8"] / rates["fp16"] == pytest.approx(2, rel=0.02)
    if "GeForce" in entry["name"]:
        assert rates["fp16"] / rates["fp32"] == pytest.approx(4 if "2080" in entry["name"] else 2, rel=0.02)
        assert rates.get("tf32", rates["fp32"]) == rates["fp32"]


@of_each("entry", ENTRIES)
def test_every_board_can_be_named_as_the_table_names_it(entry):
    found, near = named(entry["name"])
    assert found is not None
    assert (found.name, near) == (entry["name"], ())
    re.compile(entry["match"])


def test_a_name_of_several_boards_names_none_and_lists_them():
    found, near = named("h100")
    assert found is None
    assert sorted(near) == ["NVIDIA H100 NVL", "NVIDIA H100 PCIe", "NVIDIA H100 SXM"]
    found, near = named("something else")
    assert found is None
    assert len(near) == len(ENTRIES)


def test_the_users_values_replace_those_of_the_table():
    board = peaks_of("NVIDIA A100-SXM4-80GB")
    peaks = with_rates(board, {"fp64": 1e12, "memory": 3e12})
    assert peaks is not None
    assert peaks.matmul_flop_per_second("fp64") == 1e12  # also in place of its matrix units
    assert peaks.matmul_flop_per_second("bf16") == 312e12
    assert peaks.memory_bytes_per_second == 3e12
    assert with_rates(board, {}) is board
    alone = with_rates(None, {"bf16": 5e14})
    assert alone is not None
    assert (alone.half_flop_per_second, alone.fp32_flop_per_second, alone.memory_bytes_per_second) == (5e14, 0, 0)
    assert alone.ridge_flop_per_byte("bf16") == 0
    assert with_rates(None, {}) is None


@pytest.mark.parametrize(
    ("name", "one_way"),
    [("NVIDIA H100 80GB HBM3", 450e9), ("NVIDIA B300 SXM6 AC", 900e9), ("NVIDIA A100-SXM4-80GB", 300e9)],
)
def test_links_are_given_one_way(name, one_way):
    link = link_of(name)
    assert link is not None
    assert link.peak_bytes_per_second == one_way
