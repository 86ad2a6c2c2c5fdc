from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from perfdoctor.readers.machine import topology
from perfdoctor.recording.tools import nvml as device
from perfdoctor.recording.tools.nvml import Devices, DeviceSampler, DriverGpu

SRC = Path(device.__file__).parents[3]

#: Two GPUs: the first has all values, the second only those of every GPU. `queried` counts the queries of each.
STAND_IN = """
import collections, types

NVML_ERROR_UNINITIALIZED, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION = 1, 3, 4
NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND = 9, 12, 13
NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED, NVML_ERROR_LIB_RM_VERSION_MISMATCH = 15, 16, 18
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
TEXT = {15: "GPU is lost", 3: "Not Supported", 4: "Insufficient Permissions", 12: "NVML Shared Library Not Found"}

class NVMLError(Exception):
    def __init__(self, value):
        self.value = value
    def __str__(self):
        return TEXT.get(self.value, "Unknown Error")

class NVMLLibraryMismatchError(Exception):
    pass

queried = collections.Counter()
init_error = 0
handle_error = 0
open_count = 0
samples_until_lost = None
old_driver = False
count = 2

def nvmlInit():
    global open_count
    if init_error:
        raise NVMLError(init_error)
    open_count += 1

def nvmlShutdown():
    global open_count
    open_count -= 1

def nvmlSystemGetDriverVersion():
    return "550.54.14"

def nvmlDeviceGetCount():
    return count

def nvmlDeviceGetHandleByIndex(index):
    if handle_error:
        raise NVMLError(handle_error)
    return index

def _tells(name, value, everywhere=False):
    def ask(gpu, *_):
        queried[name, gpu] += 1
        if gpu == 1 and not everywhere:
            raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
        return value
    globals()[name] = ask

_tells("nvmlDeviceGetName", "NVIDIA H200", everywhere=True)
_tells("nvmlDeviceGetMemoryInfo", types.SimpleNamespace(total=150_754_820_096, used=1_000), everywhere=True)
_tells("nvmlDeviceGetEnforcedPowerLimit", 700_000)
_tells("nvmlDeviceGetMaxPcieLinkGeneration", 5)
_tells("nvmlDeviceGetMaxPcieLinkWidth", 16)
_tells("nvmlDeviceGetMaxClockInfo", 1_980)
_tells("nvmlDeviceGetTemperature", 41, everywhere=True)
_tells("nvmlDeviceGetUtilizationRates", types.SimpleNamespace(gpu=97))
_tells("nvmlDeviceGetCurrPcieLinkGeneration", 4)
_tells("nvmlDeviceGetCurrPcieLinkWidth", 8)
_tells("nvmlDeviceGetCurrentClocksThrottleReasons", 0x4)

def nvmlDeviceGetUUID(gpu):
    return f"GPU-11111111-2222-3333-4444-55555555555{gpu}"

def nvmlDeviceGetPowerUsage(gpu):
    queried["power", gpu] += 1
    if samples_until_lost is not None and queried["power", gpu] > samples_until_lost:
        raise NVMLError(NVML_ERROR_GPU_IS_LOST)
    return 123_456

def nvmlDeviceGetClockInfo(gpu, which):
    return {NVML_CLOCK_SM: 1_500, NVML_CLOCK_MEM: 3_201}[which]

def nvmlDeviceGetTemperatureV(gpu, sensor):
    queried["temperature", gpu] += 1
    raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND)

def nvmlDeviceGetCurrentClocksEventReasons(gpu):
    if old_driver or gpu == 1:
        raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND)
    return 0x60

def nvmlDeviceGetPcieThroughput(gpu, counter):
    queried["pcie", gpu] += 1
    if gpu == 1:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return 5_000 + counter

def nvmlDeviceGetFieldValues(gpu, fields):
    queried["nvlink", gpu] += 1
    ((field, scope),) = fields
    assert scope == 0xFFFFFFFF
    refused = NVML_ERROR_NOT_SUPPORTED if gpu == 1 else 0
    return [types.SimpleNamespace(nvmlReturn=refused, value=types.SimpleNamespace(ullVal=field * 1000))]

def nvmlDeviceGetComputeRunningProcesses(gpu):
    raise NVMLLibraryMismatchError("too old")

def nvmlDeviceGetComputeRunningProcesses_v2(gpu):
    if gpu == 1:
        raise NVMLError(NVML_ERROR_NO_PERMISSION)
    return [object(), object()]
"""
OPTIONAL = {
    *("power_limit_mw", "max_sm_clock_mhz", "utilization_percent", "throttle_reasons", "pcie_rx_kb_per_s"),
    *("pcie_tx_kb_per_s", "pcie_generation", "pcie_width", "max_pcie_generation", "max_pcie_width"),
    *("nvlink_rx_kib", "nvlink_tx_kib", "processes"),
}


@pytest.fixture
def nvml(monkeypatch) -> ModuleType:
    module = ModuleType("pynvml")
    exec(STAND_IN, module.__dict__)  # the same text serves the test with a process of its own
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def sampled(target: Path, at_least: int, hertz: float = 200) -> tuple[DeviceSampler, list[dict[str, str]]]:
    """Sample until so many rows are there, or sampling has ended by itself."""
    sampler = DeviceSampler(target, hertz)
    assert sampler.start() == ""
    for _ in range(400):
        if sampler.trouble or len(rows_of(target)) >= at_least:
            break
        time.sleep(0.02)
    assert sampler.stop() == len(rows_of(target))
    return sampler, rows_of(target)


def rows_of(target: Path) -> list[dict[str, str]]:
    with target.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_gpu_has_one_row_a_tick_with_its_values(nvml, tmp_path):
    before_ns = time.time_ns()
    sampler, rows = sampled(tmp_path / "samples.csv", at_least=6)
    assert sampler.trouble == ""
    assert [row["device"] for row in rows[:4]] == ["0", "1", "0", "1"]
    assert before_ns <= int(rows[0]["unix_ns"]) <= int(rows[-1]["unix_ns"]) <= time.time_ns()
    assert {column: value for column, value in rows[0].items() if column not in {"unix_ns", "uuid"}} == {
        "device": "0",
        "power_mw": "123456",
        "power_limit_mw": "700000",
        "sm_clock_mhz": "1500",
        "memory_clock_mhz": "3201",
        "max_sm_clock_mhz": "1980",
        "temperature_c": "41",
        "utilization_percent": "97",
        "memory_used_bytes": "1000",
        "memory_total_bytes": "150754820096",
        "throttle_reasons": "0x60",
        "pcie_rx_kb_per_s": "5001",
        "pcie_tx_kb_per_s": "5000",
        "pcie_generation": "4",
        "pcie_width": "8",
        "max_pcie_generation": "5",
        "max_pcie_width": "16",
        "nvlink_rx_kib": "139000",
        "nvlink_tx_kib": "138000",
        "processes": "2",
    }


def test_optional_values_that_a_gpu_refuses_are_empty_and_not_queried_again(nvml, tmp_path):
    _, rows = sampled(tmp_path / "samples.csv", at_least=8)
    of_second = [row for row in rows if row["device"] == "1"]
    assert len(of_second) > 2
    for row in of_second:
        assert {column for column, value in row.items() if not value} == OPTIONAL
    assert nvml.queried["nvlink", 1] == 2  # once a direction
    assert nvml.queried["pcie", 1] == 2
    assert nvml.queried["nvmlDeviceGetUtilizationRates", 1] == 1
    assert nvml.queried["nvlink", 0] > 2


def test_constant_values_are_queried_once_and_slow_ones_once_a_second(nvml, tmp_path):
    _, rows = sampled(tmp_path / "samples.csv", at_least=20)
    of_first = [row for row in rows if row["device"] == "0"]
    assert nvml.queried["nvmlDeviceGetEnforcedPowerLimit", 0] == 1
    assert {row["power_limit_mw"] for row in of_first} == {"700000"}
    queried_rows = [row for row in of_first if row["pcie_rx_kb_per_s"]]
    assert nvml.queried["pcie", 0] == 2 * len(queried_rows)
    assert 1 <= len(queried_rows) <= 9 < len(of_first)
    assert [row["processes"] for row in queried_rows] == ["2"] * len(queried_rows)


def test_an_older_driver_is_queried_by_the_older_names(nvml, tmp_path):
    nvml.old_driver = True
    _, rows = sampled(tmp_path / "samples.csv", at_least=6)
    assert {row["throttle_reasons"] for row in rows if row["device"] == "0"} == {"0x4"}
    assert nvml.queried["temperature", 0] == 1  # the new name was refused, and not tried again
    assert nvml.queried["nvmlDeviceGetTemperature", 0] >= 3


def test_an_older_pynvml_lacks_a_function(nvml, tmp_path, monkeypatch):
    monkeypatch.delattr(nvml, "nvmlDeviceGetTemperatureV")
    monkeypatch.delattr(nvml, "nvmlDeviceGetFieldValues")
    _, rows = sampled(tmp_path / "samples.csv", at_least=2)
    assert rows[0]["temperature_c"] == "41"
    assert rows[0]["nvlink_rx_kib"] == ""


def test_uuids_are_hashed(nvml, tmp_path):
    _, rows = sampled(tmp_path / "samples.csv", at_least=2)
    first, second = rows[0]["uuid"], rows[1]["uuid"]
    assert re.fullmatch("[0-9a-f]{8}", first)
    assert first != second
    assert "GPU-" not in (tmp_path / "samples.csv").read_text()
    assert [gpu.uuid for gpu in device.find().gpus] == [first, second]


def test_a_lost_gpu_ends_sampling_with_the_reason(nvml, tmp_path):
    nvml.samples_until_lost = 3
    sampler, rows = sampled(tmp_path / "samples.csv", at_least=1_000)
    assert sampler.trouble == "GPU 0: GPU is lost"
    assert len(rows) == 6
    assert nvml.open_count == 0


def test_the_rate_is_roughly_the_requested_one(nvml, tmp_path):
    sampler = DeviceSampler(tmp_path / "samples.csv", hertz=10)
    assert sampler.start() == ""
    time.sleep(1)
    assert 3 <= sampler.stop() / 2 <= 14


def test_missed_ticks_are_skipped(nvml, tmp_path, monkeypatch):
    slow = nvml.nvmlDeviceGetPowerUsage

    def stalled(gpu):
        if nvml.queried["power", gpu] == 0:
            time.sleep(0.6)
        return slow(gpu)

    monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", stalled)
    nvml.count = 1
    sampler = DeviceSampler(tmp_path / "samples.csv", hertz=10)
    assert sampler.start() == ""
    time.sleep(1)
    assert 2 <= sampler.stop() <= 6  # 11, had they been made up for


def test_of_samples_that_are_taken_for_days_the_latest_are_kept(nvml, tmp_path):
    target = tmp_path / "samples.csv"
    sampler = DeviceSampler(target, hertz=200, most_ticks=4)
    assert sampler.start() == ""
    while sampler._rows < 30:
        time.sleep(0.01)
    sampler.stop()
    latest = [int(row["unix_ns"]) for file in (device.before(target), target) for row in rows_of(file)]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["samples-before.csv", "samples.csv"]
    assert len(rows_of(device.before(target))) == 8
    assert len(rows_of(target)) < 8
    assert latest == sorted(latest)


def test_stopping_twice_gives_the_same_number_and_stopping_what_never_ran_gives_none(nvml, tmp_path):
    sampler, rows = sampled(tmp_path / "samples.csv", at_least=2)
    assert sampler.stop() == sampler.stop() == len(rows)
    assert nvml.open_count == 0
    assert DeviceSampler(tmp_path / "other.csv").stop() == 0
    assert not (tmp_path / "other.csv").exists()


def test_a_driver_that_never_answers_does_not_keep_perfdoctor(nvml, tmp_path, monkeypatch):
    monkeypatch.setattr(device, "_JOIN_TIMEOUT_S", 0.1)
    monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", lambda gpu: time.sleep(2))
    sampler = DeviceSampler(tmp_path / "samples.csv")
    assert sampler.start() == ""
    began = time.monotonic()
    assert sampler.stop() == 0
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("NVML_ERROR_LIBRARY_NOT_FOUND", "no NVIDIA driver here (libnvidia-ml was not found)"),
        ("NVML_ERROR_DRIVER_NOT_LOADED", "the NVIDIA driver is not loaded"),
        ("NVML_ERROR_NO_PERMISSION", "not permitted to use the NVIDIA driver"),
        ("NVML_ERROR_UNINITIALIZED", "Unknown Error"),
    ],
)
def test_where_nvml_does_not_open_there_is_a_reason_and_no_file(nvml, tmp_path, error, reason):
    nvml.init_error = getattr(nvml, error)
    sampler = DeviceSampler(tmp_path / "samples.csv")
    assert sampler.start() == reason
    assert sampler.stop() == 0
    assert list(tmp_path.iterdir()) == []
    assert device.find() == Devices(trouble=reason)


def test_a_machine_with_a_driver_and_no_gpu_has_its_own_reason(nvml, tmp_path):
    nvml.count = 0
    assert DeviceSampler(tmp_path / "samples.csv").start() == "no GPU"
    assert device.find() == Devices(driver="550.54.14", trouble="no GPU")
    nvml.count, nvml.handle_error = 1, nvml.NVML_ERROR_NO_PERMISSION
    assert DeviceSampler(tmp_path / "samples.csv").start() == "no GPU may be queried: Insufficient Permissions"
    assert list(tmp_path.iterdir()) == []
    assert nvml.open_count == 0


def test_without_pynvml_the_reason_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert DeviceSampler(tmp_path / "samples.csv").start() == "pynvml (nvidia-ml-py) is not installed"
    assert device.find().trouble == "pynvml (nvidia-ml-py) is not installed"


def test_a_folder_that_is_not_there_is_a_reason(nvml, tmp_path):
    assert DeviceSampler(tmp_path / "nowhere" / "samples.csv").start() == (
        "samples.csv cannot be written: No such file or directory"
    )
    assert nvml.open_count == 0


def test_find_gives_gpus_and_driver(nvml):
    found = device.find()
    assert found.driver == "550.54.14"
    assert found.trouble == ""
    assert found.gpus[0] == DriverGpu(0, "NVIDIA H200", found.gpus[0].uuid, 150_754_820_096)
    assert [gpu.index for gpu in found.gpus] == [0, 1]
    assert nvml.open_count == 0


def test_find_does_not_raise_where_a_gpu_is_lost(nvml, monkeypatch):
    def lost(gpu):
        raise nvml.NVMLError(nvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(nvml, "nvmlDeviceGetName", lost)
    assert device.find() == Devices(driver="550.54.14", trouble="GPU is lost")


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has a GPU")
def test_the_real_pynvml_without_a_gpu_gives_a_reason(tmp_path):
    pytest.importorskip("pynvml")
    reason = DeviceSampler(tmp_path / "samples.csv").start()
    assert "NVIDIA driver" in reason
    assert list(tmp_path.iterdir()) == []
    assert device.find() == Devices(trouble=reason)


def test_every_name_that_is_queried_is_in_the_real_pynvml():
    pynvml = pytest.importorskip("pynvml")
    names = set(re.findall(r"\b(?:py)?nvml\.(\w{5,})", Path(device.__file__).read_text()))
    assert len(names) > 25
    assert {name for name in names if not hasattr(pynvml, name)} == set()


def test_a_killed_process_leaves_a_file_that_can_be_read(tmp_path):
    (tmp_path / "pynvml.py").write_text(STAND_IN)
    target = tmp_path / "samples.csv"
    script = (
        "import sys, time; from pathlib import Path; from perfdoctor.recording.tools.nvml import DeviceSampler\n"
        f"assert not DeviceSampler(Path({str(target)!r}), 200).start(); time.sleep(60)"
    )
    paths = os.pathsep.join((str(tmp_path), str(SRC)))
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": paths})
    try:
        for _ in range(1_000):
            if target.exists() and target.read_bytes().count(b"\n") > 20:
                break
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    header, *rows = target.read_text().split("\n")[:-1]  # what follows the last line's end was not whole
    assert header == ",".join(device.COLUMNS)
    assert len(rows) >= 20
    assert {row.count(",") for row in rows} == {len(device.COLUMNS) - 1}


def test_sampling_needs_no_torch_and_pynvml_is_imported_only_when_used():
    code = "import sys, perfdoctor.recording.tools.nvml; print({'torch', 'pynvml'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "set()\n"


# --- the table of links ---

TABLE = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV12\t0-31\t0\nGPU1\tNV12\t X \t32-63\t1\n"


def smi(folder: Path, body: str) -> str:
    """A folder to be PATH, with an nvidia-smi that does this."""
    file = folder / "nvidia-smi"
    file.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    file.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_the_table_of_links_is_kept_as_printed_and_can_be_read(tmp_path, monkeypatch):
    (tmp_path / "table").write_text(TABLE, "utf-8")
    monkeypatch.setenv("PATH", smi(tmp_path, f'[ "$*" = "topo -m" ] && cat {tmp_path}/table'))
    target = tmp_path / "topology.txt"
    assert device.keep_topology(target)
    assert target.read_text("utf-8") == TABLE
    assert "NV12" in list(topology.read(target)["links"].name)


@pytest.mark.parametrize("body", ["echo no devices; exit 9", "echo no table", "exit 0"])
def test_where_nvidia_smi_prints_no_table_there_is_no_file(body, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", smi(tmp_path, body))
    assert not device.keep_topology(tmp_path / "topology.txt")
    assert not (tmp_path / "topology.txt").exists()


def test_an_nvidia_smi_that_hangs_is_abandoned(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "_TOPOLOGY_TIMEOUT_S", 0.2)
    monkeypatch.setenv("PATH", smi(tmp_path, "exec sleep 30"))
    assert not device.keep_topology(tmp_path / "topology.txt")


def test_without_nvidia_smi_there_is_no_table(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not device.keep_topology(tmp_path / "topology.txt")
