"""`perfdoctor attach` on trainings that were started plainly: is what it finds right, and is nothing left behind?

With the torch of PERFDOCTOR_TORCH_PYTHON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from running import Running, awaited, needs_ptrace, running
from torch_python import torch_python

_TRAINING = """
import gc, os, signal, sys, threading, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
data = torch.randn(4096, 64)

def state():
    owners = torch.nn.Module, torch.optim.Optimizer, torch.autograd, torch.autograd.profiler, torch.profiler.profile
    return {
        "hooks": [str(each) for owner in owners for each in vars(owner).values()],
        "post": len(sys.modules['torch.optim.optimizer']._global_optimizer_post_hooks),
        "modules": sorted(name for name in sys.modules if "perfdoctor" in name),
        "path": list(sys.path), "environment": dict(os.environ), "gc": (gc.isenabled(), gc.callbacks[:], gc.get_threshold()),
        "handlers": [str(signal.getsignal(each)) for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)],
        "names": sorted(globals()), "finders": [str(each) for each in sys.meta_path], "threads": threading.active_count(),
    }

number = 0
before = loss = None
signal.signal(signal.SIGUSR1, lambda *_: print("SAME", [name for name, was in before.items() if state()[name] != was], flush=True))
def train():
    global number, before, loss
    while True:
        if number == 30:
            before = state()
            print("begun", flush=True)
        loss = model(data[number % 64 * 64 :][:64]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        number += 1
train()
"""
_IN_A_THREAD = _TRAINING.replace("\ntrain()", "\n(other := threading.Thread(target=train)).start()\nother.join()")
_ASLEEP = "import time, torch; print('begun', flush=True); time.sleep(100)"


@pytest.fixture(autouse=True)
def _ptrace() -> None:
    needs_ptrace()


def _attach(program: Running, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    out = folder / "run"
    return subprocess.run(
        [sys.executable, "-m", "perfdoctor.cli.main", "attach", str(program.pid), "-o", str(out), "--no-save", *words],
        capture_output=True, text=True, cwd=folder, timeout=100, check=False,
    )  # fmt: skip


def _leftovers(program: Running) -> str:
    """What the program itself finds changed."""
    program.process.send_signal(signal.SIGUSR1)
    assert awaited(lambda: "SAME" in program.output)
    return program.output


@pytest.mark.parametrize("code", [_TRAINING, _IN_A_THREAD], ids=["main thread", "another thread"])
def test_a_window_of_a_running_training_is_diagnosed_and_nothing_stays_in_it(tmp_path: Path, code: str) -> None:
    with running(tmp_path, code, python=torch_python()) as program:
        for number in range(2):
            again = tmp_path / str(number)
            again.mkdir()
            done = _attach(program, again, "--steps", "8", "--no-sampling")
            assert done.returncode == 0, done.stderr
            diagnosis = json.loads((again / "run" / "diagnosis.json").read_text())
            assert diagnosis["run"]["steps"]["count"] == 8
            assert diagnosis["run"]["steps"]["marked_by"] == "optimizer"
            assert "stood still for" in done.stderr or sys.version_info >= (3, 14)
            assert ("its main thread waits: attached by" in done.stderr) == (code is _IN_A_THREAD)
        manifest = json.loads((again / "run" / "run.json").read_text())
        assert manifest["passes"][0]["state"] == "done"
        # Kineto itself writes this, once, where its first window is not in the thread that has imported torch.
        said = [line for line in _leftovers(program).splitlines() if "must run in same thread" not in line]
        assert said == ["begun", "SAME []"]
        assert program.end() == -signal.SIGTERM
    assert not list(Path("/tmp").glob(f"perfdoctor-attach-*/{program.pid}.py"))


def test_an_attach_that_is_killed_leaves_the_program_as_it_was(tmp_path: Path) -> None:
    with running(tmp_path, _TRAINING, python=torch_python()) as program:
        process = subprocess.Popen(
            [sys.executable, "-m", "perfdoctor.cli.main", "attach", str(program.pid), "-o", str(tmp_path / "run"),
             "--steps", "1000000", "--no-sampling"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        report = tmp_path / "run" / "agents" / f"torch-{program.pid}.json"
        assert awaited(lambda: report.exists() and json.loads(report.read_text())["state"] == "recording")
        process.kill()
        process.wait()
        assert awaited(lambda: json.loads(report.read_text())["ended"])
        assert awaited(lambda: not list(Path(tempfile.gettempdir()).glob(f"perfdoctor-attach-*/*{program.pid}*")))
        time.sleep(0.5)
        assert _leftovers(program) == "begun\nSAME []\n"


def test_a_program_that_ends_meanwhile_ends_as_it_would(tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    code = _TRAINING.replace("while True:", f"while not os.path.exists({str(enough)!r}):")
    code += "\nprint('last')\nsys.exit(5)"
    with running(tmp_path, code, python=torch_python()) as program:
        report = tmp_path / "run" / "agents" / f"torch-{program.pid}.json"

        def has_begun() -> bool:
            return report.exists() and json.loads(report.read_text())["state"] == "recording"

        def end() -> None:
            assert awaited(has_begun)
            time.sleep(1)  # some of the steps, of a millisecond each
            enough.touch()

        ending = threading.Thread(target=end)
        ending.start()
        done = _attach(program, tmp_path, "--steps", "1000000", "--no-sampling")
        ending.join()
        assert program.process.wait(30) == 5
        assert program.output == "begun\nlast\n"
    assert done.returncode == 0, done.stderr  # what was recorded until then is diagnosed


def test_a_program_that_sleeps_is_not_disturbed_and_is_described_from_outside(tmp_path: Path) -> None:
    with running(tmp_path, _ASLEEP, python=torch_python()) as program:
        done = _attach(program, tmp_path, "--timeout", "2")
        assert done.returncode == 1
        assert "ran no Python for 2 s" in done.stderr
        assert "low confidence" in done.stdout
        seen = json.loads((tmp_path / "run" / "outside.json").read_text())
        assert seen["confidence"] == "low"
        assert seen["processes"][0]["stands_still"].endswith("<module>")
        assert program.is_alive
        assert program.output == "begun\n"


def test_a_program_without_torch_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with running(tmp_path, "print('begun', flush=True); import time; time.sleep(100)") as program:
        done = _attach(program, tmp_path, "--timeout", "2")
        assert done.returncode == 1
        assert "has not loaded torch" in done.stderr
    assert not (tmp_path / "run" / "run.json").exists()
    assert os.environ.get("PERFDOCTOR_AGENT") is None
