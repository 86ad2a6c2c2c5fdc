"""Does what docs/in-your-code.md shows record what it says? Each example runs as it stands, in a training of some layers."""

from __future__ import annotations

import doctest
import importlib
import json
import re
from pathlib import Path

import pytest
from folders import ROOT
from recording.inside.test_recording import MODEL, run
from warm_torch import ALL_AT_ONE

from perfdoctor.readers.open import read

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

PAGE = (ROOT / "docs" / "in-your-code.md").read_text("utf-8")
OF_TORCH = PAGE.partition("\n## In a trainer")[0]
EXAMPLES = re.findall(r"```python\n(.*?)```", OF_TORCH, re.DOTALL)
AROUND = """
model.train(), torch.set_num_threads(1)
loader = torch.utils.data.DataLoader(torch.ones(400, 32), batch_size=8)
def train_step(*given):
    optimizer.zero_grad()
    model(given[-1]).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_records_what_it_says(tmp_path: Path, example: str) -> None:
    called = "train(model, loader)\n" if "def train(" in example else ""
    ended = run(tmp_path, f"{MODEL}{AROUND}{example}{called}")
    assert (ended.code, ended.errors.count("perfdoctor: nothing")) == (0, 0), ended.errors
    runs = list((tmp_path / "perfdoctor-runs").glob("*"))
    is_watched = "perfdoctor.watch(" in example
    assert len(runs) == (is_watched or "perfdoctor.record(" in example)
    if is_watched:
        assert json.loads((runs.pop() / "watch.json").read_text())["ranks"][0]["steps"] == 50
    for folder in runs:
        ended.folder = folder
        assert ended.steps() == 10
        assert (folder / "report.html").is_file()


#: What is around the loops of these programs, as they name it.
NANO_GPT = """
from contextlib import nullcontext
out_dir, gradient_accumulation_steps, ctx, iter_num, max_iters = "out", 2, nullcontext(), 0, 60
scaler = torch.amp.GradScaler("cpu", enabled=False)
layers = model
def model(X, Y):
    return X, layers(X).mean()
def get_batch(split):
    return torch.ones(8, 32), None
X, Y = get_batch("train")
"""
TORCHTITAN = """
import types
class Trainer:
    job_config = types.SimpleNamespace(job=types.SimpleNamespace(dump_folder="out"))
    def train(self):
        data_iterator = iter(range(60))
        for _ in range(60):
            self.train_step(data_iterator)
    def train_step(self, data_iterator):
        next(data_iterator)
        train(1)
sys.modules["torchtitan"] = types.ModuleType("torchtitan")
sys.modules["torchtitan.train"] = types.SimpleNamespace(Trainer=Trainer)
"""


@pytest.mark.parametrize("module", ["marks", "recording"])
def test_examples_of_docstrings(module: str) -> None:
    done = doctest.testmod(importlib.import_module(f"perfdoctor.recording.inside.{module}"))
    assert done.attempted >= 2
    assert done.failed == 0


@pytest.mark.parametrize(("name", "around"), [("nanoGPT", NANO_GPT), ("torchtitan", TORCHTITAN)])
def test_the_snippet_for_a_trainer_records_its_updates(tmp_path: Path, name: str, around: str) -> None:
    section = PAGE.partition(f"\n### {name}\n")[2]
    example = section.partition("```python\n")[2].partition("```")[0]
    called = "RecordedTrainer().train()\n" if name == "torchtitan" else ""
    ended = run(tmp_path, MODEL + around + example + called)
    (ended.folder,) = (tmp_path / "out").iterdir()
    assert (ended.code, ended.steps()) == (0, 10), ended.errors
    assert json.loads(next((ended.folder / "agents").iterdir()).read_text())["step_found_by"] == "range"
    updates = [each for each in read([ended.folder]).ranges.name if each.startswith("Optimizer.step#")]
    assert len(updates) == 10
