"""Samples of the driver, read on while they are written."""

from __future__ import annotations

from pathlib import Path

from perfdoctor.recording.tools.nvml import COLUMNS
from perfdoctor.watching.throttling import GpuSamples, Throttled, visible


def row(device: int, reasons: str, used: object = 95) -> str:
    values = {"device": device, "throttle_reasons": reasons, "utilization_percent": used, "sm_clock_mhz": 1005}
    values |= {"max_sm_clock_mhz": 1980, "unix_ns": 1}
    return ",".join(str(values.get(column, "")) for column in COLUMNS) + "\n"


def test_a_gpu_that_is_hot_in_half_of_twenty_samples_is_throttled(tmp_path: Path) -> None:
    file = tmp_path / "samples.csv"
    samples = GpuSamples(file)
    assert samples.throttled() == []
    file.write_text(",".join(COLUMNS) + "\n" + "".join(row(0, "0x0") + row(1, "0x40") for _ in range(9)), "utf-8")
    assert samples.throttled() == []
    with file.open("a", encoding="utf-8") as more:
        more.write(row(1, "0x60")[:20])
        more.flush()
        assert samples.throttled() == []
        more.write(row(1, "0x60")[20:])
    assert samples.throttled() == [Throttled(1, "heat", 1005, 1980)]


def test_an_idle_gpu_or_a_limit_of_power_is_no_trouble(tmp_path: Path) -> None:
    file = tmp_path / "samples.csv"
    rows = [row(0, "0x40", used=0) + row(1, "0x4") + row(2, "") + "damaged\n" for _ in range(20)]
    file.write_text(",".join(COLUMNS) + "\n" + "".join(rows), "utf-8")
    assert GpuSamples(file).throttled() == []


def test_a_gpu_that_is_held_back_again_and_again_is_so_until_twenty_samples_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "samples.csv"
    file.write_text(",".join(COLUMNS) + "\n", "utf-8")
    samples, said = GpuSamples(file), []
    for reasons in ["0x40"] * 10 + (["0x0"] * 12 + ["0x40"] * 8) * 4 + ["0x0"] * 20:
        with file.open("a", encoding="utf-8") as more:
            more.write(row(0, reasons))
        said.append(len(samples.throttled()))
    assert said == [0] * 9 + [1] * 100 + [0]


def test_samples_are_read_on_in_the_file_that_follows(tmp_path: Path) -> None:
    file = tmp_path / "samples.csv"
    header = ",".join(COLUMNS) + "\n"
    file.write_text(header + row(0, "0x0") * 100, "utf-8")
    samples = GpuSamples(file)
    assert samples.throttled() == []
    for count in (6, 12):
        file.write_text(header + row(0, "0x40") * count, "utf-8")
        held = samples.throttled()
    assert held == [Throttled(0, "heat", 1005, 1980)]


def test_all_gpus_that_are_held_back_are_named_but_not_those_of_others(tmp_path: Path) -> None:
    file = tmp_path / "samples.csv"
    rows = [row(device, "0x40") for _ in range(20) for device in range(4)]
    file.write_text(",".join(COLUMNS) + "\n" + "".join(rows), "utf-8")
    devices = visible({"CUDA_VISIBLE_DEVICES": "1, 3"})
    assert [each.device for each in GpuSamples(file, devices).throttled()] == [1, 3]
    for given in ({}, {"CUDA_VISIBLE_DEVICES": "GPU-5c1a"}, {"CUDA_VISIBLE_DEVICES": ""}):
        assert visible(given) is None
