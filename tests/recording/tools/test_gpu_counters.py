"""Are the GPU's own counters sampled where that is permitted, and is the recording kept where it is not?"""

from __future__ import annotations

import mmap
import os
import sys
from functools import partial
from pathlib import Path

import pytest
from real_nsys import nsys as real_nsys

from perfdoctor.recording.launch import program_run as launch
from perfdoctor.recording.tools import gpu_counters, nsys
from perfdoctor.recording.tools.gpu_counters import GpuCounters

OPTIONS = frozenset({"trace", "output", "gpu-metrics-devices", "gpu-metrics-frequency"})
#: What nsys lists, as its user's guide shows it.
TWO_GPUS = r"\t0: NVIDIA A100 PCI[0000:07:00.0]\n\t1: NVIDIA A100 PCI[0000:0f:00.0]\n"
ALL = TWO_GPUS + r"\tall: Select all supported GPUs\n\tnone: Disable GPU Metrics [Default]\n"


RESTRICTED = "EnableMSI: 1\nRmProfilingAdminOnly: 1\nModifyDeviceFiles: 1\n"
NO_CAPABILITY, SYS_ADMIN, PERFMON = "0000000000000000", "0000000000200000", "0000004000000000"


@pytest.mark.parametrize(
    ("params", "capabilities", "refused"),
    [
        (RESTRICTED, NO_CAPABILITY, True),
        (RESTRICTED, "00000000a80425fb", True),  # root in a container
        (RESTRICTED, SYS_ADMIN, False),
        (RESTRICTED, PERFMON, False),
        (RESTRICTED.replace("Only: 1", "Only: 0"), NO_CAPABILITY, False),
        ("EnableMSI: 1\n", NO_CAPABILITY, False),
    ],
)
def test_counters_need_an_administrator_where_the_driver_restricts_them(
    tmp_path: Path, params: str, capabilities: str, refused: bool
) -> None:
    (tmp_path / "params").write_text(params)
    (tmp_path / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    trouble = gpu_counters.permission_trouble(tmp_path / "params", tmp_path / "status")
    assert bool(trouble) == refused
    if refused:
        assert "ERR_NVGPUCTRPERM" in trouble
        assert "NVreg_RestrictProfilingToAdminUsers=0" in trouble


def test_without_a_driver_there_is_no_trouble_with_permissions(tmp_path: Path) -> None:
    assert gpu_counters.permission_trouble(tmp_path / "params") == ""


def listing(folder: Path, printed: str, options: frozenset[str] = OPTIONS) -> nsys.Nsys:
    """An nsys that lists these devices."""
    file = folder / "nsys"
    file.write_text(f"#!/bin/sh\nprintf '{printed}'\n")
    file.chmod(0o755)
    return nsys.Nsys(str(file), "x", options)


@pytest.mark.parametrize(
    ("printed", "devices"),
    [
        (ALL, "all"),
        (ALL + r"\tcuda-visible: GPUs of CUDA_VISIBLE_DEVICES\n", "cuda-visible"),
        (r"\t3: NVIDIA A100 MIG 1g.5gb\n\tnone: Disable\n", "3"),
    ],
)
def test_nsys_samples_the_devices_that_it_lists(tmp_path: Path, printed: str, devices: str) -> None:
    tool = listing(tmp_path, printed)
    found = gpu_counters.find(tool, "", tmp_path)
    assert (found.option, found.devices, found.trouble, found.doubt) == ("gpu-metrics-devices", devices, "", "")
    options = found.options(tool, gpus=8, steps=10)
    assert options == {"gpu-metrics-devices": devices, "gpu-metrics-frequency": "5000"}
    command = nsys.command(tool, tmp_path / "x", ["p"], has_gpu=True, has_range=True, counters=options)
    assert {f"--gpu-metrics-devices={devices}", "--gpu-metrics-frequency=5000"} <= set(command)


@pytest.mark.parametrize(
    ("gpus", "steps", "hz"), [(1, 10, "10000"), (8, 10, "5000"), (8, 30, "1667"), (8, 1000, "1000"), (1, 0, "1000")]
)
def test_more_gpus_and_longer_windows_are_sampled_less_often(gpus: int, steps: int, hz: str) -> None:
    tool = nsys.Nsys("/n/nsys", "x", OPTIONS)
    options = GpuCounters("gpu-metrics-devices", "all").options(tool, gpus=gpus, steps=steps)
    assert options["gpu-metrics-frequency"] == hz


@pytest.mark.parametrize(
    ("printed", "trouble", "do"),
    [
        (
            "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
            "administrator",
            "NVreg_Restrict",
        ),
        (TWO_GPUS + "MIG instances found. Please, specify GPUs explicitly.", "divided (MIG)", "=ID"),
        ("None of the installed GPUs are supported.", "no counters of this GPU", "Turing"),
        ("NVIDIA GPUs not found, feature is not available", "finds no GPU", "NVIDIA_DRIVER_CAPABILITIES"),
        ("something new", "lists no GPU", "Update"),
    ],
)
def test_where_nsys_samples_nothing_it_is_said_why_and_what_to_do(
    tmp_path: Path, printed: str, trouble: str, do: str
) -> None:
    found = gpu_counters.find(listing(tmp_path, printed), "", tmp_path)
    assert trouble in found.trouble
    assert do in found.do
    assert found.options(listing(tmp_path, printed), gpus=1, steps=10) == {}


def test_without_permission_or_option_nsys_is_not_even_asked(tmp_path: Path) -> None:
    refused = gpu_counters.find(nsys.Nsys("/nowhere", "x", OPTIONS), "only an administrator may: run as root")
    assert (refused.trouble, refused.do) == ("only an administrator may", "Run as root.")
    assert "2021.2" in gpu_counters.find(nsys.Nsys("/nowhere", "x", frozenset({"trace"})), "").do
    assert gpu_counters.find(None, "").trouble


def test_an_nsys_that_does_not_answer_samples_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys, "_PROBE_TIMEOUT_S", 0.2)
    tool = listing(tmp_path, ALL)
    Path(tool.path).write_text("#!/bin/sh\nexec sleep 60\n")
    for each in (tool, nsys.Nsys("/nowhere", "x", OPTIONS)):
        assert "does not list" in gpu_counters.find(each, "", tmp_path).trouble


def test_dcgm_that_runs_here_is_a_doubt(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "comm").write_text("nv-hostengine\n")
    found = gpu_counters.find(listing(tmp_path, ALL), "", tmp_path)
    assert (found.devices, found.doubt) == ("all", "nv-hostengine")


# --- the real one, which finds no GPU here ---

SENTENCES = {
    "does not have permission to access NVIDIA %2% Performance Counters on the target device.": "administrator",
    "sampling hardware unit is already in use by another instance of %2% or other tool.": "another tool",
    "MIG instances found. Please, specify GPUs explicitly.": "MIG",
    "Concurrent GPU metrics sampling within a single MIG enabled GPU is not supported": "MIG",
    "GPU metrics collection disabled due to Confidential Compute mode.": "Confidential Compute",
    "None of the installed GPUs are supported.": "no counters of this GPU",
    "Metric set is not supported by GPU ": "no counters of this GPU",
    " is not supported by available metric sets.": "no counters of this GPU",
    "Unsupported driver version": "with this driver",
    "NVIDIA GPUs not found, feature is not available": "finds no GPU",
    ": Select all supported GPUs": "",
}


@pytest.mark.nsys
@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_refusal_is_recognised_word_by_word(sentence: str) -> None:
    (program,) = (Path(real_nsys()).parents[1] / "root").glob("usr/lib/*/nsight-systems/target-linux-x64/nsys")
    with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        assert content.find(sentence.encode()) >= 0
    assert SENTENCES[sentence] in " ".join(gpu_counters.explain(f"GPU Metrics [0]: {sentence}") or ())


@pytest.mark.nsys
def test_the_real_one_without_a_gpu_samples_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOCTOR_NSYS", real_nsys())
    assert gpu_counters.find(nsys.find(), "").trouble == "nsys finds no GPU"


@pytest.mark.nsys
def test_an_nsys_that_refuses_the_counters_records_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOCTOR_NSYS", real_nsys())
    tool, log, stem = nsys.find(), tmp_path / "nsys.log", tmp_path / "report"
    assert tool is not None
    option = next(each for each in ("gpu-metrics-devices", "gpu-metrics-device") if tool.has(each))
    wanted = GpuCounters(option, "all").options(tool, gpus=1, steps=10)
    plain = partial(nsys.command, tool, stem, has_gpu=False, has_range=False)
    around = launch.ProfilerCommand(partial(plain, counters=wanted), log, plain)
    program = [sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'a').write('.'); raise SystemExit(3)"]
    ended = launch.run(program, dict(os.environ), tool=around, time_limit_s=120)
    assert (ended.code, ended.alone, (tmp_path / "ran").read_text()) == (3, False, ".")
    assert "it was started again and asked for less" in ended.notes[0]
    assert nsys.report_of(stem) is not None
    assert gpu_counters.explain(log.read_text()) is not None
