"""Which passes are planned on which machine, and why others are left out."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording import plan
from perfdoctor.recording.launch.program import Program
from perfdoctor.recording.tools.gpu_counters import GpuCounters
from perfdoctor.recording.tools.nsys import Nsys
from perfdoctor.recording.tools.nvml import Devices, DriverGpu

NSYS = Nsys("/n/nsys", "2025.1.1", frozenset({"trace", "output", "discard-environment"}))
GPU = Devices((DriverGpu(0, "NVIDIA H100 80GB HBM3", "0", 80 << 30),), "570.1", "")
NO_GPU = Devices((), "", "no NVIDIA driver here")
PYTHON = Program(("python", "t.py"), "/bin/python", python="3.11.1", torch="2.13", was_inspected=True)


def machine(**changes) -> plan.Machine:
    known = {"program": PYTHON, "nsys": NSYS, "ncu": "/n/ncu", "devices": GPU, "ncu_trouble": ""}
    return plan.Machine(**{**known, **changes})


def test_with_a_gpu_and_nsys_it_is_one_nsys_pass(tmp_path: Path) -> None:
    made = plan.make(machine(), None, tmp_path)
    assert made.passes == ("nsys",)
    assert set(made.left_out) == {"torch", "ncu"}
    assert "CUPTI" in made.left_out["torch"]


def test_the_plan_says_whether_nsys_samples_the_gpus_counters(tmp_path: Path) -> None:
    sampled = plan.make(machine(counters=GpuCounters("gpu-metrics-devices", "all")), None, tmp_path)
    assert "the GPU's counters" in sampled.lines("10 steps")[0]
    assert sampled.warnings == ()
    refused = plan.make(machine(counters=GpuCounters(trouble="not permitted", do="Run as root.")), None, tmp_path)
    assert "the GPU's counters" not in refused.lines("10 steps")[0]
    assert refused.warnings == ("nsys without the GPU's counters: not permitted. Run as root.",)


def test_without_nsys_it_is_one_torch_pass(tmp_path: Path) -> None:
    made = plan.make(machine(nsys=None), None, tmp_path)
    assert made.passes == ("torch",)
    assert "not installed" in made.left_out["nsys"]


@pytest.mark.parametrize(("limit", "passes"), [(63, ()), (64, ("nsys",)), (resource.RLIM_INFINITY, ("nsys",))])
def test_nothing_is_recorded_where_that_would_take_the_descriptors_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, passes: tuple[str, ...]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))
    made = plan.make(machine(), None, tmp_path)
    assert made.passes == passes
    for name in ("nsys", "torch"):
        assert ("ulimit -n 256" in made.left_out.get(name, "")) == (not passes)


def test_an_nsys_older_than_the_programs_cuda_leaves_the_gpu_to_torch(tmp_path: Path) -> None:
    def planned(version: str, cuda: str, wanted: tuple[str, ...] | None = None) -> plan.Plan:
        program = Program(("python", "t.py"), "/bin/python", torch="2.11", cuda=cuda, was_inspected=True)
        return plan.make(machine(nsys=Nsys("/n/nsys", version, NSYS.options), program=program), wanted, tmp_path)

    old = planned("2023.4.4.54", "13.0")
    assert old.passes == ("torch",)
    assert "older than CUDA 13.0" in old.left_out["nsys"]
    assert "2025.3" in old.left_out["nsys"]
    asked = planned("2023.4.4.54", "13.0", ("nsys",))
    assert asked.passes == ("nsys",)
    assert "may lose kernels" in asked.warnings[0]
    for version, cuda in [
        ("2025.3.2", "13.0"),
        ("2023.4.4", "12.4"),
        ("", "13.0"),
        ("2023.4.4", ""),
        ("2020.1", "6.3"),
    ]:
        assert planned(version, cuda).passes == ("nsys",)


def test_without_a_gpu_it_is_one_torch_pass_and_a_line_on_how_to_add_nsys(tmp_path: Path) -> None:
    made = plan.make(machine(devices=NO_GPU), None, tmp_path)
    assert made.passes == ("torch",)
    assert "--passes nsys" in made.left_out["nsys"]
    assert "no NVIDIA driver" in made.left_out["ncu"]


def test_requested_passes_run_in_the_order_that_each_needs(tmp_path: Path) -> None:
    assert plan.make(machine(), ("ncu", "torch", "nsys"), tmp_path).passes == ("nsys", "torch", "ncu")


def test_ncu_alone_has_nothing_to_measure(tmp_path: Path) -> None:
    made = plan.make(machine(), ("ncu",), tmp_path)
    assert made.passes == ()
    assert "nsys,ncu" in made.left_out["ncu"]


def test_ncu_without_permission_is_left_out_with_the_reason(tmp_path: Path) -> None:
    made = plan.make(machine(ncu_trouble="only an administrator"), ("nsys", "ncu"), tmp_path)
    assert made.passes == ("nsys",)
    assert made.left_out["ncu"] == "only an administrator"


def test_a_full_disk_leaves_every_pass_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "LEAST_FREE_BYTES", 1 << 60)
    made = plan.make(machine(), None, tmp_path / "not" / "there")
    assert made.passes == ()
    assert all("are free" in why for why in made.left_out.values())


def test_a_profiler_as_the_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PerfdoctorError, match="starts nsys itself"):
        plan.make(machine(program=Program(("nsys",), profiler="nsys")), None, tmp_path)


def test_what_will_be_missing_is_a_warning(tmp_path: Path) -> None:
    def warned(**changes) -> str:
        return " ".join(plan.make(machine(**changes), None, tmp_path).warnings)

    assert "-I ignores" in warned(program=Program(("python",), "/bin/python", shut_out="-I"))
    assert "no torch" in warned(program=Program(("python",), "/bin/python", was_inspected=True))
    assert "is no Python" in warned(program=Program(("sh",)))
    assert "environment" in warned(nsys=Nsys("/n", "2023.4", frozenset({"trace", "output"})))
    assert warned() == ""


def test_each_pass_is_one_line(tmp_path: Path) -> None:
    made = plan.make(machine(), None, tmp_path)
    lines = made.lines("10 steps")
    assert len(lines) == 3
    assert lines[0].startswith("nsys  kernels")
    assert all("left out:" in line for line in lines[1:])


@pytest.mark.parametrize("text", ["", "nsight", "auto,torch", "torch,,x"])
def test_a_wrong_pass_gets_the_list_of_valid_ones(text: str) -> None:
    with pytest.raises(ValueError, match="nsys, torch, ncu"):
        plan.parse_passes(text)


def test_valid_passes_are_taken_once() -> None:
    assert plan.parse_passes("torch, nsys,torch") == ("torch", "nsys")
    assert plan.parse_passes("auto") is None


def test_an_nsys_that_cannot_make_reports_is_doubted_before_its_version_is() -> None:
    doubt = machine(nsys=replace(NSYS, no_report="its importer is missing")).nsys_doubt
    assert doubt == ("its importer is missing", "install what it lacks, or the whole of Nsight Systems")
    assert machine(devices=NO_GPU, nsys=replace(NSYS, no_report="x")).nsys_doubt is None


def test_the_pass_of_ncu_says_what_it_measures_and_why_it_is_left_out(tmp_path: Path) -> None:
    assert "a few launches of each" in plan.make(machine(), ("nsys", "ncu"), tmp_path).lines("10 steps")[1]
    assert "put it on PATH" in plan.make(machine(ncu=None), ("nsys", "ncu"), tmp_path).left_out["ncu"]
    assert "there is no GPU" in plan.make(machine(devices=NO_GPU), ("nsys", "ncu"), tmp_path).left_out["ncu"]
