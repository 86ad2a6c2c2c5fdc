"""What the agent notes of a whole run, and what is kept of it in the run folder."""

from __future__ import annotations

import errno
import gzip
import json
import os
import time
from pathlib import Path

import pytest
from torch_python import torch_python  # noqa: F401 skips where there is no torch
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.whole_run.partition import partition, record_of
from perfdoctor.readers import whole_run as reader
from perfdoctor.recording.sampling import whole_run
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow
from perfdoctor.system.run_folder import Manifest, RunFolder

#: It evaluates every fourth step for 60 ms, waits 5 ms a step, and prints what its own clock says.
TRAINING = """\
import os, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def look(model):
    model.eval()
    until = time.perf_counter() + 0.06
    while time.perf_counter() < until:
        model(torch.ones(8, 32))  # the line
    model.train()
def main():
    took, begin = 0.0, time.perf_counter()
    for number in range(60):
        if number == 10:  # behind the recorded steps
            took, begin = 0.0, time.perf_counter()
        time.sleep(0.005)
        model(torch.ones(8, 32)).mean().backward()
        optimizer.step()
        if number % 4 == 3:
            since = time.perf_counter()
            look(model)
            took += time.perf_counter() - since
    print(took / (time.perf_counter() - begin))
evaluated, trained = torch.nn.Module.eval, torch.utils.data.DataLoader.__iter__
main()
"""


#: Its rollouts are a loop in the loop of updates; what an optimizer's `step` returns is no state of an environment.
ROLLOUTS = """\
def train(agent, world, optimizer):
    state = world.reset()
    for update in range(100):
        for _ in range(128):  # acts
            with torch.no_grad():  # acts
                action = agent(state)  # acts # no gradients
            state, reward, *ended = world.step(action)  # acts
        loss, norm = optimizer.step(closure)
        loss = optimizer.step()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, float]:
    """The run folder of the training, and the share that it says itself."""
    folder = tmp_path_factory.mktemp("whole")
    run = RunFolder.create(folder / "run", Manifest(perfdoctor="test"))
    (folder / "train.py").write_text(TRAINING, "utf-8")
    environment = torch_profiler.environment(
        os.environ, PassSettings("torch", run.make("torch"), "cpu"), StepWindow(steps=4, skip=3),
        reports=run.path / "agents", nccl=None,
    )  # fmt: skip
    code, output, errors = Program([folder / "train.py"], folder, environment).finish()
    assert (code, errors) == (0, "")
    return run, float(output)


pytestmark = [pytest.mark.torch, ALL_AT_ONE]


def test_what_comes_every_four_steps_is_named_with_its_share_and_line(recorded: tuple[RunFolder, float]) -> None:
    run, share = recorded
    (name,) = whole_run.keep(run, "torch", run.path.parent, lambda _: {}, [], with_source=True)
    assert not list((run.path / "agents").glob("*.steps")), "it names files by their whole paths"
    noted = reader.read(run.path / name)
    assert noted is not None
    assert noted.ends_ns.size == 60
    assert list(noted.windows) == [(1, 7)], (
        "the step of warm-up, four recorded ones, and that in which the trace is written"
    )
    whole = partition(noted)
    assert whole is not None
    found = record_of(whole)
    assert found.every_steps["evaluation"] == 4  # a machine that others use may add pauses of its own
    assert found.share["evaluation"] == pytest.approx(share, abs=0.06)
    line = found.lines["evaluation"]
    assert (line.file, line.function, line.text) == ("train.py", "look", ("model(torch.ones(8, 32))  # the line",))


def test_the_report_has_the_lengths_of_all_steps(recorded: tuple[RunFolder, float]) -> None:
    run, _ = recorded
    timed = next(json.loads(file.read_text("utf-8"))["timed"] for file in (run.path / "agents").glob("torch-*.json"))
    assert len(timed["lengths_ns"]) == 59
    assert min(timed["lengths_ns"]) >= 5_000_000
    assert timed["recorded"] == [1, 7]


def test_the_source_says_which_lines_act_in_an_environment_or_compute_no_gradients(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ROLLOUTS, "utf-8")
    lines = ROLLOUTS.splitlines()
    noted = {
        "pid": 1, "start_unix_ns": time.time_ns(), "end_ns": 1, "parameter_bytes": 0, "ends_ns": [], "sites": [], "windows": [],
        "site_lines": [], "site_callers": [], "stacks": [], "iterators": [],
        "frames": [[str(tmp_path / "train.py"), number, "train", 1] for number in range(1, len(lines) + 1)],
        "sample_ns": [], "sample_stack": [], "sample_evaluating": [], "sample_written": [],
    }  # fmt: skip
    run = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="test"))
    (run.path / "agents" / "torch-1.json").write_text('{"pass": "torch", "pid": 1, "steps_seen": 3}', "utf-8")
    (run.path / "agents" / "whole-run-torch-1.steps").write_text(json.dumps(noted), "utf-8")
    (name,) = whole_run.keep(run, "torch", tmp_path, lambda _: {}, [], with_source=True)
    stored = json.loads(gzip.decompress((run.path / name).read_bytes()))
    older = tmp_path / "older.json.gz"
    older.write_bytes(gzip.compress(json.dumps({k: v for k, v in stored.items() if k != "acting"}).encode()))
    assert reader.read(older) is None, "one without them is too short as well, and not damaged"
    for kind, mark in (("acting", "# acts"), ("without_gradients", "# no gradients")):
        assert [lines[each] for each in stored[kind]] == [line for line in lines if mark in line], kind


def test_where_there_is_no_space_it_is_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = {
        "pid": 1, "start_unix_ns": time.time_ns(), "end_ns": 1, "parameter_bytes": 0,
        "ends_ns": [], "sites": [], "windows": [], "site_lines": [], "site_callers": [], "stacks": [], "iterators": [],
        "frames": [], "sample_ns": [], "sample_stack": [], "sample_evaluating": [], "sample_written": [],
    }  # fmt: skip
    run = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="test"))
    (run.path / "agents" / "torch-1.json").write_text('{"pass": "torch", "pid": 1, "steps_seen": 3}', "utf-8")
    (run.path / "agents" / "whole-run-torch-1.steps").write_text(json.dumps(noted), "utf-8")

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole_run.stacks, "write", full)
    notes: list[str] = []
    assert list(whole_run.keep(run, "torch", tmp_path, lambda _: {}, notes, with_source=True)) == []
    assert notes == ["what process 1 did outside of the recorded steps cannot be stored: No space left on device"]
    assert not list((run.path / "agents").glob("*.steps"))


@pytest.mark.parametrize("content", ["", "{}", '{"pid": 1}', '{"pid": 1, "frames": [["a.py"]]}', "[1, 2]"])
def test_a_damaged_file_is_left_out(tmp_path: Path, content: str) -> None:
    run = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="test"))
    (run.path / "agents" / "torch-1.json").write_text('{"pass": "torch", "pid": 1, "steps_seen": 3}', "utf-8")
    (run.path / "agents" / "whole-run-torch-1.steps").write_text(content, "utf-8")
    assert list(whole_run.keep(run, "torch", tmp_path, lambda _: {}, [], with_source=True)) == []
    assert not list((run.path / "agents").glob("*.steps"))


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", b"\x1f\x8b\x08\x00broken", gzip.compress(b'{"format": 1}', mtime=0)]
)
def test_what_is_no_file_of_ours_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "whole-run-torch-1.json.gz"
    file.write_bytes(content)
    with pytest.raises(PerfdoctorError, match="is damaged, or of another version"):
        reader.read(file)
