"""`perfdoctor run` and `perfdoctor env` as commands: usage errors, and what is printed where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from folders import ROOT
from measured_builders import matmuls, rates
from torch_python import torch_python
from warm_torch import ALL_AT_ONE, warm_python

from perfdoctor.cli import env, run
from perfdoctor.hardware.measured import load
from perfdoctor.recording.launch.program import Program, inspect
from perfdoctor.recording.launch.program_run import Ended
from perfdoctor.recording.machine_rates import store
from perfdoctor.recording.plan import Machine
from perfdoctor.recording.tools.gpu_counters import GpuCounters
from perfdoctor.recording.tools.nsys import Nsys
from perfdoctor.recording.tools.nvml import Devices, DriverGpu
from perfdoctor.system.processors import processor_name

TRAINING = """
import torch
model = torch.nn.Linear(4, 4); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(9):
    model(torch.ones(4)).sum().backward(); optimizer.step()
print("done")
"""


def perfdoctor(
    folder: Path, *words: str | Path, path: str | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfdoctor.cli.main", *words], capture_output=True, text=True, cwd=folder, check=False,
        env={
            **os.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": path or os.environ["PATH"],
            "XDG_CACHE_HOME": f"{folder}-cache", **(environment or {}),
        }, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--passes", "nsight"], "'nsight' is no pass"),
        (["--steps", "0"], "--steps"),
        (["--html", "x.html", "--no-html"], "exclude each other"),
        (["--rule", "inputwait"], "inputwait"),
        (["--json", "-", "--format", "markdown"], "both want standard output"),
        (["--nosuch"], "--nosuch"),
    ],
)
def test_a_usage_error_exits_with_2_before_anything_runs(tmp_path: Path, words: list[str], message: str) -> None:
    done = perfdoctor(tmp_path, "run", *words, "--", "touch", "ran")
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_options_behind_the_command_are_the_commands(tmp_path: Path) -> None:
    done = perfdoctor(
        tmp_path, "run", "-q", "--no-html", sys.executable, "-c", "import sys; print(sys.argv)", "--steps", "-q"
    )
    assert done.stdout == "['-c', '--steps', '-q']\n"


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("nosuch", 127, "was not found"),
        ("plain", 127, "Give it with its folder: ./plain"),
        ("./plain", 126, "may not be executed"),
        ("./folder", 126, "is a directory"),
        ("./script", 127, "its interpreter /no/such was not found"),
        ("train.py", 127, "perfdoctor run -- python train.py"),
    ],
)
def test_a_command_that_cannot_start_exits_as_in_a_shell(tmp_path: Path, name: str, code: int, message: str) -> None:
    for file in ("plain", "train.py"):
        (tmp_path / file).write_text("")
    (tmp_path / "script").write_text("#!/no/such\n")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "folder").mkdir()
    done = perfdoctor(tmp_path, "run", "--", name)
    assert (done.returncode, message in done.stderr) == (code, True)
    assert not (tmp_path / "perfdoctor-runs").exists()


@pytest.mark.parametrize(
    ("program", "code", "what"),
    [
        ("exit 3", 3, "the program ended with code 3 before it imported torch\n  → The program's own last lines say"),
        ("kill -HUP $$", -1, "was ended by SIGHUP before it imported torch\n  → Let it run"),
        ("kill -KILL $$", -9, "was ended by SIGKILL before it imported torch\n  → perfdoctor did not send it"),
        ("kill -SEGV $$", -11, "was ended by SIGSEGV before it imported torch\n  → The program's own last lines say"),
    ],
)
def test_a_program_without_a_step_is_no_recording_and_ends_as_it_would_without_us(
    tmp_path: Path, program: str, code: int, what: str
) -> None:
    done = perfdoctor(tmp_path, "run", "-q", "-o", "run", "--passes", "torch", "--", "sh", "-c", program)
    assert done.returncode == code  # negative: the signal itself, as subprocess sees it
    assert what in done.stderr
    assert "ecord again" not in done.stderr
    again = perfdoctor(tmp_path, "analyze", "run")
    assert "before it imported torch" in again.stderr


#: What it was given, and what it answers.
PROGRAM = """
import os, sys
def of(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
    except OSError:
        return "closed"
with open("seen", "w") as file:
    file.write(ascii((sys.argv[1:], [of(number) for number in range(3, 9)], [of(number) for number in range(3)])))
print("done")
sys.exit(5)
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--passes ncu", "none of these passes can run here: ncu"),
        ("-o /proc/no", "0 MB are free for /proc/no"),
        ("-o full", "full is not empty"),
        ("-o seen/below", "seen/below cannot be written: Not a directory"),
    ],
)
def test_a_command_that_cannot_be_recorded_runs_all_the_same(tmp_path: Path, options: str, message: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "seen").touch()
    done = perfdoctor(tmp_path, "run", *options.split(), "--", sys.executable, "-c", PROGRAM)
    assert (done.returncode, done.stdout) == (5, "done\n")
    assert "this run is not recorded" in done.stderr
    assert message in done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"full", "seen"}


def test_a_command_that_starts_a_profiler_itself_runs_as_it_is(tmp_path: Path) -> None:
    tool = tmp_path / "nsys"
    tool.write_text("#!/bin/sh\necho $* > ran; exit 4\n")
    tool.chmod(0o755)
    done = perfdoctor(tmp_path, "run", "--", tool, "profile", "python", "t.py")
    assert done.returncode == 4
    assert "starts nsys itself" in done.stderr
    assert (tmp_path / "ran").read_text() == "profile python t.py\n"


@pytest.mark.parametrize(
    "ending",
    ["2>/dev/full", ">/dev/full", "<&-", ">&-", "2>&-", "<&- >&- 2>&-", "$'\\xff'", "; exit 7"],
)
def test_streams_that_are_closed_or_full_and_words_that_are_not_utf_8_are_the_programs_as_given(
    tmp_path: Path, ending: str
) -> None:
    (tmp_path / "t.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": f"{tmp_path}-cache"}
    seen = []
    for before in ("", f"{sys.executable} -m perfdoctor.cli.main run --passes torch -- "):
        command = f"export CUDA_ODD=$'\\xff'; {before}{sys.executable} t.py {ending}"
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=False, timeout=120)
        seen.append((done.returncode, (tmp_path / "seen").read_text()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("most", [6, 7, 12, 20])
def test_a_program_runs_where_few_files_may_be_open(tmp_path: Path, most: int) -> None:
    words = [
        sys.executable,
        "-m",
        "perfdoctor.cli.main",
        "run",
        "--passes",
        "torch",
        "--",
        "sh",
        "-c",
        "echo done; exit 5",
    ]
    done = subprocess.run(
        ["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh", *words], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": f"{tmp_path}-cache"}, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (5, "done\n")


def test_an_unforeseen_error_of_a_pass_changes_neither_the_program_nor_its_exit_code(tmp_path: Path) -> None:
    broken = "from perfdoctor.cli import main; from perfdoctor.recording import record; record.{} = None; main.main()"
    for function, how_often in (("torch_profiler", "x"), ("outcome", "xx"), ("PassRecord", "xxx")):
        words = ["run", "--passes", "torch", "--", "sh", "-c", "printf x >> ran; exit 5"]
        done = subprocess.run(
            [sys.executable, "-c", broken.format(function), *words], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 5
        assert "This is a bug of perfdoctor" in done.stderr
        assert (tmp_path / "ran").read_text() == how_often


@pytest.mark.torch
@ALL_AT_ONE
def test_standard_output_is_the_programs_and_the_output_that_was_requested(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(TRAINING)
    options = ["--steps", "3", "--skip-steps", "2", "--json", "-"]
    done = perfdoctor(tmp_path, "run", *options, "--", warm_python(tmp_path), "t.py")
    own, _, diagnosis = done.stdout.partition("\n")
    assert own == "done"
    assert json.loads(diagnosis)["run"]["steps"]["used"] == 3
    (run,) = (tmp_path / "perfdoctor-runs").iterdir()
    assert run.name.endswith("-t")
    written = {file.name for file in run.iterdir()} - {"stacks"}  # where py-spy is installed
    assert {"run.json", "report.html", "diagnosis.json", "torch", "agents", "device"} == written


@pytest.mark.torch
@ALL_AT_ONE
@pytest.mark.parametrize(
    ("ending", "code"), [("raise SystemExit(4)", 4), pytest.param("", 3, marks=pytest.mark.thorough)]
)
def test_fail_on_counts_only_where_the_program_itself_did_not_fail(tmp_path: Path, ending: str, code: int) -> None:
    slow = TRAINING.replace(
        "for number", "data = iter(torch.utils.data.DataLoader(S(), batch_size=1))\nfor number"
    ).replace("model(torch.ones(4))", "next(data); model(torch.ones(4))")
    slow = (
        "import time, torch\nclass S(torch.utils.data.Dataset):\n    def __len__(self): return 99\n    def __getitem__(self, i): time.sleep(.02); return 1\n"
        + slow
    )
    (tmp_path / "t.py").write_text(f"{slow}\n{ending}\n")
    words = [
        "run",
        "-q",
        "--no-html",
        "--steps",
        "3",
        "--skip-steps",
        "2",
        "--fail-on",
        "input-wait",
        "--",
        warm_python(tmp_path),
    ]
    assert perfdoctor(tmp_path, *words, "t.py").returncode == code


def test_env_lists_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    done = perfdoctor(tmp_path, "env", "--python", "no-such-python")
    assert done.returncode == 0
    assert "no-such-python" in done.stdout
    assert "→" in done.stdout
    assert "perfdoctor run -- COMMAND would record" in done.stdout


def fake_tool(folder: Path, name: str, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{says}\n")
    (folder / name).chmod(0o755)


def test_env_calls_a_tool_on_path_installed_and_says_what_it_is_good_for(tmp_path: Path) -> None:
    fake_tool(tmp_path / "bin", "ncu", "echo Version 2024.1.1.0")
    fake_tool(tmp_path / "bin", "nsys", "echo broken; exit 3")
    environment = dict.fromkeys(("PERFDOCTOR_NSYS", "PERFDOCTOR_NCU"), "")
    done = perfdoctor(tmp_path, "env", path=f"{tmp_path}/bin:{os.environ['PATH']}", environment=environment)
    (ncu,) = [line for line in done.stdout.splitlines() if line.startswith("ncu ")]
    (nsys,) = [line for line in done.stdout.splitlines() if line.startswith("nsys ")]
    assert "installed, Nsight Compute 2024.1.1" in ncu
    assert "installed, but not usable" in nsys


@pytest.mark.parametrize(
    ("counters", "found", "do"),
    [
        (GpuCounters("gpu-metrics-devices", "all"), "sampled by nsys", ""),
        (GpuCounters("gpu-metrics-devices", "all", doubt="nv-hostengine"), "nv-hostengine runs here", "dcgmi profile"),
        (
            GpuCounters(trouble="the GPU is divided (MIG)", do="Record on another."),
            "not sampled: the GPU is",
            "Record on",
        ),
    ],
)
def test_env_says_whether_the_gpus_counters_are_sampled(counters: GpuCounters, found: str, do: str) -> None:
    nsys = Nsys("/n/nsys", "2025.1.1", frozenset({"trace", "output"}))
    gpu = Devices((DriverGpu(0, "NVIDIA H100 80GB HBM3", "0", 80 << 30),), "570.1", "")
    machine = Machine(Program(("python",), torch="2.13"), nsys, None, gpu, "", counters=counters)
    (line,) = [line for line in env._lines(machine, "python", verbose=False) if line.name == "counters"]
    assert found in line.found
    assert bool(line.do) == bool(do)
    assert do in line.do


@pytest.mark.torch
def test_env_finds_torch_in_the_python_that_trains(tmp_path: Path) -> None:
    done = perfdoctor(tmp_path, "env", "--python", torch_python())
    assert "torch       2." in done.stdout
    assert "rates       not measured: perfdoctor selftest --full" in done.stdout


@pytest.mark.torch
@ALL_AT_ONE
def test_what_was_measured_here_is_shown_and_laid_into_the_folder_of_a_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}-cache")
    torch = inspect([torch_python()], dict(os.environ)).torch
    here = rates(*matmuls(fp32={2048: 1.25e11}), device=processor_name(), driver="", torch=torch, kind="processor")
    assert store(here)
    shown = perfdoctor(tmp_path, "env", "--python", torch_python()).stdout
    assert "rates       fp32 125 GFLOP/s (2026-11-22)" in shown
    (tmp_path / "t.py").write_text(TRAINING)
    options = ["-q", "--no-html", "-o", "run", "--steps", "3", "--skip-steps", "2"]
    assert perfdoctor(tmp_path, "run", *options, "--", warm_python(tmp_path), "t.py").returncode == 0
    assert load(tmp_path / "run" / "device" / "measured.json") == here


@pytest.mark.torch
@ALL_AT_ONE
def test_each_run_is_stored_and_a_history_that_cannot_be_written_changes_no_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(tmp_path / "here" / "history.db"))
    (tmp_path / "t.py").write_text(f"{TRAINING}\nraise SystemExit(4)\n")
    words = ["run", "-q", "--no-html", "--steps", "3", "--skip-steps", "2"]
    command = ["--", warm_python(tmp_path), "t.py", "--token", "hunter2"]
    assert perfdoctor(tmp_path, *words, *command).returncode == 4
    shown = perfdoctor(tmp_path, "history", "show", "--json").stdout
    row = json.loads(shown)["run"]
    assert (row["source"], row["exit_code"], row["program"], row["steps"]) == ("run", 4, "t.py", 3)
    assert len(row["step_times_ns"]) == 3
    assert "hunter2" not in shown
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(tmp_path / "t.py" / "history.db"))
    done = perfdoctor(tmp_path, *words, *command)
    assert done.returncode == 4
    assert sum("not stored in the history" in line for line in done.stderr.splitlines()) == 1


def test_ctrl_c_behind_the_end_of_the_program_keeps_its_exit_code():
    said: list[str] = []

    def record(_name, _kernels):
        session.ran.append(Ended(code=7))
        raise KeyboardInterrupt

    session = SimpleNamespace(
        plan=SimpleNamespace(passes=("torch",)), ran=[], record=record, folder=SimpleNamespace(path=Path("run"))
    )
    ended = run._one_pass("torch", session, said.append, quiet=True, verbose=False)
    assert ended.code == 7
    assert "ended by Ctrl-C" in said[-1]
    session.record = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        run._one_pass("torch", session, said.append, quiet=True, verbose=False)
