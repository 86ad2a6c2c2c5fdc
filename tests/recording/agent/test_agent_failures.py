"""What is recorded, and what is said, where torch is not as the agent expects it? The program runs on in any case."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from folders import ROOT
from guest_source import tree
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow

sys.path.append(str(torch_profiler.AGENT))
from perfdoctor_agent import private

PROGRAM = "import torch\nprint('mine', torch.__version__)\nraise SystemExit(3)\n"
TRAINING = """
import sys
{break_it}
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained")
"""


def perfdoctor_run(folder: Path, torch: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    """Run a program whose torch is a file with this text."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(torch, "utf-8")
    (folder / "program.py").write_text(program, "utf-8")
    return subprocess.run(
        [
            sys.executable, "-m", "perfdoctor.cli.main", "run", "--passes", "torch", "--no-html", "-o", "run", "--",
            sys.executable, "program.py",
        ],
        cwd=folder, text=True, capture_output=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip


def reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def test_an_agent_that_cannot_start_is_reported_with_its_reason_and_the_program_runs_on(tmp_path: Path) -> None:
    done = perfdoctor_run(tmp_path, "__version__ = '9.9'\n")
    assert (done.returncode, done.stdout) == (3, "mine 9.9\n")
    why = "perfdoctor's agent did not start: AttributeError: "
    (record,) = json.loads((tmp_path / "run" / "run.json").read_text())["passes"]
    assert len(record["notes"]) == 1
    assert record["notes"][0].startswith(why)
    assert why in " ".join(done.stderr.split())
    assert "imported torch" not in done.stderr
    (report,) = reports(tmp_path / "run" / "agents")
    assert (report["state"], report["torch"]) == ("failed", "9.9")


@pytest.mark.parametrize("wrong", ["import no_such_module", "1/0", "raise SystemExit(4)", "def"])
def test_a_torch_that_cannot_be_imported_fails_as_without_the_agent(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(wrong)
    (tmp_path / "t.py").write_text("import torch")
    settings = json.dumps({"pass": "torch", "reports": str(tmp_path)})
    seen = [
        subprocess.run(
            [sys.executable, "-B", "t.py"], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **more},
            check=False,
        )
        for more in ({}, {"PYTHONPATH": str(torch_profiler.AGENT), "PERFDOCTOR_AGENT": settings})
    ]  # fmt: skip
    assert (seen[0].returncode, seen[0].stderr) == (seen[1].returncode, seen[1].stderr)


def test_an_agent_that_cannot_even_wait_for_torch_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / "agent" / "perfdoctor_agent"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise SyntaxError('too old')")
    hook = (torch_profiler.AGENT / "sitecustomize.py").read_text()
    (broken.parent / "sitecustomize.py").write_text(hook)
    environment = torch_profiler.environment(
        os.environ, PassSettings("torch", tmp_path, "cpu"), StepWindow(), reports=tmp_path, nccl=None
    )
    environment["PYTHONPATH"] = str(broken.parent)
    done = subprocess.run([sys.executable, "-c", "print(1)"], env=environment, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"1\n", b"")
    (report,) = reports(tmp_path)
    assert report["notes"] == ["perfdoctor's agent did not start: SyntaxError: too old"]


def recorded(folder: Path, break_it: str) -> tuple[dict[str, Any], str]:
    """The report of a training with a torch that was broken before the agent saw it, and what it printed."""
    for name in ("agents", "torch"):
        (folder / name).mkdir()
    (folder / "train.py").write_text(TRAINING.format(break_it=break_it), "utf-8")
    environment = torch_profiler.environment(
        os.environ, PassSettings("torch", folder / "torch", "cpu"), StepWindow(steps=4, skip=3), reports=folder / "agents",
        nccl=None,
    )  # fmt: skip
    code, output, errors = Program([folder / "train.py"], folder, environment).finish()
    assert (code, errors) == (0, "")
    (report,) = reports(folder / "agents")
    return report, output


#: torch itself needs all others in this training.
DELETED = (private.LOADER_ITERATOR, private.MARK, private.KINETO_PROFILE, private.IS_ENABLED)
HIDING = """
from perfdoctor_agent import private
found = private.find
private.find = lambda torch, path: None if path == {path!r} else found(torch, path)
"""


@pytest.mark.torch
@ALL_AT_ONE
@pytest.mark.parametrize("path", private.LOST)
def test_a_private_name_that_torch_lacks_costs_its_part_and_not_the_recording(tmp_path: Path, path: str) -> None:
    owner, _, name = path.rpartition(".")
    deleting = f"delattr(sys.modules['torch.{owner}'], {name!r})"
    report, output = recorded(tmp_path, deleting if path in DELETED else HIDING.format(path=path))
    assert output == "trained\n"
    assert (report["state"], report["steps_recorded"]) == ("written", 4)
    (note,) = report["notes"]
    assert note.endswith(f"has no {path}: {private.LOST[path]}")


def test_each_private_name_that_the_agent_uses_of_others_stands_in_the_table() -> None:
    known = {part for path in (*private.LOST, *private.LOST_LATER) for part in path.split(".")}
    used = {
        name
        for file in torch_profiler.AGENT.rglob("*.py")
        for node in ast.walk(tree(file))
        for name in [_attribute(node) or _text(node)]
        if re.fullmatch(r"_[A-Za-z]\w*", name)
    }
    assert used - known == {
        "_filename_map",
        "_children",
        "_frozen_importlib",
        "_initializing",
        "_exit",
        "_getframe",
        "_current_frames",
        "_prefetch",
    }  # IPython's, Python's, and what advice is recognised by


def _attribute(node: ast.AST) -> str:
    """The attribute of an object that is not the agent's own; else nothing."""
    if not isinstance(node, ast.Attribute):
        return ""
    is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "hooks")
    return "" if is_own or isinstance(node.value, ast.Call) else node.attr


def _text(node: ast.AST) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""
