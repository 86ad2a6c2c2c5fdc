"""What was measured on this machine: measured by the Python that has torch, kept, found again, laid beside a run."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import msgspec
import pytest
from measured_builders import H100, measurement, rates
from torch_python import torch_python

from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware.measured import encoded
from perfdoctor.recording import machine_rates
from perfdoctor.recording.tools.nvml import Devices, DriverGpu
from perfdoctor.system.processors import processor_name
from perfdoctor.system.run_folder import Manifest, RunFolder

KEY = (H100, "550.54.15", "2.9.0+cu128")
MEASURED = rates(measurement("h2d_pinned", 52e9))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "perfdoctor" / "machines"


def machine(*names: str, driver: str = "550.54.15", torch: str = "2.9.0+cu128"):
    gpus = tuple(DriverGpu(number, name, "", 0) for number, name in enumerate(names))
    return SimpleNamespace(program=SimpleNamespace(torch=torch), devices=Devices(gpus, driver if gpus else ""))


@pytest.mark.torch
def test_this_processor_is_measured_kept_and_found_again(cache):
    found = machine_rates.measure(torch_python(), dict(os.environ), quick=True)
    assert (found.machine.device, found.machine.kind) == (processor_name(), "processor")
    assert found.machine.threads >= 1
    assert {each.what for each in found.measurements} == {
        "matmul", "memory_copy", "all_reduce_latency", "all_reduce", "worker_receive", "worker_send"
    }  # fmt: skip
    batches = [(each.tensors, each.bytes) for each in found.measurements if each.what == "worker_receive"]
    assert batches == [(1, 4096), (16, 65_536), (1, 4 << 20)]
    assert {each.data_type for each in found.measurements if each.what == "matmul"} == {"bf16", "fp32"}
    assert {each.error for each in found.failed} <= {"RuntimeError: left out: it would take too long"}
    assert machine_rates.store(found).parent == cache
    assert machine_rates.of_machine(machine(torch=found.machine.torch)) == (found,)


def test_a_python_without_torch_is_an_error_that_says_so():
    with pytest.raises(PerfdoctorError, match="No module named 'torch'") as caught:
        machine_rates.measure(sys.executable, {**os.environ, "PYTHONPATH": ""}, quick=True)
    assert "--python" in caught.value.do


@pytest.mark.parametrize("printed", ["", "hello", '{"format": 1}'])
def test_a_python_that_prints_something_else_is_an_error(tmp_path, printed):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{printed}'\n")
    python.chmod(0o755)
    with pytest.raises(PerfdoctorError, match="no document of measured rates"):
        machine_rates.measure(str(python), dict(os.environ), quick=True)


def test_a_warning_in_front_of_the_document_is_no_harm(tmp_path):
    python = tmp_path / "python"
    text = encoded(MEASURED).decode().replace("\n", "")
    python.write_text(f"#!/bin/sh\necho warning\necho '{text}'\n")
    python.chmod(0o755)
    assert machine_rates.measure(str(python), dict(os.environ), quick=True) == MEASURED


def test_what_was_kept_is_found_for_the_same_gpu_driver_and_torch_alone():
    machine_rates.store(MEASURED)
    assert machine_rates.stored(*KEY) == MEASURED
    for place, other in enumerate(("NVIDIA H100 PCIe", "560.1", "2.8.0")):
        assert machine_rates.stored(*(other if at == place else each for at, each in enumerate(KEY))) is None
    assert machine_rates.of_machine(machine(H100, H100)) == (MEASURED,)
    assert machine_rates.of_machine(machine(H100, driver="1")) == ()
    assert machine_rates.of_machine(machine(H100, torch="")) == ()
    assert machine_rates.of_machine(machine("NVIDIA A100-SXM4-40GB")) == ()


def test_names_that_share_a_file_are_not_taken_for_each_other(cache):
    machine_rates.store(rates(measurement("h2d_pinned", 1e9), device="../../a b"))
    assert [file.parent for file in cache.rglob("*.json")] == [cache]
    assert machine_rates.stored("a/b", *KEY[1:]) is None
    assert machine_rates.stored("../../a b", *KEY[1:]) is not None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert machine_rates.store(MEASURED) is None
    assert machine_rates.stored(*KEY) is None


def test_a_damaged_file_of_the_cache_counts_as_none():
    machine_rates.store(MEASURED).write_text("{")
    assert machine_rates.stored(*KEY) is None


def test_nothing_half_written_is_left(cache):
    machine_rates.store(MEASURED)
    machine_rates.store(replace_date(MEASURED))
    assert len(list(cache.iterdir())) == 1
    assert machine_rates.stored(*KEY).measured_on == "2026-11-23"


def replace_date(found):
    return msgspec.structs.replace(found, measured_on="2026-11-23")


def test_a_run_gets_what_fits_its_machine(tmp_path):
    machine_rates.store(MEASURED)
    other = rates(measurement("h2d_pinned", 20e9), device="NVIDIA A100-SXM4-40GB")
    machine_rates.store(other)
    folder = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="1"))
    machine_rates.keep_beside(folder, machine("NVIDIA L4"))
    assert not (folder.path / "device").exists()
    machine_rates.keep_beside(folder, machine(H100, "NVIDIA A100-SXM4-40GB"))
    assert sorted(file.name for file in folder.files("device", machine_rates.PATTERN)) == [
        "measured-2.json", "measured.json",
    ]  # fmt: skip
