"""Does the self-test separate what works from what does not? Runs are drawn, with what tools and programs would print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.recording.launch.program import Program
from perfdoctor.recording.plan import Machine
from perfdoctor.recording.tools.gpu_counters import GpuCounters
from perfdoctor.recording.tools.nsys import Nsys
from perfdoctor.recording.tools.nvml import Devices, DriverGpu
from perfdoctor.recording.tools.py_spy import PySpy
from perfdoctor.selftest.checks import ToolCheck, Verdict
from perfdoctor.selftest.document import document, line_for_a_report
from perfdoctor.selftest.order import SelfTest
from perfdoctor.selftest.trials import Plain, RecordedTrial
from perfdoctor.vocabulary.examples import load_examples

MS = 1_000_000
TORCH = Program(("python",), "/usr/bin/python", python="3.12.3", torch="2.11.0", cuda="13.0", was_inspected=True)
NSYS = Nsys("/opt/nsys", "2025.3.1", frozenset({"trace", "output", "discard-environment"}))
H100 = Devices((DriverGpu(0, "NVIDIA H100 80GB HBM3", "0a1b2c3d", 85 << 30),), "580.1")
ON_CPU = Machine(TORCH, NSYS, None, Devices(trouble="no NVIDIA driver here"), "")
ON_GPU = Machine(TORCH, NSYS, "/opt/ncu", H100, "")
PY_SPY = PySpy("/opt/py-spy", "0.4.1")
LINES = [{"file": "slow_input.py", "line": 25, "function": "__getitem__", "samples": 12}]

#: What an nsys without its folder prints (2025.3).
COPIED_ALONE = "Error: The CLI executable is in the 'target-linux-x64' directory in your installation."


def diagnosis(rule: str, step_ms: float, ranks: int = 1, kernels: int = 100, **run: Any) -> dict[str, Any]:
    row = {"step_ns": round(step_ms * MS), "kernel_count": kernels}
    return {
        "run": {"steps": {"count": 10}, "sources": [{"kind": "kineto"}, {"kind": "ncu"}], **run},
        "time": [{"rank": rank, **row} for rank in range(ranks)],
        "findings": [{"rule": rule, "symptoms": [], "lines": LINES}] if rule else [],
    }


@dataclass
class DrawnRunner:
    """Every training takes 10 ms a step and its fixed twin 4 ms; what runs differently stands in `instead`."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    left: Mapping[str, float] = field(default_factory=lambda: {"low": 0.3, "likely": 0.4, "high": 0.5})
    fixed_step_ms: float = 4.0
    losses: Sequence[str] = ("0.1234",)
    runs: int = 0

    def plain(self, command: Sequence[str]) -> Plain:
        if "-c" in command:
            asked = self.instead.get("torch", {})
            return Plain(asked.get("code", 0), "2.0\n", asked.get("errors", ""), 0.1)
        step_ms = self.fixed_step_ms if any("_fixed.py" in word for word in command) else 10.0
        loss = self.losses[self.runs % len(self.losses)]
        self.runs += 1
        return Plain(0, f"step   0  loss {loss}\nmedian step {step_ms:.2f} ms\n", "", 1.0)

    def recorded(self, name: str, passes: str, command: Sequence[str], *_: str) -> RecordedTrial:
        target = self.folder / name
        (target / "agents").mkdir(parents=True, exist_ok=True)
        (target / "device").mkdir(exist_ok=True)
        (target / "device" / "samples.csv").write_text("time\n1\n2\n", "utf-8")
        report = {"state": "written", "pid": 1, "steps_seen": 25, "steps_recorded": 10,
                  "watched_step_ns": 12 * MS, "unwatched_step_ns": 10 * MS}  # fmt: skip
        (target / "agents" / f"{passes}-1.json").write_text(json.dumps(report), "utf-8")
        (target / "run.json").write_text(json.dumps({"perfdoctor": "0", "passes": []}), "utf-8")
        codes = {"exit": 7, "signal": -15}
        kind = name.partition("-")[0]
        rules = {"slow_input": "input-wait", "exposed_communication": "exposed-communication"}
        found = diagnosis(rules.get(kind, kind.replace("_", "-")), 10, ranks=1 + (kind == "exposed_communication"))
        drawn = RecordedTrial(
            codes.get(kind, 0), "step   0  loss 0.1234\nmedian step 10.00 ms\n", "", 2.0, target, found
        )
        changes = next((each for start, each in self.instead.items() if name.startswith(start)), {})
        return replace(drawn, **changes)

    def what_if(self, recorded: RecordedTrial, rule: str) -> dict[str, Any]:
        return {"step_ns": {case: share * 10 * MS for case, share in self.left.items()}}


def measured(*_: Any, **__: Any) -> ToolCheck:
    return ToolCheck("machine rates", Verdict.WORKS, "memory 21 GB/s")


def tried(tmp_path: Path, machine: Machine = ON_CPU, sampler: PySpy = PY_SPY, **drawn: Any) -> dict[str, Any]:
    """The checks by name."""
    runner = DrawnRunner(tmp_path, **drawn)
    test = SelfTest(
        machine, "/usr/bin/python", runner, full=False, seconds=60, announce=lambda _: None, measure=measured,
        sampler=sampler,
    )  # fmt: skip
    return {check.name: check for check in test.checks()}


def test_where_everything_works_nothing_else_is_claimed(tmp_path):
    checks = tried(tmp_path)
    absent = {name for name, check in checks.items() if check.verdict is Verdict.ABSENT}
    assert absent == {"GPU", "ncu", "GPU samples", "memory snapshot"}
    assert {check.verdict for name, check in checks.items() if name not in absent} == {Verdict.WORKS}
    assert document(ON_CPU, list(checks.values()), full=False)["works"]


def test_on_a_gpu_each_tool_has_its_line(tmp_path):
    checks = tried(tmp_path, ON_GPU)
    for name in ("GPU", "torch.profiler", "nsys", "ncu", "GPU samples", "two ranks"):
        assert checks[name].verdict is Verdict.WORKS, checks[name]
    assert "2 rows" in checks["GPU samples"].found


@pytest.mark.parametrize(
    ("sampler", "found", "verdict", "words"),
    [
        (PY_SPY, {}, Verdict.WORKS, "slow_input.py:25 in __getitem__ by 12 samples"),
        (PySpy(trouble="py-spy is not installed", do="Run: pip"), {}, Verdict.ABSENT, "not installed"),
        (replace(PY_SPY, trouble="forbidden", do="Ask"), {}, Verdict.LIMITED, "forbidden"),
        (PY_SPY, {"lines": []}, Verdict.LIMITED, "no sample"),
        (PY_SPY, {"lines": [], "errors": "stacks were not sampled: it may not"}, Verdict.LIMITED, "it may not"),
    ],
)
def test_without_stacks_lines_are_a_limit_and_no_fault(tmp_path, sampler, found, verdict, words):
    drawn = diagnosis("input-wait", 10)
    drawn["findings"][0] |= {"lines": found.get("lines", LINES)}
    instead = {"slow_input-torch": {"diagnosis": drawn, "errors": found.get("errors", "")}}
    checks = tried(tmp_path, sampler=sampler, instead=instead)
    assert checks["own lines"].verdict is verdict
    assert words in checks["own lines"].found
    assert checks["own lines"].do or verdict is Verdict.WORKS
    assert document(ON_CPU, list(checks.values()), full=False)["works"]


@pytest.mark.parametrize(
    ("name", "instead", "words"),
    [
        ("torch.profiler", {"slow_input-torch": {"diagnosis": {}, "errors": "No module named 'torch'"}}, "--python"),
        ("torch.profiler", {"slow_input-torch": {"diagnosis": diagnosis("", 10)}}, "Report it"),
        ("torch.profiler", {"slow_input-torch": {"code": 1, "errors": "RuntimeError: boom"}}, "Report it"),
        ("nsys", {"slow_input-nsys": {"diagnosis": {}, "errors": COPIED_ALONE}}, "Install Nsight Systems again"),
        ("nsys", {"slow_input-nsys": {"diagnosis": diagnosis("input-wait", 0)}}, "Report it"),
        ("program untouched", {"slow_input-nsys": {"output": "step   0  loss 9.9\n"}}, "Report it"),
        ("program untouched", {"signal-nsys": {"code": 0}}, "Report it"),
        ("two ranks", {"exposed_communication": {"diagnosis": diagnosis("x", 10)}}, "Report it"),
    ],
)
def test_what_fails_on_any_machine_says_what_to_do(tmp_path, name, instead, words):
    checks = tried(tmp_path, instead=instead)
    assert checks[name].verdict is Verdict.FAILED
    assert words in checks[name].do
    assert not document(ON_CPU, list(checks.values()), full=False)["works"]
    assert f"{name}: FAILED" in line_for_a_report(ON_CPU, list(checks.values()))


@pytest.mark.parametrize(
    ("name", "instead", "words"),
    [
        ("GPU", {"torch": {"code": 1, "errors": "The NVIDIA driver on your system is too old"}}, "Update the driver"),
        (
            "torch.profiler",
            {"slow_input-torch": {"diagnosis": diagnosis("input-wait", 10, kernels=0),
                                  "errors": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"}},
            "End the other profiler",
        ),
        (
            "ncu",
            {"fp32_matmuls": {"diagnosis": diagnosis("fp32-matmuls", 10, sources=[]), "errors": "ERR_NVGPUCTRPERM"}},
            "SYS_ADMIN",
        ),
    ],
)  # fmt: skip
def test_what_fails_on_a_gpu_says_what_to_do(tmp_path, name, instead, words):
    check = tried(tmp_path, ON_GPU, instead=instead)[name]
    assert check.verdict is Verdict.FAILED
    assert words in check.do


def test_a_training_whose_own_runs_differ_is_not_held_against_perfdoctor(tmp_path):
    """Kernels that add in no fixed order: the second run without perfdoctor prints another loss, too."""
    checks = tried(tmp_path, losses=("0.5", "0.6"))
    assert checks["program untouched"].verdict is Verdict.WORKS


def test_counters_that_only_an_administrator_reads_are_said_before_anybody_asks_ncu(tmp_path):
    trouble = "only an administrator may read the GPU's performance counters (ERR_NVGPUCTRPERM)"
    check = tried(tmp_path, replace(ON_GPU, ncu_trouble=trouble))["ncu"]
    assert (check.verdict, check.seconds) == (Verdict.FAILED, 0)
    assert "SYS_ADMIN" in check.do
    assert not list(tmp_path.glob("fp32_matmuls-*ncu*"))


COUNTED = {"gpu_metrics": [{"metric": name} for name in ("sm_active", "tensor_active", "sm_active")]}
HELD = "GPU Metrics [0]: NVIDIA sampling hardware unit is already in use by another instance of Nsight or other tool."


@pytest.mark.parametrize(
    ("counters", "found", "verdict", "words"),
    [
        (GpuCounters("gpu-metrics-devices", "all"), COUNTED, Verdict.WORKS, "2 counters"),
        (GpuCounters(trouble="only an administrator may", do="Run as root."), {}, Verdict.LIMITED, "Run as root."),
        (GpuCounters("gpu-metrics-devices", "all"), {}, Verdict.LIMITED, "dcgmi profile --pause"),
    ],
)
def test_counters_that_nsys_samples_have_a_line_with_what_is_in_their_way(tmp_path, counters, found, verdict, words):
    instead = {"slow_input-nsys": {"diagnosis": diagnosis("input-wait", 10) | found, "errors": HELD}}
    check = tried(tmp_path, replace(ON_GPU, counters=counters), instead=instead)["GPU counters"]
    assert check.verdict is verdict, check
    assert words in check.found + check.do


def test_a_kernel_that_is_missing_because_of_a_tool_in_the_environment_names_it(tmp_path):
    instead = {"slow_input-torch": {"diagnosis": diagnosis("input-wait", 10, kernels=0)}}
    check = tried(tmp_path, ON_GPU, instead=instead, environment={"CUDA_INJECTION64_PATH": "/x.so"})["torch.profiler"]
    assert check.do == "unset CUDA_INJECTION64_PATH"


def test_a_slice_of_a_gpu_works_with_limits(tmp_path):
    slice_ = Devices((replace(H100.gpus[0], name="NVIDIA A100-SXM4-40GB MIG 1g.5gb"),), "580.1")
    assert tried(tmp_path, replace(ON_GPU, devices=slice_))["GPU"].verdict is Verdict.LIMITED


def test_an_nsys_that_stores_the_environment_works_with_limits(tmp_path):
    old = replace(NSYS, version="2023.4.4", options=frozenset({"trace", "output"}))
    check = tried(tmp_path, replace(ON_CPU, nsys=old))["nsys"]
    assert check.verdict is Verdict.LIMITED
    assert "2025" in check.do


def test_without_nsys_there_is_nothing_to_agree_with(tmp_path):
    checks = tried(tmp_path, replace(ON_CPU, nsys=None))
    assert checks["nsys"].verdict is Verdict.ABSENT
    assert "passes agree" not in checks
    assert checks["program untouched"].found.startswith("output the same in 1 runs")


def test_a_broken_nsys_is_named_and_the_rest_is_tried(tmp_path):
    broken = replace(NSYS, trouble="/opt/nsys does not start: [Errno 8] Exec format error")
    checks = tried(tmp_path, replace(ON_CPU, nsys=broken))
    assert checks["nsys"].verdict is Verdict.FAILED
    assert checks["torch.profiler"].verdict is Verdict.WORKS


def test_passes_that_disagree_on_the_step_are_said_to(tmp_path):
    checks = tried(tmp_path, instead={"slow_input-nsys": {"diagnosis": diagnosis("input-wait", 14)}})
    assert checks["passes agree"].verdict is Verdict.LIMITED
    assert "40 % apart" in checks["passes agree"].found


def test_a_prediction_that_the_twin_does_not_bear_out_is_said_to_miss(tmp_path):
    missed = tried(tmp_path, left={"low": 0.7, "likely": 0.8, "high": 0.9})["prediction"]
    assert missed.verdict is Verdict.LIMITED
    assert missed.numbers["left_share"] == pytest.approx(0.4)
    assert (
        tried(tmp_path / "again", left={"low": 0.2, "likely": 0.3, "high": 0.35})["prediction"].verdict is Verdict.WORKS
    )


def test_a_python_without_torch_ends_it_at_once(tmp_path):
    checks = tried(tmp_path, replace(ON_CPU, program=replace(TORCH, torch="")))
    assert list(checks) == ["torch"]
    assert checks["torch"].verdict is Verdict.FAILED


def every(tmp_path: Path, machine: Machine, **settings: Any) -> dict[str, Any]:
    """With each example, by name."""
    runner = DrawnRunner(tmp_path, **settings.pop("drawn", {}))
    values = {"full": True, "seconds": 60, "announce": lambda _: None, "measure": measured, **settings}
    return {check.name: check for check in SelfTest(machine, "/usr/bin/python", runner, **values).checks()}


def test_a_processor_tries_what_it_can_show_and_says_why_not_the_rest(tmp_path):
    checks = every(tmp_path, ON_CPU)
    assert checks["slow_input"].verdict is Verdict.WORKS
    assert "the fixed twin takes 40 %" in checks["slow_input"].found
    assert checks["host_syncs"].verdict is Verdict.ABSENT
    assert "a processor cannot show it" in checks["host_syncs"].found


def test_a_gpu_tries_every_example(tmp_path):
    checks = every(tmp_path, replace(ON_GPU, ncu=None))
    names = {name for name, example in load_examples().items() if checks[name].verdict is not Verdict.ABSENT}
    assert names == set(load_examples())


@pytest.mark.parametrize(("fixed_ms", "verdict"), [(9.6, Verdict.LIMITED), (4.0, Verdict.FAILED)])
def test_a_fault_that_was_not_found_is_a_defect_only_where_it_costs_something(tmp_path, fixed_ms, verdict):
    drawn = {"instead": {"launch_bound": {"diagnosis": diagnosis("", 10)}}, "fixed_step_ms": fixed_ms}
    check = every(tmp_path, ON_GPU, drawn=drawn)["launch_bound"]
    assert check.verdict is verdict
    assert ("costs nothing here" in check.found) == (verdict is Verdict.LIMITED)


def test_when_the_time_is_up_no_further_example_is_begun(tmp_path):
    checks = every(tmp_path, ON_CPU, seconds=-1)
    assert checks["slow_input"].found == "left out: the time was up"
    assert "--seconds" in checks["slow_input"].do


def test_overhead_outside_of_the_recorded_steps_must_show_in_each_of_three_rounds(tmp_path):
    class Slowed(DrawnRunner):
        def recorded(self, name: str, passes: str, command: Sequence[str], *options: str) -> RecordedTrial:
            ran = super().recorded(name, passes, command, *options)
            for file in (ran.folder / "agents").glob("*.json"):
                report = json.loads(file.read_text("utf-8"))
                slow = self.always or not name.endswith("-2")
                file.write_text(json.dumps({**report, "unwatched_step_ns": (13 if slow else 10) * MS}), "utf-8")
            return ran

    for always, verdict in ((False, Verdict.WORKS), (True, Verdict.LIMITED)):
        Slowed.always = always
        runner = Slowed(tmp_path / str(always))
        test = SelfTest(ON_CPU, "python", runner, False, 60, lambda _: None, measured)
        (found,) = [check for check in test.checks() if check.name == "overhead"]
        assert found.verdict is verdict
        assert (runner.folder / "slow_input-torch-3").exists() == always
