"""What goes to other tools goes there, and whatever a tracker does, neither the reports nor the exit code suffer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.test_run import TRAINING
from folders import FIXTURES, ROOT
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner
from warm_torch import ALL_AT_ONE, warm_python

from perfdoctor.cli import outside
from perfdoctor.cli.main import app

TRACE = FIXTURES / "input-bound-single-process" / "torch"
#: Packages of the trackers' names, and what comes of them.
FAKES = {
    "raises": ("raise ValueError('no\\nserver')", "--log mlflow: ValueError: no server"),
    "asks": ("input('password: ')", "--log mlflow: EOFError: EOF when reading a line"),
    "exits": ("import sys; sys.exit(7)", "--log mlflow: exit code 7"),
    "dies": ("import os; print('Segmentation fault', flush=True); os._exit(139)", "--log mlflow: Segmentation fault"),
    "lies": ('print(\'{"where": "everywhere"}\')', "--log mlflow: AttributeError"),
}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Write a package with the name of a tracker, which comes before the real one."""

    def made(source, name="mlflow"):
        folder = tmp_path / "fakes"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT / "src")]))

    return made


def ran(*arguments, code=0):
    done = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="perfdoctor")
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.mark.parametrize("how", FAKES)
def test_whatever_a_tracker_does_costs_two_lines(how, fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fake(FAKES[how][0])
    target, metrics = tmp_path / "diagnosis.json", tmp_path / "a.prom"
    done = ran("analyze", TRACE, "--log", "mlflow", "--metrics", metrics, "--json", target, code=1)
    said = [line for line in done.stderr.splitlines() if "--log" in line]
    assert said[0].startswith(f"perfdoctor: {FAKES[how][1]}")
    assert said[1:] == ["  → Log it later: perfdoctor analyze … --log mlflow."]
    assert "password" not in done.stdout  # what a tracker prints goes nowhere
    assert json.loads(target.read_text())["findings"]
    assert "input-wait" in done.stdout
    assert metrics.exists()  # the one does not keep the other from its work


def test_a_tracker_that_hangs_is_ended_with_all_that_it_started(fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outside, "_MOST_SECONDS", 3.0)
    note = tmp_path / "pid"
    fake(
        f"import subprocess, time; p = subprocess.Popen(['sleep', '600']); open({str(note)!r}, 'w').write(str(p.pid)); time.sleep(600)"
    )
    done = ran("analyze", TRACE, "--no-html", "--log", "mlflow", code=1)
    assert "perfdoctor: --log mlflow: no answer for 3 s\n" in done.stderr
    for _ in range(100):
        if not (state := alive(int(note.read_text()))):
            break
        time.sleep(0.1)
    assert not state


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_tracker_that_is_not_there_is_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    marker = tmp_path / "ran"
    for name in ("mlflow", "wandb", "tensorboard"):
        done = ran("run", "--log", name, "--", "touch", marker, code=1)
        assert done.stderr.splitlines() == [
            f"perfdoctor: --log {name} needs a package that is not installed: {name}",
            f"  → pip install {name}",
        ]
    assert not marker.exists()


@pytest.mark.parametrize("name", ["comet", "", "mlflow=somewhere", "MLFLOW", "os"])
def test_there_are_three_trackers(name):
    done = ran("analyze", TRACE, "--log", name, code=2)
    assert done.stderr.splitlines() == [
        f"perfdoctor: --log {name}: there is no such tracker", "  → Known: mlflow, wandb, tensorboard[=FOLDER].",
    ]  # fmt: skip


@pytest.mark.torch
@ALL_AT_ONE
@pytest.mark.parametrize("ending", ["raise SystemExit(5)", pytest.param("", marks=pytest.mark.thorough)])
def test_a_run_writes_metrics_and_keeps_its_exit_code_whatever_a_tracker_does(ending, fake, tmp_path):
    fake(FAKES["exits"][0])
    target, program = tmp_path / "own.prom", tmp_path / "t.py"
    program.write_text(TRAINING + ending)
    command = [sys.executable, "-m", "perfdoctor.cli.main", "run", "-o", tmp_path / "run", "--no-html", "--no-save"]
    done = subprocess.run(
        [*command, "--log", "mlflow", "--metrics", target, "--", warm_python(tmp_path), program],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == (5 if ending else 0), done.stderr
    assert done.stdout == "done\n"
    assert "perfdoctor: --log mlflow: exit code 7\n  → Log it later" in done.stderr
    values = {
        family.name: family.samples[0].value for family in text_string_to_metric_families(target.read_text("utf-8"))
    }
    assert values["perfdoctor_exit_code"] == done.returncode
    assert values["perfdoctor_analysed_steps"] > 0
    assert values["perfdoctor_gpus"] == 0
