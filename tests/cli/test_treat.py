"""`perfdoctor treat` runs a program with fixes in it, changes none of its files, and says what became of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from folders import ROOT
from warm_torch import ALL_AT_ONE, warm_python

from perfdoctor.cli.treat import Asked, Treating, _launched_ranks, _variables, seconds
from perfdoctor.recording.tools import nvml
from perfdoctor.treatments import catalogue
from perfdoctor.treatments.choice import DiagnosedRun, arms, diagnosed

PROGRAM = """
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("a line of the program")
if len(sys.argv) > 1:
    sys.exit("no data")
for _ in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
"""
BROKEN = '"""Break."""\n\n\ndef apply(torch, given):\n    raise KeyError("a name")\n'
ABSENT = '"""Find nothing."""\n\n\ndef apply(torch, given):\n    pass\n'


def treat(folder: Path, *words: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "perfdoctor", "treat", *words],
        capture_output=True, text=True, cwd=folder, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PERFDOCTOR_HISTORY": str(folder / "history.db")},
    )  # fmt: skip


@ALL_AT_ONE
@pytest.mark.torch
def test_a_fix_that_fails_and_one_that_finds_nothing_are_lines_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "broken.py").write_text(BROKEN)
    (tmp_path / "own" / "absent.py").write_text(ABSENT)
    done = treat(
        tmp_path, "--treatments", "own", "--fix", "broken,absent", "-o", "out", "--bitwise", "--json", "-", "--",
        warm_python(tmp_path), "program.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {row["fix"]: row["verdict"] for row in found["rows"]} == {"broken": "failed", "absent": "nothing to change"}
    assert "KeyError: 'a name'" in next(row["why"] for row in found["rows"] if row["fix"] == "broken")
    assert found["together"] is None
    assert found["steps_per_run"] >= 20
    assert {run["steps"] for run in found["runs"][:1]} == {19}
    assert found["steps_of_turn"] >= 1
    assert "a line of the program" not in done.stdout + done.stderr
    assert "a line of the program" in (tmp_path / "out" / "trials" / "1" / "output.log").read_text()
    assert (tmp_path / "out" / "treat.html").is_file()
    assert (tmp_path / "program.py").read_text() == PROGRAM
    report = json.loads(next((tmp_path / "out" / "trials" / "2" / "agents").glob("*.json")).read_text())
    assert report["stopped"]
    assert len(report["treated"]["losses"]) == found["steps_per_run"]
    assert len(report["treated"]["checksum"]) == 64
    compared = subprocess.run(
        [sys.executable, "-m", "perfdoctor", "compare", "out/trials/1", "out/trials/2", "--no-html", "--json", "-"],
        capture_output=True, text=True, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    shown = json.loads(compared.stdout)
    assert shown["step"]["before"]["mean_ns"] == pytest.approx(found["runs"][0]["mean_ns"])
    assert "BEFORE: out/trials/1 is a trial of the untreated program." in shown["notes"]


@ALL_AT_ONE
@pytest.mark.torch
def test_the_exit_code_of_a_program_that_fails_is_its_own(tmp_path: Path) -> None:
    done = treat(tmp_path, "--fix", "set_to_none", "-o", "out", "--", warm_python(tmp_path), "program.py", "fail")
    assert done.returncode == 1
    assert "fails without any fix: exit code 1: no data" in done.stderr


@ALL_AT_ONE
@pytest.mark.torch
def test_what_was_proven_before_the_program_fails_is_written(tmp_path: Path) -> None:
    program = PROGRAM.replace(
        "for _ in range",
        """
with open("starts", "a") as starts:
    print(file=starts)
    if starts.tell() > 5:
        sys.exit("no space")
for _ in range""",
    )
    done = treat(
        tmp_path, "--fix", "collect_rarely", "-o", "out", "--in-turn", "--", warm_python(tmp_path), "program.py",
        program=program,
    )  # fmt: skip
    assert done.returncode == 1
    assert "fails without any fix: exit code 1: no space" in done.stderr
    found = json.loads((tmp_path / "out" / "treat.json").read_text())
    assert found["rows"][0]["pairs"] >= 1
    assert found["notes"] == [
        "The program failed without any fix: exit code 1: no space. This is what was known by then."
    ]
    assert "This is what was known by then." in " ".join(done.stdout.split())


def test_a_command_that_is_not_there_ends_as_a_shell_does(tmp_path: Path) -> None:
    assert treat(tmp_path, "--", "no-such-program").returncode == 127
    assert not list(tmp_path.glob("perfdoctor-runs"))


@pytest.mark.parametrize(("text", "wanted"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("30", 30)])
def test_a_budget_has_a_unit(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


@pytest.mark.parametrize(("words", "said"), [
    (["--fix", "loader_worker"], "loader_workers"), (["--fix", "xyzzy"], "perfdoctor treat --list"),
    (["--only", "input-wiat"], "input-wait"),
])  # fmt: skip
def test_an_unknown_fix_or_rule_is_refused_before_anything_is_made(tmp_path: Path, words: list[str], said: str) -> None:
    done = treat(tmp_path, *words, "--", sys.executable, "program.py")
    assert (done.returncode, said in done.stderr) == (2, True)
    assert [each.name for each in tmp_path.iterdir()] == ["program.py"]


@pytest.mark.parametrize("text", ["", "m", "10 minutes", "-5"])
def test_a_budget_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        seconds(text)


def test_variables_are_names_and_values() -> None:
    assert _variables(["OUT=/tmp/{trial}", "X="]) == {"OUT": "/tmp/{trial}", "X": ""}
    with pytest.raises(typer.BadParameter):
        _variables(["OUT"])


@pytest.mark.parametrize(("shown", "gpu"), [("", ""), ("-1", ""), ("0", "a GPU"), (None, "a GPU")])
def test_a_gpu_that_the_program_is_not_shown_is_none(
    shown: str | None, gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "find", lambda: nvml.Devices((nvml.DriverGpu(0, "a GPU", "", 0),)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    variables = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    asked = Asked(
        (sys.executable, "program.py"), 60, (), ("pin_memory",), None, False, variables, True, False, False, 0, True
    )
    assert Treating(asked, {}, tmp_path / "out").machine(DiagnosedRun()).gpu == gpu


@pytest.mark.parametrize(
    ("recorded", "here", "gpu"),
    [
        ("NVIDIA H100", "NVIDIA A100", "NVIDIA A100"), ("NVIDIA H100", "", ""), ("", "NVIDIA A100", ""),
        ("AMD Instinct MI300X", "", "AMD Instinct MI300X"),
    ],
)  # fmt: skip
def test_a_run_that_is_named_may_be_of_a_machine_with_another_gpu(
    recorded: str, here: str, gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "find", lambda: nvml.Devices((nvml.DriverGpu(0, here, "", 0),) if here else ()))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = [{"name": recorded}] if recorded else []
    run = diagnosed(json.dumps({"run": {"gpus": gpus, "world_size": 1}}).encode())
    asked = Asked((sys.executable, "x.py"), 60, (), (), tmp_path / "run", False, {}, True, False, False, 0, True)
    assert Treating(asked, {}, tmp_path / "out").machine(run).gpu == gpu


@pytest.mark.parametrize("command", ["torchrun --nproc-per-node gpu x.py", "mpirun -np 4 python x.py"])
def test_a_fix_of_ranks_that_is_named_is_tried_where_the_command_does_not_say_how_many(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "find", nvml.Devices)
    asked = Asked((*command.split(),), 60, (), ("ddp_large_buckets",), None, False, {}, True, False, False, 0, True)
    machine = Treating(asked, {}, tmp_path / "out").machine(DiagnosedRun())
    assert [each.name for each in arms(catalogue.shipped(), (), machine, fixes=asked.fixes)[0]] == ["ddp_large_buckets"]


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("torchrun --nproc-per-node 4 x.py", 4), ("torchrun --nproc_per_node=2 x.py", 2), ("python x.py", 0),
        ("torchrun --nproc-per-node gpu x.py", 0), ("torchrun --nnodes 2 --nproc-per-node 1 x.py", 0),
    ],
)  # fmt: skip
def test_torchrun_says_how_many_ranks_there_are(words: str, ranks: int) -> None:
    assert _launched_ranks(words.split()) == ranks
