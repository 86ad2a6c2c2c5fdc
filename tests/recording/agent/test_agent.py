"""The agent in real programs: what it records, and that it changes nothing in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import ROOT
from torch_python import torch_python
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import MOST_STEPS, PassSettings, StepWindow

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

MODEL = """
import sys, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(optimizer=optimizer):
    loss = model(torch.ones(8, 32)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""


@dataclass
class Recorded:
    """What a program printed and how it ended, the reports of its processes, and their traces."""

    code: int
    output: str
    errors: str
    reports: list[dict[str, Any]]
    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        """The report of the only process that trained."""
        (only,) = [report for report in self.reports if report["steps_seen"]]
        return only

    def trace(self, name: str = "rank0") -> Timeline:
        return kineto.read(self.folder / "torch" / f"{name}.pt.trace.json")

    def steps(self, name: str = "rank0") -> int:
        return sum(text.startswith("ProfilerStep#") for text in self.trace(name).ranges.name)


Runner = Callable[..., Recorded]


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    def start(
        script: str,
        *,
        window: StepWindow | None = None,
        environment: Mapping[str, str] | None = None,
        activities: Any = "cpu",
        send: int = 0,
        real: bool = False,
        options: tuple[str, ...] = (),
    ) -> Recorded:
        """In a warm Python, or in a `real` one that may have `options`."""
        for name in ("agents", "torch", "nccl"):
            (tmp_path / name).mkdir(exist_ok=True)
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(script), "utf-8")
        recording = PassSettings("torch", tmp_path / "torch", activities)
        base = {**os.environ, **(environment or {})}
        full = torch_profiler.environment(
            base, recording, window or StepWindow(steps=4, skip=3), reports=tmp_path / "agents", nccl=tmp_path / "nccl"
        )
        if real or options:
            assert not send
            words = [torch_python(), *options, program]
            done = subprocess.run(
                words, env=full, cwd=tmp_path, text=True, capture_output=True, timeout=120, check=False
            )
            code, output, errors = done.returncode, done.stdout, done.stderr
        else:
            process = Program([program], tmp_path, full)
            if send:
                process.wait_for_line()
                process.send_signal(send)
            code, output, errors = process.finish()
        reports = [json.loads(file.read_text()) for file in sorted((tmp_path / "agents").glob("*.json"))]
        return Recorded(code, output, errors, reports, tmp_path)

    return start


# --- what is recorded ---


def test_the_requested_steps_are_recorded_after_those_that_are_skipped(run: Runner) -> None:
    found = run(MODEL + "for number in range(12): step()\nprint('done')", real=True)
    assert (found.code, found.output, found.errors) == (0, "done\n", "")
    assert found.report["state"] == "written"
    assert (found.report["steps_recorded"], found.report["step_found_by"]) == (4, "optimizer")
    assert found.steps() == 4
    names = set(found.trace().ranges.name)
    assert {"forward", "backward", "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"} <= names


def test_without_a_number_steps_are_recorded_until_enough_time_has_passed(run: Runner) -> None:
    script = MODEL + "import time\nfor number in range(150): time.sleep(0.002); step()"
    found = run(script, window=StepWindow(steps=4, skip=3, least_s=0.3))
    assert found.report["state"] == "written"
    assert 4 < found.report["steps_recorded"] <= MOST_STEPS
    assert found.steps() == found.report["steps_recorded"]


def test_each_step_holds_one_forward_one_backward_and_one_update(run: Runner) -> None:
    ranges = run(MODEL + "for number in range(12): step()").trace().ranges
    steps = ranges.take(ranges.name.where(lambda name: name.startswith("ProfilerStep")))
    for name in ("forward", "backward"):
        rows = ranges.take(ranges.name.equals(name))
        inside = np.searchsorted(steps.start_ns, rows.start_ns, side="right")
        assert inside.tolist() == [1, 2, 3, 4]
        assert (rows.end_ns <= steps.end_ns).all()


def test_a_program_that_ends_inside_the_window_keeps_what_was_recorded(run: Runner) -> None:
    found = run(MODEL + "for number in range(6): step()", window=StepWindow(steps=100, skip=3))
    assert found.report["steps_recorded"] == 3
    assert found.steps() >= 3


def test_a_program_that_raises_in_the_window_keeps_its_error_and_the_recording(run: Runner) -> None:
    found = run(
        MODEL + "for number in range(6): step()\nraise RuntimeError('mine')", window=StepWindow(steps=100, skip=3)
    )
    assert found.code == 1
    assert found.errors.endswith("RuntimeError: mine\n")
    assert "perfdoctor" not in found.errors.replace(str(ROOT), "the checkout")
    assert found.steps() >= 2


def test_a_program_that_dies_in_step_3_is_reported_as_such(run: Runner) -> None:
    found = run(MODEL + "for number in range(3): step()\nsys.exit(9)", window=StepWindow(steps=4, skip=5))
    assert found.code == 9
    assert (found.report["state"], found.report["steps_seen"], found.report["ended"]) == ("watching", 3, True)
    assert not list((found.folder / "torch").iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_window_writes_the_trace_and_ends_the_program_by_that_signal(run: Runner, number: int) -> None:
    script = MODEL + "import time\nfor number in range(6): step()\nprint('now', flush=True)\ntime.sleep(60)"
    found = run(script, window=StepWindow(steps=100, skip=3), send=number)
    assert found.code == -number
    assert found.steps() >= 2


def test_a_program_that_handles_sigterm_itself_does(run: Runner) -> None:
    script = MODEL + (
        "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "for number in range(6): step()\nprint('now', flush=True)\ntime.sleep(60)"
    )
    found = run(script, window=StepWindow(steps=100, skip=3), send=signal.SIGTERM)
    assert found.code == 5
    assert found.steps() >= 2


def test_ctrl_c_in_the_window_is_the_programs_and_the_trace_is_written(run: Runner) -> None:
    script = MODEL + "import time\nfor number in range(6): step()\nprint('now', flush=True)\ntime.sleep(60)"
    found = run(script, window=StepWindow(steps=100, skip=3), send=signal.SIGINT)
    assert found.code == -signal.SIGINT
    assert found.errors.endswith("KeyboardInterrupt\n")
    assert found.steps() >= 2


def test_it_ends_the_program_after_the_window_if_requested_and_finally_blocks_run(run: Runner) -> None:
    script = MODEL + "try:\n    while True: step()\nfinally:\n    print('cleaned up')"
    found = run(script, window=StepWindow(steps=4, skip=3, stop=True))
    assert (found.code, found.output) == (0, "cleaned up\n")
    assert found.report["stopped"]
    assert found.steps() == 4


# --- steps that are not recorded ---

TIMED = """
import time
ends = []
def timed(n):
    for number in range(n):
        step()
        time.sleep(0.004 if number > 2 else 0.05)
        ends.append(time.monotonic_ns())
"""


def test_unrecorded_steps_are_timed_before_and_behind_the_window(run: Runner) -> None:
    found = run(MODEL + TIMED + "timed(30)\nprint(*[b - a for a, b in zip(ends, ends[1:])])")
    steps_ns = [int(word) for word in found.output.split()]
    assert found.report["unwatched_steps"] >= 9
    assert found.report["unwatched_clock"] == "host"
    # Steps are cut at the update, and here at the end of the sleep behind it: the same length.
    assert min(steps_ns[8:]) <= found.report["unwatched_step_ns"] <= max(steps_ns[8:])


@pytest.mark.parametrize(
    ("loop", "least"),
    [("for number in range(9): step()", 2), ("for number in range(10): step()", 2)],
    ids=["ends-in-the-window", "ends-soon-behind-it"],
)
def test_few_steps_are_enough_to_time_one(run: Runner, loop: str, least: int) -> None:
    report = run(MODEL + loop, window=StepWindow(steps=4, skip=5)).report
    assert report["unwatched_steps"] >= least
    assert report["unwatched_step_ns"] > 0


def test_one_step_alone_proves_no_length(run: Runner) -> None:
    report = run(MODEL + "for number in range(5): step()", window=StepWindow(steps=4, skip=1)).report
    assert (report["unwatched_steps"], report["unwatched_step_ns"]) == (0, 0)


def test_where_no_steps_are_to_be_recorded_nothing_is_switched_on_and_they_are_only_counted(run: Runner) -> None:
    loop = "for number in range(20):\n    step()\nprint(torch.autograd._profiler_enabled())"
    found = run(MODEL + loop, window=StepWindow(steps=0), activities="")
    report = found.report
    assert (report["steps_seen"], report["steps_recorded"], report["state"]) == (20, 0, "watching")
    assert (report["trace"], report["notes"], report["ended"]) == ("", [], True)
    assert found.output.strip().endswith("False")
    assert not list((found.folder / "torch").iterdir())


def test_a_program_that_is_only_timed_and_gets_sigterm_still_reports(run: Runner) -> None:
    loop = "import time\nfor number in range(10**6):\n    step()\n    if number == 30: print('go', flush=True)\n    time.sleep(0.001)"
    found = run(MODEL + loop, window=StepWindow(steps=0), activities="", send=signal.SIGTERM)
    assert found.code in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert found.report["ended"]


# --- which event is the step ---


def test_of_two_optimizers_the_even_one_counts(run: Runner) -> None:
    script = (
        MODEL
        + """
critic = torch.optim.Adam(model.parameters())
for number in range(14):
    for _ in range(5): step(critic)
    step()
"""
    )
    found = run(script, window=StepWindow(steps=3, skip=3))
    assert found.steps() == 3
    ranges = found.trace().ranges
    assert ranges.name.equals("Optimizer.step#Adam.step").sum() == pytest.approx(15, abs=1)


def test_inference_steps_by_the_outermost_forward(run: Runner) -> None:
    script = MODEL.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", "optimizer = None") + (
        "with torch.inference_mode():\n    for number in range(12): model(torch.ones(8, 32))"
    )
    found = run(script)
    assert (found.report["step_found_by"], found.report["steps_recorded"]) == ("forward", 4)
    assert found.steps() == 4


def test_validation_before_the_training_is_no_step(run: Runner) -> None:
    script = MODEL.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "").replace(
        "optimizer=optimizer", "optimizer"
    )
    script += """
with torch.no_grad():
    for number in range(6): model(torch.ones(8, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(12): step(optimizer)
"""
    found = run(script, window=StepWindow(steps=4, skip=5))
    assert (found.report["step_found_by"], found.report["steps_recorded"]) == ("optimizer", 4)
    assert found.trace().ranges.name.equals("backward").sum() == 4


BY_HAND = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
inputs, wanted = torch.randn(64, 256), torch.randint(0, 10, (64,))
def update():
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
"""


@pytest.mark.parametrize(
    ("step", "backwards"),
    [
        ("torch.nn.functional.cross_entropy(model(inputs), wanted).backward()", 1),
        ("torch.nn.CrossEntropyLoss()(model(inputs), wanted).backward()", 1),
        ("model(inputs).mean().backward(); torch.nn.CrossEntropyLoss()(model(inputs), wanted).backward()", 2),
    ],
    ids=["loss-function", "loss-module", "two-losses"],
)
def test_a_loop_without_an_optimizer_counts_each_step_once(run: Runner, step: str, backwards: int) -> None:
    found = run(BY_HAND + f"for number in range(15):\n    {step}\n    update()\n")
    assert found.steps() == 4
    assert found.trace().ranges.name.equals("backward").sum() == pytest.approx(4 * backwards, abs=1)


def test_validation_before_a_training_by_hand_is_no_step(run: Runner) -> None:
    validation = "with torch.no_grad():\n    for number in range(6): model(inputs)\n"
    training = "for number in range(15):\n    model(inputs).mean().backward()\n    update()\n"
    found = run(BY_HAND + validation + training, window=StepWindow(steps=4, skip=5))
    assert found.report["step_found_by"] == "backward"
    assert found.trace().ranges.name.equals("backward").sum() == pytest.approx(4, abs=1)


def test_steps_that_the_program_marks_are_the_steps(run: Runner) -> None:
    script = """
critic = torch.optim.Adam(model.parameters())
for number in range(14):
    with torch.profiler.record_function("perfdoctor.step"):
        for _ in range(5): step(critic)
        if number % 2: step()
"""
    found = run(MODEL + script, window=StepWindow(steps=3, skip=3))
    assert (found.report["step_found_by"], found.steps(), found.report["notes"]) == ("range", 3, [])
    ranges = found.trace().ranges
    assert ranges.name.equals("perfdoctor.step").sum() == 3
    assert ranges.name.equals("Optimizer.step#Adam.step").sum() == 15


def test_where_two_rhythms_disagree_it_says_what_settles_it(run: Runner) -> None:
    script = "critic = torch.optim.Adam(model.parameters())\nfor number in range(14):\n"
    found = run(
        MODEL + script + "    for _ in range(5): step(critic)\n    step()\n", window=StepWindow(steps=3, skip=3)
    )
    assert any("perfdoctor.step" in note for note in found.report["notes"])


# --- nothing changes for the program ---


def test_everything_is_as_it_was_once_the_window_has_closed(run: Runner) -> None:
    script = """
    import builtins, gc, signal, sys
    before = list(sys.meta_path), list(sys.path)
    import torch
    import torch.utils.data
    def state():
        profiler = torch.autograd.profiler
        return [
            torch.nn.Module.__call__, torch.autograd._engine_run_backward, torch.save, list(gc.callbacks),
            profiler.record_function.__enter__, profiler.record_function.__exit__, profiler._prepare_profiler,
            profiler._enable_profiler, profiler._disable_profiler, signal.getsignal(signal.SIGTERM),
            torch.optim.Optimizer.__init__,
        ]
    """
    clean = "print([getattr(each, '__module__', each) for each in state()], type(sys.meta_path[0]), len(sys.path))"
    body = "model = torch.nn.Linear(4, 4); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    body += "for number in range(120):\n    model(torch.ones(4)).sum().backward(); optimizer.step()\n"
    script = textwrap.dedent(script) + body + clean
    found = run(script, real=True)
    assert found.report["state"] == "written"
    alone = subprocess.run([torch_python(), found.folder / "program.py"], capture_output=True, text=True, check=True)
    assert found.output == alone.stdout


def test_the_numbers_of_the_training_do_not_change(run: Runner) -> None:
    found = run(MODEL + "for number in range(12): print(step().item())")
    code, output, _ = Program([found.folder / "program.py"], found.folder, os.environ).finish()
    assert (code, found.output) == (0, output)


def test_a_warning_that_python_shows_once_is_shown_once(run: Runner) -> None:
    warning = "import warnings\nfor number in range(12):\n    step()\n    warnings.warn('only once')\n"
    assert run(MODEL + warning).errors.count("UserWarning: only once") == 1


def test_its_own_sitecustomize_runs_and_is_the_one_that_is_imported(run: Runner, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'was here'\n")
    script = MODEL + "for number in range(12): step()\nimport sitecustomize\nprint(mine, sitecustomize.__file__)"
    found = run(script, environment={"PYTHONPATH": str(own)})
    assert found.output == f"was here {own / 'sitecustomize.py'}\n"
    assert found.steps() == 4


def test_an_error_in_its_own_sitecustomize_is_reported_as_usual(run: Runner, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    found = run("print('runs')", environment={"PYTHONPATH": str(own)})
    alone = subprocess.run(
        [torch_python(), found.folder / "program.py"], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(own)},
    )  # fmt: skip
    assert (found.output, found.errors) == (alone.stdout, alone.stderr)


def test_a_program_without_torch_leaves_no_trace_of_us(run: Runner) -> None:
    found = run("import sys, os\nprint([m for m in sys.modules if 'perfdoctor' in m], sys.path[1:2])")
    assert found.reports == []
    assert "agent" not in found.output.split("]")[-2]


def test_finding_torch_without_importing_it_does_not_switch_the_agent_off(run: Runner) -> None:
    script = (
        "import importlib.util\nassert importlib.util.find_spec('torch')\n" + MODEL + "for number in range(12): step()"
    )
    assert run(script).steps() == 4


def test_a_defect_of_ours_is_reported_and_never_raised(run: Runner) -> None:
    script = "import torch\ntorch.profiler.profile = None\n" + MODEL + "for number in range(12): step()\nprint('done')"
    found = run(script)
    assert (found.code, found.output, found.errors) == (0, "done\n", "")
    assert found.report["state"] == "failed"
    assert "agent failed" in found.report["notes"][0]


def test_a_full_disk_or_a_folder_that_is_gone_does_not_hurt(run: Runner) -> None:
    script = (
        MODEL
        + "import shutil, pathlib\nfor number in range(5): step()\nshutil.rmtree('torch')\nshutil.rmtree('agents')\n"
    )
    found = run(script + "for number in range(12): step()\nprint('done')")
    assert (found.code, found.output, found.errors) == (0, "done\n", "")


# --- profilers of its own ---

OWN = """
def own(steps):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for number in range(steps): step()
    return sum(event.key.startswith('Optimizer.step') * event.count for event in profile.key_averages())
"""


def test_ours_is_not_started_while_the_programs_own_profiler_runs(run: Runner) -> None:
    found = run(MODEL + OWN + "print(own(20))")
    assert (found.code, found.output, kineto_lines(found)) == (0, "20\n", ["profiler_start", "profiler_stop"])
    assert any("perfdoctor's was not started" in note for note in found.report["notes"])
    assert not found.report["trace"]


def test_ours_waits_for_the_programs_own_to_end(run: Runner) -> None:
    found = run(MODEL + OWN + "print(own(6))\nfor number in range(12): step()")
    assert found.output == "6\n"
    assert found.steps() == 4
    assert found.report["notes"] == []


def test_one_that_goes_on_counting_its_steps_marks_none_in_our_recording(run: Runner) -> None:
    script = """
schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
with torch.profiler.profile(schedule=schedule, on_trace_ready=lambda it: it.export_chrome_trace("own.json")) as own:
    for number in range(20):
        step()
        own.step()
print(own.record_steps)
"""
    found = run(MODEL + script)
    assert (found.code, found.output, kineto_lines(found)) == (0, "True\n", ["profiler_start", "profiler_stop"])
    assert found.steps() == 4
    assert found.report["own_traces"] == [str(found.folder / "own.json")]


def kineto_lines(found: Recorded) -> list[str]:
    """What Kineto said about the program's own profiler; nothing else may be there, and nothing about ours."""
    lines = found.errors.splitlines()
    assert all(line.startswith("USDT:") for line in lines), found.errors
    return [line.split("] ")[1] for line in lines]


def test_ours_is_stopped_when_the_programs_own_starts(run: Runner) -> None:
    found = run(MODEL + OWN + "for number in range(8): step()\nprint(own(5))", window=StepWindow(steps=100, skip=3))
    assert (found.code, found.output, kineto_lines(found)) == (0, "5\n", ["profiler_start", "profiler_stop"])
    assert any("perfdoctor's was stopped" in note for note in found.report["notes"])
    assert found.steps() >= 3


# --- processes ---


def test_workers_of_a_loader_are_not_recorded(run: Runner) -> None:
    script = (
        MODEL
        + """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 96
    def __getitem__(self, index): return model(torch.ones(32)).detach()
if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=1): step()
"""
    )
    found = run(script)
    assert found.steps() == 4
    assert len(list((found.folder / "torch").glob("*"))) == 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_started_by_multiprocessing_are_recorded_each(run: Runner, method: str) -> None:
    script = (
        MODEL
        + f"""
def rank(number):
    import os
    os.environ.update(RANK=str(number), WORLD_SIZE="2")
    for _ in range(12): step()
if __name__ == "__main__":
    torch.multiprocessing.start_processes(rank, nprocs=2, start_method="{method}")
"""
    )
    found = run(script)
    assert found.code == 0, found.errors
    assert sorted(r["rank"] for r in found.reports if r["steps_seen"]) == [0, 1]
    assert [found.steps("rank0"), found.steps("rank1")] == [4, 4]


def test_a_fork_in_the_window_goes_its_own_way(run: Runner) -> None:
    script = (
        MODEL
        + """
import os
for number in range(12):
    step()
    if number == 5:
        child = os.fork()
        if child == 0:
            step(); os._exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    found = run(script)
    assert (found.code, found.output) == (0, "3\n")
    assert found.steps() == 4


def test_two_processes_of_one_rank_get_a_trace_each(run: Runner) -> None:
    script = (
        MODEL
        + """
import subprocess, os
if "CHILD" not in os.environ:
    subprocess.run([sys.executable, __file__], env={**os.environ, "CHILD": "1"}, check=True)
for number in range(12): step()
"""
    )
    found = run(script)
    assert len(list((found.folder / "torch").glob("rank0*.pt.trace.json"))) == 2


def test_python_that_keeps_the_agent_out_runs_as_usual(run: Runner) -> None:
    for options in (("-I",), ("-E",), ("-S", "-c", "print('runs')")):
        found = run("print('runs')", options=options)
        assert (found.code, found.output, found.reports) == (0, "runs\n", [])


# --- what else is marked ---


def test_checkpoints_and_collections_are_marked(run: Runner) -> None:
    script = (
        MODEL
        + "import gc, os, pathlib\nfor number in range(12):\n    step(); torch.save(model.state_dict(), 'model.new')\n"
        + "    pathlib.Path('model.new').replace('model.pt'); gc.collect()"
    )
    names = list(run(script).trace().ranges.name)
    assert names.count("torch.save") == names.count("os.replace") == 4
    assert names.count("gc_gen2") >= 3


def test_a_compiled_model_is_compiled_once_and_recorded(run: Runner) -> None:
    script = (
        MODEL
        + """
compiled = torch.compile(model, backend="eager")
def step():
    loss = compiled(torch.ones(8, 32)).mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
for number in range(14): step()
import torch._dynamo.utils as u
print(u.counters["stats"]["unique_graphs"], dict(u.counters["graph_break"]))
print(u.unpatched_nn_module_call is torch.nn.Module.__call__)
"""
    )
    found = run(script, real=True)
    assert (found.code, found.errors) == (0, "")
    assert found.output == "1 {}\nTrue\n"
    assert found.steps() == 4


def test_nccl_writes_a_log_of_each_rank_unless_the_user_has_set_its_variables(run: Runner) -> None:
    script = "import torch, os\nprint({k: v for k, v in os.environ.items() if k.startswith('NCCL')})"
    found = run(script, environment={"RANK": "1", "WORLD_SIZE": "2"})
    assert "'NCCL_DEBUG': 'INFO'" in found.output
    assert "rank1.log" in found.output
    assert (
        run(script, environment={"RANK": "1", "WORLD_SIZE": "2", "NCCL_DEBUG": "WARN"}).output
        == "{'NCCL_DEBUG': 'WARN'}\n"
    )
    assert run(script).output == "{}\n"


@pytest.mark.parametrize(("calls", "has_ranges"), [(3, True), (40, False)])
def test_a_cell_that_is_called_many_times_a_step_gets_no_range_each_time(
    run: Runner, calls: int, has_ranges: bool
) -> None:
    script = f"""
def many():
    optimizer.zero_grad()
    sum(model(torch.ones(2, 8)).sum() for _ in range({calls})).backward()
    optimizer.step()
for number in range(12): many()
"""
    model = "import torch\nmodel = torch.nn.Linear(8, 8)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    found = run(model + script, window=StepWindow(steps=4, skip=3))
    assert ("forward" in found.trace().ranges.name) == has_ranges


def test_what_was_recorded_is_not_held_until_the_programs_end(run: Runner) -> None:
    script = """
import gc
for number in range(12): step()
held = [each for each in gc.get_objects() if type(each).__name__ == "profile" and hasattr(each, "kineto_results")]
print(len(held), [each.kineto_results for each in held])
"""
    found = run(MODEL + script)
    assert found.report["state"] == "written"
    assert found.output == "1 [None]\n"
