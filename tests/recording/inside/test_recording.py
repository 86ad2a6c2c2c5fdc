"""`perfdoctor.record` and `perfdoctor.step` in real programs: what they leave, and that they hurt nothing."""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from folders import ROOT
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.readers.open import read
from perfdoctor.recording.inside import report_process
from perfdoctor.recording.inside.report_process import PYTHON
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

MODEL = """
import sys, time, perfdoctor, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps, mark=lambda: None):
    for number in range(steps):
        loss = model(torch.ones(8, 32)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mark()
"""
#: The report is made by the tests' own Python.
ENVIRONMENT = {PYTHON: sys.executable, "PYTHONPATH": str(ROOT / "src")}


@dataclass
class Ended:
    code: int
    output: str
    errors: str
    folder: Path

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text("utf-8"))

    def steps(self) -> int:
        timeline = read([self.folder])
        return sum(name.startswith("ProfilerStep#") for name in timeline.ranges.name)


def begun(folder: Path, script: str, **environment: str) -> Program:
    file = folder / "train.py"
    file.write_text(textwrap.dedent(script), "utf-8")
    known = {name: value for name, value in os.environ.items() if name != torch_profiler.VARIABLE}
    return Program([file], folder, {**known, **ENVIRONMENT, **environment})


def run(folder: Path, script: str, **environment: str) -> Ended:
    return Ended(*begun(folder, script, **environment).finish(), folder / "run")


def test_a_context_records_steps_and_leaves_a_run_folder_with_its_report(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        MODEL
        + """
with perfdoctor.record(steps=4, skip=3, output="run") as recording:
    train(40)
assert recording.wait() == recording.report == recording.folder / "report.html"
""",
    )
    assert (ended.code, ended.output) == (0, ""), ended.errors
    assert ended.errors == f"perfdoctor: report: {ended.folder / 'report.html'}\n"
    (record,) = ended.json("run.json")["passes"]
    assert (record["state"], record["files"], record["notes"]) == ("done", ["torch/rank0.pt.trace.json.gz"], [])
    (report,) = (json.loads(file.read_text()) for file in (ended.folder / "agents").iterdir())
    assert (report["steps_recorded"], report["step_found_by"], report["ended"]) == (4, "optimizer", True)
    assert report["unwatched_steps"] >= 20
    assert ended.steps() == 4
    names = set(read([ended.folder]).ranges.name)
    assert {"forward", "backward", "Optimizer.step#SGD.step"} <= names
    assert ended.json("diagnosis.json")["run"]["steps"]["count"] == 4
    assert {entry.name for entry in ended.folder.iterdir()} == {
        "agents", "diagnosis.json", "report.html", "run.json", "torch",
    }  # fmt: skip


def test_it_finds_the_fault_that_perfdoctor_run_finds(tmp_path: Path) -> None:
    example = ROOT / "examples" / "slow_input.py"
    ended = run(
        tmp_path,
        f"""
import perfdoctor, runpy, sys
sys.path.append({str(example.parent)!r})
with perfdoctor.record(output="run") as recording:
    runpy.run_path({str(example)!r}, run_name="__main__")
""",
    )
    assert ended.code == 0, ended.errors
    diagnosis = ended.json("diagnosis.json")
    assert "input-wait" in [each["rule"] for each in diagnosis["findings"]]
    assert diagnosis["run"]["steps"]["unrecorded_ns"] > 0


def test_the_report_is_made_at_the_end_of_the_program_which_waits_for_it(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        MODEL + "import os\nos.environ['NAME'] = '1'\nperfdoctor.record(steps=3, output='run').start()\ntrain(9)",
    )
    assert ended.code == 0, ended.errors
    assert (ended.folder / "report.html").is_file()
    assert all(line.startswith("perfdoctor: ") for line in ended.errors.splitlines())


def test_a_decorator_records_the_first_call_whose_steps_are_marked(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        MODEL
        + """
@perfdoctor.record(steps=4, skip=3, output="run", report=False)
def both(first, *, second):
    "trains"
    for number in range(20):
        train(2)
        perfdoctor.step()
    return first + second
assert both(1, second=2) == both(2, second=1) == 3
assert (both.__name__, both.__doc__) == ("both", "trains")
""",
    )
    assert (ended.code, ended.errors) == (0, ""), ended.errors
    assert ended.steps() == 4
    updates = [name for name in read([ended.folder]).ranges.name if name.startswith("Optimizer.step#")]
    assert len(updates) == 8
    assert not (ended.folder / "report.html").exists()


@pytest.mark.parametrize(
    "script",
    [
        """
@record
def numbers():
    for number in range(20):
        train(1)
        received = yield number
        assert received is None
    return "done"
def outer():
    assert (yield from numbers()) == "done"
assert list(outer()) == list(numbers()) == list(range(20))
""",
        """
import asyncio
@record
async def one():
    for number in range(20):
        train(1)
        await asyncio.sleep(0)
    return "done"
assert asyncio.run(one()) == asyncio.run(one()) == "done"
""",
    ],
    ids=["generator", "async"],
)
def test_a_decorated_function_that_runs_behind_its_call_is_recorded(tmp_path: Path, script: str) -> None:
    ended = run(tmp_path, f"{MODEL}\nrecord = perfdoctor.record(steps=4, skip=3, output='run', report=False)\n{script}")
    assert (ended.code, ended.errors) == (0, ""), ended.errors
    assert ended.steps() == 4


def test_nothing_of_it_is_left_in_the_program(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        MODEL
        + """
import gc, os, signal
from torch.autograd import profiler
def state():
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    known = [torch.nn.Module.__call__, torch.optim.Optimizer.__init__, profiler.record_function.__exit__, iterator.__next__]
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    return [*known, torch.autograd._engine_run_backward, os.replace, len(gc.callbacks), len(hooks), sys.path[:],
            signal.getsignal(signal.SIGTERM), profiler._enable_profiler, list(sys.meta_path), dict(os.environ)]
before = state()
with perfdoctor.record(steps=4, skip=3, output="run", report=False):
    train(4)
    assert state() != before
    train(5)
assert state() == before
""",
    )
    assert (ended.code, ended.errors) == (0, ""), ended.errors
    assert ended.steps() == 4


def test_an_error_of_the_program_is_its_own_and_what_was_recorded_is_kept(tmp_path: Path) -> None:
    script = (
        MODEL
        + "with perfdoctor.record(steps=100, skip=2, output='run', report=False):\n train(7); raise ValueError('mine')"
    )
    ended = run(tmp_path, script)
    assert ended.code == 1
    assert ended.errors.strip().endswith("ValueError: mine")
    assert ended.steps() >= 4


def test_under_perfdoctor_run_it_only_marks_steps(tmp_path: Path) -> None:
    for name in ("agents", "torch"):
        (tmp_path / name).mkdir()
    (tmp_path / "train.py").write_text(
        MODEL
        + """
with perfdoctor.record(steps=2, output="run") as recording:
    for number in range(12):
        train(2)
        perfdoctor.step()
assert recording.folder is recording.report is recording.wait() is None
"""
    )
    environment = torch_profiler.environment(
        {**os.environ, **ENVIRONMENT}, PassSettings("torch", tmp_path / "torch", "cpu"), StepWindow(4, 3),
        reports=tmp_path / "agents", nccl=None,
    )  # fmt: skip
    assert Program([tmp_path / "train.py"], tmp_path, environment).finish() == (0, "", "")
    assert not (tmp_path / "run").exists()
    (report,) = (json.loads(file.read_text()) for file in (tmp_path / "agents").glob("*.json"))
    assert (report["step_found_by"], report["steps_recorded"]) == ("range", 4)


@pytest.mark.parametrize("output", ["run", ""], ids=["a given folder", "a folder they agree on"])
def test_two_ranks_record_into_one_folder_and_rank_0_reports_on_both(tmp_path: Path, output: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = (
        MODEL
        + f"""
import torch.distributed as dist
dist.init_process_group("gloo")
time.sleep(1.1 * dist.get_rank())  # the time in a folder's name is another one
model = torch.nn.parallel.DistributedDataParallel(model)
with perfdoctor.record(steps=4, skip=3, output={output!r} or None) as recording:
    train(30)
print(recording.folder)
assert (recording.wait() is not None) == (dist.get_rank() == 0)
dist.destroy_process_group()
"""
    )
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [begun(tmp_path, script, RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(2)]
    ended = [rank.finish() for rank in ranks]
    assert [code for code, _, _ in ended] == [0, 0], ended
    (name,) = {output.strip() for _, output, _ in ended}
    folder = Path(name)
    assert folder.parent == (tmp_path if output else tmp_path / "perfdoctor-runs")
    assert sorted(file.name for file in (folder / "torch").iterdir()) == [
        "rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz",
    ]  # fmt: skip
    assert sorted(file.name for file in (folder / "agents").iterdir()) == ["torch-rank0.json", "torch-rank1.json"]
    assert [each["rank"] for each in json.loads((folder / "run.json").read_text())["ranks"]] == [0, 1]
    assert [each["rank"] for each in json.loads((folder / "diagnosis.json").read_text())["time"]] == [0, 1]


# --- what goes wrong is one line, and the training goes on ---

DONE = "\ntrain(3)\nprint('done')"


def warned(ended: Ended) -> str:
    assert (ended.code, ended.output) == (0, "done\n"), ended.errors
    (line,) = (line for line in ended.errors.splitlines() if "is being made" not in line)
    assert line.startswith("perfdoctor: ")
    return line


def test_the_programs_own_profiler_goes_on_alone(tmp_path: Path) -> None:
    script = """
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
    with perfdoctor.record(steps=4, skip=3, output="run"):
        train(12)
assert sum(event.name == "Optimizer.step#SGD.step" for event in own.events()) == 12
"""
    ended = run(tmp_path, MODEL + script + DONE)
    assert ended.code == 0, ended.errors
    first, second = (
        line for line in ended.errors.splitlines() if "perfdoctor" in line
    )  # torch has warnings of its own
    assert "waits until it has ended" in first
    assert "its own torch.profiler" in second
    assert not list((ended.folder / "torch").iterdir())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("with perfdoctor.record(output='run'): train(3)", "after 3 steps, and the first 5 are skipped"),
        (
            "it = perfdoctor.record(output='run'); it.start(); it.start(); train(3); it.finish(); it.finish()",
            "after 3 steps, and the first 5 are skipped",
        ),
        ("with perfdoctor.record(output='run'): pass", "no step was seen. Mark where each ends: perfdoctor.step()"),
        ("with perfdoctor.record(output='/proc/run'): train(20)", "/proc/run cannot be written"),
        ("with perfdoctor.record(output='/usr'): train(20)", "/usr holds other files, which are kept"),
        ("with perfdoctor.record(steps=0): train(20)", "steps must be at least 1"),
        (
            "with perfdoctor.record(output='run', report=False), perfdoctor.record(): train(20)",
            "another recording is running",
        ),
        ("import os; os.environ['NVTX_INJECTION64_PATH'] = 'x'\nwith perfdoctor.record(): train(20)", "another tool"),
        (
            "torch.nn.Module.parameters = torch.profiler.profile.start = None\nwith perfdoctor.record(output='run'): train(20)",
            "'NoneType' object is not callable",
        ),
        (
            f"import os; os.environ['{PYTHON}'] = '/bin/false'\nperfdoctor.record(output='run').start(); train(20)",
            "no report: exit code 1. Later: perfdoctor analyze",
        ),
        (
            f"import os; os.environ['{PYTHON}'] = '/nowhere/python'\nperfdoctor.record(output='run').start(); train(20)",
            "no report is made: FileNotFoundError",
        ),
        (
            "perfdoctor.record(output='run', report=False).start()\ntorch.profiler.profile.step = None; train(20); assert not torch.autograd._profiler_enabled()",
            "perfdoctor's agent failed: TypeError",
        ),
        (
            "with perfdoctor.record(output='run', time_limit_s=0.01) as r: train(20)\nr.wait(60)",
            "no report: it took",
        ),
    ],
)  # fmt: skip
def test_what_fails_is_one_line_and_the_training_goes_on(tmp_path: Path, script: str, said: str) -> None:
    ended = run(tmp_path, MODEL + script + DONE)
    assert said in warned(ended)


def test_a_program_that_never_imports_torch_is_told_why_nothing_was_recorded(tmp_path: Path) -> None:
    ended = run(tmp_path, "import perfdoctor\nwith perfdoctor.record(output='run'):\n    pass\nprint('done')")
    assert warned(ended) == "perfdoctor: nothing was recorded: torch was not imported"
    assert not ended.folder.exists()


def test_a_tracker_that_cannot_take_the_report_costs_a_line_and_not_the_report(tmp_path: Path) -> None:
    (tmp_path / "tb").touch()
    script = "perfdoctor.record(output='run', log='tensorboard=tb').start(); train(20)"
    ended = run(tmp_path, MODEL + script + DONE)
    line = warned(ended)
    assert "--log tensorboard" in line
    assert line.endswith(f"The report: {ended.folder / 'report.html'}")
    assert (ended.folder / "report.html").is_file()


def test_a_report_goes_into_the_folder_of_a_tracker(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    script = "with perfdoctor.record(output='run', log=['tensorboard=tb']) as recording: train(20)\nrecording.wait()"
    assert "perfdoctor: report: " in warned(run(tmp_path, MODEL + script + DONE))
    assert (tmp_path / "tb" / "report.html").is_file()
    assert list((tmp_path / "tb").glob("events.*"))


def test_mlflow_in_another_process_finds_the_run_that_is_active_here(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = SimpleNamespace(
        active_run=lambda: SimpleNamespace(info=SimpleNamespace(run_id="12")), get_tracking_uri=lambda: "sqlite:///a.db"
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    assert report_process._active_run() == {"MLFLOW_RUN_ID": "12", "MLFLOW_TRACKING_URI": "sqlite:///a.db"}
    mlflow.active_run = lambda: None
    assert report_process._active_run() == {}
    mlflow.active_run = 5
    assert report_process._active_run() == {}


def test_weights_and_biases_gets_a_run_of_its_own_while_that_of_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nenv | grep WANDB_\n")
    python.chmod(0o755)
    for name, value in {
        PYTHON: str(python),
        "WANDB_RUN_ID": "12",
        "WANDB_RESUME": "must",
        "WANDB_SWEEP_ID": "7",
        "WANDB_PROJECT": "a",
    }.items():
        monkeypatch.setenv(name, value)
    report_process.ReportProcess(tmp_path, {}, 10.0).wait()
    assert (tmp_path / "report.log").read_text("utf-8") == "WANDB_PROJECT=a\n"


def test_a_report_that_takes_too_long_does_not_keep_the_program(tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 100\n")
    slow.chmod(0o755)
    ended = run(
        tmp_path,
        MODEL + "perfdoctor.record(output='run', time_limit_s=0.5).start()\ntrain(20)" + DONE,
        **{PYTHON: str(slow)},
    )
    assert "no report: it took too long" in warned(ended)


def test_it_may_begin_before_torch_is_imported(tmp_path: Path) -> None:
    begin = "import perfdoctor\nperfdoctor.record(steps=4, skip=3, output='run', report=False).start()\n"
    ended = run(tmp_path, begin + MODEL + "train(12)")
    assert (ended.code, ended.errors, ended.steps()) == (0, "", 4)


def test_a_folder_that_has_a_recording_is_kept(tmp_path: Path) -> None:
    script = MODEL + "with perfdoctor.record(steps=3, output='run', report=False): train(20)"
    assert run(tmp_path, script).errors == ""
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert "holds other files, which are kept" in warned(run(tmp_path, script + DONE))
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before


def test_children_of_the_program_are_left_alone(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        MODEL
        + """
import os
with perfdoctor.record(steps=30, skip=3, output="run", report=False) as recording:
    train(6)
    child = os.fork()
    if not child:
        train(40)
        recording.finish()
        os._exit(torch.nn.Module.__call__.__name__ == "call")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    train(6)
print("done")
""",
    )
    assert (ended.code, ended.output, ended.errors) == (0, "done\n", "")
    assert [file.name for file in (ended.folder / "agents").iterdir()] == ["torch-rank0.json"]
    assert ended.steps() == 9


def test_ctrl_c_in_the_recording_keeps_it_and_its_report(tmp_path: Path) -> None:
    program = begun(
        tmp_path,
        MODEL
        + """
with perfdoctor.record(steps=100, skip=3, output="run"):
    train(9)
    print("now", flush=True)
    time.sleep(60)
""",
    )
    program.wait_for_line()
    program.send_signal(2)
    code, _, errors = program.finish()
    assert code == -2
    assert "KeyboardInterrupt" in errors
    assert read([tmp_path / "run"]).ranks == (0,)
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_signal_that_ends_the_program_keeps_what_was_recorded_and_starts_nothing(tmp_path: Path) -> None:
    program = begun(
        tmp_path,
        MODEL
        + """
with perfdoctor.record(steps=100, skip=3, output="run"):
    train(9)
    print("now", flush=True)
    time.sleep(60)
""",
    )
    program.wait_for_line()
    program.send_signal(15)
    code, _, errors = program.finish()
    assert (code, errors) == (-15, "")
    assert read([tmp_path / "run"]).ranks == (0,)
    assert not (tmp_path / "run" / "report.log").exists()
