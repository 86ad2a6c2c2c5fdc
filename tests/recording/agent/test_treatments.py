"""The treatments that come with perfdoctor, in a program with this torch: none fails, and the program trains on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from warm_torch import ALL_AT_ONE, warm_python

from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow
from perfdoctor.treatments import catalogue

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

PROGRAM = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 4)

    def forward(self, images):
        seen = checkpoint(self.first, images, use_reentrant=False)
        return self.last(seen.mean((2, 3)))


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
data = TensorDataset(torch.randn(512, 3, 8, 8), torch.randint(4, (512,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
for images, labels in loader:
    optimizer.zero_grad(set_to_none=False)
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
print("finished")
"""
#: Of a group the first; compiling takes a minute, and another precision is another training.
LEFT_OUT = {
    "one_worker",
    "one_thread",
    "foreach_optimizer",
    "compile_model",
    "compile_graphs",
    "autocast_bf16",
    "double_batch",
}
TOUCHED = {
    "loader_workers", "fused_optimizer", "set_to_none", "anomaly_off", "keep_activations", "channels_last",
    "collect_rarely", "glibc_keeps_memory",
}  # fmt: skip


def start(folder: Path, names: list[str], **facts: object) -> subprocess.Popen[str]:
    known = catalogue.shipped()
    values = {"cores": 2, "ranks": 1, "threads": 2, "workers": 2, "device": "cpu"}
    treated = {
        "treatments": [{"name": name, "file": known[name].file, "values": values} for name in names],
        "end_after": 12, "nudge": False, "bitwise": False, **facts,
    }  # fmt: skip
    (folder / "agents").mkdir(parents=True)
    (folder / "program.py").write_text(PROGRAM)
    environment = torch_profiler.environment(
        os.environ, PassSettings("treated", folder, ""), StepWindow(steps=0), reports=folder / "agents", nccl=None,
        treated=treated,
    )  # fmt: skip
    command = [warm_python(folder), str(folder / "program.py")]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def ended(program: subprocess.Popen[str], folder: Path) -> dict[str, object]:
    printed, _ = program.communicate(timeout=240)
    assert program.returncode == 0, printed
    assert "finished" not in printed
    report = next(
        each for each in map(json.loads, (f.read_text() for f in (folder / "agents").glob("*.json"))) if each["stopped"]
    )
    assert report["steps_seen"] == 12
    return report["treated"]


def test_all_treatments_of_a_cpu_together_train_what_the_untreated_program_trains(tmp_path: Path) -> None:
    known = catalogue.shipped()
    names = [
        name for name, each in known.items() if name not in LEFT_OUT and not {"cuda", "ranks", "numa"} & set(each.needs)
    ]
    programs = {
        "plain": start(tmp_path / "plain", []),
        "treated": start(tmp_path / "treated", names),
        "moved": start(tmp_path / "moved", [], nudge=True),
    }
    plain, treated, moved = (ended(program, tmp_path / name) for name, program in programs.items())
    assert treated["errors"] == {}
    assert {name for name, count in treated["touched"].items() if count} >= TOUCHED
    assert len(plain["losses"]) == 12
    assert treated["losses"] == pytest.approx(plain["losses"], rel=1e-4)
    assert moved["losses"][0] == plain["losses"][0]
    assert moved["losses"] != plain["losses"]
    assert moved["losses"] == pytest.approx(plain["losses"], rel=1e-3)
    assert plain["parameter_bytes"] == sum((8 * 3 * 9 + 8, 8 * 4 + 4)) * 4
