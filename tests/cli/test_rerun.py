"""`perfdoctor compare --rerun` runs both recorded commands in turn, lightly, and says why where it cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from folders import FIXTURES, ROOT

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.rerun import refuse_same, rerunnable
from perfdoctor.recording.tools.torch_profiler import VARIABLE
from perfdoctor.system.run_folder import environment_again, recorded_environment

#: What stands in for a training: it says what it was started with, and reports steps as the agent does.
PROGRAM = f"""
import json, os, pathlib, sys
given = json.loads(os.environ["{VARIABLE}"])
with open("../turns", "a") as turns:
    print(sys.argv[1], given["steps"], given["activities"], os.environ.get("OMP_NUM_THREADS"), file=turns)
print("much output")
if sys.argv[1] == "fails":
    sys.exit("no such file: data")
timed = {{"start_unix_ns": 5, "lengths_ns": [int(sys.argv[1]) * 1000] * 40, "recorded": [0, 0], "clock": "host"}}
report = {{"pass": given["pass"], "pid": os.getpid(), "steps_seen": 41, "timed": timed, "ended": True}}
if sys.argv[1] != "0":
    (pathlib.Path(given["reports"]) / f"{{given['pass']}}-{{os.getpid()}}.json").write_text(json.dumps(report))
"""


def recorded(folder: Path, *words: str, trace: str = "cpu-slow-input", **manifest: object) -> Path:
    """The run folder of a program that was started in `folder`."""
    run = folder / "runs" / "1"
    run.mkdir(parents=True)
    (folder / "program.py").write_text(PROGRAM)
    (run / "agents").mkdir()
    shutil.copytree(FIXTURES / trace / "torch", run / "torch")
    known = {
        "format": 1, "perfdoctor": "1", "command": [sys.executable, "program.py", *words], "started_in": "../..",
        "environment": {"OMP_NUM_THREADS": "3"}, "passes": [{"name": "torch", "state": "done"}],
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps({**known, **manifest}))
    return run


def compare(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfdoctor.cli.main", "compare", *map(str, words), "--no-html"],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False,
    )  # fmt: skip


def test_both_commands_run_in_turn_where_and_as_they_were_recorded(tmp_path: Path) -> None:
    before, after = recorded(tmp_path / "a", "900"), recorded(tmp_path / "b", "300")
    done = compare(tmp_path, before, after, "--rerun", 3, "--json", "-")
    assert done.returncode == 0, done.stderr
    turns = (tmp_path / "turns").read_text().splitlines()
    assert [line.split()[0] for line in turns] == ["900", "300", "300", "900", "900", "300"]
    assert {tuple(line.split()[1:]) for line in turns} == {("0", "3")}, (
        "no steps to record, nothing to record them with"
    )
    found = json.loads(done.stdout)
    assert (found["verdict"], found["step"]["steps_compared"], found["step"]["before"]["runs"]) == (
        "faster",
        "paired",
        3,
    )
    assert found["step"]["change"] == pytest.approx(-2 / 3)
    assert "much output" not in done.stdout + done.stderr
    assert done.stderr.count("perfdoctor: run ") == 6


@pytest.mark.parametrize(
    ("words", "said"), [(("fails",), "exit code 1: no such file: data"), (("0",), "no steps were timed")]
)
def test_a_program_that_fails_or_makes_no_steps_ends_the_comparison_in_two_lines(tmp_path: Path, words, said) -> None:
    before, after = recorded(tmp_path / "a", "900"), recorded(tmp_path / "b", *words)
    done = compare(tmp_path, before, after, "--rerun", 3, "-q")
    assert done.returncode == 1
    what, do = done.stderr.strip().splitlines()
    assert said in what
    log = Path(do.split("is in ")[1].split(";")[0])
    assert "much output" in log.read_text()
    shutil.rmtree(log.parent)


@pytest.mark.parametrize(
    ("manifest", "said", "do"),
    [
        ({"command": ["python", "t.py", "--api-key", "***"]}, "has secrets, which were not kept", "in the environment"),
        ({"command": []}, "it is no folder of perfdoctor run", "Record it with perfdoctor run"),
        ({"started_in": ""}, "the folder in which it was started is not known", "Record it with"),
        ({"started_in": "../../gone"}, "the folder in which it was started is not there any more", "Record it with"),
    ],
)
def test_a_run_that_cannot_be_made_again_is_refused_with_the_reason(tmp_path: Path, manifest, said, do) -> None:
    with pytest.raises(PerfdoctorError, match=said) as error:
        rerunnable("x", recorded(tmp_path / "a", **manifest))
    assert do in error.value.do


def test_one_command_in_one_folder_is_refused_as_the_code_of_before_is_gone(tmp_path: Path) -> None:
    before = recorded(tmp_path / "a", "900")
    again = shutil.copytree(before, before.with_name("2"))
    with pytest.raises(PerfdoctorError, match="both would run the code that is there now"):
        refuse_same(rerunnable("1", before), rerunnable("2", again))
    refuse_same(rerunnable("1", before), rerunnable("2", recorded(tmp_path / "b", "900")))
    with pytest.raises(PerfdoctorError, match="no folder of perfdoctor run"):
        rerunnable("x", before / "torch" / "rank0.pt.trace.json.gz")


def test_a_long_program_is_ended_when_it_has_made_enough_steps(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a", "900")
    assert rerunnable("x", run).limit_s is None, "nobody knows how long its steps are"
    timed = {"start_unix_ns": 25 * 10**9, "lengths_ns": [2 * 10**9] * 9, "recorded": [0, 0], "clock": "host"}
    report = {"pass": "torch", "pid": 5, "steps_seen": 10, "started_unix_ns": 5 * 10**9, "timed": timed}
    (run / "agents" / "torch-5.json").write_text(json.dumps(report))
    assert rerunnable("x", run).limit_s == 3 * 20 + 100 * 2


def test_variables_that_matter_are_as_they_were_and_others_as_they_are() -> None:
    recorded_then = recorded_environment({"OMP_NUM_THREADS": "3", "NCCL_AUTH_TOKEN": "x"})
    now = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "1", "NCCL_AUTH_TOKEN": "y", "PATH": "/bin"}
    assert environment_again(recorded_then, now) == {"PATH": "/bin", "OMP_NUM_THREADS": "3", "NCCL_AUTH_TOKEN": "y"}
