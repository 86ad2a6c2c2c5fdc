"""Windows of real trainers: transformers, Lightning, Ignite and accelerate, on the CPU, as docs/in-your-code.md shows them.

They run where PERFDOCTOR_PROGRAMS_PYTHON names a Python that has them (benchmarks/programs/requirements.txt).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from folders import ROOT

from perfdoctor.readers.open import read
from perfdoctor.recording.inside.report_process import PYTHON
from perfdoctor.recording.tools import torch_profiler

pytestmark = pytest.mark.xdist_group("trainers")

PAGE = (ROOT / "docs" / "in-your-code.md").read_text("utf-8")

MODEL = """
import sys, torch
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(4000, 16), torch.randn(4000, 1))
loader = torch.utils.data.DataLoader(data, batch_size=8)
layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
def loss_of(rows, targets):
    return torch.nn.functional.mse_loss(layers(rows), targets)
"""
TRANSFORMERS = """
from transformers import Trainer, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = layers
    def forward(self, rows, labels=None):
        return {"loss": torch.nn.functional.mse_loss(self.layers(rows), labels)}
model = Model()
data = [{"rows": rows, "labels": labels} for rows, labels in data]
args = TrainingArguments(
    output_dir="out", max_steps=STEPS, per_device_train_batch_size=8, gradient_accumulation_steps=2, use_cpu=True,
    report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
)
"""
LIGHTNING = """
import lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = layers
    def training_step(self, batch, _):
        return loss_of(*batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
model = Model()
quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
quiet |= {"max_steps": STEPS, "accumulate_grad_batches": 2, "default_root_dir": "out", "devices": 1}
"""
IGNITE = """
from ignite.engine import Events, create_supervised_trainer
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
trainer = create_supervised_trainer(layers, optimizer, torch.nn.functional.mse_loss, gradient_accumulation_steps=2)
trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2 * STEPS), trainer.terminate)
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, project_dir="out", gradient_accumulation_steps=2)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(layers, optimizer, loader)
import itertools
loader = itertools.islice(loader, 2 * STEPS)
"""


def python() -> str:
    found = os.environ.get("PERFDOCTOR_PROGRAMS_PYTHON")
    if not found:
        pytest.skip("no Python with trainers: set PERFDOCTOR_PROGRAMS_PYTHON")
    return found


def documented(name: str) -> str:
    """The example of a section."""
    section = PAGE.partition(f"\n### {name}\n")[2]
    (code,) = re.findall(r"```python\n(.*?)```", section.partition("\n### ")[0].partition("\n## ")[0], re.DOTALL)
    return str(code)


def run(
    folder: Path, script: str, steps: int = 70, ranks: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    file = folder / "train.py"
    file.write_text(f"STEPS = {steps}\n{MODEL}{textwrap.dedent(script)}", "utf-8")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    known = {name: value for name, value in os.environ.items() if name != torch_profiler.VARIABLE}
    done = subprocess.run(
        [python(), *launcher, str(file)], cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        env={**known, PYTHON: sys.executable, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    return done


def run_folder(out: Path) -> Path:
    (runs,) = (each for each in out.iterdir() if each.name in {"perfdoctor-runs", "_perfdoctor"})
    (found,) = runs.iterdir()
    return found


def reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((folder / "agents").glob("*.json"))]


CASES = {
    "transformers": (TRANSFORMERS, "out", 2),
    "Lightning": (LIGHTNING, "out/lightning_logs/version_0", 2),
    "Ignite": (IGNITE, "checkpoints", 2),
    "accelerate": (ACCELERATE, "out", 2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_documented_window_is_recorded_and_reported_in_the_trainers_folder(tmp_path: Path, name: str) -> None:
    setup, out, forwards = CASES[name]
    example = documented(name).replace("lightning.Trainer(", "lightning.Trainer(**quiet, ")
    done = run(tmp_path, setup + example)
    folder = run_folder(tmp_path / out)
    (report,) = reports(folder)
    found_by = "optimizer" if name in ("Ignite", "accelerate") else "range"
    assert (report["steps_recorded"], report["step_found_by"]) == (10, found_by), report
    assert report["steps_seen"] == 50 - 1 + 10
    assert (folder / "report.html").is_file(), done.stderr
    assert json.loads((folder / "diagnosis.json").read_text())["run"]["steps"]["count"] == 10
    names = list(read([folder]).ranges.name)
    assert sum(each.startswith("Optimizer.step#") for each in names) == 10
    assert names.count("forward") == names.count("backward") == 10 * forwards


@pytest.mark.parametrize("name", CASES)
def test_all_ranks_record_into_one_folder(tmp_path: Path, name: str) -> None:
    setup, out, _ = CASES[name]
    setup = setup.replace('"devices": 1', '"devices": 2, "strategy": "ddp"')
    if name == "Ignite":
        setup = (
            f"import ignite.distributed as idist\nidist.initialize('gloo')\nlayers = idist.auto_model(layers)\n{setup}"
        )
    run(tmp_path, setup + documented(name).replace("lightning.Trainer(", "lightning.Trainer(**quiet, "), ranks=2)
    folder = run_folder(tmp_path / out)
    assert sorted(file.name for file in (folder / "torch").iterdir()) == [
        f"rank{rank}.pt.trace.json.gz" for rank in (0, 1)
    ]
    assert [each["rank"] for each in json.loads((folder / "run.json").read_text())["ranks"]] == [0, 1]
    assert [each["rank"] for each in json.loads((folder / "diagnosis.json").read_text())["time"]] == [0, 1]
    assert read([folder]).world_size == 2


def test_pytorch_lightning_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "pytorch_lightning.py").write_text("class Callback: pass")
    script = """
import sys
sys.modules["lightning"] = None  # not installed
from perfdoctor.integrations.lightning import PerfdoctorCallback
import pytorch_lightning
assert issubclass(PerfdoctorCallback, pytorch_lightning.Callback)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True, timeout=60)


def test_lightning_modules_that_step_optimizers_by_themselves_are_recorded(tmp_path: Path) -> None:
    by_hand = """
        optimizer = self.optimizers(use_pl_optimizer=False)
        optimizer.zero_grad()
        self.manual_backward(loss_of(*batch))
        optimizer.step()
    automatic_optimization = False
"""
    setup = LIGHTNING.replace("        return loss_of(*batch)\n", by_hand.lstrip("\n"))
    setup = setup.replace(
        '"max_steps": STEPS, "accumulate_grad_batches": 2', '"max_epochs": 1, "limit_train_batches": STEPS'
    )
    script = """
from perfdoctor.integrations.lightning import PerfdoctorCallback
callback = PerfdoctorCallback(at_step=20, steps=10, output="run", report=False)
lightning.Trainer(**quiet, callbacks=[callback]).fit(model, loader)
"""
    run(tmp_path, setup + script)
    (report,) = reports(tmp_path / "run")
    assert (report["steps_recorded"], report["step_found_by"]) == (10, "range")


def test_push_to_hub_uploads_nothing_of_a_run_folder(tmp_path: Path) -> None:
    run(
        tmp_path,
        TRANSFORMERS
        + """
import inspect, re
from pathlib import Path
from huggingface_hub.utils import filter_repo_objects
from perfdoctor.integrations.transformers import PerfdoctorCallback
Trainer(model, args, train_dataset=data, callbacks=[PerfdoctorCallback(at_step=4, steps=2, report=False)]).train()
files = [str(file.relative_to("out")) for file in Path("out").rglob("*") if file.is_file()]
assert any(file.endswith("run.json") for file in files), files
assert '["_*", f"{PREFIX_CHECKPOINT_DIR}-*"]' in inspect.getsource(Trainer)
left = list(filter_repo_objects(files, ignore_patterns=["_*", "checkpoint-*"]))
assert not any("run.json" in file or "trace" in file for file in left), left
""",
        steps=20,
    )


def test_a_training_that_ends_before_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, IGNITE + documented("Ignite"), steps=7)
    (line,) = (line for line in done.stderr.splitlines() if "perfdoctor" in line)
    assert "it ended after 7 steps, and the first 49 are skipped" in line


@pytest.mark.parametrize(("name", "found_by"), [("transformers", "range"), ("Ignite", "optimizer")])
def test_under_perfdoctor_run_a_trainer_only_marks_its_steps(tmp_path: Path, name: str, found_by: str) -> None:
    for folder in ("agents", "torch"):
        (tmp_path / folder).mkdir()
    recording = torch_profiler.PassSettings("torch", tmp_path / "torch", "cpu")
    known = torch_profiler.settings(recording, torch_profiler.StepWindow(4, 3), reports=tmp_path / "agents")
    around = {torch_profiler.VARIABLE: json.dumps(known), "PYTHONPATH": f"{torch_profiler.AGENT}:{ROOT / 'src'}"}
    run(tmp_path, CASES[name][0] + documented(name), steps=20, **around)
    assert not list(tmp_path.rglob("perfdoctor-runs"))
    (report,) = reports(tmp_path)
    assert (report["steps_recorded"], report["step_found_by"]) == (4, found_by)


def test_callbacks_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import copy, pickle
from perfdoctor.integrations import lightning, transformers
for kind in (lightning, transformers):
    callback = kind.PerfdoctorCallback(at_step=4)
    pickle.loads(pickle.dumps(callback))
    callback._begin("out", callback)
    assert callback.recording is not None and copy.deepcopy(callback).recording is None
    callback._end()
""",
    )
