"""Reports of Nsight Compute read from their bytes are as NVIDIA's own package reads them; damaged ones are refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from folders import public, public_files
from hypothesis import given
from hypothesis import strategies as st
from ncu_files import block, launch, report, rule
from ncu_tables import RAW, agrees

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.ncu import nvidia_package as ncu_package
from perfdoctor.readers.ncu import profiles as ncu
from perfdoctor.readers.ncu import report_file as ncu_file
from perfdoctor.system import tool_process

#: The hand-made launch of the tables, in base units.
NAMES = [name for name, _, _ in RAW]
VALUES = {number: float(value.replace(",", "")) for number, (_, _, value) in enumerate(RAW)}
ABOUT = {
    "device__attribute_display_name": "Tesla T4", "device__attribute_compute_capability_major": 7,
    "device__attribute_compute_capability_minor": 5, "launch__device_id": 0,
}  # fmt: skip
ALL_NAMES = [*NAMES, *ABOUT]
ALL = {**VALUES, **{len(NAMES) + at: value for at, value in enumerate(ABOUT.values())}}
WHOLE = report(
    block([]),
    block([], sources=[b"a cubin"]),
    block(ALL_NAMES, [launch(ALL, [rule("Tail", {"text": "Effect", "title": "Tail", "percent": 50.0})])], [b"x"]),
)


@pytest.fixture(autouse=True)
def by_ourselves(request, monkeypatch):
    """Neither NVIDIA's package nor ncu is used, except where a test requests them."""
    if "theirs" not in request.fixturenames:
        monkeypatch.setattr(ncu_package, "is_installed", lambda: False)
        monkeypatch.setattr(tool_process, "find", lambda _: None)


def read(tmp_path: Path, data: bytes):
    file = tmp_path / "kernels.ncu-rep"
    file.write_bytes(data)
    return ncu.read(file)


def test_a_report_gives_what_its_table_gives(tmp_path):
    timeline = read(tmp_path, WHOLE)
    frame = timeline["kernel_profiles"]
    agrees({name: column[0] for name, column in frame.columns.items()} | {"process": 31440})
    assert list(frame.text("gpu")) == ["Tesla T4"]
    advice = timeline["kernel_advice"]
    assert (list(advice.name), advice.floats("speedup_share").tolist()) == (["Tail"], [0.5])
    assert (advice["is_global"].tolist(), list(advice.text("message"))) == ([True], ["Tail Effect"])


def test_names_are_in_the_block_that_is_the_first_to_use_them(tmp_path):
    time, sm = "gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    blocks = block([time], [launch({0: 5.0})]), block([sm], [launch({0: 7.0, 1: 40.0}), launch({1: 50.0}, name="k")])
    frame = read(tmp_path, report(*blocks))["kernel_profiles"]
    assert np.nan_to_num(frame.floats("gpu_time_ns")).tolist() == [5, 7, 0]
    assert np.nan_to_num(frame.floats("sm_share")).tolist() == [0, 0.4, 0.5]
    assert list(frame.name) == ["void add<float>(int)"] * 2 + ["k"]


def test_a_name_may_stand_in_a_later_block(tmp_path):
    time, sm = "gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    blocks = block([time], [launch({0: 5.0, 1: 40.0})]), block([sm], [launch({1: 50.0}, name="k")])
    frame = read(tmp_path, report(*blocks))["kernel_profiles"]
    assert np.nan_to_num(frame.floats("sm_share")).tolist() == [0.4, 0.5]


def test_rules_that_only_compute_or_failed_give_nothing_and_those_of_a_part_are_not_global(tmp_path):
    results = [
        rule("Compute"),
        rule("Table", {}),
        rule("Broken", {"text": "raise_exception at /home/somebody/Documents/Sections", "type": 3}),
        rule("Stall", {"percent": 12.5, "kind": 1}, {"text": "no estimate"}),
        rule("Much", {"percent": 400.0}),
    ]
    advice = read(tmp_path, report(block(NAMES, [launch(VALUES, results)])))["kernel_advice"]
    assert list(advice.name) == ["Stall", "Stall", "Much"]
    assert advice["is_global"].tolist() == [False, False, True]
    assert np.nan_to_num(advice.floats("speedup_share"), nan=-1).tolist() == [0.125, -1, 1.0]


@pytest.mark.parametrize("name", ["</script>[/]", "", "k" * 100_000, "a\0b", "\x1b[31m"])
def test_hostile_names_stay_names(tmp_path, name):
    data = report(block(NAMES, [launch(VALUES, name=name)]))
    assert list(read(tmp_path, data)["kernel_profiles"].name) == [name[:8_192] or "add"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (report(block(NAMES, [launch(VALUES)]), version=8), "version 8 of the format, not in 7"),
        (report(), "holds no measured kernel"),
        (report(block(NAMES)), "holds no measured kernel"),
        (b"NVR\0", "is damaged"),
        (b"NVR\0" + b"\xff" * 100, "is damaged"),
        (WHOLE[:-1], "breaks off"),
        (report(block(NAMES, [launch({99: 1.0})])), "is damaged"),  # a name that is in no table
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_do(tmp_path, data, says):
    with pytest.raises(PerfdoctorError, match=says) as caught:
        read(tmp_path, data)
    assert "perfdoctor[ncu]" in caught.value.do
    assert "\n" not in caught.value.what


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e300, -5.0, 1 << 63, "a text", 2.7e15])
def test_a_number_that_cannot_be_is_unknown(tmp_path, value):
    frame = read(tmp_path, report(block(ALL_NAMES, [launch(dict.fromkeys(ALL, value)), launch(ALL)])))[
        "kernel_profiles"
    ]
    assert all(math.isnan(frame.floats(name)[0]) for name in ("gpu_time_ns", "dram_bytes", "sm_share", "flop"))
    assert (frame["device"][0], frame["compute_capability"][0], frame.end_ns[0]) == (-1, -1, 0)
    assert frame.floats("gpu_time_ns")[1] == 52576


@given(st.data())
def test_no_damage_makes_it_fail_in_another_way(tmp_path_factory, data):
    """Bytes changed, cut off or put in: launches or one clear line, and nothing else."""
    damaged = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(4, len(damaged)))
    file = tmp_path_factory.mktemp("damaged") / "k.ncu-rep"
    file.write_bytes(bytes(damaged[:end]))
    try:
        assert len(ncu.read(file)["kernel_profiles"])
    except PerfdoctorError as error:
        assert error.do


REPORTS = public_files("ncu/*.ncu-rep")
real = pytest.mark.parametrize("file", REPORTS, ids=[file.stem for file in REPORTS])


@pytest.fixture
def theirs():
    return pytest.importorskip("ncu_report", reason="NVIDIA's package is not installed: pip install 'perfdoctor[ncu]'")


@pytest.mark.recordings
@real
def test_a_real_report_is_read_as_nvidias_package_reads_it(file, theirs):
    """Every launch with every metric that is read, and every message of its rules."""
    for ours, other in zip(ncu_file.read_launches(file), ncu_package.read_launches(theirs, file), strict=True):
        assert {name: values[0][0] for name, values in ours.metrics.items()} == {
            name: values[0][0] for name, values in other.metrics.items()
        }
        assert (ours.name, ours.grid, ours.block) == (other.name, other.grid, other.block)
        assert (ours.gpu, ours.compute_capability, ours.device) == (other.gpu, other.compute_capability, other.device)
        assert [(a.rule, a.message, a.is_global) for a in ours.advice] == [
            (a.rule, a.message, a.is_global) for a in other.advice
        ]
        shares = [(a.share, b.share) for a, b in zip(ours.advice, other.advice, strict=True)]
        assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in shares)


@pytest.mark.recordings
@real
def test_units_that_a_report_lacks_are_those_of_nvidias_package(file, theirs):
    found = ncu._timeline(file, ncu_file.read_launches(file), ())["kernel_profiles"]
    expected = ncu._timeline(file, ncu_package.read_launches(theirs, file), ())["kernel_profiles"]
    for name, column in found.columns.items():
        assert list(map(str, column)) == list(map(str, expected.columns[name])), name


#: What NVIDIA's package 2026.3.1 gives: ns, processors, memory, warps taken and possible, waves, blocks, results of rules.
NVIDIA = {
    "mlp-t4-v1": (52576, 0.2779842080817464, 0.8839294497639034, 0.7936736665076577, 1.0, 24.80625, 3969, 9),
    "mlp-t4-v7": (66432, 0.13648775034131347, 0.8508528411364546, 0.7949726803674164, 1.0, 6.10625, 977, 13),
    "rms-norm-pytorch": (30080, 0.6997066435140697, 0.2184029280253858, 0.5092466388593534, 0.625, 1.6, 1056, 4),
    "silu-triton": (141920, math.nan, math.nan, math.nan, 0.5, 2.0, 1056, 1),
}
COLUMNS = (
    "gpu_time_ns",
    "sm_share",
    "memory_share",
    "occupancy_share",
    "occupancy_limit_share",
    "waves_per_sm",
    "blocks",
)


@pytest.mark.recordings
@real
def test_a_real_report_gives_nvidias_numbers_without_its_package(file):
    timeline = ncu.read(file)
    frame = timeline["kernel_profiles"]
    *numbers, rules = NVIDIA[file.stem]
    assert [frame.columns[name][0] for name in COLUMNS] == pytest.approx(numbers, nan_ok=True)
    assert (len(frame), frame["threads_per_block"][0], len(timeline["kernel_advice"])) == (1, 256, rules)


@pytest.mark.recordings
def test_a_matrix_of_a_million_sums_is_a_million_operations():
    """1000 × 1000 numbers, two read and one written: at least 12 MB, and one addition each."""
    for name in ("mlp-t4-v1", "mlp-t4-v7"):
        frame = ncu.read(public(f"ncu/{name}.ncu-rep"))["kernel_profiles"]
        assert frame.floats("flop")[0] == pytest.approx(1e6)
        assert 12e6 < frame.floats("dram_bytes")[0] < 18e6
