"""`perfdoctor run` as a whole: real trainings, real tools, and the contents of the run folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from folders import ROOT
from real_nsys import nsys, with_its_agent
from torch_python import torch_python
from typer.testing import CliRunner
from warm_torch import ALL_AT_ONE, warm_python

from perfdoctor.cli.main import app
from perfdoctor.metrics.accounting.prepare import prepare, step_stats
from perfdoctor.readers.open import read

EXAMPLES = ROOT / "examples"
TRAINING = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.AdamW(model.parameters())
for number in range(int(sys.argv[1])):
    model(torch.ones(64, 256)).mean().backward(); optimizer.step(); optimizer.zero_grad()
    time.sleep(0.005)
    print("step", number, flush=True)
"""


@dataclass
class Ran:
    code: int
    output: str
    errors: str
    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "run.json").read_text("utf-8"))

    @property
    def diagnosis(self) -> dict[str, Any]:
        return json.loads((self.folder / "diagnosis.json").read_text("utf-8"))

    @property
    def first(self) -> str:
        """Of what was found in the training: the machine of the tests may be busy."""
        return next(each["rule"] for each in self.diagnosis["findings"] if each["rule"] != "busy-machine")


def perfdoctor(folder: Path, *words: str | Path, environment: dict[str, str] | None = None) -> Ran:
    def run() -> Ran:
        if log.exists():
            shutil.rmtree(folder)
        done = subprocess.run(
            [sys.executable, "-m", "perfdoctor.cli.main", "run", "-o", folder, *words],
            capture_output=True, text=True, timeout=280, cwd=folder.parent, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **(environment or {})},
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr, folder)

    log = folder / "nsys" / "nsys.log"
    return with_its_agent(run, lambda _: log.read_text("utf-8", "replace") if log.exists() else "")


def training(folder: Path, steps: int = 20) -> list[str]:
    file = folder / "train.py"
    file.write_text(TRAINING, "utf-8")
    return ["--", torch_python(), str(file), str(steps)]


@pytest.mark.torch
def test_a_torch_pass_finds_the_fault_and_leaves_a_folder_that_any_machine_reads(tmp_path: Path) -> None:
    ran = perfdoctor(
        tmp_path / "run", "--passes", "torch", "--steps", "10", "--", torch_python(), EXAMPLES / "slow_input.py"
    )
    assert ran.code == 0, ran.errors
    assert ran.first == "input-wait"
    assert (ran.folder / "report.html").is_file()
    (record,) = ran.manifest["passes"]
    assert (record["name"], record["state"], record["exit_code"]) == ("torch", "done", 0)
    assert [file for file in record["files"] if not file.startswith("stacks/")] == ["torch/rank0.pt.trace.json.gz"]
    assert "perfdoctor" not in ran.output
    timeline = read([ran.folder])
    assert step_stats(prepare(timeline)).count == 10


@ALL_AT_ONE
@pytest.mark.torch
def test_a_program_that_is_to_keep_going_stays_open_for_windows_by_hand(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING, "utf-8")
    words = [
        "--passes",
        "torch",
        "--steps",
        "3",
        "--keep-going",
        "--",
        warm_python(tmp_path),
        tmp_path / "train.py",
        "200",
    ]
    ran = perfdoctor(tmp_path / "run", *words)
    assert (ran.code, len(ran.output.splitlines())) == (0, 200)
    lines = [json.loads(line) for line in next((ran.folder / "steps").glob("*.jsonl")).read_text().split("\n") if line]
    assert max(line["first"] + line["steps"] - 1 for line in lines if "first" in line) == 200


@pytest.mark.torch
@pytest.mark.nsys
def test_an_nsys_pass_joins_ranges_calls_and_ops_on_one_clock(tmp_path: Path) -> None:
    nsys()
    ran = perfdoctor(
        tmp_path / "run", "--passes", "nsys", "--steps", "10", "--", torch_python(), EXAMPLES / "slow_input.py"
    )
    assert ran.code == 0, ran.errors
    assert "input-wait" in {finding["rule"] for finding in ran.diagnosis["findings"]}
    timeline = read([ran.folder])
    assert {"ranges", "ops", "os_calls"} <= timeline.recorded
    assert [source.kind for source in timeline.sources] == ["nsys", "kineto", "cpu"]
    assert step_stats(prepare(timeline)).count == 10
    # A range that both recorded counts once, and ops lie inside the ranges of nsys that hold them.
    names = list(timeline.ranges.name)
    assert names.count("backward") == 10
    backward = timeline.ranges.take(timeline.ranges.name.equals("backward"))
    ops = timeline.ops.take(timeline.ops.name.where(lambda name: name.endswith("AddmmBackward0")))
    inside = [((backward.start_ns <= at) & (at < backward.end_ns)).any() for at in ops.start_ns]
    assert all(inside)
    assert not any("arrived" in note for note in ran.diagnosis["notes"])
    # The folder is enough: the export is beside the report.
    assert list((ran.folder / "nsys").glob("*.sqlite"))
    assert "nsys-report" not in ran.output
    assert "Generating" not in ran.output


@pytest.mark.torch
@pytest.mark.nsys
def test_two_passes_agree_on_the_step_end_the_program_each_and_keep_no_secrets(tmp_path: Path) -> None:
    nsys()
    secrets = ["--api-key", "hunter2hunter2", "--url=https://me:hunter2@host/x"]
    words = [*training(tmp_path, 400), *secrets]
    ran = perfdoctor(tmp_path / "run", "--passes", "torch,nsys", *words, environment={"MY_TOKEN": "hunter2hunter2"})
    assert ran.code == 0, ran.errors
    assert [record["name"] for record in ran.manifest["passes"]] == ["nsys", "torch"]
    assert ran.output.count("step") < 200
    (compared,) = [note for note in ran.diagnosis["notes"] if "apart" in note]
    assert "A step took" in compared
    for file in ran.folder.rglob("*"):
        if file.suffix in (".json", ".html"):
            assert "hunter2" not in file.read_text("utf-8"), file
    assert ran.manifest["command"][-3:] == ["--api-key", "***", "--url=https://***@host/x"]


@pytest.mark.torch
@pytest.mark.parametrize("passes", ["torch", pytest.param("nsys", marks=[pytest.mark.nsys, pytest.mark.thorough])])
def test_torchrun_gives_two_ranks_with_their_numbers(tmp_path: Path, passes: str) -> None:
    if passes == "nsys":
        nsys()
    torchrun = [torch_python(), "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    ran = perfdoctor(
        tmp_path / "run", "--passes", passes, "--", *torchrun, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
        EXAMPLES / "exposed_communication.py", "--steps", "18",
    )  # fmt: skip
    assert ran.code == 0, ran.errors
    assert [row["rank"] for row in ran.diagnosis["time"]] == [0, 1]
    assert ran.first == "exposed-communication"
    by_pid = {rank["pid"]: rank["rank"] for rank in ran.manifest["ranks"]}
    timeline = read([ran.folder])
    for pid, rank in by_pid.items():
        assert set(timeline.ops.of(rank=rank)["process"].tolist()) == {pid}


def thorough(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("import sys; sys.exit(7)", 7, "imported torch"),
        thorough("import torch, os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, "SIGKILL before its first step"),
        thorough(TRAINING.replace("sys.argv[1]", "3") + "\nsys.exit(9)", 9, "after 3 steps"),
        (TRAINING.replace("sys.argv[1]", "9") + "\nimport os; os.kill(os.getpid(), 9)", -9, "killed while it was recorded"),
        thorough(TRAINING.replace("sys.argv[1]", "9") + "\nimport ctypes; ctypes.string_at(0)", -11, "killed while it was recorded"),
        (TRAINING.replace("sys.argv[1]", "9"), 0, "ended after 4 of 10 recorded steps"),
    ],
)  # fmt: skip
def test_however_it_ends_the_code_is_its_own_and_the_folder_notes_what_is_missing(
    tmp_path: Path, body: str, code: int, message: str
) -> None:
    program = tmp_path / "train.py"
    program.write_text(body, "utf-8")
    ran = perfdoctor(tmp_path / "run", "--no-html", "--", torch_python(), program)
    assert ran.code == code
    assert message in ran.errors
    assert message in " ".join(ran.manifest["passes"][0]["notes"])
    again = CliRunner().invoke(app, ["analyze", str(ran.folder), "--no-html"])
    assert message in " ".join((again.stdout + again.stderr).split())
    assert again.exception is None or isinstance(again.exception, SystemExit)


@pytest.mark.torch
@pytest.mark.nsys
def test_a_report_that_could_not_be_imported_is_explained_and_the_ops_are_diagnosed(tmp_path: Path) -> None:
    real = nsys()
    stand_in = tmp_path / "nsys"
    # The real one records; only its importer's last step is taken back, as it is without libssh.
    stand_in.write_text(
        f"""#!/bin/sh
case "$1 $2" in
"profile --help"|"--version "*) exec {real} "$@" ;;
esac
{real} "$@"; code=$?
for report in {tmp_path}/run/nsys/*.nsys-rep; do mv "$report" "${{report%.nsys-rep}}.qdstrm"; done
echo "Importer error status: An unknown error occurred."
exit $code
"""
    )
    stand_in.chmod(0o755)
    ran = perfdoctor(
        tmp_path / "run",
        "--no-html",
        "--passes",
        "nsys",
        *training(tmp_path),
        environment={"PERFDOCTOR_NSYS": str(stand_in)},
    )
    assert ran.code == 0
    assert "its importer failed" in ran.errors
    assert "train.qdstrm" in ran.errors
    assert ran.diagnosis["run"]["steps"]["used"] >= 10


OWN_PROFILER = """
import sys, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.profiler.profile() as profile:
    for _ in range(12):
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        profile.step()
if len(sys.argv) > 1:
    profile.export_chrome_trace(sys.argv[1])
"""


@pytest.mark.torch
@ALL_AT_ONE
@pytest.mark.parametrize("name", ["mine.json", "mine.json.gz", ""])
def test_what_the_programs_own_profiler_wrote_is_diagnosed(tmp_path: Path, name: str) -> None:
    program = tmp_path / "own.py"
    program.write_text(OWN_PROFILER, "utf-8")
    ran = perfdoctor(tmp_path / "run", "--no-html", "--", warm_python(tmp_path), program, *([name] if name else []))
    assert ran.code == 0
    if not name:
        assert "nothing to diagnose: the program uses its own torch.profiler" in ran.errors
        assert "switch the program's own off" in ran.errors
        return
    own = tmp_path / name
    assert own.is_file()
    assert f"its own trace ({name}) is diagnosed" in ran.errors
    (report,) = (json.loads(file.read_text()) for file in (ran.folder / "agents").iterdir())
    assert report["own_traces"] == [name]
    own.unlink()  # the folder holds a copy
    again = CliRunner().invoke(app, ["analyze", str(ran.folder), "--no-html", "--json", "-"])
    steps = json.loads(again.stdout)["run"]["steps"]
    assert (steps["count"] >= 11, steps["marked_by"]) == (True, "")


@pytest.mark.torch
def test_trainings_that_one_command_starts_are_runs_of_their_own(tmp_path: Path) -> None:
    words = training(tmp_path)[1:-1]
    launcher = tmp_path / "launch.py"
    launcher.write_text(
        f"import subprocess\nstarted = [subprocess.Popen([*{words!r}, steps]) for steps in ('30', '8')]\n"
        "raise SystemExit(max(each.wait() for each in started))\n"
    )
    ran = perfdoctor(tmp_path / "run", "--no-html", "--steps", "10", "--", torch_python(), launcher)
    assert ran.code == 0, ran.errors
    processes = ran.diagnosis["run"]["processes"]  # as they began: both at once
    assert {(*each["command"][1:], each["steps_recorded"], each["diagnosed"]) for each in processes} == {
        ("30", 10, True), ("8", 3, False),
    }  # fmt: skip
    assert ran.diagnosis["run"]["steps"]["count"] == 10
    longer, shorter = (1 + [each["steps_recorded"] for each in processes].index(steps) for steps in (10, 3))
    assert f"process {longer} of 2" in ran.errors
    again = CliRunner().invoke(app, ["analyze", str(ran.folder), "--no-html", "--process", str(shorter), "--json", "-"])
    assert json.loads(again.stdout)["run"]["steps"]["count"] == 3


@pytest.mark.torch
def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    ran = perfdoctor(folder, *training(tmp_path))
    assert "not empty" in ran.errors
    assert [file.name for file in folder.iterdir()] == ["mine.txt"]
    assert (ran.code, ran.output.splitlines()[0]) == (0, "step 0"), "the program runs all the same"


LOADED = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        sample = torch.ones(64)
        total = sum(number * number for number in range(200_000))
        return sample + total % 2

def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters())
    workers, start = int(sys.argv[1]), sys.argv[2]
    loader = DataLoader(Slow(), batch_size=8, num_workers=workers, multiprocessing_context=start if workers else None)
    for number, batch in zip(range(24), loader):
        model(batch).mean().backward(); optimizer.step(); optimizer.zero_grad()

if __name__ == "__main__":
    main()
"""


@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="stacks are sampled on Linux only")
@pytest.mark.parametrize(("workers", "start"), [(0, "fork"), (2, "fork"), thorough(2, "spawn")])
def test_the_line_that_costs_is_named_also_in_a_loaders_worker(tmp_path: Path, workers: int, start: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(LOADED, "utf-8")
    os.utime(file, (1e9, 1e9))
    ran = perfdoctor(tmp_path / "run", "--no-html", "--", torch_python(), str(file), str(workers), start)
    assert ran.code == 0
    (waits,) = [each for each in ran.diagnosis["findings"] if each["rule"] == "input-wait"]
    line = waits["lines"][0]
    assert (line["file"], line["line"], line["function"].rpartition(".")[2]) == ("train.py", 11, "__getitem__")
    assert line["text"] == ["total = sum(number * number for number in range(200_000))"]
    assert line["is_worker"] is (workers > 0)
    everything = b"".join(each.read_bytes() for each in (tmp_path / "run/stacks").iterdir())
    assert everything
